"""The server: stores uploads in PostgreSQL and S3; serves samples, blobs and TensorBoard's page."""
