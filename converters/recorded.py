"""The options that a store's pictures were packed with, as the store records them."""

from __future__ import annotations

from fastio.converters.raw import Raw
from fastio.converters.transcode import Transcode
from fastio.errors import StoreCorrupt
from fastio.store.sample_store import SampleStore

__all__ = ["is_lossless", "recorded"]


def recorded(store: SampleStore) -> Transcode | Raw | None:
    """Return the options that a store's pictures were packed with; None if they were kept unchanged."""
    said = store.metadata.get("packing")
    if not said:
        return None
    try:
        return Raw.from_json(said) if said.get("raw") else Transcode.from_json(said)
    except (AttributeError, TypeError, ValueError) as exc:
        raise StoreCorrupt(f"{store.path}: how it was packed is not recorded in fastio's form ({exc})") from exc


def is_lossless(pictures: Transcode | Raw) -> bool:
    """Return whether pictures stay encoded pictures with the same pixels."""
    return isinstance(pictures, Transcode) and pictures.is_lossless
