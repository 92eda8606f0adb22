"""Fields of sets: that grow, in parts by many machines, and merged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fastio import FastDataset, Writer, add_field
from fastio.converters import Part, open_source
from fastio.converters import pack as pack_source
from fastio.errors import SchemaError, StoreError
from fastio.store.beside.added import added_stores
from fastio.store.sets.merge import merge_stores
from tests.commands import run
from tests.computing.added import COUNT, KEYS, check, latents, latents_of, photos
from tests.converters.trees import picture
from tests.forking import in_fork
from tests.store.faults import fault, full, kill


def test_a_set_that_grows(tmp_path: Path) -> None:
    """Its new samples get the field as further shards; those that were there are not written again."""
    path = photos(tmp_path / "p-%03d.tar", 14)
    add_field(path, "latents", latents(tmp_path / "l.h5", KEYS[:14]), shard_bytes=4096)
    with Writer(tmp_path / "more.tar", {"image": "image", "label": "label"}) as out:
        for number in range(14, COUNT):
            out.write({"image": picture(number), "label": number}, key=KEYS[number])
    run("pack", tmp_path / "more.tar", path, "--append")
    with pytest.raises(StoreError, match=r"to those that a set has got since \(fastio add-field --append\)"):
        FastDataset(path)
    folder = tmp_path / "p.fastio-set.fields"
    before = {each: each.read_bytes() for each in folder.glob("*.tar")}
    with pytest.raises(SchemaError, match="lacks 1 sample of the 6 new ones"):
        add_field(path, "latents", latents(tmp_path / "some.h5", [*KEYS[:14], *KEYS[14:19]]), append=True)
    with Writer(tmp_path / "new.h5", {"latents": "float16[2,3]"}) as out:
        for number in reversed(range(14, COUNT)):
            out.write({"latents": latents_of(number)}, key=KEYS[number])
    run("add-field", path, "latents", "--from", tmp_path / "new.h5", "--append", "--shard-size", "4096")
    check(path)
    assert before == {each: each.read_bytes() for each in before}
    assert "all good" in run("verify", path)
    run("pack", tmp_path / "more.tar", path, "--overwrite")
    with pytest.raises(StoreError, match=r"was added to other samples than .* began with"):
        add_field(path, "latents", tmp_path / "new.h5", append=True)
    single = photos(tmp_path / "s.lmdb")
    with pytest.raises(StoreError, match="append: expected a set with the field 'latents'"):
        add_field(single, "latents", tmp_path / "l.h5", append=True)


def test_what_is_appended_without_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Samples that bring the field in their own store are refused; those without it are added, and a line says so."""
    path, source = photos(tmp_path / "p-%03d.tar", 14), latents(tmp_path / "l.h5")
    add_field(path, "latents", source, allow="extra")
    more = tmp_path / "more.tar"
    with Writer(more, {"image": "image", "label": "label"}) as out:
        for number in range(14, COUNT):
            out.write({"image": picture(number), "label": number}, key=KEYS[number])
    add_field(more, "latents", source, allow="extra")
    said = run("pack", more, path, "--append", code=1)
    assert "and latents beside it: append without (--without latents), then add the fields to the new samples" in said
    assert "p.fastio-set latents --from OTHER --append" in said
    check(path, 14)
    run("pack", more, path, "--append", "--without", "latents")
    assert "the new samples lack latents, which were added to the set" in caplog.text
    run("add-field", path, "latents", "--from", more, "--append")
    check(path)


