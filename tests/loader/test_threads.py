"""Threads, memory and processes: leaving early, dropping, forking, exiting - no hang and no leak."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader

from fastio import DevicePrefetcher, FastDataset, FastLoader
from fastio.transforms import Compiled, ToDtype
from fastio.types.schema import RAW, Field
from tests.conftest import write_store
from tests.dataset.test_fast_dataset import to_tensor
from tests.forking import answer_of_fork
from tests.warm_python import WarmPython

COUNT = 64


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 raw pictures of 48 KiB, each filled with its index: 16 of them are a batch of 768 KiB."""
    path = tmp_path_factory.mktemp("big") / "a.h5"
    values = [bytes([index]) * (128 * 128 * 3) for index in range(COUNT)]
    return write_store(path, values, np.arange(COUNT), field=Field("image", RAW, "|u1", (128, 128, 3)))


@pytest.fixture(params=["native", "plain"])
def dataset(request: pytest.FixtureRequest, big: Path) -> FastDataset:
    """The same samples for each of the loader's two paths."""
    return FastDataset(big, to_tensor if request.param == "plain" else None)


def labels_of(loader: FastLoader) -> list[int]:
    """All labels of an epoch, after a look at the pixels."""
    got: list[int] = []
    for images, labels in loader:
        assert torch.equal(images[:, 0, 0, 0].long(), labels)
        assert torch.equal(images[:, -1, -1, -1].long(), labels)
        got += labels.tolist()
    return got


def resources() -> tuple[int, int]:
    """Threads and file descriptors of this process, when dropped loaders have finished the batch they were at."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("fastio") and thread.name != "fastio-requests":  # one a process, for URLs
            thread.join()
    process = psutil.Process()
    return process.num_threads(), process.num_fds()


def opened_and_closed(dataset: FastDataset) -> None:
    with FastLoader(dataset, 16, threads=2) as loader:
        next(iter(loader))


def left_early(dataset: FastDataset) -> None:
    with FastLoader(dataset, 4, threads=2) as loader:
        for _ in loader:
            break


def dropped(dataset: FastDataset) -> None:
    next(iter(FastLoader(dataset, 16, threads=2)))


def failed(dataset: FastDataset) -> None:
    def train() -> None:
        for _ in FastLoader(dataset, 4, threads=2):
            raise RuntimeError("step")

    with pytest.raises(RuntimeError, match="step"):
        train()


def leaves_nothing(use: Callable[[], None]) -> None:
    """40 loaders, however they end, leave no thread and no file descriptor."""
    use()
    before = resources()
    for _ in range(40):
        use()
    deadline = time.monotonic() + 100  # the system counts a joined thread a moment longer
    while resources() > before and time.monotonic() < deadline:
        os.sched_yield()

    assert resources() <= before


@pytest.mark.parametrize("use", [opened_and_closed, left_early, dropped, failed])
def test_nothing_is_left_behind(dataset: FastDataset, use: Callable[[FastDataset], None]) -> None:
    """Not by loaders of a dataset."""
    leaves_nothing(lambda: use(dataset))


def test_nothing_is_left_of_a_store_that_the_loader_opened(big: Path) -> None:
    """Nor by those that open their store themselves."""

    def opened_by_path() -> None:
        with FastLoader(big, 16, threads=1) as loader:
            next(iter(loader))

    leaves_nothing(opened_by_path)


def test_memory_is_flat_over_epochs(big: Path) -> None:
    """20 epochs take no more memory than the ring's buffers: 6 batches, with slack for the allocator."""
    with FastLoader(big, 16, threads=2) as loader:
        for _ in range(3):
            labels_of(loader)
        before = psutil.Process().memory_info().rss
        for _ in range(20):
            labels_of(loader)
        grown = psutil.Process().memory_info().rss - before
        batch = loader.stats.batch_bytes
        assert loader.stats.buffer_bytes <= loader.stats.estimated_bytes + 6 * 64

    assert grown < 6 * batch < 20 * len(loader) * batch


def test_a_dropped_batch_gives_its_memory_back(big: Path) -> None:
    """Between batches the loop holds nothing: one batch in hand and two ahead need three buffers."""
    with FastLoader(big, 16, threads=1, prefetch_batches=1) as loader:
        for _ in range(3):
            for images, labels in loader:
                del images, labels
        assert loader.stats.buffer_bytes <= 2 * (loader.stats.batch_bytes + 64)


