"""Routes for who operates the service: health and metrics."""
