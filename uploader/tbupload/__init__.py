"""The client: reads event files where a training job writes them, and sends what is new to a tbhub server."""
