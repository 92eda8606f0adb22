"""The schemes of URLs that obstore reads."""

from __future__ import annotations

__all__ = ["OBSTORE_SCHEMES"]

OBSTORE_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss", "http", "https"})
