"""Files that are opened, and what is said where the system reports an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastio.dataset.reading import ShardFiles
from fastio.errors import StoreError
from fastio.store.mapping import map_file
from tests.store.faults import fail, fault


@pytest.mark.parametrize("call", ["open", "fstat", "close"])
def test_an_error_names_the_file(tmp_path: Path, call: str) -> None:
    """Whatever fails while a file is mapped is a StoreError with its path."""
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with fault(1, fail, calls=(call,)), pytest.raises(StoreError, match=rf"{path}: cannot be .*Input/output error"):
        map_file(str(path))
    assert map_file(str(path)).tobytes() == b"abc"


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    """Shards to be read by pread that are not there any more: StoreError with the path."""
    with pytest.raises(StoreError, match=rf"{tmp_path}/gone: cannot be read \(No such file"):
        ShardFiles([str(tmp_path / "gone")])
