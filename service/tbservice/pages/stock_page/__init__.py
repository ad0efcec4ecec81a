"""What surrounds TensorBoard's page: access, bar, messages, downloads."""
