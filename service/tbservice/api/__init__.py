"""The HTTP API: parse the request, call one use case, encode the answer. No SQL, no rules."""
