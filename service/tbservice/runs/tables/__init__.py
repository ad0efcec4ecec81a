"""Queries for the table of runs."""
