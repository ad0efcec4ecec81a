"""Read experiments: catalog, samples, full scans, changes, digests, and several side by side."""
