"""Routes for share links and tokens of an experiment."""
