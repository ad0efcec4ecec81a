"""Sample series: uniform, by rule, and of rows."""
