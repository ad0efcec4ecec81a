"""The tables of Katib's trials and observation logs."""
