"""Start points of stores behind URLs: read ahead with the samples, used where they are there, needed nowhere."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fastio import FastDataset, FastLoader, Remote
from fastio.converters import open_source, pack
from fastio.store import open_store
from fastio.store.index import arrays
from fastio.transforms import RandomResizedCrop
from tests.servers.fault_server import Fault
from tests.servers.fixtures import Served

pytestmark = pytest.mark.usefixtures("no_hedging")
COUNT = 48
SET, FILE = "s.fastio-set", "s.lmdb"
ROWS = np.arange(COUNT)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos that get start points, packed as a set and as one file."""
    root = tmp_path_factory.mktemp("far")
    source = root / "photos"
    source.mkdir()
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        small = Image.fromarray(rng.integers(0, 256, (40, 50, 3), np.uint8))
        data = io.BytesIO()
        small.resize((400, 320)).save(data, "JPEG", quality=90)
        (source / f"{number:02d}.jpg").write_bytes(data.getvalue())
    for name in ("s-%d.tar", FILE):
        pack(open_source(source), root / name, shard_bytes=400_000 if "%" in name else None)
    return root


@pytest.fixture
def url(photos: Path, served: Served) -> str:
    """The folder of the packed photos, behind a server."""
    for path in photos.glob("s*.*"):
        (served.root / path.name).write_bytes(path.read_bytes())
    return served.url


def loader_of(path: Path | str) -> FastLoader:
    """Crops of all photos, in an order that lasts for many batches."""
    dataset = FastDataset(path, remote=Remote(download_retry=0))
    return FastLoader(dataset, 2, shuffle=True, seed=1, threads=1, transforms=[RandomResizedCrop(64)])


def epoch(path: Path | str) -> list[torch.Tensor]:
    """The batches of an epoch."""
    with loader_of(path) as loader:
        return [batch for batch, _ in loader]


def near_points(loader: FastLoader) -> int:
    """How many photos have their start points in memory."""
    points = loader.dataset.store.spans("image", ROWS).intervals
    return 0 if points is None else int(np.count_nonzero(points.sizes))


def faults_made(served: Served) -> int:
    """How many requests met a fault."""
    return sum(bool(request.fault) for request in served.server.requests())


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a few samples, so that most are looked up after the first batch."""
    monkeypatch.setattr("fastio.store.files.remote.remote_files.RemoteFiles.chunk_bytes", 1)


@pytest.mark.parametrize("whole", [0, 64 << 20], ids=["by unit", "once"])
@pytest.mark.parametrize("name", [SET, FILE])
def test_an_epoch(
    photos: Path, url: str, served: Served, monkeypatch: pytest.MonkeyPatch, name: str, whole: int
) -> None:
    """The pixels are those of the store on this machine, start points come meanwhile, and no request is uncounted."""
    monkeypatch.setattr("fastio.loader.producer.read_ahead._WHOLE_POINTS_BYTES", whole)
    got = []
    with loader_of(f"{url}/{name}") as loader:
        served.server.clear()
        for batch, _ in loader:
            got.append(batch)
            latest = time.monotonic() + 30
            while len(got) == 5 and near_points(loader) < COUNT and time.monotonic() < latest:
                time.sleep(0.01)  # a loop that does nothing else would end before they come
            assert len(got) < 5 or near_points(loader) == COUNT
        held = loader.stats.held
    requests = [request for request in served.server.requests() if request.method == "GET"]

    for expected, batch in zip(epoch(photos / name), got, strict=True):
        assert torch.equal(expected, batch)
    assert held is not None
    assert (held.requests, held.size_bytes) == (len(requests), sum(request.sent for request in requests))


@pytest.mark.parametrize("name", [SET, FILE])
def test_they_make_no_index_large(photos: Path, served: Served, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An index that is small without them is read at opening, as a whole: a first batch waits for its samples alone."""
    monkeypatch.setattr(arrays, "LARGE_FROM", 14_000)
    shards = ("s-%d.tar", 400_000) if name == SET else (FILE, None)
    pack(open_source(photos / "photos"), served.root / shards[0], shard_bytes=shards[1])
    with open_store(f"{served.url}/{name}") as store:
        lying = store.far_points("image", ROWS)
        assert lying is not None
        assert lying.spans.sizes.sum() > 14_000
        before = served.server.gets()
        store.spans("image", ROWS)
        store.keys([0, COUNT - 1])
        assert served.server.gets() == before


@pytest.mark.parametrize("name", [SET, FILE])
def test_they_are_those_of_the_store(photos: Path, url: str, name: str) -> None:
    """Word for word, once somebody holds them; none before, and none after."""
    with open_store(f"{url}/{name}") as far, open_store(photos / name) as near:
        expected, lying = near.spans("image", ROWS).intervals, far.far_points("image", ROWS)
        assert expected is not None
        assert lying is not None
        assert expected.sizes.all()
        assert expected.sizes.tolist() == lying.spans.sizes.tolist()
        assert near.far_points("image", ROWS) is None
        assert far.spans("image", ROWS).intervals is None

        held = lying.read_ahead()
        assert held.wait()
        got = far.spans("image", ROWS).intervals
        assert got is not None
        assert [view.tobytes() for view in expected.views()] == [view.tobytes() for view in got.views()]
        del held
        assert far.spans("image", ROWS).intervals is None


@pytest.mark.parametrize(
    "fault", [Fault(kind="status"), Fault(kind="flip", at=900), Fault(kind="hang", seconds=20)], ids=lambda f: f.kind
)
def test_they_are_needed_nowhere(photos: Path, url: str, served: Served, fault: Fault) -> None:
    """Requests for them that fail, do not end, or bring other bytes, change no pixel and end no epoch."""
    with loader_of(f"{url}/{SET}") as loader:
        served.server.set_faults(replace(fault, path=SET))
        got = []
        for batch, _ in loader:
            got.append(batch)
            latest = time.monotonic() + 30
            while len(got) == 5 and fault.kind != "hang" and not faults_made(served) and time.monotonic() < latest:
                time.sleep(0.01)
    assert fault.kind == "hang" or faults_made(served)
    for expected, batch in zip(epoch(photos / SET), got, strict=True):
        assert torch.equal(expected, batch)
