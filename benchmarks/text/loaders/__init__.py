"""
One file a loader: ``LOADERS``, by the name in the table, then by training; ``PACKS`` by training if it has a format.

A loader is iterated for an epoch of pairs: what a batch holds, by names that the check of the training knows, and the
number of samples in it.
"""
