"""Command-line options, one module per command: `add_options` and the `EPILOG` of its help."""
