"""A container that only tests know: one file and one entry in FORMATS, and every command and class works with it."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastio import FastDataset, FastLoader
from fastio.converters import Source, open_source, pack
from fastio.errors import StoreError, StoreIncomplete
from fastio.store import FORMATS, open_store
from fastio.store.index import seal
from fastio.store.index.seal import MAGIC
from tests.commands import run
from tests.converters.sources.conformance import SourceConformance
from tests.converters.trees import class_folders, files_below, flat, pickled
from tests.store import toy
from tests.store.build import make_samples, read_all, write
from tests.store.conformance import StoreConformance
from tests.store.version_1 import make_version_1


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    """The one line, for the tests of this file."""
    toy.register()
    yield
    del FORMATS["toycontainer"]


class TestToy(StoreConformance):
    """The conformance suite on the toy container."""

    suffix = ".toybox"
    prepare = staticmethod(toy.register)


class TestToyAsSource(SourceConformance):
    """The conformance suite of sources on a store in the toy container."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        """Class folders, packed."""
        class_folders(tmp_path / "c")
        pack(open_source(tmp_path / "c"), tmp_path / "s.toybox")
        return open_source(tmp_path / "s.toybox")


def test_there_and_back(tmp_path: Path) -> None:
    """Pack, info, ls, show, verify and unpack work, and say what the format brings along."""
    class_folders(tmp_path / "c")
    store = tmp_path / "s.toybox"
    packed, info = run("pack", tmp_path / "c", store), run("info", store)
    described = json.loads(run("info", store, "--json"))
    run("show", store, "-o", tmp_path / "sheet.png")
    run("unpack", store, tmp_path / "again")
    run("pack", store, tmp_path / "other.h5")

    assert "on top (the toy container pads values to 8 bytes)" in packed
    assert re.search(r"^samples +9\n.*^format +toycontainer$", info, re.MULTILINE | re.DOTALL)
    assert f"path = {str(store)!r}\n    samples = open(path" in info
    assert ("toycontainer", 9) == (described["format"], described["samples"])
    assert 9 == len(run("ls", store).splitlines())
    assert "all good" in run("verify", store, "--decode", "--against", tmp_path / "c")
    assert files_below(tmp_path / "c") == files_below(tmp_path / "again")


def test_loading(tmp_path: Path) -> None:
    """FastDataset and FastLoader read it, `bench` and `tune` too."""
    labels = flat(tmp_path / "pngs")
    store = tmp_path / "s.toy"
    run("pack", tmp_path / "pngs", store, "--labels", pickled(tmp_path / "labels.pkl", labels))
    dataset = FastDataset(store)
    with FastLoader(dataset, 3, shuffle=True, seed=1, device="cpu") as loader:
        loaded = [label for _, batch in loader for label in batch.tolist()]

    assert list(labels.values()) == [label for _, label in dataset]
    assert sorted(labels.values()) == sorted(loaded)
    assert 7 == json.loads(run("bench", "io", store, "--batch-size", 2, "--epochs", 1, "--json"))["samples"]
    run("tune", store, "--seconds", 0.2, "--batch-size", 2)


@pytest.mark.parametrize("tokenizer", [(), ("--tokenizer", "bytes")])
def test_text(tmp_path: Path, tokenizer: tuple[str, ...]) -> None:
    """Text and tokens go in and come out."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("one\ntwo\n")
    packed = run("pack", tmp_path / "texts", tmp_path / "s.toybox", *tokenizer)
    run("unpack", tmp_path / "s.toybox", tmp_path / "again")

    assert "on top (the toy container pads values to 8 bytes)" in packed
    assert files_below(tmp_path / "texts") == files_below(tmp_path / "again")


@pytest.mark.parametrize("form", ["s-%03d.toybox", "s-*.toybox", "."])
def test_shards(tmp_path: Path, form: str) -> None:
    """Shards open by pattern and by folder, which `bench` takes for a store."""
    samples = make_samples(60)
    write(tmp_path / "s-%03d.toybox", samples, shard_bytes=10_000)
    with open_store(tmp_path / form) as store:
        assert samples == read_all(store)
        assert len(store.shard_paths) > 2
    assert "path = " in run("info", tmp_path / form)
    assert "# the first of " in run("info", tmp_path / form)


def test_a_folder_of_several_formats_is_refused(tmp_path: Path) -> None:
    """Which shards are meant is asked."""
    for suffix in ("toybox", "tar"):
        write(tmp_path / f"s-%d.{suffix}", {"a": b"1"})
        make_version_1(tmp_path / f"s-%d.{suffix}")
    with pytest.raises(StoreError, match=r"holds \.tar and \.toybox files: name the shards, e\.g\. name-\*\.tar"):
        open_store(tmp_path)


def test_messages_name_it(tmp_path: Path) -> None:
    """What lists formats lists this one, and its content is known under another name."""
    (tmp_path / "a.lmdb").write_bytes(Path(write(tmp_path / "a.toybox", {"a": b"1"})).read_bytes())
    (tmp_path / "b.toybox").write_bytes(bytes(5000))
    flat(tmp_path / "pngs", 2)

    assert "one of .lmdb, .h5, .hdf5, .tar, .zip, .toybox, .toy;" in run(
        "pack", tmp_path / "pngs", tmp_path / "s.x", code=1
    )
    assert "a file that is named like a toy container" in run("pack", tmp_path / "b.toybox", tmp_path / "s.tar", code=1)
    with pytest.raises(StoreIncomplete, match="its content looks like toycontainer, but its name says lmdb"):
        open_store(tmp_path / "a.lmdb")


def test_formats_are_told_apart() -> None:
    """No two have a name, a suffix or a mark in the seal in common."""
    suffixes = [suffix for form in FORMATS.values() for suffix in form.suffixes]
    marks = [seal.format_mark(form.name) for form in FORMATS.values()]

    assert list(FORMATS) == [form.name for form in FORMATS.values()]
    assert len(suffixes) == len(set(suffixes))
    assert len(marks) == len(set(marks))


def test_a_long_name_is_a_checksum_in_the_seal(tmp_path: Path) -> None:
    """Names of up to four characters stand in the seal as before; of a longer one its CRC-32."""
    tags = []
    for suffix in (".toybox", ".tar", ".h5"):
        data = Path(write(tmp_path / f"a{suffix}", {"a": b"1"})).read_bytes()
        at = data.rindex(MAGIC)
        tags.append(data[at + 12 : at + 16])

    assert [zlib.crc32(b"toycontainer").to_bytes(4, "little"), b"tar\0", b"hdf5"] == tags
