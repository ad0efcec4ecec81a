"""Decide who may do what: grants, tokens, secrets, workspaces."""
