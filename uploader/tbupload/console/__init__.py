"""Write to the terminal: escaped text, progress, tables."""