def test_a_dropped_iterator_is_gone(big: Path) -> None:
    """Neither the loader nor its jobs hold an iterator that nobody has."""
    loader = FastLoader(big, 4)
    batches = iter(loader)
    next(batches)
    watched, kept = weakref.ref(batches), weakref.ref(loader)
    del batches
    assert watched() is None
    assert len(labels_of(loader)) == COUNT
    del loader
    assert kept() is None


def test_closing_while_batches_are_under_way(dataset: FastDataset) -> None:
    """close() in the middle of an epoch ends it, and what was handed out stays valid."""
    loader = FastLoader(dataset, 4, threads=2)
    images, labels = next(iter(loader))
    loader.close()

    assert torch.equal(images[:, 0, 0, 0].long(), labels)


@pytest.mark.parametrize("moment", ["before", "idle", "under way"])
def test_a_forked_child_goes_on(dataset: FastDataset, moment: str) -> None:
    """A child that uses an inherited loader or iterator gets every sample, and so does its parent."""
    wake_openmp()
    with FastLoader(dataset, 4, threads=2) as loader:
        batches: Iterator[Any] = iter(loader)
        had = [] if moment == "before" else [labels.tolist() for _, labels in islice(batches, 3)]
        if moment == "idle":
            batches = iter(loader)
            had = []
        rest = list(range(len(had) * 4, COUNT))

        labels = answer_of_fork(lambda: [label for _, labels in batches for label in labels.tolist()])
        assert labels == rest
        assert [label for _, labels in batches for label in labels.tolist()] == rest
        assert answer_of_fork(lambda: labels_of(loader)) == list(range(COUNT))


def test_a_forked_child_skips(big: Path, tmp_path: Path) -> None:
    """A child leaves out what is damaged, from a batch that its parent had under way too."""
    wake_openmp()
    damaged = tmp_path / "damaged.h5"
    damaged.write_bytes(big.read_bytes().replace(bytes([20]) * 1000, bytes([8]) * 1000, 1))
    good = [label for label in range(COUNT) if label != 20]
    with FastLoader(damaged, 16, threads=2, verify=True, on_error="skip") as loader:
        batches = iter(loader)
        next(batches)
        rest = answer_of_fork(lambda: [label for _, labels in batches for label in labels.tolist()])
        again = answer_of_fork(lambda: [label for _, labels in loader for label in labels.tolist()])

    assert (rest, again) == (good[16:], good)


def wake_openmp() -> None:
    """
    Let torch start threads for the main thread, as any training script has done before it forks.

    A parallel operation in the main thread of a child would wait for them for ever, since fork takes no threads along.
    """
    torch.ones(1 << 20).add_(1)


def test_many_forks_beside_busy_threads(big: Path) -> None:
    """A fork at any moment of decoding finds no lock that is held for ever."""
    with FastLoader(big, 1, threads=2, prefetch_batches=8) as loader:
        forks = 0
        for _, labels in loader:
            if labels.item() % 4 == 0:
                assert answer_of_fork(lambda: labels_of(loader)) == list(range(COUNT))
                forks += 1

    assert forks == 16


def test_a_spawned_child_builds_its_own(big: Path) -> None:
    """A dataset travels to a spawned process by path; there a loader reads the same samples."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_read_all, (FastDataset(big),)) == list(range(COUNT))


def _read_all(dataset: FastDataset) -> list[int]:
    with FastLoader(dataset, 16) as loader:
        return labels_of(loader)


@pytest.mark.parametrize(
    ("transform", "ending"),
    [("None", "pass"), ("None", "raise SystemExit(3)"), ("numpy.array", "pass"), ("numpy.array", "del loader")],
)
def test_the_interpreter_ends(big: Path, transform: str, ending: str, warm_torch: WarmPython) -> None:
    """A program that ends in the middle of an epoch ends at once, without a word."""
    program = (
        "import warnings; warnings.simplefilter('error');"
        "import numpy; from fastio import FastDataset, FastLoader;"
        f"loader = FastLoader(FastDataset({str(big)!r}, {transform}), 4, threads=2);"
        f"batches = iter(loader); batch = next(batches); {ending}"
    )
    ended = warm_torch.run(program, cwd=big.parent)

    assert (ended.stdout, ended.stderr) == ("", "")
    assert ended.returncode == (3 if "3" in ending else 0)


def test_the_names_of_modules_go_before_the_iterator(big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that ends in an epoch may have cleared the modules when the iterator's generator is closed."""
    loader = FastLoader(big, 4, threads=2)
    batches = iter(loader)
    next(batches)
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    monkeypatch.setattr("fastio.loader.iteration.SampleError", None)

    del batches
    gc.collect()

    assert unraisable == []


