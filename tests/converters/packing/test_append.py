"""Sets that grow: more shards behind those that are there, as the next generation."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from fastio.converters import Part, Source, open_source, pack, seal
from fastio.converters.packing.repair import repair
from fastio.errors import SchemaError, SourceError, StoreError
from fastio.store import open_store
from fastio.store.folders import LocalFolder
from fastio.store.sets import members
from fastio.store.sets import seal as sealing
from fastio.store.sets.set_object import read_set
from fastio.store.write import keys as key_ledger
from tests.converters.packing.sources import PATTERN, SHARD_BYTES, files, keys, packed, source_in
from tests.converters.trees import class_folders


def more(tmp_path: Path, *, count: int = 4, prefix: str = "900") -> Source:
    """A source of other samples of the same classes."""
    folder = tmp_path / "more"
    if not folder.exists():
        class_folders(folder, count)
        for file in folder.glob("*/*"):
            file.rename(file.with_name(f"{prefix}{file.parent.name if prefix else ''}{file.name}"))
    return open_source(folder)


def append(folder: Path, source: Source, **options):
    return pack(source, folder / PATTERN, shard_bytes=SHARD_BYTES, append=True, **options)


def generation(folder: Path) -> int:
    return read_set(LocalFolder(str(folder)).open("out.fastio-set")).generation


def test_appended(tmp_path):
    """The set has the old samples, then the new ones; no old shard was touched."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    before, old_keys = files(folder), keys(folder)
    report = append(folder, more(tmp_path))
    after = files(folder)

    assert report.packed == 12
    assert keys(folder)[:18] == old_keys
    assert all("/900" in key for key in keys(folder)[18:])
    assert len(keys(folder)) == 30
    assert {name: after[name] for name in before if name != "out.fastio-set"} == {
        name: content for name, content in before.items() if name != "out.fastio-set"
    }
    assert generation(folder) == 2
    with open_store(folder) as store:
        assert store.metadata["source"]["name"] == "classes + more"
        assert len(store.metadata["classes"]) == 3


def test_new_shards_are_those_of_a_pack_alone(tmp_path):
    """A shard is the same bytes, whether it is packed behind others or first."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    old = set(files(folder))
    append(folder, more(tmp_path))
    alone = packed(tmp_path, "alone", more(tmp_path))
    new = [content for name, content in files(folder).items() if name not in old]
    assert new == [content for name, content in files(alone).items() if name != "out.fastio-set"]


def test_twice(tmp_path):
    """What was appended already is refused, and with resume there is nothing to do."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    append(folder, more(tmp_path))
    before = files(folder)
    with pytest.raises(StoreError, match="was appended already"):
        append(folder, more(tmp_path))
    report = append(folder, more(tmp_path), resume=True)
    assert report.kept_shards == report.shards
    assert files(folder) == before


def test_same_keys(tmp_path):
    """A key that the set has already is named before anything is packed."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    before = files(folder)
    with pytest.raises(SchemaError, match=r"key '.*' is in .*out\.fastio-set already"):
        append(folder, more(tmp_path, prefix=""))
    assert files(folder) == before


def test_same_keys_far_apart(tmp_path, monkeypatch):
    """Also if so many keys lie between that only sorted runs of all tell."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    before = files(folder)
    monkeypatch.setattr(key_ledger, "TABLE_NAMES", 2)
    with pytest.raises(SchemaError, match=r"more: key '.*' is in .*out\.fastio-set already"):
        append(folder, more(tmp_path, prefix=""))
    assert files(folder) == before


def labels_by_name(folder: Path) -> dict[str, str]:
    """The class of each sample of a set, by its number there; every key begins with the name of its folder."""
    with open_store(folder) as store:
        names = [store.metadata["classes"][label] for label in store.column("label").tolist()]
        return dict(zip(store.keys(range(len(store))), names, strict=True))


def test_some_of_the_classes(tmp_path):
    """A folder with one of the classes: its samples get the number that the set has for that name."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    source = more(tmp_path)
    first, *others = sorted(path for path in Path(source.path).iterdir() if path.is_dir())
    shutil.rmtree(first)
    shutil.rmtree(others[0])
    append(folder, open_source(source.path, kind="imagefolder"))
    whole = files(folder)

    by_name = labels_by_name(folder)
    assert 22 == len(by_name)
    assert all(key.startswith(name) for key, name in by_name.items())
    with pytest.raises(StoreError, match="was appended already"):
        append(folder, open_source(source.path, kind="imagefolder"))
    new = sorted(folder.glob("*.tar"))[-1]
    new.unlink()
    assert [new.name] == [Path(shard.path).name for shard in repair(str(folder), source.path).repaired]
    assert files(folder) == whole


def test_new_classes(tmp_path, caplog):
    """If asked for, names that the set lacks come behind its own, wherever the alphabet has them; one line says so."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    before = labels_by_name(folder)
    source = more(tmp_path)
    last = sorted(path for path in (tmp_path / "more").iterdir() if path.is_dir())[-1]
    last.rename(last.with_name("0000"))
    append(folder, open_source(source.path), new_classes=True)

    by_name = labels_by_name(folder)
    assert before.items() <= by_name.items()
    assert all(key.startswith(name) for key, name in by_name.items())
    with open_store(folder) as store:
        assert ["0000"] == store.metadata["classes"][3:]
    (record,) = caplog.records
    assert f"more: 1 class that {folder / PATTERN} does not have yet: '0000'" in record.getMessage()


