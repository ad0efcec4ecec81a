"""The HTTP API: parse the request, call one use case, encode the response. No SQL, no rules."""
