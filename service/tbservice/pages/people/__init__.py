"""Pages of people and workspaces: account, members, tokens, settings."""
