"""The contract of uploader and service: messages, formats, and rules that both must apply alike."""
