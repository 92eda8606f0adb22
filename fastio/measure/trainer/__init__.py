"""Networks to measure with, and their training step: a yardstick, not a framework."""
