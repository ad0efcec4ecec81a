"""Prove that what a service stores is consistent, while it runs (`tbservice check`)."""
