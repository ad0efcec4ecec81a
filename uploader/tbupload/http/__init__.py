"""The client of the server's HTTP API: transport, retries, limits on answers, calls."""
