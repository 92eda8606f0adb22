"""Text in sets of shards: going on, appending, parts, object stores; the same shards whatever happened meanwhile."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastio.converters import PackReport, Part, pack, seal
from fastio.converters.packing.repair import repair
from fastio.converters.packing.shards import open_shard
from fastio.converters.sources.documents import Limits
from fastio.converters.text import BytesTokenizer, Encoder, Sequences, TextOptions, TextSamples, open_text
from fastio.errors import SchemaError, SourceError, StoreError, StoreIncomplete
from fastio.store import FORMATS, open_store
from fastio.store.files.remote_options import Remote
from fastio.store.folders import LocalFolder
from fastio.store.sets.seal import ShardFiles
from tests.converters.text.build import numbers_in
from tests.converters.trees import tree

PATTERN = "out-%06d.tar"
SHARD_BYTES = 16 << 10


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of the stream that are smaller than a shard, and not as long as one."""
    monkeypatch.setattr("fastio.converters.text.samples.Limits", lambda: Limits(3000, 40))


def corpus(folder: Path, *, files: int = 60, seed: int = 0, name: str = "corpus") -> Path:
    """Texts in three classes, of any length, some of them blank or no text."""
    draw = random.Random(seed)
    texts: dict[str, bytes | str] = {
        f"{'abc'[i % 3]}/{i:03}.txt": "".join(draw.choices("ab ü\n", k=draw.choice((1, 50, 900, 5000)))) + "x"
        for i in range(files)
    }
    texts["b/bad.txt"], texts["c/zzz.txt"] = b"\xff\xfe\0", b"a\0"
    return tree(folder / name, texts)


def samples(path: Path, options: TextOptions | None = None, **rule: Any) -> TextSamples:
    """A source of token ids, long documents in several samples."""
    source = open_text(path, options=options)
    rule = {"eos": True, "max_length": 700, "over": "split"} | rule
    return TextSamples(source, Encoder(BytesTokenizer(), Sequences(**rule), has_labels=source.has_labels))


def packed(source: Path, out: Path | str, **how: Any) -> PackReport:
    """Pack a source to shards."""
    how = {"on_error": "skip", "shard_bytes": SHARD_BYTES} | how
    return pack(samples(source), out, **how)


def files(folder: Path) -> dict[str, bytes]:
    """What lies in a folder, but for locks."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def content(path: Path | str, **how: Any) -> tuple[list[str], list[NDArray[np.uint8]], list[int]]:
    """Keys, ids and labels of every sample."""
    with open_store(path, **how) as store:
        every = np.arange(len(store))
        return store.keys(every), store.spans("tokens", every).views(), store.column("label").tolist()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A corpus."""
    return corpus(tmp_path)


@pytest.fixture
def whole(tmp_path: Path, source: Path) -> dict[str, bytes]:
    """The set that it is packed to at once."""
    (tmp_path / "whole").mkdir()
    packed(source, tmp_path / "whole" / PATTERN)
    return files(tmp_path / "whole")


def test_shards_hold_what_one_file_holds(tmp_path: Path, source: Path, whole: dict[str, bytes]) -> None:
    """The same samples in the same order with the same metadata, in shards that are no larger than asked for."""
    report = packed(source, tmp_path / "out.tar", shard_bytes=None)
    again = packed(source, tmp_path / "whole" / PATTERN, overwrite=True)

    for one, many in zip(*(content(tmp_path / name)[1] for name in ("out.tar", f"whole/{PATTERN}")), strict=True):
        assert one.tobytes() == many.tobytes()
    with open_store(tmp_path / "out.tar") as one_file, open_store(tmp_path / "whole" / PATTERN) as shards:
        assert one_file.metadata == shards.metadata
        assert one_file.keys(range(len(one_file))) == shards.keys(range(len(shards)))
    assert 5 < len(whole) - 1 == again.shards
    assert report.documents == again.documents
    assert (report.found, report.packed, report.skipped) == (again.found, again.packed, again.skipped)


