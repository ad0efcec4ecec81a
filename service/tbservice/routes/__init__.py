"""HTTP in, HTTP out: decode, call one domain function, encode. No SQL, no rules."""
