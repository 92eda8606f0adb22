"""Writing packed files: the one writer of all formats, and how its files get their names."""
