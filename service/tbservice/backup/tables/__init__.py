"""The state of the database that is backed up."""
