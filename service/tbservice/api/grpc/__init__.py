"""gRPC: a second transport over the same use cases, grants and shares as HTTP."""