def test_a_misspelt_class(tmp_path):
    """A folder whose name the set does not know is refused before anything is packed; the nearest class is named."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    before, source = files(folder), more(tmp_path)
    last = sorted(path for path in (tmp_path / "more").iterdir() if path.is_dir())[-1]
    last.rename(last.with_name(f"{last.name}s"))
    with pytest.raises(
        SchemaError, match=rf"'{last.name}s' \(nearest: '{last.name}'\): correct the name, .*--new-classes"
    ):
        append(folder, open_source(source.path))

    assert before == files(folder)


def test_labels_that_are_numbers(tmp_path):
    """They do not join classes that have names: nothing says which number is which name."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    before, flat = files(folder), tmp_path / "numbers"
    flat.mkdir()
    for number, file in enumerate(sorted((tmp_path / "classes").glob("*/*"))[:3]):
        (flat / f"n{number}{file.suffix}").write_bytes(file.read_bytes())
    names = sorted(path.name for path in flat.iterdir())
    (tmp_path / "labels.json").write_text(json.dumps({name: number for number, name in enumerate(names)}))
    with pytest.raises(SchemaError, match="numbers: its labels are numbers"):
        append(folder, open_source(flat, labels=tmp_path / "labels.json"))

    assert before == files(folder)


def test_no_set(tmp_path):
    """There must be a set to append to."""
    (tmp_path / "out").mkdir()
    with pytest.raises(StoreError, match="no set to append to"):
        append(tmp_path / "out", more(tmp_path))


def test_single_file(tmp_path):
    """A store of one file does not grow."""
    with pytest.raises(StoreError, match=r"single file.*--append"):
        pack(more(tmp_path), tmp_path / "x.lmdb", append=True)


def test_interrupted(tmp_path):
    """A bad sample leaves the old set as it was; killed later, the finished shards are reused."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    before = files(folder)
    append(packed(tmp_path, "whole", source_in(tmp_path)), more(tmp_path))
    expected = files(tmp_path / "whole")
    victim = sorted((tmp_path / "more").rglob("*.JPEG"))[-1]
    content = victim.read_bytes()
    victim.write_bytes(b"x" * len(content))
    with pytest.raises(SourceError, match=re.escape(victim.name)):
        append(folder, more(tmp_path))
    assert files(folder) == before
    victim.write_bytes(content)

    new = sorted(expected.keys() - before.keys())
    (folder / new[0]).write_bytes(expected[new[0]])  # as a killed packer leaves it
    (folder / new[1]).write_bytes(expected[new[1]][:-700])
    with pytest.raises(StoreError, match="--append --resume"):
        append(folder, more(tmp_path))
    report = append(folder, more(tmp_path), resume=True)
    assert report.kept_shards == 1
    assert files(folder) == expected


def test_parts(tmp_path):
    """Parts may append, too: the last one makes the next generation, the same bytes as one process makes."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    append(packed(tmp_path, "whole", source_in(tmp_path)), more(tmp_path))
    assert append(folder, more(tmp_path), part=Part(1, 2)).missing
    assert generation(folder) == 1
    assert not append(folder, more(tmp_path), part=Part(0, 2)).missing
    assert files(folder) == files(tmp_path / "whole")


def test_repaired_from_each_source(tmp_path):
    """A shard is packed again from the source that it came from; others are named with what differs."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    old = sorted(set(files(folder)) - {"out.fastio-set"})
    append(folder, more(tmp_path))
    whole = files(folder)
    new = sorted(set(whole) - {*old, "out.fastio-set"})
    (folder / old[1]).unlink()
    damaged = bytearray(whole[new[1]])
    damaged[2000] ^= 1
    (folder / new[1]).write_bytes(damaged)

    report = repair(str(folder / PATTERN), source_in(tmp_path).path)
    assert [Path(shard.path).name for shard in report.repaired] == [old[1]]
    assert [Path(shard.path).name for shard in report.left] == [new[1]]
    assert "is not what it was packed from" in str(report.left[0].reason)
    report = repair(str(folder), more(tmp_path).path)
    assert [Path(shard.path).name for shard in report.repaired] == [new[1]]
    assert files(folder) == whole


@pytest.fixture
def mapped(tmp_path, monkeypatch):
    """Two shards may be open at a time; the result gets how many are mapped whenever a set object was written."""
    monkeypatch.setattr(sealing, "most_open", lambda kind: 2)
    monkeypatch.setattr(members, "_AT_ONCE", 0)
    counts, write_set = [], sealing.write_set

    def counting(*args, **options):
        write_set(*args, **options)
        maps = Path("/proc/self/maps").read_text()
        counts.append(len(set(re.findall(rf"{tmp_path}/out/out-\d+\.tar", maps))))

    monkeypatch.setattr(sealing, "write_set", counting)
    return counts


@pytest.mark.parametrize("way", ["whole", "resumed", "parts", "sealed"])
def test_more_shards_than_may_be_mapped(tmp_path, monkeypatch, mapped, way):
    """The set is the same to the byte, however few of its shards may be open while it is made, and while it grows."""
    with monkeypatch.context() as patched:
        patched.setattr(sealing, "most_open", lambda kind: 1000)
        append(packed(tmp_path, "expected", source_in(tmp_path)), more(tmp_path))
    folder = tmp_path / "out"
    for part in [Part(0, 2), Part(1, 2)] if way == "parts" else [None]:
        packed(tmp_path, "out", source_in(tmp_path), part=part)
    if way in ("resumed", "sealed"):
        (folder / "out.fastio-set").unlink()
    if way == "sealed":
        seal(folder / PATTERN)
    elif way == "resumed":
        (folder / (PATTERN % 1)).unlink()
        packed(tmp_path, "out", source_in(tmp_path), resume=True)
    append(folder, more(tmp_path))
    assert files(folder) == files(tmp_path / "expected")
    assert len(list(folder.glob("*.tar"))) > 4
    assert max(mapped) <= 2
