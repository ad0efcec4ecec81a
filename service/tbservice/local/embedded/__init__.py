"""A real PostgreSQL and a real S3 server from their wheels, in one data directory."""
