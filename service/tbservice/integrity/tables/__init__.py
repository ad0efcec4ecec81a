"""All that an experiment has, in pages; blobs that nothing refers to."""
