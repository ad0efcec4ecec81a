"""Find and watch the runs and event files of a log directory."""
