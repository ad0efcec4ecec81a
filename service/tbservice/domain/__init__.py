"""The rules, as plain functions on plain values: each takes a grant, and passes the connection through."""
