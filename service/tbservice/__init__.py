"""The server: takes batches in, keeps them in PostgreSQL and S3, and answers with samples, blobs and the stock page."""
