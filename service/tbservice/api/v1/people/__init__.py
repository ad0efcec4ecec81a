"""Routes for people: workspaces, members, invitations, tokens, logins."""
