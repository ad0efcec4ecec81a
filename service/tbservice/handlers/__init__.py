"""Processes for work on untrusted data, without secrets and with limits of time and memory.

A process is killed when its client disconnects.
"""
