"""Stores behind a web server whose answers change on their way: what is damaged is asked for once more."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from fastio.errors import StoreCorrupt, StoreError
from fastio.store import FORMATS, open_store
from fastio.store.index.seal import MAGIC
from tests.servers.fault_server import Fault, Request
from tests.servers.fixtures import Served
from tests.store.build import make_samples, write
from tests.store.version_1 import make_version_1

END_BYTES = 64 << 10  # of a file, which opening reads


def write_version_1(folder: Path) -> int:
    """Shards that know their set, ``x-0.tar`` and so on; how many."""
    write(folder / "x-%d.tar", make_samples(60), shard_bytes=40_000)
    return len(make_version_1(folder / "x-%d.tar"))


@pytest.mark.parametrize("at", [0, 8, 24, 96, 127])  # of the seal: its magic, version, a size, the plan, its checksum
@pytest.mark.parametrize("format_name", [*FORMATS, "version 1"])
def test_a_seal_that_arrives_with_a_flipped_bit(served: Served, format_name: str, at: int) -> None:
    """It is asked for once more, of that file alone, and the store opens."""
    name = hit = f"one.{format_name}"
    if format_name == "version 1":
        name, hit = f"x-{{0..{write_version_1(served.root) - 1}}}.tar", "x-1.tar"
    else:
        write(served.root / name, make_samples(60))
    usual = _requests(served, name)
    data = (served.root / hit).read_bytes()
    seal_start = data.index(MAGIC)
    end_start = max(0, len(data) - END_BYTES)
    is_in_end = seal_start >= end_start
    served.server.set_faults(
        Fault(
            kind="flip",
            at=at + seal_start - (end_start if is_in_end else 0),
            path=hit,
            skip=int(not is_in_end),
            count=1,
        )
    )
    most = 2 * len(usual) + 2  # without a seal: its head, and what tells whether it is cut off
    assert len(usual) < len(_requests(served, name)) <= most
    assert ["flip"] == [request.fault for request in served.server.requests() if request.fault]


def _requests(served: Served, name: str) -> list[Request]:
    """Those of opening a store, which has 60 samples."""
    before = len(served.server.requests())
    with open_store(f"{served.url}/{name}") as store:
        assert 60 == len(store)
    return served.server.requests()[before:]


def test_a_shard_that_is_damaged(served: Served) -> None:
    """Only that one is asked for again before the error; the others once, or not at all if its turn came first."""
    count = write_version_1(served.root)
    data = bytearray((served.root / "x-1.tar").read_bytes())
    data[data.index(MAGIC) + 24] ^= 1
    (served.root / "x-1.tar").write_bytes(data)
    with pytest.raises(StoreCorrupt, match=r"x-1.tar: the seal is damaged: expected CRC-32"):
        open_store(f"{served.url}/x-{{0..{count - 1}}}.tar")
    gets = [served.server.gets(f"/x-{number}.tar") for number in range(count)]
    assert 2 == gets.pop(1)
    assert set(gets) <= {0, 1}


def test_a_tar_of_another_tool(served: Served) -> None:
    """Nobody looks a second time for a seal that never was."""
    with tarfile.open(served.root / "other.tar", "w") as tar:
        tar.add(__file__, "a.py")
    with pytest.raises(StoreError, match=r"other.tar: has no seal of fastio: if another tool wrote it, index it"):
        open_store(f"{served.url}/other.tar")
    assert 1 == served.server.gets()
