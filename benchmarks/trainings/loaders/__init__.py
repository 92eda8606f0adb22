"""One file for each loader: ``LOADERS``, by the name in the table and by training; ``pack(work)`` if it has a format."""
