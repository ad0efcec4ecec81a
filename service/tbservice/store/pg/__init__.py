"""PostgreSQL: connections, transactions, pipelines, binary arrays, and migrations."""
