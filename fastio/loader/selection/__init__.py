"""Turns what a user passes to a loader into one dataset and one BatchSampler: which samples, in which batches."""
