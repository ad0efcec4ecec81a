"""Usage and quotas of workspaces."""
