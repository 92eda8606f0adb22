"""Labels: files of them, which columns count, their values as numbers, pickles read as data."""
