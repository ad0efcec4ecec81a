"""Follow a log directory from a script, by an uploader process in the background."""
