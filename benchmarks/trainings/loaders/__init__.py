"""One file a loader: ``LOADERS``, by the name in the table, then by training; ``pack(work)`` if it has a format."""
