"""Authorize callers: tokens, their secrets, workspaces, and the grants that they give."""
