"""Differences of a database that is a Citus cluster."""
