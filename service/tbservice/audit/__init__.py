"""The audit log: who did what, when and from where. The acts of all packages are recorded here."""
