"""The documentation of this version, for readers of a service that has no network."""
