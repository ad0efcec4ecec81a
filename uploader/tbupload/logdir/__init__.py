"""The runs and event files of a log directory, and watching them for changes."""
