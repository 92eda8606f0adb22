"""A packed store as a source: of whatever format it is, everything in it arrives in a store of any other."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio.converters import Raw, Transcode, open_source, pack
from fastio.converters.inspect.verify import verify
from fastio.converters.text import Sequences, TextOptions
from fastio.errors import SourceError, StoreCorrupt, StoreIncomplete
from fastio.store import FORMATS, SampleBatch, create_store, open_store
from fastio.types.schema import BYTES, COLUMN, IMAGE, RAW, TEXT, Field, Schema
from tests.commands import result_of, run
from tests.converters.text.build import BYTES as BYTE_TOKENS
from tests.converters.text.build import packed as packed_text
from tests.converters.trees import class_folders, flat, foreign_tar, picture, tree
from tests.store.build import make_spans

SUFFIXES = [each.suffixes[0] for each in FORMATS.values()]
SHARDED = [each.suffixes[0] for each in FORMATS.values() if each.has_shards]


def content(path: Path) -> dict[str, Any]:
    """All that a store holds, but for what it says of its own source and format."""
    with open_store(path) as store:
        every = np.arange(len(store))
        payload = [field.name for field in store.schema.payload]
        about = {name: said for name, said in store.metadata.items() if name not in ("source", "origin", "text_source")}
        return {
            "schema": store.schema,
            "keys": store.keys(every),
            "bytes": {name: [view.tobytes() for view in store.spans(name, every).views()] for name in payload},
            "columns": {f.name: (f.dtype, store.column(f.name).tolist()) for f in store.schema.columns},
            "shapes": {f.name: store.shapes(f.name).tolist() for f in store.schema.payload if f.codec == IMAGE},
            "metadata": about,
        }


def make_pictures(folder: Path, out: Path) -> None:
    """Pictures with classes, one of them misnamed."""
    class_folders(folder / "c")
    (folder / "c" / "cat" / "x.jpg").write_bytes(picture(9))
    pack(open_source(folder / "c"), out)


def make_raw(folder: Path, out: Path) -> None:
    """Pixels, and labels that are vectors with titles."""
    flat(folder / "f", 4)
    rows = "".join(f"{i:04d}.png,{i}.5,{-i}\n" for i in range(4))
    (folder / "l.csv").write_text(f"filename,left,right\n{rows}")
    run("pack", folder / "f", out, "--labels", folder / "l.csv", "--label-column", "left,right", "--raw")


def make_tokens(folder: Path, out: Path) -> None:
    """Token ids with their tokenizer, documents in several samples, labels with names."""
    rows = [{"text": f"row {i} " * (i + 1), "label": ("ant", "bee")[i % 2]} for i in range(7)]
    (folder / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options, rule = TextOptions(label_field="label"), Sequences(eos=True, max_length=20, over="split")
    packed_text(folder / "t.jsonl", out, tokenizer=BYTE_TOKENS, options=options, sequences=rule)


def make_text(folder: Path, out: Path) -> None:
    """Lines of UTF-8, with odd separators between them."""
    packed_text(tree(folder, {"t.txt": "one\n\n\nzwei ü\r\nthree\nfour"}) / "t.txt", out)


def make_fields(folder: Path, out: Path) -> None:
    """Several fields of each codec, and columns of all kinds of numbers."""
    del folder
    schema = Schema(
        (
            Field("image", IMAGE, "|u1", (None, None, None)),
            Field("depth", RAW, "<f4", (2, 2)),
            Field("caption", TEXT, "|u1", (None,)),
            Field("blob", BYTES, "|u1", (None,)),
            Field("label", COLUMN, "<i2", ()),
            Field("box", COLUMN, "<f8", (4,)),
        )
    )
    keys = ["b/ü.png", "a.png", "c"]
    spans = {
        "image": make_spans([picture(i) for i in range(3)]),
        "depth": make_spans([np.full((2, 2), i, np.float32).tobytes() for i in range(3)]),
        "caption": make_spans(["eins ü".encode(), b"", b"three"]),
        "blob": make_spans([b"\0\xff", b"x", b""]),
    }
    columns = {"label": np.array([3, -1, 2], np.int16), "box": np.array([[0, np.inf, 1e-9, -2]] * 3)}
    with create_store(out, schema) as writer:
        writer.append(SampleBatch(keys, spans, columns, {"image": np.full((3, 3), (5, 6, 3), np.int32)}))
        writer.close({"classes": ["a", "b", "c", "d"], "mine": {"note": ["ü", 1.5]}})


MAKERS: dict[str, Callable[[Path, Path], None]] = {
    "pictures": make_pictures,
    "raw": make_raw,
    "tokens": make_tokens,
    "text": make_text,
    "fields": make_fields,
}


@pytest.mark.parametrize("after", SUFFIXES)
@pytest.mark.parametrize("before", SUFFIXES)
@pytest.mark.parametrize("what", MAKERS)
def test_every_store_to_every_format(tmp_path, what, before, after):
    """Keys, bytes, columns with their dtypes, shapes, classes, tokenizer and ledgers are those of the first store."""
    MAKERS[what](tmp_path, tmp_path / f"a{before}")
    report = pack(open_source(tmp_path / f"a{before}"), tmp_path / f"b{after}")
    expected, found = content(tmp_path / f"a{before}"), content(tmp_path / f"b{after}")
    history = expected["metadata"].pop("packing", None)
    expected["metadata"].setdefault("skipped", [])

    assert found["metadata"].pop("packing_before", [None]) == [history]
    assert expected == found
    assert (len(expected["keys"]), []) == (report.packed, list(report.skipped))
    result = verify(tmp_path / f"b{after}", against=open_source(tmp_path / f"a{before}"))
    assert (len(expected["keys"]), []) == (result.compared, result.problems)


@pytest.mark.parametrize("after", SUFFIXES)
def test_shards_of_others(tmp_path, after):
    """Pictures and labels of a shard that webdataset wrote arrive, and its other members are named."""
    foreign_tar(tmp_path / "s.tar")
    with tarfile.open(tmp_path / "s.tar", "a") as archive:
        archive.addfile(tarfile.TarInfo("README"))
    report = pack(open_source(tmp_path / "s.tar"), tmp_path / f"b{after}", on_error="skip")
    found = content(tmp_path / f"b{after}")

    assert [f"{i:04d}" for i in range(5)] == found["keys"]
    assert [picture(i) for i in range(5)] == found["bytes"]["image"]
    assert ("<i8", [0, 1, 2, 0, 1]) == found["columns"]["label"]
    assert ["README"] == [each.key for each in report.skipped]
    assert [] == verify(tmp_path / f"b{after}", against=open_source(tmp_path / "s.tar")).problems


@pytest.mark.parametrize("suffix", SHARDED)
def test_a_sealed_set_of_shards(tmp_path, suffix):
    """Shards named by number, glob and range are one source, to one file and to other shards."""
    keys = class_folders(tmp_path / "c", 8)
    (tmp_path / "s").mkdir()
    shards = pack(open_source(tmp_path / "c"), tmp_path / "s" / f"a-%03d{suffix}", shard_bytes=9000).shards
    assert shards > 1
    for number, name in enumerate((f"a-%03d{suffix}", f"a-*{suffix}", f"a-{{000..{shards - 1:03d}}}{suffix}")):
        report = pack(open_source(tmp_path / "s" / name), tmp_path / f"b{number}-%d{suffix}", shard_bytes=5000)

        assert report.shards > shards
        assert keys == content(tmp_path / f"b{number}-%d{suffix}")["keys"]


@pytest.mark.parametrize("before", SUFFIXES)
def test_options_for_pictures(tmp_path, before):
    """What can be done to files can be done to the pictures of a store, with the same result."""
    class_folders(tmp_path / "c", 5)
    pack(open_source(tmp_path / "c"), tmp_path / f"a{before}")
    for pictures in (Transcode(restart=1), Transcode(short_side=4), Transcode(resize=(6, 7)), Raw((5, 4))):
        for source, out in (("c", "x.lmdb"), (f"a{before}", "y.lmdb")):
            opened = open_source(tmp_path / source).shuffled(3)
            pack(opened, tmp_path / out, pictures=pictures, overwrite=True)
        expected, found = content(tmp_path / "x.lmdb"), content(tmp_path / "y.lmdb")

        assert sorted(zip(expected["keys"], expected["bytes"]["image"], strict=True)) == sorted(
            zip(found["keys"], found["bytes"]["image"], strict=True)
        )
        assert expected["metadata"]["packing"]["pictures"] == found["metadata"]["packing"]["pictures"]
        assert [] == verify(tmp_path / "y.lmdb", against=open_source(tmp_path / f"a{before}")).problems


@pytest.mark.parametrize("make", [make_raw, make_tokens, make_text])
@pytest.mark.parametrize("option", [["--raw"], ["--restart", 8], ["--resize", "8x8"]])
def test_options_for_pictures_need_pictures(tmp_path, make, option):
    """Where no picture is encoded they are refused, instead of standing in the store as done."""
    make(tmp_path, tmp_path / "a.lmdb")
    said = run("pack", tmp_path / "a.lmdb", tmp_path / "b.h5", *option, code=1)

    assert "a.lmdb: holds no encoded pictures, but " in said
    assert not (tmp_path / "b.h5").exists()


def test_other_options_that_do_not_fit(tmp_path):
    """A store brings its labels along, and its text is not tokenised any more: one line each, nothing written."""
    make_text(tmp_path, tmp_path / "a.lmdb")
    labels = run("pack", tmp_path / "a.lmdb", tmp_path / "b.h5", "--labels", "l.csv", code=1)
    tokens = run("pack", tmp_path / "a.lmdb", tmp_path / "b.h5", "--tokenizer", "bytes", code=2)

    assert "a.lmdb: a packed store has its own labels: drop --labels l.csv" in labels
    assert "--tokenizer is for text" in tokens
    assert "a.lmdb is a packed store, whose samples stay as they are; unpack it first" in tokens
    assert not (tmp_path / "b.h5").exists()


@pytest.mark.parametrize("make", [make_pictures, make_text, make_tokens])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damage_is_named_by_its_key(tmp_path, make, suffix):
    """A sample that differs from its checksum is skipped and listed; packed and skipped are all there are."""
    make(tmp_path, tmp_path / f"a{suffix}")
    whole = content(tmp_path / f"a{suffix}")
    name = whole["schema"].payload[0].name
    with open_store(tmp_path / f"a{suffix}") as store:
        start = int(store.spans(name, np.array([2])).starts[0])
    with (tmp_path / f"a{suffix}").open("r+b") as file:
        file.seek(start)
        file.write(bytes([whole["bytes"][name][2][0] ^ 1]))
    with pytest.raises(SourceError, match=f"a field '{name}' that differs from its checksum"):
        pack(open_source(tmp_path / f"a{suffix}"), tmp_path / "b.lmdb")
    report = pack(open_source(tmp_path / f"a{suffix}"), tmp_path / "b.lmdb", on_error="skip")

    assert [whole["keys"][2]] == [each.key for each in report.skipped]
    assert report.found == report.packed + 1 == len(whole["keys"])
    assert whole["keys"][:2] + whole["keys"][3:] == content(tmp_path / "b.lmdb")["keys"]
    assert [] == verify(tmp_path / "b.lmdb", against=open_source(tmp_path / f"a{suffix}")).problems


def test_history_over_several_stores(tmp_path):
    """What was skipped and done on the way, and the first source, stay on record however often a store is packed."""
    make_pictures(tmp_path, tmp_path / "a.lmdb")
    (tmp_path / "c" / "cat" / "bad.png").write_bytes(b"noise")
    pack(open_source(tmp_path / "c"), tmp_path / "a.lmdb", on_error="skip", overwrite=True)
    pack(open_source(tmp_path / "a.lmdb").shuffled(5), tmp_path / "b.h5", pictures=Transcode(restart=1))
    pack(open_source(tmp_path / "b.h5"), tmp_path / "c.tar", pictures=Transcode(short_side=4))
    pack(open_source(tmp_path / "c.tar"), tmp_path / "d.lmdb")
    with open_store(tmp_path / "d.lmdb") as store:
        said = store.metadata

    assert ["cat/bad.png"] == [each["key"] for each in said["skipped_before"]]
    assert [{"restart": 1}, {"short_side": 4}] == [
        {name: each[name] for name in ("restart", "short_side") if name in each} for each in said["packing_before"]
    ]
    assert (5, []) == (said["shuffle"], said["skipped"])
    assert {"kind": "store", "name": "c.tar", "format": "tar"}.items() <= said["source"].items()
    assert {"kind": "imagefolder", "name": "c"}.items() <= said["origin"].items()
    for line in (
        run("info", tmp_path / "d.lmdb"),
        run("unpack", tmp_path / "d.lmdb", tmp_path / "e"),
    ):
        assert "in an earlier store: restart markers every 1 MCUs" in line
        assert "in an earlier store: made smaller, with loss" in line


@pytest.mark.parametrize("tokens", [False, True])
def test_a_text_file_comes_back_from_the_third_store(tmp_path, tokens):
    """What stood between its documents goes along, and comes back byte by byte."""
    text = "one\n\n\nzwei ü\r\nthree\nfour"
    tokenizer = BYTE_TOKENS if tokens else None
    packed_text(tree(tmp_path, {"t.txt": text}) / "t.txt", tmp_path / "a.lmdb", tokenizer=tokenizer)
    pack(open_source(tmp_path / "a.lmdb"), tmp_path / "b.h5")
    pack(open_source(tmp_path / "b.h5"), tmp_path / "c.tar")
    run("unpack", tmp_path / "c.tar", tmp_path / "again")

    assert text == (tmp_path / "again" / "t.txt").read_bytes().decode()
    assert "all good" in run("verify", tmp_path / "c.tar", "--against", tmp_path / "t.txt")


def test_text_in_another_order_is_no_file(tmp_path):
    """Of text that was shuffled on the way, the order and the separators of its file are not made up."""
    make_text(tmp_path, tmp_path / "a.lmdb")
    pack(open_source(tmp_path / "a.lmdb").shuffled(1), tmp_path / "b.h5")
    pack(open_source(tmp_path / "b.h5"), tmp_path / "c.lmdb")
    run("unpack", tmp_path / "c.lmdb", tmp_path / "again")

    assert ["t.jsonl"] == [path.name for path in (tmp_path / "again").iterdir()]


def test_text_without_a_document_has_the_usual_separators(tmp_path):
    """If a damaged document was skipped, odd separators are not put behind the wrong ones, and a note says so."""
    make_text(tmp_path, tmp_path / "a.lmdb")
    with open_store(tmp_path / "a.lmdb") as store:
        start = int(store.spans("text", np.array([0])).starts[0])
    with (tmp_path / "a.lmdb").open("r+b") as file:
        file.seek(start)
        file.write(b"0")
    pack(open_source(tmp_path / "a.lmdb"), tmp_path / "b.h5", on_error="skip")
    pack(open_source(tmp_path / "b.h5"), tmp_path / "c.lmdb")
    for name in ("b.h5", "c.lmdb"):
        said = run("unpack", tmp_path / name, tmp_path / f"from-{name}")

        usual = "\n\n\n"
        assert usual.join(["zwei ü", "three", "four", ""]) == (tmp_path / f"from-{name}" / "t.txt").read_text()
        assert "note: what was between documents is not known everywhere" in said


def test_a_store_onto_itself(tmp_path):
    """It is replaced when the new one is whole, and holds the same."""
    for name in ("a.lmdb", *(f"a-%02d{suffix}" for suffix in SHARDED)):
        class_folders(tmp_path / "c", 4) if not (tmp_path / "c").exists() else None
        pack(open_source(tmp_path / "c"), tmp_path / name, shard_bytes=3000 if "%" in name else None)
        expected = content(tmp_path / name)
        run("pack", tmp_path / name, tmp_path / name, "--overwrite")

        assert expected == content(tmp_path / name)


def test_verify_against_a_store(tmp_path):
    """The command takes a store, names what differs, and compares columns of every name."""
    make_fields(tmp_path, tmp_path / "a.lmdb")
    run("pack", tmp_path / "a.lmdb", tmp_path / "b.h5")
    assert "3 compared with" in run("verify", tmp_path / "b.h5", "--against", tmp_path / "a.lmdb")
    with open_store(tmp_path / "a.lmdb") as store:
        every = np.arange(3)
        batch = SampleBatch(
            store.keys(every),
            {f.name: store.spans(f.name, every) for f in store.schema.payload},
            {"label": store.column("label"), "box": store.column("box") * 2},
            {"image": store.shapes("image")},
        )
        with create_store(tmp_path / "c.h5", store.schema) as writer:
            writer.append(batch)
            writer.close({"classes": store.metadata["classes"]})
    said = run("verify", tmp_path / "c.h5", "--against", tmp_path / "a.lmdb", code=1)

    assert "has other values in the store than in the source (column 'box')" in said


def test_verify_names_what_it_compared(tmp_path):
    """The last line names the fields and columns compared, and those that one side lacks."""
    make_fields(tmp_path, tmp_path / "a.lmdb")
    run("pack", tmp_path / "a.lmdb", tmp_path / "b.h5")
    run("pack", tmp_path / "a.lmdb", tmp_path / "c.h5", "--field", "note=caption", "--field", "image=image")
    whole = run("verify", tmp_path / "b.h5", "--against", tmp_path / "a.lmdb")
    part = run("verify", tmp_path / "a.lmdb", "--against", tmp_path / "c.h5")

    assert "a.lmdb: keys and the fields image, depth, caption, blob, label, box; " in whole
    assert "the fields image, label (the source has no depth, caption, blob, box; the store has no note); " in part


def test_verify_against_the_first_source(tmp_path):
    """The folder that a store's store was packed from is read as it was then, filters of its label file included."""
    flat(tmp_path / "f", 4)
    rows = "".join(f"{i:04d}.png,{i},{'ab'[i % 2]}\n" for i in range(4))
    (tmp_path / "l.csv").write_text(f"filename,label,part\n{rows}")
    run("pack", tmp_path / "f", tmp_path / "a.lmdb", "--labels", tmp_path / "l.csv", "--filter", "part=a")
    run("pack", tmp_path / "a.lmdb", tmp_path / "b.h5")

    said = run("verify", tmp_path / "b.h5", "--against", tmp_path / "f", "--labels", tmp_path / "l.csv")
    assert "2 compared with" in said


