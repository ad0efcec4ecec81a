"""Read records that are too large to be loaded: over 8 MiB (`STREAMED_RECORD_BYTES_MIN`)."""
