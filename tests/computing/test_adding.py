"""Fields that are added to a store: found by every reader, checked, and never at the cost of the store."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fastio import FastDataset, FastLoader, Mixture, Remote, Writer, add_field, beside, open_store, pack
from fastio.cli import cli
from fastio.errors import FastioError, SchemaError, StoreError
from fastio.store.beside.added import added_stores
from fastio.store.staging import stage
from tests.commands import run
from tests.computing.added import COUNT, KEYS, check, latents, latents_of, photos
from tests.converters.trees import picture
from tests.forking import in_fork
from tests.store.faults import fault, full, kill


@pytest.mark.parametrize("name", ["p.lmdb", "p.h5", "p.tar", "p.zip", "p-%03d.tar"])
def test_the_store_has_the_field(tmp_path: Path, name: str) -> None:
    """By its path, whatever the container; its own files stay as they were, and open_store opens them alone."""
    path, source = photos(tmp_path / name), latents(tmp_path / "l.h5")
    before = {each: each.read_bytes() for each in tmp_path.iterdir() if each.name.startswith("p")}
    shards = ["--shard-size", "4096"] if "%" in name else []
    said = run("add-field", path, "latents", "--from", source, *shards)
    assert "added latents to 20 samples" in said
    check(path)
    assert before == {each: each.read_bytes() for each in before}
    assert ["image", "label"] == [field.name for field in open_store(path).schema.fields]
    add_field(path, "views", source)
    check(path)
    assert ["image", "label", "latents", "views"] == [field.name for field in FastDataset(path).store.schema.fields]
    assert [i % 3 for i in range(COUNT)] == [len(each["views"]) for each in FastDataset(path)]
    assert path == FastDataset(path).store.path
    assert f"FastDataset('{path}')" in run("info", path)
    described = json.loads(run("info", path, "--json"))
    assert {"latents", "views"} <= set(described["fields"])
    assert "views: 2: PNG" in run("ls", path)
    assert "all good" in run("verify", path, "--decode")
    dataset = pickle.loads(pickle.dumps(FastDataset(path, fields=("image", "latents"))))
    assert latents_of(7).tolist() == dataset[7][1].tolist()


def test_the_order_is_that_of_the_store(tmp_path: Path) -> None:
    """The field lies in the order of its store, whose files are found by any of their names."""
    path = photos(tmp_path / "p-%03d.tar")
    add_field(path, "latents", latents(tmp_path / "l.h5"))
    for each in (path, tmp_path / "p-*.tar", tmp_path / "p.fastio-set"):
        check(str(each))
    single, link = photos(tmp_path / "s.lmdb"), tmp_path / "link.lmdb"
    add_field(single, "latents", tmp_path / "l.h5")
    link.symlink_to(single)
    check(str(link))
    with beside(path, latents(tmp_path / "m.h5"), fields={"latents": None, "label": None}) as both:
        assert ["image", "label", "latents", "views"] == [field.name for field in both.schema.fields]
        assert both.members[1].rows is None
    with open_store(added_stores(path)["latents"]) as store:
        assert KEYS == store.keys(np.arange(COUNT))


@pytest.mark.parametrize("name", ["p.lmdb", "p-%03d.tar"])
def test_stage_brings_the_fields(tmp_path: Path, name: str) -> None:
    """The copy of a store has the fields that it has, also through links, and loses those that it has lost."""
    path = photos(tmp_path / name)
    link, copy = path, tmp_path / "fast" / ("p.fastio-set" if "%" in name else "link.lmdb")
    if "%" not in name:
        link = str(tmp_path / "link.lmdb")
        Path(link).symlink_to(path)
    run("stage", link, tmp_path / "fast")
    assert not Path(f"{copy}.fields").exists()

    source = latents(tmp_path / "l.h5")
    add_field(path, "latents", source)
    add_field(path, "codes", source, field="latents")
    said = json.loads(run("stage", link, tmp_path / "fast", "--json"))
    assert str(copy) == said["path"]
    assert said["files"] > 2
    assert 0 < said["fetched_bytes"] < said["size_bytes"]
    check(str(copy))
    assert sorted(["codes", "latents"]) == sorted(added_stores(str(copy)))
    assert 0 == json.loads(run("stage", link, tmp_path / "fast", "--json"))["fetched_bytes"]
    with FastDataset(link, remote=Remote(stage=str(tmp_path / "disk"))) as staged:
        assert latents_of(5).tolist() == staged[5]["latents"].tolist()
        assert str(tmp_path / "disk" / copy.name) in staged.store.path
    check(str(tmp_path / "disk" / copy.name))

    add_field(copy, "own", source, field="latents")
    for each in Path(added_stores(path)["codes"]).parent.glob("codes*"):
        each.unlink()
    run("stage", link, tmp_path / "fast")
    assert ["latents", "own"] == sorted(added_stores(str(copy)))
    left = [each.name for each in Path(f"{copy}.fields").iterdir() if "codes" in each.name]
    assert all(each.endswith(".fastio-index") for each in left)  # a map of keys, as beside any store that is removed
    check(str(copy))


def test_stage_of_a_store_that_was_packed_anew(tmp_path: Path) -> None:
    """The copy of its old fields goes with the copy of its old content."""
    path, copy = photos(tmp_path / "p.lmdb"), tmp_path / "fast" / "p.lmdb"
    add_field(path, "latents", latents(tmp_path / "l.h5"))
    run("stage", path, tmp_path / "fast")
    for each in (tmp_path / "p.lmdb.fields").iterdir():
        each.unlink()
    with Writer(path, {"image": "image"}, overwrite=True) as out:
        out.write({"image": picture(3)}, key="other")
    with FastDataset(path, remote=Remote(stage=str(tmp_path / "fast"))) as staged:
        assert (1, str(copy)) == (len(staged), staged.store.path)
    with FastDataset(copy) as staged:
        assert ["other"] == list(staged.keys)


def test_kills_while_a_store_is_staged(tmp_path: Path) -> None:
    """A copy that has its name has its fields, wherever it ends, and staging again goes on."""
    path, copy = photos(tmp_path / "p.lmdb"), tmp_path / "fast" / "p.lmdb"
    add_field(path, "latents", latents(tmp_path / "l.h5"))

    def staging() -> None:
        stage(path, str(tmp_path / "fast"))

    with fault(0, full) as calls:
        staging()
    check(str(copy))
    for at in range(1, calls.made + 1, max(1, calls.made // 12)):
        shutil.rmtree(tmp_path / "fast")

        def failing(at: int = at) -> None:
            with fault(at, kill):
                staging()

        in_fork(failing)
        if copy.exists():
            check(str(copy))
        staging()
        check(str(copy))


def test_epochs_of_a_store_with_an_added_field(tmp_path: Path) -> None:
    """Receipts cover both, states resume, stores of it mix, and where() knows added columns."""
    path, packed = photos(tmp_path / "p.lmdb"), photos(tmp_path / "q.tar")
    with Writer(tmp_path / "s.h5", {"latents": "float16[2,3]", "score": "float"}) as out:
        for number, key in enumerate(KEYS):
            out.write({"latents": latents_of(number), "score": number / 2}, key=key)
    for store in (path, packed):
        for name in ("latents", "score"):
            add_field(store, name, tmp_path / "s.h5")
    loader = FastLoader(path, 4, shuffle=True, seed=5)
    batches = list(loader)
    assert [FastDataset(path).store.receipt()] == [part.number for part in loader.receipt().parts]
    again = FastLoader(path, 4, shuffle=True, seed=5)
    first = iter(again)
    next(first)
    state = again.state_dict()
    resumed = FastLoader(path, 4, shuffle=True, seed=5)
    resumed.load_state_dict(state)
    assert [each["label"].tolist() for each in batches[1:]] == [each["label"].tolist() for each in resumed]
    assert 10 == len(FastDataset(path).where("score >= 5"))
    mixed = Mixture({"p": path, "q": packed}, {"p": 1, "q": 1})
    for batch in FastLoader(mixed, 4):
        assert (batch["score"] == batch["label"] / 2).all()


def test_it_is_packed_unpacked_and_staged_with_its_field(tmp_path: Path) -> None:
    """What copies a store takes its fields along, and what cannot says so."""
    path = photos(tmp_path / "p.lmdb")
    add_field(path, "latents", latents(tmp_path / "l.h5"))
    run("pack", path, tmp_path / "all.h5")
    check(str(tmp_path / "all.h5"))
    assert "all good" in run("verify", tmp_path / "all.h5", "--against", path)
    with FastDataset(path) as dataset:
        pack(dataset, tmp_path / "again.tar")
    check(str(tmp_path / "again.tar"))
    run("unpack", path, tmp_path / "files")
    assert latents_of(4).tolist() == np.load(tmp_path / "files" / "1" / "4.png.latents.npy").tolist()
    (tmp_path / "stage").mkdir()
    with FastDataset(path, remote=Remote(stage=str(tmp_path / "stage"))) as staged:
        assert latents_of(4).tolist() == staged[4]["latents"].tolist()
    check(str(tmp_path / "stage" / "p.lmdb"))


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    """Keys that are missing, a name that is taken, a field that there is not, a store behind a URL."""
    path, source = photos(tmp_path / "p.lmdb"), latents(tmp_path / "l.h5", KEYS[:-1])
    more = latents(tmp_path / "m.h5", [*KEYS, "more"])
    for arguments, words in (
        (
            (path, "latents", "--from", source),
            "lacks keys that " + path + " has, such as '1/19.png'; a field is added to every sample: pack the missing",
        ),
        ((path, "label", "--from", more), "has a field 'label' already"),
        (
            (path, "nothing", "--from", more),
            "has no field 'nothing', to be added as 'nothing'; there is latents, views",
        ),
        ((path, "latents", "--from", more), "has 1 key ('more') that"),
        ((path, "latents", "--from", more, "--allow", "missing"), "expected extra, double"),
        (
            ("s3://bucket/p.lmdb", "latents", "--from", more),
            "s3://bucket/p.lmdb: a field is added to a store of this machine",
        ),
    ):
        said = run("add-field", *arguments, code=2 if "--allow" in arguments else 1)
        assert words in said
        assert "Traceback" not in said
        assert not (tmp_path / "p.lmdb.fields").exists()
    add_field(path, "codes", more, field="latents", allow="extra")
    assert latents_of(3).tolist() == FastDataset(path)[3]["codes"].tolist()
    said = run("add-field", path, "codes", "--from", more, "--named", "latents", "--allow", "extra", code=1)
    assert "--overwrite" in said
    add_field(path, "codes", more, field="latents", allow="extra", overwrite=True)
    with open_store(path) as first, pytest.raises(SchemaError, match="lacks"):
        beside(first, source)


def test_other_content_is_refused(tmp_path: Path) -> None:
    """A store that was packed anew under its name, with the same keys, does not get the field of the old one."""
    path = photos(tmp_path / "p.lmdb")
    add_field(path, "latents", latents(tmp_path / "l.h5"))
    with Writer(path, {"image": "image", "label": "label"}, overwrite=True) as out:
        for number in range(COUNT):
            out.write({"image": picture(number + 1), "label": number}, key=KEYS[number])
    for opened in (FastDataset, beside_with_nothing):
        with pytest.raises(StoreError, match=r"latents.lmdb: was added to other samples than .*p.lmdb holds now"):
            opened(path)
    add_field(path, "latents", tmp_path / "l.h5", overwrite=True)
    check(path)


def test_a_source_brings_the_fields_that_were_added_to_it(tmp_path: Path) -> None:
    """As one of the stores of ``beside``, and as what fields are added from."""
    path, source = photos(tmp_path / "p.lmdb"), latents(tmp_path / "l.h5")
    with Writer(tmp_path / "c.h5", {"caption": "text"}) as out:
        for number in reversed(range(COUNT)):
            out.write({"caption": f"picture {number}"}, key=KEYS[number])
    add_field(tmp_path / "c.h5", ["latents", "kind"], source, field=["latents", "label"])
    with beside(path, tmp_path / "c.h5") as both:
        assert ["image", "label", "caption", "kind", "latents"] == [field.name for field in both.schema.fields]
        assert f"beside({path!r}, '{tmp_path}/c.h5')" == both.opened_by
        for dataset in (FastDataset(both), pickle.loads(pickle.dumps(FastDataset(both)))):
            assert (5, "picture 5", 5) == (dataset[5]["label"], dataset[5]["caption"], dataset[5]["kind"])
            assert latents_of(5).tolist() == dataset[5]["latents"].tolist()
    assert "latents" in run("info", path, "--beside", tmp_path / "c.h5")
    run("add-field", path, "latents", "caption", "kind", "--from", tmp_path / "c.h5")
    check(path)
    assert "picture 7" == FastDataset(path)[7]["caption"]


# Several fields of one call.


@pytest.mark.parametrize("name", ["p.lmdb", "p.zip", "p-%03d.tar"])
def test_several_fields_at_once(tmp_path: Path, name: str) -> None:
    """They are one store, which has all of them; whoever names one of them alone gets a line."""
    path, source = photos(tmp_path / name), latents(tmp_path / "l.h5")
    said = run("add-field", path, "views", "latents", "kind", "--from", source, "--named", "views,latents,label")
    assert "added views, latents, kind to 20 samples" in said
    assert ["kind+latents+views"] == list(added_stores(path))
    check(path)
    for number, sample in enumerate(FastDataset(path)):
        assert (number, number % 3) == (sample["kind"], len(sample["views"]))
    assert "all good" in run("verify", path, "--decode")
    for names in (["latents"], ["latents", "other"], ["latents", "views", "kind", "more"]):
        with pytest.raises(StoreError, match="holds kind and latents and views, which would not be replaced"):
            add_field(path, names, source, overwrite=True)
    with Writer(tmp_path / "k.h5", {"latents": "float16[2,3]", "views": "int", "kind": "int"}) as out:
        for number, key in enumerate(KEYS):
            out.write({"latents": latents_of(number), "views": number, "kind": 3}, key=key)
    with pytest.raises(StoreError, match="--overwrite"):
        add_field(path, ["kind", "latents", "views"], tmp_path / "k.h5")
    add_field(path, ["kind", "latents", "views"], tmp_path / "k.h5", overwrite=True)
    check(path)
    assert [(number, 3) for number in range(COUNT)] == [(each["views"], each["kind"]) for each in FastDataset(path)]


@pytest.mark.parametrize("name", ["p.lmdb", "p-%03d.tar"])
def test_of_several_fields_all_are_added_or_none(tmp_path: Path, name: str) -> None:
    """Wherever a process is killed."""
    path, source = photos(tmp_path / name), latents(tmp_path / "l.h5")

    def adding() -> None:
        add_field(path, ["latents", "views"], source, shard_bytes=4096 if "%" in name else None, resume="%" in name)

    with fault(0, full) as calls:
        adding()
    for at in range(1, calls.made + 1, max(1, calls.made // 9)):
        shutil.rmtree(next(tmp_path.glob("*.fields")))

        def failing(at: int = at) -> None:
            with fault(at, kill):
                adding()

        in_fork(failing)
        fields = {field.name for field in FastDataset(path).store.schema.fields}
        assert fields in ({"image", "label"}, {"image", "label", "latents", "views"})
        if len(fields) == 2:
            adding()
        check(path)


def test_one_bad_field_of_several_adds_none(tmp_path: Path) -> None:
    """Also the names of the call itself."""
    path, source = photos(tmp_path / "p.lmdb"), latents(tmp_path / "l.h5")
    with Path(source).open("r+b") as file:
        data = file.read()
        file.seek(data.index(picture(0)) + 20)
        file.write(b"\xff")
    for names, fields, words in (
        (["latents", "nothing"], None, "has no field 'nothing'"),
        (["latents", "label"], None, "has a field 'label' already"),
        (["latents", "views"], None, "views"),
        (["latents", "latents"], None, "several different ones"),
        (["latents", "views"], "latents", "another field of the source for each of latents, views"),
        (["latents", "views"], ["latents", "latents"], "another field of the source for each"),
        ([f"field_{number}_with_a_long_name" for number in range(12)], None, "too long for the name of a file"),
    ):
        with pytest.raises((FastioError, ValueError), match=words):
            add_field(path, names, source, field=fields)
        assert not (tmp_path / "p.lmdb.fields").exists()
    said = run("add-field", path, "a", "b", "--from", source, "--named", "latents", code=2)
    assert "expected 2 fields, got 1" in said
    assert "names a field twice" in run("add-field", path, "a", "a", "--from", source, code=2)


def test_token_ids_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    """Before anything is written: a store with both would not open."""
    (tmp_path / "texts.jsonl").write_text("".join(f'{{"text": "word {number}"}}\n' for number in range(3)))
    run("pack", tmp_path / "texts.jsonl", tmp_path / "a.h5", "--tokenizer", "bytes")
    run("pack", tmp_path / "texts.jsonl", tmp_path / "b.h5", "--tokenizer", "bytes", "--eos")
    with pytest.raises(SchemaError, match="another tokenizer"):
        add_field(tmp_path / "a.h5", "others", tmp_path / "b.h5", field="tokens")
    assert not (tmp_path / "a.h5.fields").exists()
    add_field(tmp_path / "a.h5", "others", tmp_path / "a.h5", field="tokens")
    with FastDataset(tmp_path / "a.h5") as dataset:
        assert dataset[1]["tokens"].tolist() == dataset[1]["others"].tolist()


def beside_with_nothing(path: str) -> object:
    """As ``fastio ls`` opens a store."""
    from fastio.store.beside.joined import NOTHING_BESIDE

    return NOTHING_BESIDE.open(path)


@pytest.mark.parametrize("name", ["p.lmdb", "p-%03d.tar"])
def test_kills_and_full_disks(tmp_path: Path, name: str) -> None:
    """Wherever it ends, the store opens as it was or with the whole field, and adding it again goes on."""
    path, source = photos(tmp_path / name), latents(tmp_path / "l.h5")
    is_set = "%" in name

    def adding() -> None:
        add_field(path, "latents", source, shard_bytes=4096 if is_set else None, resume=is_set)

    with fault(0, full) as calls:
        adding()
    for each in (tmp_path / f"{'p.fastio-set' if is_set else name}.fields").iterdir():
        each.unlink()
    for at in range(1, calls.made + 1, max(1, calls.made // 9)):
        for act in (kill, full):

            def failing(at: int = at, act: Any = act) -> None:
                with fault(at, act):
                    adding()

            in_fork(failing)
            found = FastDataset(path)
            assert COUNT == len(found)
            if added_stores(path):
                check(path)
            else:
                assert (5, 2) == (found[5][1], len(found[5]))
    if not added_stores(path):
        adding()
    check(path)


@pytest.mark.parametrize("name", ["p.lmdb", "p.tar"])
def test_a_damaged_field_is_seen(tmp_path: Path, name: str) -> None:
    """Flipped bits and cuts of the added file: an error or the right values; verify finds each of them."""
    path = photos(tmp_path / name)
    add_field(path, "latents", latents(tmp_path / "l.h5"))
    place = Path(added_stores(path)["latents"])
    data, draw = place.read_bytes(), random.Random(1)
    with FastDataset(path) as dataset:
        expected = [sample["latents"].tolist() for sample in dataset]
    for number in range(24):
        broken = bytearray(data)
        if number % 6:
            broken[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            del broken[draw.randrange(len(data)) :]
        place.write_bytes(broken)
        with suppress(FastioError), FastDataset(path) as dataset:
            assert expected == [sample["latents"].tolist() for sample in dataset]
        result = CliRunner().invoke(cli, ["verify", path])
        assert result.exit_code == 1, result.output
        with open_store(path) as store:
            assert COUNT == len(store)
