"""Which samples come when, and on which rank: orders, batches of equal size, of similar length, of a token budget."""
