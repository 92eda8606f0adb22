"""Files of a folder as one: any spans of them, and files that are no longer what was listed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastio import _native
from fastio.errors import StoreError
from fastio.store.files import files_of, open_file
from fastio.store.files.listed import FileList, ListedFolder
from fastio.types.spans import Spans

KEPT = b"captions"
FILES = {"a": b"first", "sub/b": b"the second file", "c\xe9": b"3"}


def folder(root: Path, files: dict[str, bytes] = FILES, kept: bytes = KEPT) -> ListedFolder:
    """These files, written and listed in this order."""
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
        os.utime(root / name, ns=(1000, 1000))
    names = [os.fsencode(name) + b"\0" for name in files]
    lengths = np.array([len(name) for name in names], np.int64)
    about = [(root / name).stat() for name in files]
    listed = FileList(
        np.frombuffer(b"".join(names), np.uint8),
        np.cumsum(lengths) - lengths,
        np.array([each.st_size for each in about], np.int64),
        np.array([each.st_mtime_ns for each in about], np.int64),
        np.frombuffer(kept, np.uint8),
    )
    return ListedFolder("shown", str(root), listed, content=1)


def spans(source: ListedFolder, places: list[tuple[int, int]], shard: int = 0, of: int = 1) -> Spans:
    """These starts and sizes of one of several folders."""
    starts, sizes = np.array(places, np.int64).reshape(-1, 2).T.copy()
    return Spans(files_of([source] * of).buffers, np.full(len(starts), shard, np.int32), starts, sizes)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[ListedFolder, bytes]]:
    """A folder, and all its bytes one behind the other."""
    root = Path(mkdtemp())
    yield folder(root), KEPT + b"".join(FILES.values())
    shutil.rmtree(root)


WHOLE = len(KEPT) + sum(map(len, FILES.values()))


@given(
    st.lists(st.tuples(st.integers(0, WHOLE), st.integers(0, WHOLE)).map(sorted), max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_any_spans(both: tuple[ListedFolder, bytes], bounds: list[list[int]], in_pool: bool, in_ring: bool) -> None:
    """Spans in any order, over one file or several, are what lies there; so is each range of the source."""
    source, data = both
    asked = spans(source, [(start, stop - start) for start, stop in bounds])
    files = files_of([source])
    pool = _native.ThreadPool(2) if in_pool else None
    files.read_ahead(asked, pool=pool).wait()
    found, status = files.fetch(asked, pool=pool, ring=_native.BufferRing(2) if in_ring else None).wait()

    assert [data[start:stop] for start, stop in bounds] == [view.tobytes() for view in found.views()]
    assert status is None
    assert [data[start:stop] for start, stop in bounds] == [source.read(*each).tobytes() for each in bounds]


@given(start=st.integers(-2, WHOLE + 2), size=st.integers(0, WHOLE + 2))
def test_one_span_of_one_file(both: tuple[ListedFolder, bytes], start: int, size: int) -> None:
    """The short way gives the row that the way for any spans gives, or leaves it to that."""
    source, _ = both
    row = source.part(start, size)
    ends = np.cumsum([len(KEPT), *map(len, FILES.values())]).tolist()
    within = any(begin <= start and start + size <= end for begin, end in pairwise(ends))

    assert (row is not None) == (within and size > 0)
    if row is not None:
        rows, owner = source.parts(np.array([start]), np.array([size]))
        assert rows.tolist() == row.tolist()
        assert [0] == owner.tolist()


def _open_files() -> list[str]:
    """What the descriptors of this process name; threads of other tests may close theirs meanwhile."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(entry.readlink()))
    return found


