"""FastLoader and DevicePrefetcher: batches of a store, made ahead of the training loop."""
