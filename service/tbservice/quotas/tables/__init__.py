"""SQL of the tables of usage and quotas."""
