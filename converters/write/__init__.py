"""Writes stores from Python: ``fastio.Writer`` takes samples one by one, ``fastio.pack`` takes whole datasets."""
