"""The training loop: what it loads, how long it waits, how long it trains, and which of the two limits it."""