@pytest.mark.parametrize("parts", [None, 3])
def test_shards_name_what_one_file_names(tmp_path: Path, parts: int | None) -> None:
    """Blank lines and documents that were cut stand in the ledger of a set as in that of a single file."""
    draw = random.Random(3)
    lines = [draw.choice(("", " ", "short", "x" * draw.randint(20, 300))) for _ in range(900)]
    source = tree(tmp_path, {"lines.txt": "\n".join([*lines, "end"])}) / "lines.txt"
    rule = {"max_length": 30, "over": "truncate"}
    report = pack(samples(source, **rule), tmp_path / "one.tar")
    for number in range(parts or 1):
        part = None if parts is None else Part(number, parts)
        pack(samples(source, **rule), tmp_path / PATTERN, shard_bytes=4096, part=part)

    blank = [number for number, line in enumerate(lines, 1) if not line.strip()]
    cut = [number for number, line in enumerate(lines, 1) if len(line) > 29]
    assert {"lines.txt": blank} == {name: numbers_in(text) for name, text in report.blank_lines.items()}
    assert {"lines.txt": cut} == {name: numbers_in(text) for name, text in report.cut.items()}
    with open_store(tmp_path / "one.tar") as one_file, open_store(tmp_path / PATTERN) as shards:
        assert len(shards.shard_paths) > 3
        assert one_file.metadata == shards.metadata


def test_progress_ends_with_all(tmp_path: Path, source: Path) -> None:
    """Bytes are those of the source's files, wherever shards end within what was read at once."""
    done: list[tuple[int, int]] = []
    report = packed(source, tmp_path / PATTERN, shard_bytes=2000, progress=lambda *each: done.append(each))

    assert report.shards > 20
    assert [report.samples, samples(source).size_bytes] == np.sum(done, axis=0).tolist()


