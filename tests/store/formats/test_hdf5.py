"""HDF5 stores, and what plain h5py makes of them."""

from __future__ import annotations

import io
import random
from pathlib import Path

import h5py
import numpy as np
import pytest

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.formats.hdf5 import USER_BLOCK, _AroundPayload, _create, _payload
from fastio.store.index.seal import SEAL_SIZE
from fastio.types.schema import COLUMN, RAW, Field, Schema
from fastio.types.spans import Spans
from tests.store.build import METADATA, make_samples, make_spans, write
from tests.store.conformance import StoreConformance


class TestHdf5(StoreConformance):
    """The conformance suite on HDF5."""

    suffix = ".h5"

    def regions(self, data: bytes) -> list[int]:
        """Superblock, root group, user block, and the object headers behind the payload."""
        behind = data.rindex(b"OHDR")
        return [
            *super().regions(data),
            *range(200, USER_BLOCK, 97),
            *range(USER_BLOCK, 4800, 3),
            *range(behind, behind + 99),
        ]

    def padding(self, spans: Spans) -> int | None:
        """An object header behind the payload."""
        return int(spans.starts[1] + spans.sizes[1]) + 16


def test_other_suffix(tmp_path: Path) -> None:
    """A name that ends in .hdf5 is the same format."""
    with open_store(write(tmp_path / "out.hdf5", {"a": b"1"})) as store:
        assert store.format == "hdf5"


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_plain_h5py(tmp_path: Path, count: int) -> None:
    """h5py finds payload, labels and keys by index."""
    samples = make_samples(count)
    path = write(tmp_path / "out.h5", samples)
    with h5py.File(path) as h5:
        for i, (key, value) in enumerate(samples.items()):
            start, size = h5["image_starts"][i], h5["image_sizes"][i]
            assert value == h5["data"][start : start + size].tobytes()
            assert (key, i) == (h5["keys"].asstr()[i], h5["label"][i])
        assert h5["data"].shape == (sum(map(len, samples.values())),)
        assert h5["data"].chunks is None
        if count:
            assert isinstance(h5["keys"].asstr()[0], str)


def test_raw_arrays_are_the_classical_dataset(tmp_path: Path) -> None:
    """Raw arrays of one shape are one dataset under the field's name."""
    arrays = np.random.default_rng(0).integers(0, 256, (9, 4, 5, 3), np.uint8)
    with create_store(tmp_path / "out.h5", Schema((Field("image", RAW, "|u1", (4, 5, 3)),))) as writer:
        for part in (slice(0, 4), slice(4, 9)):
            keys = [f"{i}" for i in range(part.start, part.stop)]
            writer.append(SampleBatch(keys, {"image": make_spans([a.tobytes() for a in arrays[part]])}))
    with h5py.File(tmp_path / "out.h5") as h5:
        assert np.array_equal(arrays, h5["image"][:])
        assert "data" not in h5


def test_one_long_key_does_not_widen_all(tmp_path: Path) -> None:
    """A few long keys among many short ones are kept joined by NUL."""
    samples = {**{f"{i:04d}": b"" for i in range(2000)}, "x" * 4000: b""}
    path = write(tmp_path / "out.h5", samples)
    with h5py.File(path) as h5:
        assert list(samples) == h5["keys"][:].tobytes().decode().split("\0")
    with open_store(path) as store:
        assert list(samples) == store.keys(range(2001))


def test_place_of_the_payload_does_not_depend_on_its_size() -> None:
    """The rehearsal with one byte tells where any number of bytes comes to lie."""
    places = set()
    for size in (1, 2, 7, 511, 2047, 2048, 2049, 4096, 10_000, 1 << 20):
        with _create(io.BytesIO()) as h5:
            places.add(_payload(h5, "data", shape=(size,), dtype=np.dtype("u1")))
    assert len(places) == 1


def test_h5py_may_not_change_a_store(tmp_path: Path) -> None:
    """A store that h5py changed is refused."""
    path = write(tmp_path / "out.h5", make_samples(20))
    with h5py.File(path, "r+") as h5:
        h5.attrs["note"] = "changed"
    with pytest.raises(StoreCorrupt, match=r"out\.h5"):
        open_store(path)


def _hostile(path: Path, kind: str) -> None:
    """An HDF5 file whose bytes lie elsewhere."""
    secret = path.with_name("secret.bin")
    secret.write_bytes(random.Random(0).randbytes(4096))
    with h5py.File(path, "w", userblock_size=USER_BLOCK) as h5:
        if kind == "external storage":
            h5.create_dataset("data", (4096,), "u1", external=[(str(secret), 0, 4096)])
        elif kind == "external link":
            h5["data"] = h5py.ExternalLink(str(secret), "/data")
        else:
            layout = h5py.VirtualLayout((4096,), "u1")
            layout[:] = h5py.VirtualSource(str(secret), "data", (4096,), "u1")
            h5.create_virtual_dataset("data", layout)


@pytest.mark.parametrize("kind", ["external storage", "external link", "virtual dataset"])
def test_bytes_of_other_files_are_refused(tmp_path: Path, kind: str) -> None:
    """Files that point elsewhere are refused: without a seal, and with one that was pasted in."""
    path = tmp_path / "out.h5"
    _hostile(path, kind)
    with pytest.raises(StoreIncomplete, match="holds no array"):
        open_store(path)
    real = Path(write(tmp_path / "real.h5", {"a": b"1" * 4096})).read_bytes()
    data = path.read_bytes()
    path.write_bytes(real[:SEAL_SIZE] + data[SEAL_SIZE:])
    with pytest.raises(StoreError, match=r"out\.h5"):
        open_store(path)
    path.write_bytes((real[:SEAL_SIZE] + data[SEAL_SIZE:]).ljust(len(real), b"\0")[: len(real)])
    with pytest.raises(StoreCorrupt, match=r"out\.h5"):
        open_store(path)


def test_strings_are_code_points(tmp_path: Path) -> None:
    """Whoever reads with h5py finds code points for a column of strings."""
    schema = Schema((Field("name", COLUMN, "<U3", ()),))
    with create_store(tmp_path / "out.h5", schema) as writer:
        writer.append(SampleBatch(["a", "b"], {}, {"name": np.array(["né", "abc"])}))
    with h5py.File(tmp_path / "out.h5") as h5:
        rows = h5["name"][:]
    assert [[110, 233, 0], [97, 98, 99]] == rows.tolist()
    assert "né" == rows[0].tobytes().decode("utf-32-le").rstrip("\0")


def test_metadata_are_readable(tmp_path: Path) -> None:
    """Whoever has h5py only can read the classes, too."""
    path = write(tmp_path / "out.h5", {"a": b"1"})
    with h5py.File(path) as h5:
        assert h5["metadata"][:].tobytes().startswith(b'{"classes":["cat"')
    with open_store(path) as store:
        assert dict(store.metadata) == METADATA


def test_own_names_for_h5py() -> None:
    """What h5py calls is in the class itself: while an error is pending, Python finds nothing in its bases."""
    called = {"seek", "tell", "readinto", "write", "truncate", "flush"}
    assert called <= set(vars(_AroundPayload))
