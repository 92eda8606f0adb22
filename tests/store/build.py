"""Builds small stores for tests: spans over bytes, schemas, and a store that has a bit of everything."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fastio._native import Buffers
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.index.store import SealedStore
from fastio.store.protocol import read_values
from fastio.types.schema import BYTES, COLUMN, IMAGE, Field, Schema
from fastio.types.spans import Spans

IMAGE_FIELD = Field("image", IMAGE, "|u1", (None, None, None))
LABELLED = Schema((IMAGE_FIELD, Field("label", COLUMN, "<i8", ())))
TWO_PAYLOADS = Schema((IMAGE_FIELD, Field("caption", BYTES, "|u1", (None,))))
METADATA = {"classes": ["cat", "dög"], "source": {"layout": "flat"}, "skipped": [{"key": "x.png", "problem": "empty"}]}


def make_spans(values: Sequence[bytes]) -> Spans:
    """Spans over the joined values, one buffer."""
    data = np.frombuffer(b"".join(values), np.uint8)
    sizes = np.array([len(value) for value in values], np.int64)
    return Spans(Buffers([data]), np.zeros(len(values), np.int32), np.cumsum(sizes) - sizes, sizes)


def make_batch(keys: Sequence[str], values: Sequence[bytes], labels: Sequence[int] | None = None) -> SampleBatch:
    """A batch of LABELLED; labels count from 0 unless given."""
    return SampleBatch(
        keys=keys,
        spans={"image": make_spans(values)},
        columns={"label": np.arange(len(keys)) if labels is None else np.array(labels, np.int64)},
    )


def write(
    path: str | Path,
    samples: Mapping[str, bytes],
    *,
    batch_size: int = 16,
    overwrite: bool = False,
    shard_bytes: int | None = None,
) -> str:
    """A store of LABELLED with these samples, labels counting from 0; its path."""
    keys, values = list(samples), list(samples.values())
    with create_store(path, LABELLED, overwrite=overwrite, shard_bytes=shard_bytes) as writer:
        for at in range(0, len(keys), batch_size):
            part = slice(at, at + batch_size)
            writer.append(make_batch(keys[part], values[part], list(range(at, min(at + batch_size, len(keys))))))
        writer.close(METADATA)
    return str(path)


def make_samples(count: int, *, seed: int = 0) -> dict[str, bytes]:
    """Samples of sizes on both sides of every border that a format has."""
    rng = random.Random(seed)
    sizes = [0, 1, 2, 511, 512, 513, 2012, 2013, 2014, 2015, 4080, 4081, 9000]
    return {
        f"dir {i % 3}/näme.{i:05d}.png": rng.randbytes(sizes[i] if i < len(sizes) else rng.randrange(3000))
        for i in range(count)
    }


def read_all(store: SealedStore, field: str = "image") -> dict[str, bytes]:
    """Every sample's bytes by key, in order."""
    indices = np.arange(len(store))
    spans = read_values(store, field, indices)
    return {key: spans.view(i).tobytes() for i, key in enumerate(store.keys(indices))}


def names(folder: str | Path) -> list[str]:
    """All names in a folder, sorted."""
    return sorted(path.name for path in Path(folder).iterdir())


def visible(folder: Path) -> list[str]:
    """Names in a folder that are not hidden."""
    return [name for name in names(folder) if not name.startswith(".")]


def hidden(folder: Path) -> list[str]:
    """Hidden names in a folder: partial files."""
    return [name for name in names(folder) if name.startswith(".")]


def read_labels(path: str) -> list[int]:
    """The label column of a store, read in whatever process this runs."""
    with open_store(path) as store:
        return [int(label) for label in store.column("label")]
