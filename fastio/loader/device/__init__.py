"""Brings batches to the device: copies on a side stream, pinned staging, transforms after the copy."""