def test_verify_against_a_source_before_pictures_changed(tmp_path):
    """Restart markers put in on the way leave the pixels equal; smaller pictures are compared with their own source."""
    class_folders(tmp_path / "c")
    pack(open_source(tmp_path / "c"), tmp_path / "a.lmdb", pictures=Transcode(restart=1))
    pack(open_source(tmp_path / "a.lmdb"), tmp_path / "b.h5")
    said = run("verify", tmp_path / "b.h5", "--against", tmp_path / "c")
    assert "compared by pixels, not bytes" in said

    pack(open_source(tmp_path / "b.h5"), tmp_path / "c.tar", pictures=Transcode(short_side=3))
    pack(open_source(tmp_path / "c.tar"), tmp_path / "d.lmdb")
    said = run("verify", tmp_path / "d.lmdb", "--against", tmp_path / "c", code=1)
    assert "d.lmdb: its pictures were changed when the store was packed that it was packed from (c.tar)" in said
    run("verify", tmp_path / "c.tar", "--against", tmp_path / "b.h5")
    run("verify", tmp_path / "d.lmdb", "--against", tmp_path / "c.tar")


def test_stores_of_earlier_versions(tmp_path):
    """A record that calls the kind of source its layout is read, and one is written that they can read."""
    make_pictures(tmp_path, tmp_path / "a.lmdb")
    with open_store(tmp_path / "a.lmdb") as store:
        batch = SampleBatch(store.keys([0]), {"image": store.spans("image", np.array([0]))}, {"label": np.array([1])})
        with create_store(tmp_path / "old.lmdb", store.schema) as writer:
            writer.append(batch)
            writer.close({"classes": ["a", "b"], "source": {"layout": "imagefolder", "name": "c", "labels": None}})
    run("pack", tmp_path / "old.lmdb", tmp_path / "b.h5")
    with open_store(tmp_path / "b.h5") as store:
        assert ("store", "store") == (store.metadata["source"]["kind"], store.metadata["source"]["layout"])
        assert {"layout": "imagefolder", "name": "c", "labels": None} == store.metadata["origin"]
    for name in ("old.lmdb", "b.h5"):
        assert "in none of these files" not in run("unpack", tmp_path / name, tmp_path / f"from-{name}")


