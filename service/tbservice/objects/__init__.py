"""Objects in S3: calls, outages, and the tables that name them."""