@pytest.mark.parametrize("seed", range(12))
def test_missing_shards_are_made_again(tmp_path: Path, source: Path, whole: dict[str, bytes], seed: int) -> None:
    """Whichever shards are missing or damaged, ``resume`` makes them to the byte; others are not touched."""
    draw, folder = random.Random(seed), tmp_path / "whole"
    names = sorted(name for name in whole if name.endswith(".tar"))
    lost = draw.sample(names, draw.randint(1, len(names)))
    for name in lost:
        if draw.random() < 0.5:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(whole[name][: len(whole[name]) // 2])
    if draw.random() < 0.5:
        (folder / "out.fastio-set").unlink()
    report = packed(source, folder / PATTERN, resume=True)

    assert whole == files(folder)
    assert (len(names), len(names) - len(lost)) == (report.shards, report.kept_shards)
    with open_store(folder / PATTERN) as store:
        assert report.samples == len(store)


@pytest.mark.parametrize("stop", [1, 7, 20, 33])
def test_an_interrupted_pack_goes_on(tmp_path: Path, source: Path, whole: dict[str, bytes], stop: int) -> None:
    """What an interrupt leaves is whole shards, and the error says how to go on."""
    calls = itertools.count()

    def interrupt(*_: int) -> None:
        if next(calls) == stop:
            raise KeyboardInterrupt

    (tmp_path / "new").mkdir()
    with pytest.raises(KeyboardInterrupt) as caught:
        packed(source, tmp_path / "new" / PATTERN, progress=interrupt)
    left = files(tmp_path / "new")
    assert left.items() <= whole.items()
    assert bool(left) == any("go on with --resume" in note for note in getattr(caught.value, "__notes__", ()))
    report = packed(source, tmp_path / "new" / PATTERN, resume=True)

    assert (whole, len(left)) == (files(tmp_path / "new"), report.kept_shards)


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_parts_make_one_set(tmp_path: Path, source: Path, whole: dict[str, bytes], order: tuple[int, ...]) -> None:
    """In any order, the last part makes the set; its samples are those of a set packed at once."""
    (tmp_path / "new").mkdir()
    out = tmp_path / "new" / PATTERN
    for part in order[:-1]:
        assert packed(source, out, part=Part(part, 3)).missing
    with pytest.raises(StoreIncomplete):
        seal(out)
    assert not packed(source, out, part=Part(order[-1], 3)).missing
    expected, found = content(tmp_path / "whole" / PATTERN), content(out)

    assert (expected[0], expected[2]) == (found[0], found[2])
    assert [ids.tobytes() for ids in expected[1]] == [ids.tobytes() for ids in found[1]]
    with open_store(out) as parts, open_store(tmp_path / "whole" / PATTERN) as at_once:
        assert at_once.metadata["document_counts"] == parts.metadata["document_counts"]
        assert at_once.metadata["tokenizer"] == parts.metadata["tokenizer"]


def test_what_parts_left_is_made_by_resume_or_sealed(tmp_path: Path, source: Path) -> None:
    """Without a part, ``resume`` packs what is missing by the division of the parts; ``seal`` needs no source."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        packed(source, tmp_path / name / PATTERN, part=Part(1, 2))
    packed(source, tmp_path / "one" / PATTERN, resume=True)
    packed(source, tmp_path / "two" / PATTERN, part=Part(0, 2))
    assert files(tmp_path / "one") == files(tmp_path / "two")
    (tmp_path / "two" / "out.fastio-set").unlink()
    seal(tmp_path / "two" / PATTERN)

    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_a_set_grows(tmp_path: Path, source: Path) -> None:
    """Labels are the set's by the names of classes, also when appending is interrupted; keys come once."""
    more = tree(corpus(tmp_path, files=30, seed=1, name="more"), {"b/new.txt": "new"})
    for path in [*(more / "a").iterdir(), *(more / "c").iterdir()]:
        path.unlink()
    (more / "a").rmdir()
    (more / "c").rmdir()
    (more / "b").rename(more / "c")
    for path in (more / "c").iterdir():
        path.rename(path.with_name(f"more-{path.name}"))
    out = tmp_path / "new" / PATTERN
    out.parent.mkdir()
    packed(source, out)
    keys, _, labels = content(out)
    calls = itertools.count()

    def interrupt(*_: int) -> None:
        if next(calls) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packed(more, out, append=True, progress=interrupt)
    assert (keys, labels) == (content(out)[0], content(out)[2])
    report = packed(more, out, append=True, resume=True)
    grown, _, numbers = content(out)

    assert keys == grown[: len(keys)]
    assert len(grown) == len(keys) + report.samples
    assert labels + [2] * report.samples == numbers
    with pytest.raises(StoreError, match="was appended already"):
        packed(more, out, append=True)
    (more / "c" / "z.txt").write_text("one more")
    with pytest.raises(SchemaError, match=r"more: key 'c/more-001.txt(#0)?' is in .* already"):
        packed(more, out, append=True)
    assert grown == content(out)[0]
    with pytest.raises(SchemaError, match="another tokenizer"):
        pack(samples(more, eos=False), out, append=True, on_error="skip")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eos": False}, "the tokenizer, or the rule for sequences, is another one"),
        ("size", "files had together [0-9,]+ bytes, now [0-9,]+"),
        ("name", "files have other names"),
        ("shard", "--shard-size was 16.4 kB, now 32.8 kB"),
    ],
)
def test_others_do_not_go_on(tmp_path: Path, source: Path, whole: dict[str, bytes], change: Any, message: str) -> None:
    """Shards of another state of the source, or of other options, stay; the error says what differs."""
    (tmp_path / "whole" / "out.fastio-set").unlink()
    first = min(source.rglob("*.txt"))
    if change == "size":
        first.write_text("abc")
    elif change == "name":
        first.rename(first.with_name("0.txt"))
    rule = change if isinstance(change, dict) else {}
    size = 2 * SHARD_BYTES if change == "shard" else SHARD_BYTES
    with pytest.raises(StoreError, match=message):
        pack(samples(source, **rule), tmp_path / "whole" / PATTERN, resume=True, on_error="skip", shard_bytes=size)
    del whole["out.fastio-set"]

    assert whole == files(tmp_path / "whole")


