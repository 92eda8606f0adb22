"""Sets in an object store: of two sealers at once one wins, and the other agrees or is refused."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from fastio.errors import StoreError
from fastio.store import FORMATS, open_store
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.scratch import ScratchFolder
from fastio.store.sets.seal import seal_set
from fastio.store.sets.set_object import SetObject
from fastio.store.write.destination import ShardDestination
from tests.servers.fixtures import Bucket
from tests.store.build import LABELLED, make_batch

NAMES = [f"in-{number:06d}.tar" for number in range(3)]


@pytest.fixture
def options(bucket: Bucket) -> Remote:
    """How the bucket is reached, in which three shards lie."""
    options = Remote(storage_options=bucket.options)
    with ShardDestination(folder_of(f"{bucket.url}/x", options)[0]) as destination:
        for number, name in enumerate(NAMES):
            with destination.writer(name, LABELLED, plan=5, number=number) as writer:
                writer.append(make_batch([f"{number}.png"], [b"sample %d" % number]))
    return options


def _sealed(url: str, names: list[str], options: Remote, generation: int = 1) -> SetObject:
    return seal_set(
        url,
        names,
        FORMATS["tar"],
        metadata=b"{}",
        generation=generation,
        replace=generation > 1,
        options=options,
    )


def _at_once(*works: Callable[[], object]) -> list[BaseException | None]:
    """What each of these calls raised, begun at the same moment."""
    barrier = Barrier(len(works))

    def run(work: Callable[[], object]) -> BaseException | None:
        barrier.wait(30)
        try:
            work()
        except StoreError as exc:
            return exc
        return None

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(run, works))


def test_a_scratch_folder_that_goes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for stale scratch folders is not disturbed by others that remove theirs."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: [folder / pattern.replace("*", "gone")])
    with ScratchFolder() as scratch:
        assert scratch.path.is_dir()


def test_the_same_set_twice(bucket: Bucket, options: Remote) -> None:
    """Sealers of the same shards agree, however they meet."""
    url = f"{bucket.url}/in.fastio-set"
    assert [None] * 4 == _at_once(*[lambda: _sealed(url, NAMES, options)] * 4)
    with open_store(f"{bucket.url}/in-%06d.tar", remote=options) as store:
        assert ["0.png", "1.png", "2.png"] == store.keys(range(3))


@pytest.mark.parametrize("generation", [1, 2])
def test_two_sets_under_one_name(bucket: Bucket, options: Remote, generation: int) -> None:
    """Of sealers of other shards one wins, and the other is refused by name."""
    url = f"{bucket.url}/in.fastio-set"
    if generation == 2:
        _sealed(url, NAMES, options)
    first, second = _at_once(
        lambda: _sealed(url, NAMES[:1], options, generation), lambda: _sealed(url, NAMES[:2], options, generation)
    )
    assert (first is None) != (second is None)
    assert url in str(first or second)
    with open_store(url, remote=options) as store:
        assert (1 if first is None else 2) == len(store)


def test_a_generation_that_came_between(bucket: Bucket, options: Remote) -> None:
    """A set object of another generation than the one looked at is not replaced."""
    url = f"{bucket.url}/in.fastio-set"
    for generation in (1, 2):
        _sealed(url, NAMES[:generation], options, generation)
    with pytest.raises(StoreError, match=r"in\.fastio-set: expected generation 1 of this set, got 2"):
        _sealed(url, NAMES, options, 2)
    with pytest.raises(StoreError, match=r"in\.fastio-set: exists"):
        _sealed(url, NAMES, options)
