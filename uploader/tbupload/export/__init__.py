"""What comes from the server: points, blobs, and whole experiments."""
