"""The kinds of files: mapped, by pread, and a third one that nothing but these tests knows."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio import FastDataset, FastLoader, _native
from fastio.errors import StoreCorrupt, StoreError
from fastio.store import FORMATS, format_of, open_store
from fastio.store.files import KINDS, files_of
from fastio.store.files.remote_options import DEFAULT
from fastio.store.index.seal import SEAL_SIZE
from fastio.store.index.sealed import read_shard
from fastio.transforms import RandomCrop
from fastio.types.spans import Spans
from tests.store.build import make_samples, write
from tests.store.faults import fail, fault
from tests.store.files.conformance import DATA, FilesConformance, Put
from tests.store.files.toy import SCHEME, Bucket


class LocalConformance(FilesConformance):
    """Of kinds that read the local file system."""

    @pytest.fixture
    def put(self, tmp_path: Path) -> Put:
        """Files are replaced by renaming, as fastio does it."""

        def put(name: str, data: bytes) -> str:
            (tmp_path / f".{name}").write_bytes(data)
            return str((tmp_path / f".{name}").replace(tmp_path / name))

        return put

    @pytest.mark.parametrize("call", ["open", "fstat"])
    def test_an_error_of_the_disk_names_the_file(self, path: str, call: str) -> None:
        """Whatever fails while a file is opened is a StoreError with its path."""
        with (
            fault(1, fail, calls=(call,)),
            pytest.raises(StoreError, match=rf"{path}: cannot be .*Input/output error.*; check"),
        ):
            self.open(path)
        assert self.open(path).read(0, 3).tobytes() == DATA[:3]

    def test_a_directory(self, tmp_path: Path) -> None:
        """What is not a regular file is refused, and a FIFO hangs nobody."""
        os.mkfifo(tmp_path / "fifo")
        for name, what in (("", "directory"), ("fifo", "special file")):
            with pytest.raises(StoreError, match=f"expected a regular file, got a {what}"):
                self.open(str(tmp_path / name))

    def test_without_permission(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The message says what to check."""

        def denied(*args: Any) -> int:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(os, "open", denied)
        with pytest.raises(StoreError, match=rf"{path}: cannot be opened \(Permission denied\); check its permissions"):
            self.open(path)

    def test_a_file_that_was_cut_off(self, path: str) -> None:
        """``check`` says so, before anybody looks beyond the end."""
        file = self.open(path)
        os.truncate(path, 100_000)
        with pytest.raises(StoreCorrupt, match=f"{path}: cut off at 100000 bytes, expected 200000; copy or pack again"):
            file.check()

    def test_another_mode_or_link_is_the_same_version(self, path: str) -> None:
        """``chmod`` and hard links, which change the ctime, are no other version; nor is another inode alone."""
        file = self.open(path)
        Path(path).chmod(0o600)
        Path(f"{path}-link").hardlink_to(path)
        file.check()
        assert DATA[:5] == file.read(0, 5).tobytes()


class TestMapped(LocalConformance):
    """Files that are mapped."""

    read = "map"

    def test_closing_fails(self, path: str) -> None:
        """An error that comes with the end of the descriptor names the file too."""
        with fault(1, fail, calls=("close",)), pytest.raises(StoreError, match=f"{path}: cannot be read"):
            self.open(path)

    def test_no_descriptor_stays_open(self, path: str) -> None:
        """A thousand shards are not a thousand open files."""
        before = len(list(Path("/proc/self/fd").iterdir()))
        file = self.open(path)
        assert before == len(list(Path("/proc/self/fd").iterdir()))
        assert DATA[:5] == file.read(0, 5).tobytes()


