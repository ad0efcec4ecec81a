"""All SQL and S3 calls of the service. The caller owns the transaction.

docs/architecture.md says which module has which table.
"""
