"""Measures what a machine and a training loop can do."""
