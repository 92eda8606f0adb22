"""What a store of a version holds, as JSON: keys, checksums of the bytes and of the decoded samples, saved states."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fastio import FastDataset, FastLoader, LengthBucketSampler, open_store
from fastio.store.protocol import read_values
from fastio.transforms import CenterCrop

__all__ = ["describe_store", "fingerprint", "go_on", "saved_states"]

_BATCH_SIZE, _SEED, _BEGUN = 4, 7, 3  # of loaders whose states are kept; batches before the state
_CROP = 32


def describe_store(path: Path) -> dict[str, Any]:
    """Return keys, classes, schema, receipt, and per sample the fingerprints of its bytes and of what it decodes to."""
    with open_store(path) as store:
        indices = np.arange(len(store))
        values = {field.name: read_values(store, field.name, indices) for field in store.schema.payload}
        receipt = store.receipt()
        described = {
            "keys": store.keys(indices),
            "classes": store.metadata.get("classes"),
            "schema": store.schema.to_json(),
            "receipt": None if receipt is None else f"{receipt:016x}",
            "stored": {name: [_crc(bytes(view)) for view in spans.views()] for name, spans in values.items()},
        }
        picture = store.schema.picture
        is_wide = picture is not None and store.shapes(picture.name)[:, :2].min() >= _CROP
    with FastDataset(path) as dataset:
        described["decoded"] = [fingerprint(dataset[index]) for index in range(len(dataset))]
    if is_wide:
        with FastLoader(path, 2, transforms=[CenterCrop(_CROP)]) as loader:
            described["cropped"] = [fingerprint(batch) for batch in loader]
    return described


def saved_states(path: Path) -> list[dict[str, Any]]:
    """Return states of loaders in the middle of an epoch, each with the batches that are to come after it."""
    states = []
    for options in ({"shuffle": True}, {"shuffle": "full"}, {"buckets": True}, {"shuffle": True, "world_size": 2}):
        with _loader(path, **options) as loader:
            batches = iter(loader)
            for _ in islice(batches, _BEGUN):
                pass
            state = json.loads(json.dumps(loader.state_dict()))
        states.append({"options": options, "state": state, "batches": go_on(path, options, state)})
    return states


def go_on(path: Path, options: Mapping[str, Any], state: Mapping[str, Any]) -> list[str]:
    """Return the fingerprints of the batches that a new loader gives once it has loaded this state."""
    with _loader(path, **options) as loader:
        loader.load_state_dict(state)
        return [fingerprint(batch) for batch in loader]


def fingerprint(value: Any) -> str:
    """Return eight digits that depend on types, shapes and every bit of a sample or batch."""
    return _crc(_bytes_of(value))


def _loader(path: Path, *, buckets: bool = False, **options: Any) -> FastLoader:
    if buckets:
        lengths = FastDataset(path).column("length")
        sampler = LengthBucketSampler(lengths, batch_size=_BATCH_SIZE, seed=_SEED)
        return FastLoader(path, batch_sampler=sampler, collate="pad")
    ranks = {"rank": 1} if "world_size" in options else {"rank": 0, "world_size": 1}
    return FastLoader(path, _BATCH_SIZE, seed=_SEED, collate="pad", **ranks, **options)


def _crc(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, Image.Image):
        return value.mode.encode() + _bytes_of(np.asarray(value))
    if isinstance(value, torch.Tensor):
        return b"tensor" + _bytes_of(value.numpy())
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    if isinstance(value, Mapping):
        return b"{" + b",".join(_bytes_of(name) + b":" + _bytes_of(value[name]) for name in sorted(value)) + b"}"
    if isinstance(value, str | bytes):
        return repr(value).encode()
    if isinstance(value, Sequence):
        return b"[" + b",".join(map(_bytes_of, value)) + b"]"
    return repr(value).encode()
