"""Back up the database and the objects of a running service, verify a backup, and restore it."""
