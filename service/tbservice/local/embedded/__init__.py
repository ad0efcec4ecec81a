"""PostgreSQL and the S3 server SeaweedFS, from their wheels, in one data directory."""
