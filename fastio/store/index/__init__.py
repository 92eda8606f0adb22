"""The index of a packed file: its seal and arrays, the one reader of all formats, and what verifies them."""
