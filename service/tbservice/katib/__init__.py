"""Katib's API v1beta1: observation logs of trials, suggestions and early stopping."""
