"""Finds the fastest settings of a loader on this machine."""
