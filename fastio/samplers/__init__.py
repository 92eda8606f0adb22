"""Decides which samples come when, on which rank: orders, batches of equal size, similar length or token budgets."""
