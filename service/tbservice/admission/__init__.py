"""Admission control: how much of a worker process each caller may use at once, and what happens above that.

A caller is a workspace, or a client address without a valid token. Every request passes `middleware.AdmissionMiddleware`, which
takes from these shares (`worker_shares.WorkerShares`):

- turns: requests being worked on, in a thread and with a database connection. More wait in a queue that serves callers
  in rotation, so that a caller with hundreds of requests delays its own.
- body bytes, decoded bytes and unread answer bytes: memory that clients can make a process hold.
- streams and live tails: answers that take long by nature.

A caller over its share gets 429 with `Retry-After`; other callers are not affected.
"""
