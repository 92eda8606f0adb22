"""FastLoader and DevicePrefetcher: batches of a store, prepared ahead of the training loop."""
