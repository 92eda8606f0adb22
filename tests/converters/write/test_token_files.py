"""Rows of ids are written whole or not at all, and read again as they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastio import SchemaError, StoreError, TokenStream
from fastio.converters.write.token_files import TokenFileWriter
from tests.dataset.streams import documents_of, write_megatron

LENGTHS = (5, 1, 30, 12)


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_megatron_is_that_of_the_layout(tmp_path: Path, dtype: str) -> None:
    """The bytes of both files are those that the description of the layout gives."""
    documents = documents_of(LENGTHS)
    expected = write_megatron(tmp_path / "expected", documents, dtype)
    with TokenFileWriter(tmp_path / "m.bin", dtype=dtype, megatron=True) as out:
        for ids in documents:
            out.write(ids)
    for suffix in (".bin", ".idx"):
        assert Path(f"{expected}{suffix}").read_bytes() == (tmp_path / f"m{suffix}").read_bytes()
    assert (4, 48) == (out.documents, out.tokens)


def test_documents_in_parts(tmp_path: Path) -> None:
    """Documents may be written several at a time, and one in several parts."""
    documents = documents_of(LENGTHS)
    ids = np.concatenate(documents)
    with TokenFileWriter(tmp_path / "m.bin", dtype="uint16", megatron=True) as out:
        out.write_all(ids[:20], [5, 1, 14])
        out.write_all(ids[20:], [16, 12], continues=True)
    stream = TokenStream(tmp_path / "m")
    assert np.array_equal(ids, stream[:])
    assert [0, 5, 6, 36] == stream.documents.tolist()


def test_nothing_is_left_of_what_was_not_closed(tmp_path: Path) -> None:
    """An exception leaves the folder as it was, and so do ids that do not fit."""
    with TokenFileWriter(tmp_path / "a.bin", dtype="uint16") as out:
        out.write([1, 2])
        with pytest.raises(SchemaError, match="do not fit into uint16"):
            out.write([65_536])
        out.abort()
    with pytest.raises(StoreError, match="no ids were written"), TokenFileWriter(tmp_path / "a.bin", dtype="u2"):
        pass
    assert [] == list(tmp_path.iterdir())


def test_what_exists_is_kept_or_replaced_whole(tmp_path: Path) -> None:
    """A name that is taken is refused; with overwrite, an index of before does not stay beside new ids."""
    write_megatron(tmp_path / "m", documents_of(LENGTHS))
    with pytest.raises(StoreError, match=r"m\.bin: exists"):
        TokenFileWriter(tmp_path / "m.bin", dtype="uint16")
    with TokenFileWriter(tmp_path / "m.bin", dtype="uint16", overwrite=True) as out:
        out.write([7, 8, 9])
    assert ["m.bin"] == [path.name for path in tmp_path.iterdir()]
    assert [7, 8, 9] == TokenStream(tmp_path / "m.bin", dtype="uint16")[:].tolist()


def test_what_is_no_token_file_is_refused(tmp_path: Path) -> None:
    """Names and dtypes are checked before anything is created."""
    with pytest.raises(StoreError, match=r"ends with \.bin"):
        TokenFileWriter(tmp_path / "a.npy", dtype="uint16")
    with pytest.raises(SchemaError, match="knows no uint32"):
        TokenFileWriter(tmp_path / "a.bin", dtype="uint32", megatron=True)
    with pytest.raises(StoreError, match="does not exist"):
        TokenFileWriter(tmp_path / "none" / "a.bin", dtype="uint16")
    assert [] == list(tmp_path.iterdir())
