"""Follow a log directory from a script, with an uploader process in the background."""
