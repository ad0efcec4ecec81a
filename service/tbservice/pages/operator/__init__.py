"""The pages of an operator: what administrators see and do by commands."""
