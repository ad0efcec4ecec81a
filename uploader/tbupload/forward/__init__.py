"""Forward gRPC calls of programs that can send neither a token nor TLS."""
