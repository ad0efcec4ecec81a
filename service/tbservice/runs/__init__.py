"""The runs of a workspace as one table: which columns there are, filters, order and pages."""
