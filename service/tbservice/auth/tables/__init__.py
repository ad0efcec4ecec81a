"""The tables of people, workspaces, sessions and tokens."""
