"""A store that one thread closes while others read: they get what they asked for, or StoreError."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from fastio import FastDataset, FastLoader
from fastio.errors import StoreError
from fastio.store import SampleStore, open_store
from fastio.store.files.pread import PreadFiles
from tests.at_once import at_once

SOME = np.array([3, 0, 49])


def values(store: SampleStore) -> list[bytes]:
    """The bytes of some samples."""
    spans = store.spans("image", SOME)
    return [spans.view(position).tobytes() for position in range(len(spans))]


ASKED: dict[str, Callable[[SampleStore], Any]] = {
    "spans": values,
    "keys": lambda store: store.keys(SOME),
    "column": lambda store: store.column("label").tolist(),
    "shapes": lambda store: store.shapes("image").tolist(),
    "metadata": lambda store: store.metadata["classes"],
    "size_bytes": lambda store: store.size_bytes,
    "identity": lambda store: store.identity,
    "receipt": lambda store: store.receipt(),
}


@pytest.fixture
def often() -> Iterator[None]:
    """Threads take turns after every few steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("what", ASKED)
def test_closed_within_a_call(what: str, png_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that found the store open ends as if it still were."""
    with open_store(png_store) as store:
        expected = ASKED[what](store)
    store = open_store(png_store)
    opened = store._opened

    def closed_at_once() -> object:
        content = opened()
        store.close()
        monkeypatch.undo()  # calls within the call come too late
        return content

    monkeypatch.setattr(store, "_opened", closed_at_once)
    try:
        answer = ASKED[what](store)
    except StoreError as exc:
        answer = str(exc)

    assert answer in (expected, f"{png_store}: the store is closed: open it again")


@pytest.mark.parametrize("read", ["map", "pread"])
def test_datasets_closed_under_their_readers(read: Literal["map", "pread"], png_store: Path, often: None) -> None:
    """Every sample is right until the StoreError comes."""
    expected = [np.asarray(picture) for picture, _ in FastDataset(png_store)]  # type: ignore[attr-defined]

    def read_for_ever(dataset: FastDataset) -> None:
        while True:
            for index in SOME.tolist():
                assert np.array_equal(expected[index], np.asarray(dataset[index][0]))

    for _ in range(20):
        dataset = FastDataset(png_store, read=read)

        def work(number: int, dataset: FastDataset = dataset) -> None:
            if number == 0:
                dataset.close()
                return
            with pytest.raises(StoreError, match="the store is closed: open it again"):
                read_for_ever(dataset)

        at_once(work, threads=3)


@pytest.mark.parametrize("owner", ["loader", "dataset"])
def test_loaders_closed_under_their_readers(owner: str, png_store: Path, often: None) -> None:
    """Whoever iterates is told that the loader, or its store, is closed."""

    def read_for_ever(loader: FastLoader) -> None:
        while True:
            assert 50 == sum(len(labels) for _, labels in loader)

    for _ in range(5):
        dataset = FastDataset(png_store)
        loader = FastLoader(dataset, 3, threads=2)
        closed: FastLoader | FastDataset = loader if owner == "loader" else dataset

        def work(number: int, loader: FastLoader = loader, closed: FastLoader | FastDataset = closed) -> None:
            if number == 0:
                closed.close()
                return
            with pytest.raises((StoreError, ValueError), match=r"(FastLoader|store) is closed"):
                read_for_ever(loader)

        at_once(work, threads=3)
        loader.close()


def test_descriptors_that_another_thread_closes(png_stores: dict[str, Path]) -> None:
    """``close`` passes over files that another thread closed after it looked."""

    class Emptied(dict[int, None]):
        def __len__(self) -> int:
            return 1

    with open_store(png_stores["lmdb"], read="pread") as store:
        files = store.files
        assert isinstance(files, PreadFiles)
        files._open = Emptied()
        files.close()
