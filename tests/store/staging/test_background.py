"""Epochs that begin while their store is being copied: the samples of the store, whatever happens to the copy."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fastio import FastDataset, FastLoader
from fastio.errors import SampleError, StoreError
from fastio.loader.producer.read_ahead import HeldPlan, HeldReader
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.files.remote import disk, remote_files, remote_source
from fastio.store.files.remote_options import Remote
from fastio.store.index.seal import always_at
from fastio.store.index.store import SealedStore
from fastio.store.staging import file_copy, stage, staged_path
from fastio.store.staging import file_copy as movers
from fastio.store.staging import staged as background
from fastio.store.staging.file_copy import hidden_copy
from fastio.store.staging.plan import CopyContent
from fastio.store.staging.staged import BackgroundStage
from fastio.types.metrics import Staged
from fastio.types.schema import COLUMN, IMAGE, Field, Schema
from tests.conftest import as_spans, encode, pictures
from tests.servers.fault_server import Fault
from tests.servers.fixtures import Served

pytestmark = pytest.mark.usefixtures("no_hedging")
BLOCK = 16_384
COUNT = 90


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks a shard, which are copied at once."""
    monkeypatch.setattr(file_copy, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(background, "_HEAD_START_S", 0)


@pytest.fixture
def url(served: Served) -> str:
    """The URL of a set of pictures in some shards."""
    return write_set(served, COUNT, shard_bytes=60_000, labels=np.arange(COUNT))


def write_set(served: Served, count: int, *, shard_bytes: int, labels: NDArray[np.int64]) -> str:
    """The URL of a set of that many pictures."""
    values = [encode(pixels) for pixels in pictures(count, (16, 16, 3))]
    schema = Schema((Field("image", IMAGE, "|u1", (None, None, None)), Field("label", COLUMN, "<i8", ())))
    with create_store(served.root / "in-%06d.tar", schema, shard_bytes=shard_bytes) as writer:
        keys = [f"{number:04d}.png" for number in range(count)]
        writer.append(SampleBatch(keys, {"image": as_spans(values)}, {"label": labels}, {}))
        writer.close({"classes": None})
    return f"{served.url}/in.fastio-set"


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """Copying waits before each block until the semaphore is released."""
    blocks = threading.Semaphore(0)
    begin = movers.DownloadMover._begin

    def begin_in_turn(self: movers.DownloadMover, *args: Any) -> Any:
        while not blocks.acquire(timeout=0.01):
            self.pause(0)
        return begin(self, *args)

    monkeypatch.setattr(movers.DownloadMover, "_begin", begin_in_turn)
    yield blocks
    blocks.release(1_000)


def loader(path: Any, **options: Any) -> FastLoader:
    """A loader over all pictures, shuffled."""
    return FastLoader(FastDataset(path, remote=Remote(**options)), 16, shuffle=True, threads=1, seed=3)


def epoch(loader: FastLoader) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The batches of one epoch."""
    return [(images.clone(), labels.clone()) for images, labels in loader]


def assert_equal(expected: Any, got: Any) -> None:
    """Two epochs have the same tensors."""
    assert len(expected) == len(got)
    for (images, labels), (other_images, other_labels) in zip(expected, got, strict=True):
        assert torch.equal(images, other_images)
        assert torch.equal(labels, other_labels)


def copying(dataset: FastDataset) -> BackgroundStage:
    """What copies the store of a dataset."""
    assert isinstance(dataset.store, SealedStore)
    copy: Any = dataset.store.shards[0].data
    stage: BackgroundStage = copy.local_copy.stage
    return stage


def samples(store: Any) -> list[bytes]:
    """The bytes of all samples."""
    spans, status = store.files.fetch(store.spans("image", np.arange(COUNT))).wait()
    assert status is None
    return [view.tobytes() for view in spans.views()]


def contents(folder: Path) -> dict[str, bytes]:
    """The visible files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


def test_an_epoch_begins_at_once(url: str, served: Served, tmp_path: Path, held: threading.Semaphore) -> None:
    """Epochs before, while and after it is copied are those of the files; the last one sends no request."""
    copy = tmp_path / "copy"
    with loader(served.root / "in.fastio-set") as local, loader(url, stage=copy) as staged:
        expected = [epoch(local) for _ in range(4)]
        assert_equal(expected[0], epoch(staged))
        held.release(3)
        assert_equal(expected[1], epoch(staged))
        held.release(1_000)
        assert copying(staged.dataset).wait(120)
        before = served.server.gets()
        assert_equal(expected[2], epoch(staged))
        assert_equal(expected[3], epoch(staged))

    assert before == served.server.gets()
    assert contents(served.root) == contents(copy)


def test_what_was_fetched_is_not_fetched_again(
    url: str, served: Served, tmp_path: Path, held: threading.Semaphore
) -> None:
    """An epoch's samples go into the copy: only what lies between them comes once more."""
    with loader(url, stage=tmp_path / "copy") as staged:
        held.release(-(-(served.root / "in.fastio-set").stat().st_size // BLOCK))
        while not (tmp_path / "copy" / ".in-000001.tar.partial").exists():  # once the set object is there
            assert not copying(staged.dataset).wait(0.01)
        epoch(staged)
        held.release(1_000)
        assert copying(staged.dataset).wait(120)
    size_bytes = sum(path.stat().st_size for path in served.root.glob("*.tar"))

    assert served.server.body_bytes(".tar") < 1.05 * size_bytes
    assert contents(served.root) == contents(tmp_path / "copy")


def test_what_another_process_fetched_is_not_fetched_again(
    url: str, served: Served, tmp_path: Path, held: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two processes copies; an epoch of the other one goes into the copy, too."""
    with loader(url, stage=tmp_path / "copy") as first:
        held.release(-(-(served.root / "in.fastio-set").stat().st_size // BLOCK))
        while not (tmp_path / "copy" / ".in-000001.tar.partial").exists():  # once the set object is there
            assert not copying(first.dataset).wait(0.01)
        monkeypatch.setattr(background, "_running", {})  # as in another process
        with loader(url, stage=tmp_path / "copy") as second:
            assert copying(first.dataset) is not copying(second.dataset)
            epoch(second)
            held.release(1_000)
            assert copying(first.dataset).wait(120)
            assert copying(second.dataset).wait(120)
    size_bytes = sum(path.stat().st_size for path in served.root.glob("*.tar"))

    assert served.server.body_bytes(".tar") < 1.05 * size_bytes
    assert contents(served.root) == contents(tmp_path / "copy")
    assert [".fastio-stage.lock", ".in.fastio-set.staged"] == sorted(p.name for p in (tmp_path / "copy").glob(".*"))


def test_wrong_bytes_of_another_process(url: str, served: Served, tmp_path: Path) -> None:
    """What it left is compared with the checksums of the shard, and fetched again."""
    with open_store(served.root / "in.fastio-set") as store:
        for shard in store.shards:
            content = CopyContent(Path(shard.path).name, shard.data.size, shard.content_crc, always_at(-128))
            hidden_copy(tmp_path / content.name, content, makes=True).write(0, bytes(4096))
    stage(url, str(tmp_path))

    assert contents(served.root) == contents(tmp_path)
    assert [".fastio-stage.lock", ".in.fastio-set.staged"] == sorted(p.name for p in tmp_path.glob(".*"))


def test_a_copy_under_way_of_the_last_release(url: str, served: Served, tmp_path: Path) -> None:
    """Its hidden files are replaced, whatever they hold: these shards are copied again, and nothing of them stays."""
    for path in served.root.glob("*.tar"):
        data = path.read_bytes()
        (tmp_path / f".{path.name}.partial").write_bytes(data[:5000] + bytes(len(data) - 5000))
        head = struct.pack("<8sQII", b"fioblock", len(data), BLOCK, 1)
        entry = (1 << 32 | zlib.crc32(data[:BLOCK])).to_bytes(8, "little")
        (tmp_path / f".{path.name}.blocks").write_bytes(head + struct.pack("<II", zlib.crc32(head), 0) + entry)
    (tmp_path / ".fastio-stage.lock").write_text("process 1 on another: copying it")
    expected = samples(open_store(url))
    with open_store(url, remote=Remote(stage=str(tmp_path))) as store:
        assert expected == samples(store)
        assert store.shards[0].data.local_copy.stage.wait(120)  # type: ignore[attr-defined]
        assert expected == samples(store)

    assert contents(served.root) == contents(tmp_path)
    assert [".fastio-stage.lock", ".in.fastio-set.staged"] == sorted(p.name for p in tmp_path.glob(".*"))


def test_no_claim_is_kept_while_a_file_is_checked(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is compared with its checksums once the blocks of the next ones that are on their way were written."""
    check, claimed = movers.FileCopy.check, list[str]()
    with open_store(url) as store:
        known = [
            hidden_copy(tmp_path / name, CopyContent(name, shard.data.size, shard.content_crc, always_at(-128)))
            for shard in store.shards
            for name in [Path(shard.path).name]
        ]

    def check_while_none_is_claimed(self: movers.FileCopy, *args: Any) -> None:
        for copy in known:
            claim = copy.claim(0, 1 << 30)
            if claim is None:
                claimed.append(f"{copy.path.name} while {self.path.name} is checked")
            else:
                claim.release()
        check(self, *args)

    monkeypatch.setattr(movers.FileCopy, "check", check_while_none_is_claimed)
    with open_store(url, remote=Remote(stage=str(tmp_path))) as store:
        assert store.shards[0].data.local_copy.stage.wait(120)  # type: ignore[attr-defined]

    assert claimed == []
    assert len(known) > 1
    assert (tmp_path / "in.fastio-set").exists()


def test_two_stages_fetch_once(url: str, served: Served, tmp_path: Path) -> None:
    """Two commands that begin together copy the set once, and both end well."""
    served.server.set_faults(Fault(kind="delay", seconds=0.05, path=".tar"))
    command = [sys.executable, "-m", "fastio", "stage", url, str(tmp_path)]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [0, 0] == [process.wait(120) for process in both]
    size_bytes = sum(path.stat().st_size for path in served.root.glob("*.tar"))

    assert served.server.body_bytes(".tar") < 1.05 * size_bytes
    assert contents(served.root) == contents(tmp_path)


@pytest.fixture
def lanes(served: Served, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a set whose orders take blocks of a few samples from all over it, each by a request of its own."""
    monkeypatch.setattr("fastio.loader.producer.read_ahead.held_bytes", lambda: 0)
    monkeypatch.setattr("fastio.samplers.choice._LEAST_BLOCK_BYTES", 100)
    monkeypatch.setattr(remote_files.RemoteFiles, "ahead_bytes", 4000)
    monkeypatch.setattr(remote_files.RemoteFiles, "chunk_bytes", 4000)
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", "500000")
    return write_set(served, 1500, shard_bytes=200_000, labels=np.arange(1500) % 3)


def begun(staged: FastLoader, copy: Path, held: threading.Semaphore, served: Served) -> None:
    """Wait until somebody copies the shards, of which no block is brought."""
    held.release(-(-(served.root / "in.fastio-set").stat().st_size // BLOCK))
    while len(list(copy.glob(".in-*.tar.ranges"))) < len(list(served.root.glob("*.tar"))):
        assert not copying(staged.dataset).wait(0.01)


def ranges_of(requests: list[Any]) -> list[str]:
    """What was asked for of shards, in order."""
    return [f"{Path(each.path).name} {each.range}" for each in requests if each.path.endswith(".tar")]


@pytest.mark.parametrize("is_copied_by_another", [False, True])
def test_what_an_epoch_wants_comes_first(
    lanes: str,
    served: Served,
    tmp_path: Path,
    held: threading.Semaphore,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_copied_by_another: bool,
) -> None:
    """
    Once its first batch is there, all that an epoch will read is brought, in its order, whatever the loop does
    meanwhile: the rest of it sends no request. Then comes what is left of the set. A process that waits for the one
    that copies does so, too.
    """
    copy = tmp_path / "copy"
    plan, planned = HeldReader.plan, list[HeldPlan]()

    def noted(*args: Any) -> HeldPlan:
        planned.append(plan(*args))
        return planned[-1]

    monkeypatch.setattr(HeldReader, "plan", noted)
    with loader(served.root / "in.fastio-set") as local, loader(lanes, stage=copy) as first:
        expected = [epoch(local) for _ in range(2)]
        begun(first, copy, held, served)
        if is_copied_by_another:
            monkeypatch.setattr(background, "_running", {})  # as in another process
        with loader(lanes, stage=copy) if is_copied_by_another else nullcontext(first) as staged:
            served.server.clear()
            batches = iter(staged)
            got = [next(batches)]
            copies: Any = [shard.data.local_copy for shard in staged.dataset.store.shards]
            spans = planned[0].spans
            stops = (spans.starts + spans.sizes).tolist()
            wanted = list(zip(spans.shard.tolist(), spans.starts.tolist(), stops, strict=True))
            if not is_copied_by_another:
                held.release(1)  # what an epoch wants comes before the block that follows
            while any(copies[shard].missing(start, stop) for shard, start, stop in wanted):
                assert not copying(staged.dataset).wait(0.01)
            sent = ranges_of(served.server.requests())
            assert_equal(expected[0], got + list(batches))
            assert sent == ranges_of(served.server.requests())
            receipt = staged.receipt()
            held.release(1_000)
            assert copying(staged.dataset).wait(120)
            assert_equal(expected[1], epoch(staged))
            whole = staged.stats.staged
    order = [f"in-{shard:06d}.tar bytes={start}-{stop - 1}" for shard, start, stop in wanted]
    numbers = [order.index(each) for each in sent if each in order]

    assert len(wanted) > 100
    assert len(wanted) - 20 < len(numbers) == len(set(numbers))  # some are in the first block
    assert len(sent) < len(numbers) + 20
    assert sum(abs(number - at) for at, number in enumerate(numbers)) < 20 * len(numbers)  # some are under way at once
    assert receipt.is_exact
    assert receipt.staged is not None
    assert spans.sizes.sum() <= receipt.staged.there_bytes < receipt.staged.size_bytes
    assert whole == Staged(receipt.staged.size_bytes, receipt.staged.size_bytes)
    assert str(whole).endswith("are on this machine")
    assert contents(served.root) == contents(copy)


def test_the_first_batch_does_not_wait_for_the_copying(
    lanes: str, served: Served, tmp_path: Path, held: threading.Semaphore
) -> None:
    """While it is on its way, no further block is begun; an epoch that is left lets the copying go on."""
    with loader(lanes, stage=tmp_path / "copy") as staged:
        begun(staged, tmp_path / "copy", held, served)
        served.server.set_faults(Fault(kind="delay", path=".tar"))
        batches = iter(staged)
        first = threading.Thread(target=next, args=(batches,))
        first.start()
        while (wanted := copying(staged.dataset)._work.mover.wanted) is None or not wanted.asked:
            assert not copying(staged.dataset).wait(0.01)
        held.release(1_000)
        assert not copying(staged.dataset).wait(0.2)
        assert wanted.is_waiting
        assert held._value >= 998
        served.server.set_faults()
        first.join(60)
        assert not wanted.is_waiting
        del batches
        assert copying(staged.dataset).wait(120)

    assert contents(served.root) == contents(tmp_path / "copy")


def test_stages_and_a_training_at_once_while_one_is_killed(url: str, served: Served, tmp_path: Path) -> None:
    """Another one goes on. Each byte comes once, but for the block that was under way, and nothing is half-written."""
    copy = tmp_path / "copy"
    served.server.set_faults(Fault(kind="delay", path=".tar"))
    command = [sys.executable, "-m", "fastio", "stage", url, str(copy), "--jobs", "1"]
    stages = {process.pid: process for process in (subprocess.Popen(command) for _ in range(3))}
    while not (copy / ".in-000000.tar.partial").exists():
        assert [None] * 3 == [process.poll() for process in stages.values()]
        time.sleep(0.01)
    _, copier, *_ = (copy / ".fastio-stage.lock").read_text().split()
    with loader(served.root / "in.fastio-set") as local, loader(url, stage=copy) as staged:
        killed = stages.pop(int(copier))
        killed.kill()
        served.server.set_faults()
        assert_equal(epoch(local), epoch(staged))
        assert copying(staged.dataset).wait(120)
    assert [-9, 0, 0] == [killed.wait(), *(process.wait(120) for process in stages.values())]
    sizes = [path.stat().st_size for path in served.root.glob("*.tar")]

    assert served.server.body_bytes(".tar") < 1.05 * sum(sizes) + max(sizes)
    assert contents(served.root) == contents(copy)
    assert [".fastio-stage.lock", ".in.fastio-set.staged"] == sorted(path.name for path in copy.glob(".*"))


def test_a_whole_copy_is_read_at_once(url: str, served: Served, tmp_path: Path) -> None:
    """One request says that it is the same set still; index and samples come from the disk."""
    stage(url, str(tmp_path))
    served.server.clear()
    with open_store(url, remote=Remote(stage=str(tmp_path))) as store:
        copied = samples(store)
    gets = served.server.gets(".tar"), served.server.gets(".fastio-set")

    assert gets[0] == 0
    assert gets[1] <= 2  # the store's, and the copy's
    with open_store(url) as store:
        assert samples(store) == copied


def damage(path: Path, *places: int) -> None:
    """Flip a bit of the byte at each of these places; nothing else tells."""
    content, status = bytearray(path.read_bytes()), path.stat()
    for place in places:
        content[place] ^= 4
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a disk does it


def damage_samples(path: Path) -> int:
    """Flip a bit of some samples of a shard; returns the place of the first."""
    with path.open("rb") as file, tarfile.open(fileobj=file) as tar:
        places = [member.offset_data + 40 for member in tar if member.name.endswith(".png")]
    damage(path, *places[:3])
    return places[0]


@pytest.mark.parametrize("is_open", [False, True])
def test_a_damaged_copy_is_mended(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_open: bool) -> None:
    """Samples damaged in a whole copy come from the URL, the copy is put right, and the log names it once."""
    report = stage(url, str(tmp_path))
    expected, whole = epoch(loader(url)), contents(tmp_path)
    with open_store(url, remote=Remote(stage=str(tmp_path))) as store, caplog.at_level(logging.WARNING):
        if is_open:
            samples(store)
        damage_samples(tmp_path / "in-000001.tar")
        if is_open:
            assert samples(open_store(url)) == samples(store)
        else:
            assert_equal(expected, epoch(loader(url, stage=str(tmp_path))))
            damage_samples(tmp_path / "in-000001.tar")
            dataset = FastDataset(url, remote=Remote(stage=str(tmp_path)))
            assert [int(label) for _, label in (dataset[i] for i in range(COUNT))] == list(range(COUNT))

    assert whole == contents(tmp_path)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == (1 if is_open else 2)  # each dataset says it once
    command = f"fastio stage --check {url} {tmp_path}"
    for line in warnings:
        assert line.startswith(f"{tmp_path}/in-000001.tar: bytes ")
        assert line.endswith(f"fetched again and mended: check the disk, and the rest of the copy by {command}")
    assert 0 == stage(url, str(tmp_path)).fetched_bytes
    assert report.size_bytes == sum(map(len, whole.values()))


def test_a_damaged_object_is_not_taken_for_the_copy(url: str, served: Served, tmp_path: Path) -> None:
    """Where copy and object are damaged alike, the object is named, and the copy stays as it is."""
    stage(url, str(tmp_path))
    place = damage_samples(tmp_path / "in-000001.tar")
    damaged = contents(tmp_path)
    damage_samples(served.root / "in-000001.tar")
    with pytest.raises(SampleError, match=r"http.*in-000001\.tar\[.*came so twice") as caught:
        epoch(loader(url, stage=str(tmp_path)))

    assert place > 0
    assert str(tmp_path) not in str(caught.value)
    assert damaged == contents(tmp_path)


def test_a_damaged_index_of_a_copy(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that is damaged in the copy is read from the URL, and the log says what mends the copy."""
    stage(url, str(tmp_path))
    expected = samples(open_store(url))
    damage(tmp_path / "in.fastio-set", 8)
    monkeypatch.setattr(remote_source, "_TAIL_BYTES", 256)  # that much of an object is read from the URL anyway
    with caplog.at_level(logging.WARNING), open_store(url, remote=Remote(stage=str(tmp_path))) as store:
        assert expected == samples(store)

    (line,) = (record.getMessage() for record in caplog.records)
    assert "index array 'image_starts'" in line
    assert f"without the copy {tmp_path}/in.fastio-set, which fastio stage --check {url} {tmp_path} mends" in line


def test_a_single_file(served: Served, tmp_path: Path) -> None:
    """It is read from the copy, too, index and samples."""
    values = [encode(pixels) for pixels in pictures(COUNT)]
    with create_store(served.root / "x.lmdb", Schema((Field("image", IMAGE, "|u1", (None, None, None)),))) as writer:
        writer.append(SampleBatch([f"{number}.png" for number in range(COUNT)], {"image": as_spans(values)}, {}, {}))
    url = f"{served.url}/x.lmdb"
    with open_store(url, remote=Remote(stage=str(tmp_path))) as store:
        assert values == samples(store)
        assert store.shards[0].data.local_copy.stage.wait(120)  # type: ignore[attr-defined]
        before = served.server.gets()
        assert values == samples(store)
    assert before == served.server.gets()


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_damaged_block(url: str, tmp_path: Path, held: threading.Semaphore, *, is_noted: bool) -> None:
    """Wrong bytes in the hidden copy are fetched again, whether its record agrees with them or not."""
    expected = samples(open_store(url))
    copy = str(tmp_path)
    with open_store(url, remote=Remote(stage=copy)) as store:
        held.release(1_000)
        assert store.shards[0].data.local_copy.stage.wait(120)  # type: ignore[attr-defined]
    with open_store(tmp_path / "in.fastio-set") as store:
        checksums = {Path(shard.path): shard.content_crc for shard in store.shards}
    for path, checksum in checksums.items():
        data = path.read_bytes()
        content = CopyContent(path.name, len(data), checksum, always_at(-128))
        damaged = bytearray(data)
        damaged[1000] ^= 1
        copy_of = hidden_copy(path, content, makes=True)
        for start in range(0, len(data), BLOCK):
            copy_of.write(start, (damaged if is_noted else data)[start : start + BLOCK])
        with copy_of.path.open("r+b") as file:
            file.write(damaged)
        path.unlink()
    (tmp_path / ".in.fastio-set.staged").unlink()
    with open_store(url, remote=Remote(stage=copy)) as store:
        assert expected == samples(store)
        assert store.shards[0].data.local_copy.stage.wait(120)  # type: ignore[attr-defined]
        assert expected == samples(store)


def test_a_full_disk(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Ends the copying with one line; epochs go on."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "pwrite_all", full)
    with loader(url) as remote, loader(url, stage=tmp_path) as staged, caplog.at_level(logging.WARNING):
        assert copying(staged.dataset).wait(120)
        assert_equal(epoch(remote), epoch(staged))

    assert 1 == len(caplog.records)
    assert "No space left on device" in caplog.text


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_folder_that_is_removed(
    url: str, tmp_path: Path, caplog: Any, held: threading.Semaphore, *, is_whole: bool
) -> None:
    """While it is copied to, or after: epochs go on with requests, and one line says so."""
    copy = tmp_path / "copy"
    with loader(url) as remote, loader(url, stage=copy) as staged:
        expected = [epoch(remote) for _ in range(2)]
        while not copy.exists():
            assert not copying(staged.dataset).wait(0.01)
        held.release(1_000 if is_whole else 4)
        assert not is_whole or copying(staged.dataset).wait(120)
        assert_equal(expected[0], epoch(staged))
        if is_whole:
            staged.dataset.store.files._copies.close()  # descriptors that are open outlive names
        while copy.exists():  # a file may come or get its name meanwhile: rmtree raises then, and rm -r is called again
            shutil.rmtree(copy, ignore_errors=True)
        held.release(1_000)
        assert copying(staged.dataset).wait(120)
        assert_equal(expected[1], epoch(staged))

    assert 1 == len(caplog.records)
    assert str(copy) in caplog.text


def test_a_killed_process(url: str, served: Served, tmp_path: Path) -> None:
    """Another one goes on with the copy where it was, and reads what is there meanwhile."""
    served.server.set_faults(Fault(kind="hang", path="in-000001.tar", method="GET", skip=1))
    child = subprocess.Popen([sys.executable, "-m", "fastio", "stage", url, str(tmp_path), "--jobs", "1"])
    while not (tmp_path / "in-000000.tar").exists():
        assert child.poll() is None
        time.sleep(0.01)
    with loader(served.root / "in.fastio-set") as local, loader(url, stage=tmp_path) as staged:
        expected = epoch(local)
        assert not copying(staged.dataset).wait(0.1)
        child.kill()
        child.wait()
        served.server.clear()
        assert_equal(expected, epoch(staged))
        assert copying(staged.dataset).wait(120)

    assert 0 == served.server.gets("in-000000.tar")
    assert contents(served.root) == contents(tmp_path)


def test_other_processes_read_the_copy(url: str, served: Served, tmp_path: Path) -> None:
    """A worker that gets the store by pickle reads what is there, and copies nothing itself."""
    with open_store(url, remote=Remote(stage=str(tmp_path))) as store:
        expected = samples(store)
        assert store.shards[0].data.local_copy.stage.wait(120)  # type: ignore[attr-defined]
        with pickle.loads(pickle.dumps(store)) as again:
            served.server.clear()
            assert expected == samples(again)
            assert again.shards[0].data.local_copy.stage is None
    assert 0 == served.server.gets()


def test_a_mistyped_folder_is_not_made(url: str, tmp_path: Path) -> None:
    """Opening says so at once: the whole training would fetch what it could have read from a disk."""
    with pytest.raises(StoreError, match=r"/scrach/copy: the folder .*/scrach does not exist: check the name"):
        FastDataset(url, remote=Remote(stage=tmp_path / "scrach" / "copy"))
    assert not (tmp_path / "scrach").exists()


def test_closing_ends_the_copying(url: str, tmp_path: Path, held: threading.Semaphore) -> None:
    """Its thread goes with the last dataset, and what is there stays for the next one."""
    dataset = FastDataset(url, remote=Remote(stage=tmp_path))
    other = FastDataset(url, remote=Remote(stage=tmp_path))
    assert copying(dataset) is copying(other)
    copier = copying(dataset)._work.thread
    held.release(4)
    dataset.store.close()
    del dataset
    assert copier.is_alive()
    other.store.close()
    del other

    assert not copier.is_alive()
    held.release(1_000)
    stage(url, str(tmp_path))


def test_waiting_is_a_choice(url: str, served: Served, tmp_path: Path) -> None:
    """``stage_wait=True`` opens the copy alone, and so does a way to read that URLs do not know."""
    assert url == staged_path(url, Remote(stage=str(tmp_path)))
    path = str(tmp_path / "in.fastio-set")
    assert path == staged_path(url, Remote(stage=str(tmp_path), stage_wait=True))
    assert path == staged_path(url, Remote(stage=str(tmp_path)), "map")
    assert path == str(FastDataset(url, remote=Remote(stage=tmp_path, stage_wait=True)).store.path)
    with pytest.raises(ValueError, match=r"stage_wait=True: waits for a stage, and none is given"):
        FastDataset(url, remote=Remote(stage_wait=True))
