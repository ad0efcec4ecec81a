"""Talk to the server: transport, retries, limits on answers, and the API's calls."""
