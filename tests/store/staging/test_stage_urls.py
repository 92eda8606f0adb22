"""Copies of stores behind URLs: a bad network delays them, and changes nothing."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from fastio.errors import StoreError
from fastio.store import FORMATS, create_shard, open_store
from fastio.store.files.remote_options import Remote
from fastio.store.sets.names import set_path
from fastio.store.sets.seal import seal_set
from fastio.store.staging import file_copy, stage
from tests.servers.fault_server import Fault
from tests.servers.fixtures import Served
from tests.store.build import LABELLED, make_batch, make_samples, write

BLOCK = 16_384
ONCE = Remote(download_retry=0)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks a shard."""
    monkeypatch.setattr(file_copy, "BLOCK_BYTES", BLOCK)


@pytest.fixture
def url(served: Served) -> str:
    """The URL of a set of two shards, of eight blocks each."""
    names = [f"in-{number:06d}.tar" for number in range(2)]
    for number, name in enumerate(names):
        with create_shard(served.root / name, LABELLED, plan=7, number=number) as writer:
            values = [np.random.default_rng(i + number).bytes(20_000) for i in range(6)]
            writer.append(make_batch([f"{number}/{i}.png" for i in range(6)], values))
    seal_set(set_path(str(served.root / "in-%06d.tar")), names, FORMATS["tar"], metadata=b"{}")
    return f"{served.url}/in.fastio-set"


def contents(folder: Path) -> dict[str, bytes]:
    """The visible files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


def test_set(url: str, served: Served, tmp_path: Path) -> None:
    """One GET a block, one more a shard, two for the set object; the second time one."""
    report = stage(url, str(tmp_path / "copy"))
    gets = served.server.gets(".tar"), served.server.gets(".fastio-set")
    again = stage(url, str(tmp_path / "copy"))

    assert contents(served.root) == contents(tmp_path / "copy")
    blocks = sum(-(-path.stat().st_size // BLOCK) for path in served.root.glob("*.tar"))
    assert (blocks + 2, 2) == gets  # the first byte of a file shows at the end that it is still the same
    assert (report.size_bytes, 0) == (report.fetched_bytes, again.fetched_bytes)
    assert gets == (served.server.gets(".tar"), served.server.gets(".fastio-set") - 1)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="flip", at=9000, path=".tar", count=3),
        Fault(kind="cut", at=5000, path=".tar", count=3),
        Fault(kind="status", status=503, path=".tar", count=3),
        Fault(kind="short", at=100, path=".tar", count=3),
        Fault(kind="shift", by=7, path=".tar", count=2),
    ],
    ids=lambda fault: fault.kind,
)
def test_faults_in_transit(fault: Fault, url: str, served: Served, tmp_path: Path) -> None:
    """What arrives damaged, short or not at all is brought once more."""
    served.server.set_faults(fault)
    stage(url, str(tmp_path / "copy"), jobs=4)

    assert contents(served.root) == contents(tmp_path / "copy")


def test_a_server_that_goes_away(url: str, served: Served, tmp_path: Path) -> None:
    """The error names the shard, and the next call fetches what is missing only."""
    served.server.set_faults(Fault(kind="status", status=503, path="in-000001.tar"))
    with pytest.raises(StoreError, match=r"in-000001\.tar"):
        stage(url, str(tmp_path / "copy"), options=ONCE, jobs=1)
    assert contents(tmp_path / "copy").keys() == {"in-000000.tar"}
    served.server.clear()
    stage(url, str(tmp_path / "copy"), options=ONCE)

    assert 0 == served.server.gets("in-000000.tar")
    assert contents(served.root) == contents(tmp_path / "copy")


def test_an_object_replaced_meanwhile(served: Served, tmp_path: Path) -> None:
    """Is named; no mixture gets a name, and the next call copies the new one from its first block."""
    path = write(served.root / "train.tar", make_samples(40, seed=1))
    blocks = 0

    def replace(_samples: int, _size_bytes: int) -> None:
        nonlocal blocks
        blocks += 1
        if blocks == 1:
            write(path, make_samples(40, seed=2), overwrite=True)
            os.utime(path, (0, 0))  # the server's ETags are sizes and seconds

    with pytest.raises(StoreError, match=r"train\.tar: was replaced or changed"):
        stage(f"{served.url}/train.tar", str(tmp_path / "copy"), jobs=1, meter=lambda _: nullcontext(replace))
    assert {} == contents(tmp_path / "copy")
    report = stage(f"{served.url}/train.tar", str(tmp_path / "copy"))

    assert {"train.tar": Path(path).read_bytes()} == contents(tmp_path / "copy")
    assert report.fetched_bytes == report.size_bytes
    with open_store(report.path) as store:
        assert 40 == len(store)
