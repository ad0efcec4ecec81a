"""Routes for reading: catalog, points, changes, digests, blobs."""
