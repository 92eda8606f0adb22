"""
The map from the samples of one store to those of another with the same keys, made once and kept.

It lies beside the other store as ``<name>.<8 digits>.fastio-index``, or in the cache directory where that cannot be
written to or the store is behind a URL: an array ``rows`` (n,) of int32 or int64 (absent if each sample is the one at
its own place), ``metadata`` as JSON, a header and the seal, as other indexes beside files. The metadata say which two
contents it belongs to (the identity of each store), whether keys count without extensions, and how many keys did not
match. A map of other contents is made anew, since another store took the name; a damaged one is, too, and a warning
says so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.errors import StoreCorrupt, StoreError, StoreNotFound
from fastio.store.beside.match import KeyMatch, Odd, match_keys
from fastio.store.files import open_file
from fastio.store.foreign.sidecar import index_places, publish_sidecar
from fastio.store.index.seal import SEAL_SIZE, Expected, IndexHeader, always_at, find_seal
from fastio.store.index.sealed import bytes_from, check_array, read_arrays
from fastio.store.index.store import SealedStore
from fastio.types.schema import Schema

__all__ = ["map_of"]

_FORMAT = "besd"
_RULES = 1  # by which keys match; a map that was made by others is not used
_REMAKE = "it is made anew"
_LOG = logging.getLogger(__name__)


def map_of(first: SealedStore, other: SealedStore, *, stems: bool = False) -> KeyMatch:
    """
    Return how the samples of ``first`` and ``other`` match (see ``match_keys``): as it is kept, or by matching all keys
    now.

    Raises StoreError where the files for matching cannot be written.
    """
    bound = _bound(first, other, stems=stems)
    places = index_places(other.path, f".{crc32(_mark(first, stems=stems)):08x}", f"{first.path}{' stems' * stems}")
    for place in places:
        kept = _read(place, bound, len(first), len(other))
        if kept is not None:
            return kept
    try:
        match = match_keys(first, other, stems=stems)
    except OSError as exc:
        raise StoreError(
            f"{other.path}: its keys cannot be matched with those of {first.path} ({exc.strerror or exc}): free "
            "space in TMPDIR, or set it to another folder"
        ) from exc
    _keep(places, match, bound, other.path)
    return match


def _mark(first: SealedStore, *, stems: bool) -> bytes:
    return first.path.rpartition("/")[2].encode("utf-8", "surrogateescape") + b"\0stems" * stems


def _bound(first: SealedStore, other: SealedStore, *, stems: bool) -> dict[str, Any]:
    """What a map belongs to."""
    return {
        "rules": _RULES,
        "stems": stems,
        "first": {"identity": first.identity, "samples": len(first)},
        "other": {"identity": other.identity, "samples": len(other)},
    }


def _keep(places: list[str], match: KeyMatch, bound: Mapping[str, Any], path: str) -> None:
    odd = {name: {"count": each.count, "first": list(each.first)} for name, each in _odds(match).items()}
    metadata = json.dumps({**bound, "odd": odd}).encode("ascii")
    arrays: dict[str, NDArray[Any]] = {"metadata": np.frombuffer(metadata, np.uint8)}
    if match.rows is not None:
        arrays["rows"] = match.rows
    for place in places:
        try:
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            publish_sidecar(place, _FORMAT, Schema(()), bound["first"]["samples"], arrays)
        except (StoreError, OSError) as exc:
            _LOG.debug("%s: the map of its keys is not kept in %s: %s", path, place, exc)
        else:
            return


def _odds(match: KeyMatch) -> dict[str, Odd]:
    return {"missing": match.missing, "extra": match.extra, "double": match.double}


def _read(place: str, bound: Mapping[str, Any], samples: int, others: int) -> KeyMatch | None:
    """Return a map that is kept; None if there is none, or one of other stores, or if it is damaged."""
    try:
        file = open_file(place, "map")
        seal = find_seal(place, file.size, partial(bytes_from, file), always_at(-SEAL_SIZE), advice=_REMAKE)
        raw = file.read(seal.header_start, seal.header_start + seal.header_size)
        if not seal.is_of(_FORMAT) or crc32(raw) != seal.header_crc:
            raise StoreCorrupt(f"{place}: its header is damaged, or that of another kind of file: {_REMAKE}")
        header = IndexHeader.from_bytes(raw.tobytes(), path=place)
        arrays = read_arrays(file, header.places, advice=_REMAKE)
        check_array(place, arrays, "metadata", Expected("|u1", (None,)), advice=_REMAKE)
        said = json.loads(arrays["metadata"].tobytes())
        if {name: said.get(name) for name in bound} != bound:
            _LOG.info("%s: is the map of other contents than those of the stores now: made anew", place)
            return None
        odd = {name: Odd(int(each["count"]), tuple(map(str, each["first"]))) for name, each in said["odd"].items()}
        return KeyMatch(_rows(place, arrays, samples, others), odd["missing"], odd["extra"], odd["double"])
    except StoreNotFound:
        return None
    except (StoreError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        _LOG.warning("%s: the map of keys cannot be used and is made anew: %s", place, exc)
        return None


def _rows(place: str, arrays: Mapping[str, NDArray[Any]], samples: int, others: int) -> NDArray[Any] | None:
    rows = arrays.get("rows")
    if rows is None:
        return None
    dtype = rows.dtype.str if rows.dtype in (np.int32, np.int64) else "<i4"
    check_array(place, arrays, "rows", Expected(dtype, (samples,)))
    if len(rows) and not -1 <= int(rows.min()) <= int(rows.max()) < others:
        raise StoreCorrupt(f"{place}: names samples that there are not: {_REMAKE}")
    return rows
