"""Decode records to columns of points: in bulk by template, and one by one by protobuf."""
