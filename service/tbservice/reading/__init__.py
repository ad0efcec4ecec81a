"""Reading of experiments: catalog, samples, full scans, change feed, digests, comparisons."""
