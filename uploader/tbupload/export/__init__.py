"""Reading from a server: points, blobs, live tails, and exports of experiments to files."""
