"""Parts shared by our own pages: frame, forms, errors, sessions, static files."""