class TestPread(LocalConformance):
    """Files that are read by pread."""

    read = "pread"

    def test_reading_beyond_a_cut(self, path: str) -> None:
        """Ranges are an error, and spans have a status; the process lives."""
        file, files = self.open(path), files_of([self.open(path)])
        spans = Spans(files.buffers, np.zeros(3, np.int32), np.array([5, 99_990, 150_000]), np.array([10, 20, 1]))
        assert files.fetch(spans).wait()[1] is None
        os.truncate(path, 100_000)
        with pytest.raises(StoreCorrupt, match=f"{path}: cut off at 100000 bytes, expected 200000; copy or pack again"):
            file.read(99_000, 101_000)
        found, status = files.fetch(spans).wait()
        assert status is not None
        assert [_native.OK, _native.TRUNCATED, _native.TRUNCATED] == status.tolist()
        assert DATA[5:15] == found.view(0).tobytes()
        assert [10, 0, 0] == found.sizes.tolist()

    def test_an_error_while_reading(self, path: str) -> None:
        """A disk or server that reports an error while a range is read: StoreError with the path."""
        file = self.open(path)
        with (
            fault(1, fail, calls=("preadv",)),
            pytest.raises(StoreError, match=rf"{path}: cannot be read \(Input/output error\); check the disk"),
        ):
            file.read(0, 10)

    def test_short_reads(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A range that comes in parts is whole."""
        real = os.preadv
        monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: real(fd, [buffers[0][:7]], at))
        assert DATA[50:150] == self.open(path).read(50, 150).tobytes()

    def test_a_file_that_is_gone(self, path: str) -> None:
        """Fetching names it and says what to do."""
        files = files_of([self.open(path)])
        Path(path).unlink()
        span = Spans(files.buffers, np.zeros(1, np.int32), np.array([5]), np.array([10]))
        with pytest.raises(
            StoreError, match=rf"{path}: can no longer be read \(No such file.*\): open the store again"
        ):
            files.fetch(span)


class TestToy(FilesConformance):
    """A kind that is no file of this machine."""

    @pytest.fixture
    def bucket(self, monkeypatch: pytest.MonkeyPatch) -> Bucket:
        """Known to KINDS: one line."""
        bucket = Bucket()
        monkeypatch.setitem(KINDS, "toy", bucket.kind())
        return bucket

    @pytest.fixture
    def put(self, bucket: Bucket) -> Put:
        """Under a name with its scheme."""

        def put(name: str, data: bytes) -> str:
            bucket.put(f"{SCHEME}{name}", data)
            return f"{SCHEME}{name}"

        return put

    def test_opening_reads_the_index_only(self, bucket: Bucket, put: Put, tmp_path: Path, suffix: str) -> None:
        """Seal, head, header and index, each byte once and nothing between the samples; then each sample once."""
        samples = make_samples(700)
        path = put(f"x.{suffix}", Path(write(tmp_path / f"x.{suffix}", samples)).read_bytes())
        with open_store(path) as store:
            seal = store.shards[0].seal
            assert seal is not None
            size, payload = store.shards[0].data.size, sum(map(len, samples.values()))
            first = int(store.spans("image", np.array([0])).starts[0])
            spans = store.spans("image", np.arange(700))
            last = int((spans.starts + spans.sizes).max())
            opening = list(bucket.reads)
            assert sum(stop - start for _, start, stop in opening) < size - payload
            assert all(stop <= max(first, SEAL_SIZE, seal.head_size) or start >= last for _, start, stop in opening)
            assert len(opening) <= 5
            bucket.reads.clear()
            store.files.fetch(spans).wait()
            assert len(bucket.reads) == 700
            assert payload == sum(stop - start for _, start, stop in bucket.reads)

    @pytest.mark.parametrize("transformed", [False, True])
    def test_dataset_and_loader(
        self, bucket: Bucket, put: Put, png_stores: dict[str, Path], suffix: str, transformed: bool
    ) -> None:
        """They give the batches of a mapped store, and read each sample of an epoch once."""
        path = put(f"png.{suffix}", png_stores[suffix].read_bytes())
        transforms = [RandomCrop(8, padding=2)] if transformed else []
        options: dict[str, Any] = {"batch_size": 7, "shuffle": True, "threads": 2, "transforms": transforms}
        with FastLoader(FastDataset(path), **options) as loader, FastLoader(png_stores[suffix], **options) as local:
            bucket.reads.clear()
            for (images, labels), (local_images, local_labels) in zip(loader, local, strict=True):
                assert torch.equal(images, local_images)
                assert torch.equal(labels, local_labels)
            assert len(bucket.reads) == 50

    def test_shards(self, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A set of shards is one store, also with a shard of another kind of files beside it in a pickle."""
        write(tmp_path / "x-%d.tar", make_samples(60), shard_bytes=40_000)
        names = sorted(each.name for each in tmp_path.glob("x-*.tar"))
        put("x.fastio-set", (tmp_path / "x.fastio-set").read_bytes())
        monkeypatch.setattr(
            "fastio.store.files.remote.remote_source.RemoteSource.known",
            lambda path, options, **_known: KINDS["toy"].open(path, options),
        )
        for name in names:
            path = put(name, (tmp_path / name).read_bytes())
        pattern = f"{SCHEME}x-{{0..{len(names) - 1}}}.tar"
        with open_store(pattern) as store, open_store(tmp_path / "x-%d.tar") as local:
            assert len(store.shard_paths) == len(names) > 1
            assert path in store.shard_paths
            assert local.identity == pickle.loads(pickle.dumps(store)).identity

    def test_kinds_that_cannot_be_joined(self, put: Put, tmp_path: Path) -> None:
        """One line says which files, and what to do; mapped files and those of pread can be read together."""
        (tmp_path / "x").write_bytes(DATA)
        local = KINDS["map"].open(str(tmp_path / "x"), DEFAULT)
        with pytest.raises(StoreError, match=rf"{tmp_path}/x: is read by 'map' and toy://x by 'toy', .*copy both"):
            files_of([self.open(put("x", DATA)), local])
        files = files_of([local, KINDS["pread"].open(str(tmp_path / "x"), DEFAULT)])
        spans = Spans(files.buffers, np.array([1, 0], np.int32), np.array([5, 9]), np.array([10, 20]))
        assert [DATA[5:15], DATA[9:29]] == [view.tobytes() for view in files.fetch(spans).wait()[0].views()]

    def test_a_foreign_archive(self, put: Put, tmp_path: Path) -> None:
        """A tar that others wrote is not scanned over the network: the message names ``fastio index``."""
        (tmp_path / "a.png").write_bytes(DATA)
        path = tmp_path / "x.tar"
        os.system(f"tar -C {tmp_path} -cf {path} a.png")
        url = put("x.tar", path.read_bytes())
        with pytest.raises(StoreError, match=rf"{url}: has no seal of fastio: .*`fastio index {url} --to DIR`"):
            open_store(url)


def test_an_unknown_scheme() -> None:
    """A URL that nothing reads is refused in one line."""
    with pytest.raises(StoreError, match=r"what://bucket/x\.tar: .*nothing here reads from what://"):
        open_store("what://bucket/x.tar")


def test_the_index_is_held_or_mapped(tmp_path: Path, suffix: str) -> None:
    """Index arrays of mapped files are views, shared with other processes; those of other kinds are copies."""
    path = write(tmp_path / f"x.{suffix}", make_samples(300))
    for read, is_mapped in (("map", True), ("pread", False)):
        file = KINDS[read].open(path, DEFAULT)
        form = FORMATS[format_of(path)]
        shard = read_shard(file, format_name=form.name, seal_at=form.seal_at)
        base: Any = shard.checksums["image"]
        assert is_mapped == (file.memory is not None and np.shares_memory(base, file.memory))
