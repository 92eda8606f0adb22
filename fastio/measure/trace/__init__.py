"""Traces and profiles: where the time of a training step goes."""
