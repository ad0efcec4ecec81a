"""Routes for uploaders: batches, blobs, records, hyperparameters."""
