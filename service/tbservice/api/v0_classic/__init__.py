"""TensorBoard's first HTTP API (upstream: `tensorboard/http_api.md`) for scripts written for it."""
