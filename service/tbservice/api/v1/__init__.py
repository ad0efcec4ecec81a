"""The routes of `/api/v1`: upload batches and blobs; read series, points, changes and digests."""
