"""Surroundings of TensorBoard's page: access, bar, messages, downloads."""
