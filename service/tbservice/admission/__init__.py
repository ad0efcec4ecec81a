"""Admission control: how much of a worker process each caller may use at once.

A caller is an account, or a client address without a valid token. Every request first passes
`pacing.PacingMiddleware`, which delays or refuses those of a caller that sends too many a second,
before any work; and then `middleware.AdmissionMiddleware`, which counts it against these shares
(`worker_shares.WorkerShares`):

- turns: requests being worked on, in a thread and with a database connection. Further requests
  wait in a queue that serves callers in rotation, so that a caller with hundreds of requests
  delays only its own.
- body bytes, decoded bytes and unread response bytes: memory that clients can make a process use.
- streams and live tails: responses that are long by design.

A caller over its share gets 429 with `Retry-After`, some seconds late; other callers are not
affected.
"""