def test_parts_add_the_same_field(tmp_path: Path) -> None:
    """In any order: the bytes that one process writes; without one of them, it is named, and the store as it was."""
    path, other = photos(tmp_path / "p-%03d.tar"), str(tmp_path / "q-%03d.tar")
    pack_source(open_source(tmp_path / "whole.tar"), other, shard_bytes=8000)
    source = latents(tmp_path / "l.h5")
    add_field(other, ["latents", "views"], source, shard_bytes=4096)
    words = ["add-field", path, "latents", "views", "--from", source, "--shard-size", "4096"]
    for part in (2, 0):
        said = run(*words, "--part", f"{part}/3")
        assert "missing: the last part makes the set, or: fastio seal" in said
        assert "added" not in said
        assert (5, 2) == (FastDataset(path)[5][1], len(FastDataset(path)[5]))
    pattern = tmp_path / "p.fastio-set.fields" / "latents+views-%06d.tar"
    assert "latents+views-" in run("seal", pattern, code=1)
    assert "3 of them whole already" in run(*words, "--part", "0/3")  # once more
    assert "the set is complete" in (said := run(*words, "--part", "1/3"))
    assert "added latents, views to 20 samples" in said
    check(path)
    files = [sorted((tmp_path / f"{name}.fastio-set.fields").glob("*-0*.tar")) for name in "pq"]
    assert len(files[0]) > 6
    assert [each.read_bytes() for each in files[1]] == [each.read_bytes() for each in files[0]]
    single = photos(tmp_path / "p.lmdb")
    for option in (["--part", "0/2"], ["--resume"]):
        said = run("add-field", single, "latents", "--from", source, *option, code=1)
        assert "p.lmdb: is no set, so its fields become one file" in said


