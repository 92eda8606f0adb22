"""Sets of shards: the set object that lists them, and what makes, merges and mends it."""
