"""Tables as sources: rows, columns and their types, values, and the files that they name."""