def test_killed_parts(tmp_path: Path) -> None:
    """Parts that are killed anywhere are made again by their number; no set lists fewer samples."""
    path, source = photos(tmp_path / "p-%03d.tar"), latents(tmp_path / "l.h5")

    def adding(part: int) -> bool:
        return not add_field(path, "latents", source, shard_bytes=2048, part=Part(part, 2)).missing

    with fault(0, full) as calls:
        adding(0)
    for at in range(1, calls.made + 1, max(1, calls.made // 8)):
        shutil.rmtree(tmp_path / "p.fastio-set.fields")

        def failing(at: int = at) -> None:
            with fault(at, kill):
                adding(0)

        in_fork(failing)
        is_whole = adding(1)
        if is_whole:
            check(path)
        else:
            assert len(FastDataset(path)[5]) == 2
        assert adding(0)
        check(path)


@pytest.mark.parametrize("goes_on", [{"resume": True}, {"part": Part(1, 2)}])
def test_a_source_that_changed_is_refused(tmp_path: Path, goes_on: dict[str, Any]) -> None:
    """Shards that were made of other values of the same sizes are not joined with those of now."""
    path, fields = photos(tmp_path / "p-%03d.tar"), {"latents": "float16[2,3]"}

    def source(add: int) -> str:
        with Writer(tmp_path / "l.h5", fields, overwrite=True) as out:
            for number, key in enumerate(KEYS):
                out.write({"latents": latents_of(number + add)}, key=key)
        return str(tmp_path / "l.h5")

    add_field(path, "latents", source(1), shard_bytes=4096, part=Part(0, 2))
    with pytest.raises(StoreError, match="the contents of its samples differ, by their checksums"):
        add_field(path, "latents", source(0), shard_bytes=4096, **goes_on)
    add_field(path, "latents", source(0), shard_bytes=4096, overwrite=True)
    check(path)


# Merged sets have the fields that were added to all of their parts.


def _halves(folder: Path, names: Sequence[str]) -> list[str]:
    """Two stores of half of the samples each."""
    folder.mkdir(exist_ok=True)
    made = []
    for number, name in enumerate(names):
        with Writer(folder / f"whole{number}.tar", {"image": "image", "label": "label"}) as out:
            for each in range(number * 10, number * 10 + 10):
                out.write({"image": picture(each), "label": each}, key=KEYS[each])
        shard_bytes = 4000 if "%" in name else None
        pack_source(open_source(folder / f"whole{number}.tar"), folder / name, shard_bytes=shard_bytes)
        made.append(str(folder / name))
    return made


@pytest.mark.parametrize("names", [("a-%03d.tar", "b-%03d.tar"), ("a.tar", "b-%03d.tar")])
def test_merged_sets_have_the_fields(tmp_path: Path, names: tuple[str, str]) -> None:
    """Whatever the shards are, also merged again, staged, moved, grown, packed anew; other fields are refused."""
    home = tmp_path / "home"
    paths, source = _halves(home, names), latents(tmp_path / "l.h5")
    for path, order in zip(paths, (1, -1), strict=True):
        names = {"latents": "latents", "kind": "label"}
        add_field(path, [*names][::order], source, field=[*names.values()][::order], allow="extra")
        add_field(path, "views", source, allow="extra")
    said = run("merge", *paths, "--out", home / "all.fastio-set")
    assert "with kind, latents, views, added to each; nothing was copied" in said
    merged = str(home / "all.fastio-set")
    check(merged)
    assert ["kind+latents", "views"] == list(added_stores(merged))
    assert [i % 3 for i in range(COUNT)] == [len(each["views"]) for each in FastDataset(merged)]
    assert "all good" in run("verify", merged, "--decode")
    report = json.loads(run("merge", *reversed(paths), "--out", merged, "--overwrite", "--json"))
    assert (["kind", "latents", "views"], 2) == (report["fields"], report["generation"])
    with FastDataset(merged) as dataset:
        assert [*range(10, 20), *range(10)] == [int(each["latents"][0, 0]) for each in dataset]
    run("merge", *paths, "--out", merged, "--overwrite")
    check(merged)
    run("stage", merged, tmp_path / "fast")
    check(str(tmp_path / "fast" / "all.fastio-set"))
    run("pack", merged, tmp_path / "all.h5")
    check(str(tmp_path / "all.h5"))
    home.rename(tmp_path / "moved")
    check(str(tmp_path / "moved" / "all.fastio-set"))


def test_a_merged_set_grows(tmp_path: Path) -> None:
    """By a merge into itself, and by --append; the samples that are new get the fields by add-field --append."""
    (a, b), source = _halves(tmp_path, ("a-%03d.tar", "b-%03d.tar")), latents(tmp_path / "l.h5")
    for path in (a, b):
        add_field(path, "latents", source, allow="extra")
    run("merge", a, b, "--out", tmp_path / "all.fastio-set")
    with Writer(tmp_path / "more.tar", {"image": "image", "label": "label"}) as out:
        out.write({"image": picture(3), "label": 3}, key="more")
    more = latents(tmp_path / "m.h5", ["more"])
    run("pack", tmp_path / "more.tar", tmp_path / "all-%03d.tar", "--append")
    merged = tmp_path / "all.fastio-set"
    with pytest.raises(StoreError, match="was added to other samples"):
        FastDataset(merged)
    run("add-field", merged, "latents", "--from", more, "--append")
    with FastDataset(merged) as dataset:
        assert [*range(COUNT), 0] == [int(each["latents"][0, 0]) for each in dataset]
    with Writer(tmp_path / "last.tar", {"image": "image", "label": "label"}) as out:
        out.write({"image": picture(3), "label": 3}, key="last")
    add_field(tmp_path / "last.tar", "latents", latents(tmp_path / "n.h5", ["last"]))
    run("merge", merged, tmp_path / "last.tar", "--out", merged, "--overwrite")
    with FastDataset(merged) as dataset:
        assert [*range(COUNT), 0, 0] == [int(each["latents"][0, 0]) for each in dataset]


def test_what_a_merge_refuses_of_added_fields(tmp_path: Path) -> None:
    """Fields of some of the stores alone, of other types, of other content, and those of a set that is replaced."""
    (a, b), source = _halves(tmp_path, ("a-%03d.tar", "b-%03d.tar")), latents(tmp_path / "l.h5")
    merged = tmp_path / "all.fastio-set"
    add_field(a, ["latents", "views"], source, allow="extra")
    for paths in ((a, b), (b, a)):
        said = run("merge", *paths, "--out", merged, code=1)
        assert f"{b}: lacks latents and views, added together to {a}" in said
        assert f"fastio add-field {b} latents views" in said
    add_field(b, ["latents", "views"], source, field=["views", "latents"], allow="extra")
    assert "the samples of one set have the same fields" in run("merge", a, b, "--out", merged, code=1)
    add_field(b, ["latents", "views"], source, allow="extra", overwrite=True)
    run("pack", tmp_path / "whole1.tar", b, "--overwrite", "--no-jump", "--shard-size", "5000")
    assert "was added to other samples" in run("merge", a, b, "--out", merged, code=1)
    assert not merged.exists()
    add_field(b, ["latents", "views"], source, allow="extra", overwrite=True)
    run("merge", a, b, "--out", merged)
    check(str(merged))
    add_field(merged, "own", source, field="latents")
    said = run("merge", b, a, "--out", merged, "--overwrite", code=1)
    assert "own.fastio-set: was added to the set that" in said
    check(str(merged))
    for path in (a, b):
        shutil.rmtree(next(tmp_path.glob(f"{Path(path).name[0]}.fastio-set.fields")))
    said = run("merge", a, b, "--out", merged, "--overwrite", code=1)
    assert "was added to the set that" in said


def test_kills_of_a_merge(tmp_path: Path) -> None:
    """A new set that has its name has its fields; merging again goes on."""
    (a, b), source = _halves(tmp_path, ("a-%03d.tar", "b-%03d.tar")), latents(tmp_path / "l.h5")
    for path in (a, b):
        add_field(path, "latents", source, allow="extra")
        add_field(path, "views", source, allow="extra")
    merged = tmp_path / "all.fastio-set"

    def merging() -> None:
        merge_stores([a, b], str(merged))

    with fault(0, full) as calls:
        merging()
    for at in range(1, calls.made + 1, max(1, calls.made // 8)):
        merged.unlink()
        shutil.rmtree(f"{merged}.fields", ignore_errors=True)
        for act in (kill, full):

            def failing(at: int = at, act: Any = act) -> None:
                with fault(at, act):
                    merging()

            if not merged.exists():
                in_fork(failing)
            if merged.exists():
                check(str(merged))
        if not merged.exists():
            merging()
        check(str(merged))


def test_kills_of_a_merge_into_a_set(tmp_path: Path) -> None:
    """The set opens as it was or as it is to be; in between it is refused, and add-field --append mends it."""
    (a, b), source = _halves(tmp_path, ("a-%03d.tar", "b-%03d.tar")), latents(tmp_path / "l.h5")
    for path in (a, b):
        add_field(path, "latents", source, allow="extra")
    merged, kept = Path(a).with_name("a.fastio-set"), tmp_path / "kept"

    def merging() -> None:
        merge_stores([str(merged), b], str(merged), overwrite=True)

    files = [merged, next((tmp_path / "a.fastio-set.fields").glob("*.fastio-set"))]
    kept.mkdir()
    for each in files:
        shutil.copy(each, kept)
    shards = {*files[1].parent.glob("*.tar")}
    with fault(0, full) as calls:
        merging()
    check(str(merged))
    states = set()
    for at in range(1, calls.made + 1, max(1, calls.made // 12)):
        for each in files:
            shutil.copy(kept / each.name, each)
        for each in {*files[1].parent.glob("*.tar")} - shards:  # appended to mend the last one
            each.unlink()

        def failing(at: int = at) -> None:
            with fault(at, kill):
                merging()

        in_fork(failing)
        try:
            states.add(len(FastDataset(merged)))
        except StoreError as exc:
            states.add(0 if "fastio add-field --append" in str(exc) else -1)
            add_field(merged, "latents", b, append=True)
        if len(FastDataset(merged)) < COUNT:
            check(str(merged), 10)
            merging()
        check(str(merged))
    assert {0, 10, COUNT} == states
