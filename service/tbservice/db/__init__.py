"""Connections and transactions: at the primary, a replica or a node; migrations."""
