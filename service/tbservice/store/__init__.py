"""The only SQL and the only S3 calls: a file a table. The caller owns the transaction."""