def test_a_former_kind(tmp_path):
    """The value tar still works."""
    foreign_tar(tmp_path / "s.tar")
    run("pack", tmp_path / "s.tar", tmp_path / "b.lmdb", "--source-kind", "tar")
    run("verify", tmp_path / "b.lmdb", "--against", tmp_path / "s.tar", "--source-kind", "tar")


@pytest.mark.parametrize("suffix", SHARDED)
def test_a_shard_that_has_lost_its_end(tmp_path, suffix):
    """It is not taken for one that others wrote."""
    make_pictures(tmp_path, tmp_path / f"a{suffix}")
    data = (tmp_path / f"a{suffix}").read_bytes()
    (tmp_path / f"a{suffix}").write_bytes(data[: len(data) // 2 // 512 * 512])

    with pytest.raises((StoreIncomplete, StoreCorrupt)) as caught:
        open_source(tmp_path / f"a{suffix}")
    assert "did not pack" not in str(caught.value)


def test_a_store_that_cannot_be_opened(tmp_path):
    """A damaged one is called damaged, one that is not there is not there, a folder is no store."""
    make_pictures(tmp_path, tmp_path / "a.lmdb")
    data = (tmp_path / "a.lmdb").read_bytes()
    (tmp_path / "a.lmdb").write_bytes(data[:200] + bytes([data[200] ^ 255]) + data[201:])
    with pytest.raises(StoreCorrupt, match=r"a\.lmdb"):
        open_source(tmp_path / "a.lmdb")
    assert "nothing.h5: no such file" in run("pack", tmp_path / "nothing.h5", tmp_path / "b.tar", code=1)
    with pytest.raises(SourceError, match=r"expected a packed store .* found a folder without shards"):
        open_source(tmp_path / "c", kind="store")


def test_a_folder_of_stores(tmp_path):
    """It is no source; the stores in it are named. A store without samples has nothing to pack."""
    (tmp_path / "s").mkdir()
    with create_store(tmp_path / "s" / "a.lmdb", Schema((Field("image", IMAGE, "|u1", (None, None, None)),))) as writer:
        writer.close({})

    with pytest.raises(SourceError, match=r"nearest: a packed store, for 1 file: name one, as a\.lmdb"):
        open_source(tmp_path / "s")
    with pytest.raises(SourceError, match="nothing to pack, the source has no samples"):
        pack(open_source(tmp_path / "s" / "a.lmdb"), tmp_path / "b.h5")


def test_what_is_found_is_said(tmp_path):
    """The first line names the fields where they are not just pictures."""
    make_tokens(tmp_path, tmp_path / "a.lmdb")
    said = result_of("pack", tmp_path / "a.lmdb", tmp_path / "b.h5").stderr

    assert "a.lmdb: a packed store, token ids in 'tokens', 12 samples, " in said
    assert "2 classes" in said
