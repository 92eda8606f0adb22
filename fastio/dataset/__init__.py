"""FastDataset, and how one sample of a store becomes a picture, an array, tokens or text."""
