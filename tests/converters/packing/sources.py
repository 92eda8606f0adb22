"""Sources that are packed by plan in these tests, and what lies in a folder afterwards."""

from __future__ import annotations

from pathlib import Path

from fastio.converters import Source, open_source, pack
from fastio.store import open_store
from tests.converters.trees import class_folders

PATTERN = "out-%06d.tar"
SHARD_BYTES = 8000


def source_in(tmp_path: Path, count: int = 6) -> Source:
    """A source of ``3 * count`` pictures in class folders, which are made if they are missing."""
    folder = tmp_path / "classes"
    if not folder.exists():
        class_folders(folder, count)
    return open_source(folder)


def others(tmp_path: Path, name: str) -> Source:
    """A source of pictures of the same classes, whose names begin with a letter."""
    class_folders(tmp_path / name, 2)
    for file in (tmp_path / name).rglob("*.*"):
        file.rename(file.with_name(f"{name}{file.parent.name}{file.name}"))
    return open_source(tmp_path / name)


def packed(tmp_path: Path, name: str, source: Source, **options) -> Path:
    """Pack a source into shards in a folder of its own."""
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    pack(source, folder / PATTERN, shard_bytes=SHARD_BYTES, **options)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """Everything that lies in a folder, hidden files too."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def keys(folder: Path) -> list[str]:
    """The keys of the set in a folder."""
    with open_store(folder / "out.fastio-set") as store:
        return store.keys(range(len(store)))
