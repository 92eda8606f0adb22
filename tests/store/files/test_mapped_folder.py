"""Files mapped side by side: the bytes of the listed folder, at other places, and files that were changed since."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastio import _native
from fastio.errors import StoreError
from fastio.store.files import files_of
from fastio.store.files.mapped_folder import MappedFolder, are_few
from fastio.types.spans import Spans
from tests.store.files.test_listed import folder

PAGE = mmap.PAGESIZE
SIZES = st.lists(st.sampled_from([0, 1, 7, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE]), min_size=1, max_size=5)


@given(sizes=SIZES, kept=st.sampled_from([0, 1, PAGE, PAGE + 3]), seed=st.integers(0, 9))
def test_values_are_those_of_the_listed_folder(sizes: list[int], kept: int, seed: int) -> None:
    """Any value within one file, or within the kept bytes, is the same by both ways."""
    draw = np.random.default_rng(seed)
    with TemporaryDirectory() as root:
        files = {f"{i}": draw.bytes(size) for i, size in enumerate(sizes)}
        listed = folder(Path(root), files, draw.bytes(kept))
        mapped = MappedFolder(listed)
        bounds = listed.bounds
        part = draw.integers(0, len(bounds) - 1, 12)
        starts = draw.integers(bounds[part], bounds[part + 1] + 1)
        lengths = draw.integers(0, bounds[part + 1] - starts + 1)
        asked = Spans(files_of([listed]).buffers, np.zeros(12, np.int32), starts, lengths)
        expected = [view.tobytes() for view in files_of([listed]).fetch(asked).wait()[0].views()]
        placed = mapped.placed(starts)
        there = Spans(files_of([mapped]).buffers, np.zeros(12, np.int32), placed, lengths)
        found, status = files_of([mapped]).fetch(there).wait()

        assert status is None
        places = [mapped.place_of(at) for at, n in zip(placed.tolist(), lengths.tolist(), strict=True) if n]
        assert places == [listed.place_of(at) for at, n in zip(starts.tolist(), lengths.tolist(), strict=True) if n]
        whole = {name: Path(name).read_bytes() for name, _ in places if name != "shown"}
        values = filter(None, expected)
        assert all(
            whole[name][at : at + len(value)] == value
            for (name, at), value in zip(places, values, strict=True)
            if name in whole
        )
        assert expected == [view.tobytes() for view in found.views()]
        assert expected == [mapped.read(at, at + n).tobytes() for at, n in zip(placed, lengths, strict=True)]


def test_values_of_a_file_that_was_changed(tmp_path: Path) -> None:
    """They have a status and no bytes, and the reason names the file; those of others, and kept ones, are given."""
    forgotten = list[bool]()
    listed = folder(tmp_path, {"a": b"first", "b": b"second"}, b"kept")
    listed.forget = lambda: forgotten.append(True)
    mapped = MappedFolder(listed)
    files = files_of([mapped])
    starts = mapped.placed(np.array([0, 4, 9, 15]))
    asked = Spans(files.buffers, np.zeros(4, np.int32), starts, np.array([4, 5, 6, 0]))
    os.utime(tmp_path / "b", ns=(2000, 2000))
    found, status = files.fetch(asked).wait()

    assert status is not None
    assert [_native.OK, _native.OK, _native.CHANGED, _native.OK] == status.tolist()
    assert [b"kept", b"first", b"", b""] == [view.tobytes() for view in found.views()]
    assert files.failure(asked.part(0, 2)) is None
    assert str(files.failure(asked)).startswith("'b' was changed since it was indexed")
    assert forgotten
    (tmp_path / "a").unlink()
    assert "'a' is no longer as it was indexed" in str(files.failure(asked))
    with pytest.raises(StoreError, match="a: cannot be read"):
        MappedFolder(listed)


def test_which_files_are_mapped(tmp_path: Path) -> None:
    """Those that hold several values each; files of folders, one value each, are not."""
    files = folder(tmp_path).files

    assert not are_few(files, 3)
    assert are_few(files, 6)
