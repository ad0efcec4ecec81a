"""The routes of /api/v1: batches and blobs in, points, metadata, changes and digests out."""
