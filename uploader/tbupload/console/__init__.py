"""Output on the terminal: escaped text and progress."""
