"""The fields of samples: their names, types and values, and what is wrong with them."""
