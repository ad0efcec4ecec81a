"""What our own pages share: frame, forms, errors, sessions, static files."""
