"""What differs where the database is a Citus cluster."""
