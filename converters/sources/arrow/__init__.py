"""Parquet and Arrow files as sources: reading, and columns as fields, labels or text."""
