"""Batches of samples of many fields: what becomes of each kind of field, and who begins them together."""
