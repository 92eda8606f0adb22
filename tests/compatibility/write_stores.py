"""Writes the stores of this version: ``python -m tests.compatibility.write_stores``, once, when it is released."""

from __future__ import annotations

import contextlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

import fastio
from fastio import Writer
from fastio.cli import cli
from fastio.store import FORMATS
from tests.compatibility import sources
from tests.compatibility.manifest import describe_store, saved_states

__all__ = ["main", "write_version"]

FOLDER = Path(__file__).parent
STATES_OF = "lines.h5"
SUFFIXES = [form.suffixes[0] for form in FORMATS.values()]


def main() -> None:
    """Write ``<version>.tar.xz`` and ``<version>.json`` beside this file. Refuses to replace what a release wrote."""
    archive = FOLDER / f"{fastio.__version__}.tar.xz"
    with tempfile.TemporaryDirectory() as name:
        manifest = write_version(Path(name))
        with archive.open("xb") as file, tarfile.open(fileobj=file, mode="w:xz", preset=9) as tar:
            for path in sorted((Path(name) / "stores").iterdir()):
                tar.add(path, path.name, filter=_of_nobody)
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    (FOLDER / f"{fastio.__version__}.json").write_text(text + "\n", encoding="utf-8")
    click.echo(f"{archive}: {len(manifest['stores'])} stores, {archive.stat().st_size} bytes")


def write_version(folder: Path) -> dict[str, Any]:
    """Pack every kind of store that there is into ``folder/stores``, and return what is in them."""
    stores = folder / "stores"
    stores.mkdir()
    with contextlib.chdir(folder):
        names = [name for pack in PACKS for name in pack()]
    described = {name: describe_store(stores / name) for name in names}
    return {"stores": described, "states": {STATES_OF: saved_states(stores / STATES_OF)}}


def _pictures() -> Iterator[str]:
    source = sources.write_pictures(Path("pictures"))
    for suffix in SUFFIXES:
        yield _packed(source, f"pictures{suffix}")
    yield _packed(source, "pictures-%06d.tar", "--shard-size", "10kB")
    yield _packed(source, "small.zip", "--short-side", "8", "--quality", "80")


def _photos() -> Iterator[str]:
    source = sources.write_photos(Path("photos"))
    for suffix in SUFFIXES:
        yield _packed(source, f"jump{suffix}", "--source-kind", "imagefolder", "--jump")
    yield _packed(source, "restart.h5", "--source-kind", "imagefolder", "--restart", "2")


def _tiles() -> Iterator[str]:
    source = sources.write_tiles(Path("tiles"))
    for suffix in SUFFIXES:
        yield _packed(source, f"raw{suffix}", "--raw")
    yield _packed(source, "grown-%06d.tar", "--shard-size", "3kB")
    _packed(sources.write_tiles(Path("more"), 4), "grown-%06d.tar", "--append", "--shard-size", "3kB")
    _packed(sources.write_tiles(Path("others"), 8), "late.tar")
    _run("merge", "stores/grown.fastio-set", "stores/late.tar", "--out", "stores/merged.fastio-set")
    yield "merged.fastio-set"


def _lines() -> Iterator[str]:
    source = sources.write_text(Path("lines.txt"))
    for suffix in SUFFIXES:
        yield _packed(source, f"lines{suffix}", "--tokenizer", "bytes", "--eos")
        yield _packed(source, f"text{suffix}")
    yield _packed(source, "each.tar", "--tokenizer", "bytes", "--per-sample")


def _scenes() -> Iterator[str]:
    for suffix in SUFFIXES:
        name = f"scenes{suffix}"
        with Writer(f"stores/{name}", sources.SCENE_FIELDS, metadata={"classes": ["street", "field"]}) as out:
            for key, sample in sources.scenes():
                out.write(sample, key=key)
        yield name


def _shards_of_others() -> Iterator[str]:
    sources.write_shards(Path("stores"))
    yield "other-*.tar"
    Path("stores/indexed").mkdir()
    for name in ("other-000000.tar", "other-000001.tar"):
        shutil.copy(f"stores/{name}", "stores/indexed")
    _run("index", "stores/indexed/other-*.tar", "--to", "stores/indexed", "--jump")
    yield "indexed/other.fastio-set"


PACKS: tuple[Callable[[], Iterator[str]], ...] = (_pictures, _photos, _tiles, _lines, _scenes, _shards_of_others)


def _packed(source: Path, name: str, *options: str) -> str:
    _run("pack", str(source), f"stores/{name}", *options)
    return name


def _run(*words: str) -> None:
    """Run a command as a user does."""
    cli.main(list(words), standalone_mode=False)


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who packed it, and when."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