# Without Python's own kill(), which looks for the signal at once; compiled code can call it, too.
KILL = ctypes.CDLL(None).kill
KILL.argtypes = [ctypes.c_int, ctypes.c_int]
PID, CTRL_C = os.getpid(), int(signal.SIGINT)


def interrupt_at_32(image: Any, numbers: Any) -> None:
    """In a thread without Python: Ctrl-C, while sample 32 is made."""
    if image[0, 0, 0] == 32:
        KILL(PID, CTRL_C)


def interrupt_plain(picture: Any) -> torch.Tensor:
    """The same in a thread of Python."""
    tensor = to_tensor(picture)
    if tensor[0, 0, 0] == 32:
        KILL(PID, CTRL_C)
    return tensor


@pytest.mark.parametrize("path", ["native", "plain", "fields", "behind transforms", "prefetcher"])
def test_ctrl_c_while_the_loop_waits_loses_no_batch(big: Path, path: str) -> None:
    """The state after Ctrl-C does not count a batch that the loop never got."""
    is_plain = path == "plain"
    fields = ("label", "image") if path == "fields" else None
    steps: list[Any] = [] if is_plain else [Compiled(interrupt_at_32)]
    if path == "behind transforms":
        steps = [*steps, ToDtype(torch.float32)]
    dataset = FastDataset(big, interrupt_plain if is_plain else None, fields=fields)
    loader = FastLoader(dataset, 8, transforms=steps, threads=1, rank=0, world_size=1)
    batches = DevicePrefetcher(loader, "cpu") if path == "prefetcher" else loader
    loader.skip_to((0, 32, 0))
    with pytest.raises(KeyboardInterrupt):
        next(iter(batches))

    assert batches.state_dict()["consumed"] == 32


@pytest.mark.parametrize("kind", ["loader", "prefetcher", "prefetcher of others"])
def test_an_iterator_is_for_one_thread_at_a_time(big: Path, kind: str) -> None:
    """A second thread that asks while another one waits is told so; the first one gets its batch."""
    is_making, may_go = threading.Event(), threading.Event()

    def slow(picture: Any) -> torch.Tensor:
        is_making.set()
        may_go.wait()
        return to_tensor(picture)

    dataset = FastDataset(big, slow)
    loader = DataLoader(dataset, 8) if kind == "prefetcher of others" else FastLoader(dataset, 8, threads=1)
    batches = iter(loader if kind == "loader" else DevicePrefetcher(loader, "cpu"))
    with ThreadPoolExecutor(1) as other:
        first = other.submit(next, batches)
        is_making.wait()
        with pytest.raises(RuntimeError, match="another thread is waiting for a batch of this iterator: give each"):
            next(batches)
        may_go.set()
        assert first.result()[1].tolist() == list(range(8))
    assert next(batches)[1].tolist() == list(range(8, 16))


def test_an_iterator_that_an_error_ended_says_so(big: Path) -> None:
    """What is left of an epoch is not lost without a word; the loader itself goes on where the error was."""
    errors = iter([KeyboardInterrupt])

    def failing(picture: Any) -> torch.Tensor:
        tensor = to_tensor(picture)
        for error in errors if tensor[0, 0, 0] == 40 else ():
            raise error
        return tensor

    loader = FastLoader(FastDataset(big, failing), 8, threads=1)
    batches = iter(loader)
    with pytest.raises(KeyboardInterrupt):
        for _ in batches:
            pass
    with pytest.raises(RuntimeError, match="this iterator has ended with KeyboardInterrupt: begin another iteration"):
        next(batches)

    loader.load_state_dict(loader.state_dict())
    assert list(range(40, 64)) == labels_of(loader)
    done = iter(loader)
    assert len(list(done)) == 8
    assert list(done) == []
