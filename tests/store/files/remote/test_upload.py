"""Uploads by obstore, to its store in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastio.store.files.remote import obstore_client
from fastio.store.files.remote.obstore_client import put_mode, upload

obstore = pytest.importorskip("obstore")
LARGE = bytes(range(256)) * 4096  # more than one request takes, in these tests


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstore_client, "_ONE_REQUEST", 1 << 19)
    monkeypatch.setattr(obstore_client, "_PART_BYTES", 1 << 18)


@pytest.fixture
def store() -> Any:
    return obstore.store.MemoryStore()


def _names(store: Any) -> list[str]:
    return sorted(entry["path"] for entry in obstore.list(store).collect())


@pytest.mark.parametrize("content", [b"", b"small", LARGE], ids=["empty", "small", "large"])
@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_content(store: Any, tmp_path: Path, content: bytes, mode: str) -> None:
    """A file of any size arrives whole, under its key alone."""
    file = tmp_path / "x.tar"
    file.write_bytes(content)
    upload(obstore, store, "a/x.tar", file, mode)
    assert obstore.get(store, "a/x.tar").bytes().to_bytes() == content
    assert _names(store) == ["a/x.tar"]


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
def test_taken(store: Any, tmp_path: Path, content: bytes) -> None:
    """A key that is taken keeps its object, and nothing else is left behind."""
    obstore.put(store, "a/x.tar", b"first")
    file = tmp_path / "x.tar"
    file.write_bytes(content)
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        upload(obstore, store, "a/x.tar", file, "create")
    assert obstore.get(store, "a/x.tar").bytes().to_bytes() == b"first"
    assert _names(store) == ["a/x.tar"]


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
def test_etag(store: Any, tmp_path: Path, content: bytes) -> None:
    """Only the version that was named is replaced."""
    etag = obstore.put(store, "x", b"first")["e_tag"]
    file = tmp_path / "x"
    file.write_bytes(content)
    upload(obstore, store, "x", file, put_mode(obstore, store, "x", if_absent=False, etag=etag))
    with pytest.raises(obstore.exceptions.PreconditionError):
        upload(obstore, store, "x", file, put_mode(obstore, store, "x", if_absent=False, etag=etag))
    assert obstore.get(store, "x").bytes().to_bytes() == content
