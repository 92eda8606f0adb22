"""Loader settings: which of them is fastest on this machine."""
