"""The option ``verify``: whether samples are compared with their checksums."""

from __future__ import annotations

__all__ = ["check_verify", "resolve_verify"]


def check_verify(verify: object) -> bool:
    """Return ``verify``. Raises ValueError unless it is True or False."""
    if verify is True or verify is False:
        return verify
    raise ValueError(f"verify={verify!r}: expected True (compare every sample with its checksum) or False")


def resolve_verify(verify: bool | None, *, dataset_verify: bool) -> bool:
    """
    Decide whether a loader compares samples: as it was told, or if it was not, as its dataset does.

    >>> resolve_verify(None, dataset_verify=True), resolve_verify(False, dataset_verify=True)
    (True, False)
    """
    return dataset_verify if verify is None else check_verify(verify)
