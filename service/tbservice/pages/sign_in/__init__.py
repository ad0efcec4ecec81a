"""Pages to sign in: links, providers, logins of a command."""