@pytest.mark.parametrize("threads", [0, 4])
def test_several_values_of_a_file(tmp_path: Path, threads: int) -> None:
    """They come in any order, from more files than stay open; none does afterwards, and a changed file is noticed."""
    names = {f"{i:03d}": bytes(range(i, i + 40)) for i in range(90)}
    source = folder(tmp_path, names, b"")
    files, pool = files_of([source]), _native.ThreadPool(threads) if threads else None
    places = np.random.default_rng(0).permutation([(40 * i + at, 20) for i in range(90) for at in (0, 5, 20)])
    for _ in range(3):
        found, status = files.fetch(spans(source, places.tolist()), pool=pool).wait()
        assert status is None
        assert [b"".join(names.values())[at : at + 20] for at in places[:, 0]] == [v.tobytes() for v in found.views()]
    del found
    assert [] == [name for name in _open_files() if name.startswith(f"{tmp_path}/")]
    assert files.opens.files == 0
    _rewritten(tmp_path / "007")
    _, status = files.fetch(spans(source, places.tolist()), pool=pool).wait()
    assert status is not None
    assert ((places[:, 0] // 40 == 7) == (status == _native.CHANGED)).all()


def test_spans_of_two_folders(tmp_path: Path) -> None:
    """A store of several folders reads each sample from its own."""
    one, two = folder(tmp_path / "one", {"x": b"one"}, b""), folder(tmp_path / "two", {"x": b"two!"}, b"k")
    files = files_of([one, two])
    places = [(1, 1, 4), (0, 0, 3), (1, 0, 1), (1, 0, 5)]
    shard, starts, sizes = np.array(places).T.copy()
    asked = Spans(files.buffers, shard.astype(np.int32), starts, sizes)

    assert files.read_ahead(asked).wait()
    assert [b"two!", b"one", b"k", b"ktwo!"] == [view.tobytes() for view in files.fetch(asked).wait()[0].views()]


@pytest.mark.parametrize(("shard", "start", "size"), [(0, WHOLE - 1, 2), (1, 0, 1), (0, -1, 1), (0, 0, -1), (-1, 0, 1)])
def test_spans_outside(both: tuple[ListedFolder, bytes], shard: int, start: int, size: int) -> None:
    """Spans that leave the folder are refused before anything is read."""
    with pytest.raises(IndexError, match=f"{size} bytes from {start} of file {shard}"):
        files_of([both[0]]).fetch(spans(both[0], [(start, size)], shard))


def _rewritten(file: Path) -> None:
    file.write_bytes(b"other")  # of the same size


def _longer(file: Path) -> None:
    file.write_bytes(b"a longer one")


def _folder_in_its_place(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("change", "words", "status"),
    [
        (_rewritten, r"'a' was changed since it was indexed \(5 bytes\): open shown again", _native.CHANGED),
        (_longer, r"'a' was changed since it was indexed \(12 bytes, was 5\)", _native.CHANGED),
        (Path.unlink, r"'a' is no longer as it was indexed \(No such file or directory\)", _native.IO_ERROR),
        (_folder_in_its_place, "'a' was changed since it was indexed", _native.IO_ERROR),
    ],
)
def test_a_file_that_is_another(tmp_path: Path, change: Callable[[Path], object], words: str, status: int) -> None:
    """Its samples have a status and words that name it, others come; the index is told."""
    source, told = folder(tmp_path), list[bool]()
    source.forget = lambda: told.append(True)
    files, asked = files_of([source]), spans(source, [(len(KEPT), 5), (len(KEPT) + 5, 15), (0, len(KEPT) + 6)])
    change(tmp_path / "a")
    found, states = files.fetch(asked).wait()

    assert states is not None
    assert [status, _native.OK, status] == states.tolist()
    assert [0, 15, 0] == found.sizes.tolist()
    assert files.failure(asked.part(1, 2)) is None
    assert not told
    with pytest.raises(StoreError, match=f"^shown: {words}"):
        source.read(0, len(KEPT) + 1)
    assert told


def test_no_folder(tmp_path: Path) -> None:
    """What was moved away is missing, by the system's words."""
    source = folder(tmp_path / "set")
    (tmp_path / "set").rename(tmp_path / "moved")
    with pytest.raises(StoreError, match=r"'a' is no longer as it was indexed \(No such file"):
        source.read(len(KEPT), len(KEPT) + 1)

    assert source.read(0, 4).tobytes() == KEPT[:4]


def test_a_folder_and_a_file_are_no_store(tmp_path: Path) -> None:
    """They are read in different ways."""
    source = folder(tmp_path)
    with pytest.raises(StoreError, match="cannot be joined"):
        files_of([source, open_file(str(tmp_path / "a"))])


def test_native_parts_are_checked(tmp_path: Path) -> None:
    """Rows that leave their file, the names or the memory are refused before anything is read."""
    (tmp_path / "a").write_bytes(b"abc")
    names, kept, out = np.frombuffer(b"a\0", np.uint8), np.frombuffer(b"kk", np.uint8), np.zeros(4, np.uint8)
    state = (*np.zeros((2, 1), np.int32), np.zeros(1, np.int64))
    good = [0, 0, 3, 3, (tmp_path / "a").stat().st_mtime_ns, 1]
    root = os.fsencode(tmp_path)
    _native.read_parts(root, names, kept, np.array([good]), out, *state).wait()
    assert (b"\0abc", [0, 0]) == (out.tobytes(), [int(each[0]) for each in state[:2]])
    assert state[2][0] > 0
    for column, value in ((0, 2), (1, 1), (1, -1), (2, -1), (2, 4), (3, -1), (5, 2), (5, -1)):
        row = [*good[:column], value, *good[column + 1 :]]
        with pytest.raises(IndexError, match="part 0"):
            _native.read_parts(root, names, kept, np.array([row]), out, *state)
    with pytest.raises(IndexError, match="part 0"):
        _native.read_parts(root, names, kept, np.array([[-1, 1, 2, 0, 0, 0]]), out, *state)
    with pytest.raises(ValueError, match="NUL"):
        _native.read_parts(root, names[:1], kept, np.array([good]), out, *state)
