"""Encoded pictures while they are packed: headers, start points, and what rewrites them."""
