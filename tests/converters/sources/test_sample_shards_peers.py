"""MDS shards and chunks of LitData that these libraries wrote: what fastio packs is what they give back."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio import Remote
from fastio.converters import open_source, pack
from fastio.store import open_store
from fastio.store.folders import folder_of
from fastio.store.protocol import read_values
from tests.converters.trees import picture
from tests.servers.fixtures import Bucket

pytestmark = pytest.mark.filterwarnings("ignore")  # those of their libraries
COUNT = 1000


def sample(i: int) -> dict[str, Any]:
    """A sample with a value of each type that both keep."""
    return {
        "image": picture(i % 50) + b"\0" * (i % 7),
        "class": i % 10,
        "text": f"é {i}",
        "weight": i / 7,
        "tokens": np.arange(i % 11 + 2, dtype=np.int32),
        "box": np.full((2, 3), i, np.float32),
    }


def mds(folder: Path) -> Iterator[dict[str, Any]]:
    """Written and read by MosaicML Streaming."""
    pytest.importorskip("streaming", exc_type=ImportError)
    streaming = importlib.import_module("streaming")
    columns = {
        "image": "bytes",
        "class": "int",
        "text": "str",
        "weight": "float64",
        "tokens": "ndarray:int32",
        "box": "ndarray:float32:2,3",
    }
    with streaming.MDSWriter(out=str(folder), columns=columns, hashes=["sha1"], size_limit=1 << 16) as out:
        for i in range(COUNT):
            out.write(sample(i))
    dataset = streaming.LocalDataset(str(folder))
    return (dataset[i] for i in range(COUNT))


def litdata(folder: Path, names: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Written and read by LitData."""
    pytest.importorskip("litdata")
    library = importlib.import_module("litdata")
    cache = importlib.import_module("litdata.streaming.cache").Cache(str(folder), chunk_bytes=1 << 16)
    for i in range(COUNT):
        cache[i] = {name: value for name, value in sample(i).items() if not names or name in names}
    cache.done()
    cache.merge()
    dataset = library.StreamingDataset(str(folder))
    return (dataset[i] for i in range(COUNT))


def litdata_tables(folder: Path) -> Iterator[dict[str, Any]]:
    """Written and read by LitData, which keeps plain values in tables."""
    return litdata(folder, ("image", "class", "text", "weight"))


@pytest.mark.parametrize("write", [mds, litdata, litdata_tables])
def test_samples_are_those_of_the_library(
    write: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 samples, packed, in place and over S3: bytes, labels, text, numbers and arrays."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    theirs = list(write(tmp_path / "set"))
    pack(open_source(tmp_path / "set"), tmp_path / "o.lmdb")
    remote, _ = folder_of(f"{bucket.url}/set/", Remote(bucket.options))
    for path in (tmp_path / "set").iterdir():
        remote.put(path.name, path)
    for place in (tmp_path / "o.lmdb", tmp_path / "set", f"{bucket.url}/set"):
        compare(theirs, place, Remote(bucket.options))


def compare(theirs: list[dict[str, Any]], place: Any, remote: Remote) -> None:
    """The samples of a store are those of the library."""
    with open_store(place, remote=remote) as store:
        every = np.arange(COUNT)
        values = {
            f.name: [v.tobytes() for v in read_values(store, f.name, every).views()] for f in store.schema.payload
        }
        assert [each["image"] for each in theirs] == values["image"]
        assert [each["text"].encode() for each in theirs] == values["text"]
        assert theirs[0].keys() - {"class"} == {*values, "weight"}
        for name in values.keys() & {"tokens", "box"}:
            assert [np.asarray(each[name]).tobytes() for each in theirs] == values[name]
        assert [each["class"] for each in theirs] == store.column("label").tolist()
        assert [each["weight"] for each in theirs] == store.column("weight").tolist()
