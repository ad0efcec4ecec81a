"""Processes for work on untrusted data: bounded in time and memory, killed when nobody waits, without any secret."""