@pytest.mark.parametrize("by_parts", [False, True])
@pytest.mark.parametrize("joined", [False, True])
def test_content_that_moved_is_no_set(tmp_path: Path, by_parts: bool, joined: bool) -> None:
    """Where files keep their size, but documents would be lost or come twice between two shards, no set is made."""
    lines, out = tmp_path / "lines.txt", tmp_path / PATTERN
    lines.write_text("".join(f"{i:04}{'-' * (i % 90)}\n" for i in range(2000)))
    for part in [Part(0, 2), Part(1, 2)] if by_parts else [None]:
        packed(lines, out, part=part)
    (tmp_path / "out.fastio-set").unlink()
    (tmp_path / (PATTERN % 2)).unlink()
    text = bytearray(lines.read_bytes())
    for at in range(0, len(text) * 7 // 8, 300):
        end = text.find(b"\n", at)
        text[end if joined else at] = ord("x" if joined else "\n")
    lines.write_bytes(text)

    with pytest.raises(StoreError, match=r"content of the source.*--overwrite") as raised:
        packed(lines, out, resume=not by_parts, part=Part(0, 2) if by_parts else None)
    assert [] == getattr(raised.value, "__notes__", [])  # none that says --resume
    with pytest.raises(StoreError):
        seal(out)
    assert not (tmp_path / "out.fastio-set").exists()


@pytest.mark.parametrize("by_parts", [False, True])
@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_text_edited_in_place_is_not_mixed(tmp_path: Path, by_parts: bool, where: str) -> None:
    """Same sizes, same documents, other words: what was packed of the old text is not joined with the new."""
    texts, folder = tmp_path / "texts", tmp_path / "set"
    folder.mkdir()
    out = folder / PATTERN
    tree(texts, {f"{i:02}.txt": f"{i:02}" * 1500 for i in range(40)})
    for part in [Part(0, 2), Part(1, 2)] if by_parts else [None]:
        packed(texts, out, part=part)
    whole = files(folder)
    (folder / "out.fastio-set").unlink()
    (folder / (PATTERN % 2)).unlink()
    again = {"resume": not by_parts, "part": Part(0, 2) if by_parts else None}
    before = open_shard(ShardFiles(LocalFolder(str(folder)), FORMATS["tar"]), PATTERN % 1)
    place = {"before": 0, "within": before.plan["stop"][0] + 1, "after": 39}[where]
    (texts / f"{place:02}.txt").write_text("ab" * 1500)
    if where == "after":
        packed(texts, out, **again)  # no shard of the new text is made
        assert whole == files(folder)
        return

    for _ in range(2):  # what the first attempt left is refused, too
        with pytest.raises(StoreError, match=r"content of the source.*--overwrite"):
            packed(texts, out, **again)
        with pytest.raises(StoreError):
            seal(out)
    assert not (folder / "out.fastio-set").exists()


@pytest.mark.parametrize("part", [None, Part(0, 3), Part(1, 3)])
def test_an_empty_corpus(tmp_path: Path, part: Part | None) -> None:
    """No part waits for a shard that none of them makes."""
    (tmp_path / "none.txt").touch()
    with pytest.raises(SourceError, match="nothing to pack, there is no text in it"):
        packed(tmp_path / "none.txt", tmp_path / PATTERN, part=part)


def test_a_bad_document_leaves_nothing(tmp_path: Path, source: Path) -> None:
    """It stops a pack from the beginning, which removes the shards that it made."""
    (tmp_path / "new").mkdir()
    with pytest.raises(SourceError, match=r"corpus/b/bad\.txt: is not UTF-8"):
        packed(source, tmp_path / "new" / PATTERN, on_error="raise")

    assert not files(tmp_path / "new")


def test_an_object_store(source: Path, whole: dict[str, bytes], bucket: Any) -> None:
    """The same shards as here, at once or by parts; what is missing is made again."""
    remote = Remote(bucket.options)
    out = f"{bucket.url}/{PATTERN}"
    report = packed(source, out, remote=remote)
    assert report.shards == len(whole) - 1
    again = packed(source, out, remote=remote, resume=True)

    assert (again.kept_shards, again.samples) == (report.shards, report.samples)
    with open_store(out, remote=remote) as store:
        assert report.samples == len(store)


@pytest.mark.parametrize("more", [(), ("--concat", "--eos")])
def test_a_killed_command_goes_on(tmp_path: Path, source: Path, more: tuple[str, ...]) -> None:
    """Killed at any moment, the command with --resume makes the set that it makes undisturbed."""
    command = [sys.executable, "-m", "fastio", "pack", str(source), PATTERN, "--tokenizer", "bytes"]
    command += ["--shard-size", "4kB", "--on-error", "skip", *more]
    (tmp_path / "calm").mkdir()
    subprocess.run(command, cwd=tmp_path / "calm", check=True, capture_output=True)
    (tmp_path / "wild").mkdir()
    process = subprocess.Popen(command, cwd=tmp_path / "wild", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(files(tmp_path / "wild")) < 3:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run([*command, "--resume"], cwd=tmp_path / "wild", check=True, capture_output=True)

    assert files(tmp_path / "calm") == files(tmp_path / "wild")


def test_repair_names_the_way_of_text(tmp_path: Path, source: Path, whole: dict[str, bytes]) -> None:
    """Shards of text are made again by ``pack --resume``, and ``repair`` says so."""
    (tmp_path / "whole" / (PATTERN % 1)).unlink()
    with pytest.raises(SourceError, match=r"was packed from text: `fastio pack` with --resume"):
        repair(str(tmp_path / "whole" / PATTERN), str(source))
    del whole[PATTERN % 1]

    assert whole == files(tmp_path / "whole")
