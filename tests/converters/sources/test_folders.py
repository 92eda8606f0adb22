"""Sources that could be taken for something else than is meant are refused, and what the refusal advises works."""

from __future__ import annotations

import re
import shlex

import pytest

from fastio.converters import LabelOptions, open_source, pack
from fastio.converters.labels.file import read_labels
from fastio.converters.text import find_text
from fastio.errors import SourceError
from fastio.store import open_store
from tests.commands import run
from tests.converters.trees import class_folders, flat, pickled, picture


def advised(message):
    """The commands between backticks, as lists of arguments."""
    return [shlex.split(command)[1:] for command in re.findall(r"`(fastio [^`]+)`", message)]


def pictures(folder, *names):
    """PNGs of these names."""
    folder.mkdir(parents=True)
    for seed, name in enumerate(names):
        (folder / name).write_bytes(picture(seed))


# folders


@pytest.mark.parametrize(
    "names",
    [
        ("train", "val"),
        ("Train", "test"),
        ("train",),
        ("training", "validation", "test"),
        ("train2017", "val2017"),
        ("my test", "my train"),
    ],
)
def test_parts_of_a_data_set_are_no_classes(tmp_path, monkeypatch, names):
    """They are refused with one command for each, which packs it."""
    monkeypatch.chdir(tmp_path)
    for name in names:
        class_folders(tmp_path / "my data" / name)
    message = run("pack", "my data", "x.lmdb", code=1)

    assert all(f"{name}/" in message for name in names)
    assert len(names) == len(advised(message))
    for command in advised(message):
        run(*command)
    with open_store(f"{names[0]}.lmdb") as store:
        assert (9, ["bee", "cat", "dog"]) == (len(store), store.metadata["classes"])


@pytest.mark.parametrize("beside", ["", "list.txt", "lists/train.txt", "annotations/xmls/a.xml", "labels/a.txt"])
@pytest.mark.parametrize("folder", ["images", "JPEGImages", "all_pictures"])
def test_class_folders_one_level_further_down(tmp_path, monkeypatch, folder, beside):
    """A root with the folder of the class folders alone, or beside files of labels, names that folder."""
    monkeypatch.chdir(tmp_path)
    class_folders(tmp_path / "my data" / folder)
    if beside:
        (tmp_path / "my data" / beside).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "my data" / beside).write_text("x")
    message = run("pack", "my data", "x.lmdb", code=1)

    assert "'bee/', 'cat/' and 'dog/' in it look like the class folders" in message
    assert [["pack", f"my data/{folder}", "x.lmdb"]] == advised(message)
    run(*advised(message)[0])
    with open_store("x.lmdb") as store:
        assert (9, ["bee", "cat", "dog"]) == (len(store), store.metadata["classes"])
    run("pack", "my data", "y.lmdb", "--source-kind", "imagefolder", "--on-error", "skip")
    with open_store("y.lmdb") as store:
        assert folder in store.metadata["classes"]


def test_parts_one_level_further_down(tmp_path, monkeypatch):
    """Where the only folder holds parts of a dataset, each is packed by its own command."""
    monkeypatch.chdir(tmp_path)
    for name in ("train", "val"):
        class_folders(tmp_path / "data/images" / name)
    message = run("pack", "data", "x.lmdb", code=1)

    assert "'train/' and 'val/' in it seem to be parts of a dataset" in message
    for command in advised(message):
        run(*command)
    with open_store("val.lmdb") as store:
        assert (9, ["bee", "cat", "dog"]) == (len(store), store.metadata["classes"])


@pytest.mark.parametrize("folder", ["images", "cat"])
@pytest.mark.parametrize("labels", ["", "labels.pkl"])
def test_a_single_folder_of_pictures(tmp_path, monkeypatch, folder, labels):
    """It may be a class, or a flat folder, with the label file beside it: each meaning has its command."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    numbers = flat(tmp_path / "data" / folder)
    if labels:
        pickled(tmp_path / "data" / labels, numbers)
    message = run("pack", "data", "x.lmdb", code=1)

    assert f"'{folder}/' is its only folder" in message
    run(*advised(message)[0])
    with open_store("x.lmdb") as store:
        assert bool(labels) == ("label" in store.schema)
    run("pack", "data", "y.lmdb", "--source-kind", "imagefolder", "--on-error", "skip")


def test_a_single_folder_to_append(tmp_path, monkeypatch):
    """The command has the user's OUT and --append, and works."""
    monkeypatch.chdir(tmp_path)
    for name in ("may", "june"):
        (tmp_path / name).mkdir()
        flat(tmp_path / name / name)
    for path in (tmp_path / "june" / "june").iterdir():
        path.rename(path.with_name(f"june-{path.name}"))
    run("pack", "may/may", "all of it-%06d.tar")
    message = run("pack", "june", "all of it-%06d.tar", "--append", code=1)

    (command,) = advised(message)
    assert ["all of it-%06d.tar", "--append"] == command[2:]
    run(*command)


@pytest.mark.parametrize("beside", ["README.txt", "labels.csv", ".git/HEAD"])
def test_folders_of_pictures_are_no_text(tmp_path, beside):
    """A note, a table or a hidden folder beside folders of pictures, however deep these are, makes no text of them."""
    class_folders(tmp_path / "s" / "data" / "all")
    (tmp_path / "s" / beside).parent.mkdir(exist_ok=True)
    (tmp_path / "s" / beside).write_text("x")
    (tmp_path / "s" / "table.csv").write_text("text,label\n")

    assert find_text(tmp_path / "s") is None


def test_a_part_may_be_flat(tmp_path):
    """``split`` opens the folder as a source of its own."""
    (tmp_path / "d").mkdir()
    flat(tmp_path / "d" / "train")
    flat(tmp_path / "d" / "val")

    assert "flat" == open_source(tmp_path / "d", split="train").kind
    with pytest.raises(SourceError, match=r"has no folder 'test'.*its folders are 'train', 'val'"):
        open_source(tmp_path / "d", split="test")
    with pytest.raises(SourceError, match="has no folder"):
        open_source(tmp_path / "d", split="..")
    for number in range(20):
        (tmp_path / "d" / f"class{number:02}").mkdir()
    with pytest.raises(SourceError, match=r"'class09', \.\.\.$"):
        open_source(tmp_path / "d", split="test")


def test_classes_may_be_called_as_parts_are(tmp_path):
    """One such name among others is a class, and --source-kind imagefolder says that all are."""
    class_folders(tmp_path / "vehicles")
    (tmp_path / "vehicles" / "cat").rename(tmp_path / "vehicles" / "train")
    (tmp_path / "vehicles" / "dog").rename(tmp_path / "vehicles" / "tram")
    class_folders(tmp_path / "parts" / "train")
    class_folders(tmp_path / "parts" / "val")

    assert ["bee", "train", "tram"] == open_source(tmp_path / "vehicles").metadata["classes"]
    assert ["train", "val"] == open_source(tmp_path / "parts", kind="imagefolder").metadata["classes"]


def test_parts_of_a_text_are_no_classes(tmp_path, monkeypatch):
    """Folders of .txt files are refused alike, and --split packs one of them."""
    monkeypatch.chdir(tmp_path)
    for part in ("train", "test"):
        (tmp_path / "t" / part / "pos").mkdir(parents=True)
        (tmp_path / "t" / part / "pos" / "README.txt").write_text("good")
    message = run("pack", "t", "x.lmdb", code=1)
    run(*advised(message)[0])

    assert "'train/' and 'test/'" in message or "'test/' and 'train/'" in message
    with open_store(advised(message)[0][2]) as store:
        assert ["pos/README.txt"] == store.keys([0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("images", ("0001.png", "0002.png")), ("masks", ("0001.png", "0002.png"))),
        (("a", ("street.png", "tree.png", "sky.png")), ("b", ("tree.jpg", "sky.jpg"))),
        (("depth", ("deep/1.png",)), ("rgb", ("deep/1.png",))),
    ],
)
def test_folders_of_the_same_names_are_no_classes(tmp_path, monkeypatch, one, other):
    """Images and their masks are refused, with an example and commands that work."""
    monkeypatch.chdir(tmp_path)
    for folder, names in (one, other):
        for name in names:
            (tmp_path / "s" / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "s" / folder / name).write_bytes(picture(1, kind="PNG" if name.endswith("png") else "JPEG"))
    (tmp_path / "s" / "x.npy").write_text("{}")
    message = run("pack", "s", "x.lmdb", code=1)

    assert f"'{one[0]}' and '{other[0]}' hold files of the same names" in message
    assert "--source-kind imagefolder --on-error skip` if they are classes" in message
    run("pack", "s", "y.lmdb", "--source-kind", "imagefolder", "--on-error", "skip")
    run(*advised(message)[0], "--on-error", "skip")  # one picture of "a" has no partner


def test_numbered_files_of_classes_are_classes(tmp_path):
    """image_0001 in each of them says nothing; nor do a few equal names."""
    pictures(tmp_path / "s" / "cat", *(f"image_{i:04d}.png" for i in range(1, 7)))
    pictures(tmp_path / "s" / "dog", *(f"image_{i:04d}.png" for i in range(1, 6)))
    pictures(tmp_path / "t" / "cat", "tom.png", "a.png", "b.png", "c.png")
    pictures(tmp_path / "t" / "dog", "tom.png", "d.png", "e.png", "f.png")

    assert ["cat", "dog"] == open_source(tmp_path / "s").metadata["classes"]
    assert ["cat", "dog"] == open_source(tmp_path / "t").metadata["classes"]


# label files


def test_captions_are_no_classes(tmp_path):
    """Refused, unless each is said to be a class."""
    path = tmp_path / "l.csv"
    path.write_text("filename,label\n" + "".join(f"{i}.png,a cat sits on chair {i}\n" for i in range(4)))
    names = tmp_path / "n.csv"
    names.write_text("".join(f"{i}.png,name{i}\n" for i in range(20)))

    for file in (path, names):
        with pytest.raises(SourceError, match=r"different labels, e\.g\. .* --many-classes if each is a class"):
            read_labels(file)
    assert 20 == len(read_labels(names, LabelOptions(many_classes=True)).classes)


TABLE = "image_file,emotion,split,age\na.png,happy,train,3.5\nb.png,sad,val,4\nc.png,happy,train,7\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {},
            "--key-column image_file --label-column NAME, or A,B for several numbers per sample, with --without",
        ),
        (
            {"key_column": "image_file"},
            "no known title for the labels among 'emotion', 'split', 'age': add --label-col",
        ),
        (
            {"key_column": "image_file", "label_columns": ("emotion",)},
            "'split', 'age' are not used: --without split,age leaves them out; --filter split=train",
        ),
        ({"key_column": "x"}, "--key-column x: there is no such column among 'image_file', 'emotion', 'split', 'age'"),
        (
            {
                "filters": (("split", "test"),),
                "key_column": "image_file",
                "label_columns": ("age",),
                "ignore_columns": ("*",),
            },
            "all 3 rows have other values",
        ),
        ({"header": False}, "no known title for the file names and labels among '1', '2', '3', '4'"),
    ],
)
def test_columns_that_nobody_named(tmp_path, options, words):
    """An unknown header, a missing column and an unused one are refused with the options to type."""
    path = tmp_path / "l.csv"
    path.write_text(TABLE)
    with pytest.raises(SourceError, match=re.escape(words)):
        read_labels(path, LabelOptions(**options))


def test_an_unknown_header_is_no_sample(tmp_path):
    """Two columns whose titles nobody knows are not taken for a file called as the title is."""
    path = tmp_path / "l.csv"
    path.write_text("picture of,emotion\na.png,happy\n")
    with pytest.raises(SourceError, match=r"add --key-column 'picture of' --label-column emotion$"):
        read_labels(path)

    options = LabelOptions(key_column="picture of", label_columns=("emotion",))
    assert ("happy",) == read_labels(path, options).classes


def test_columns_by_number(tmp_path):
    """--no-header: the first line is a sample."""
    path = tmp_path / "l.tsv"
    path.write_text("7\ta.png\tx\n8\tb.png\ty\n")
    options = LabelOptions(key_column="2", label_columns=("1",), ignore_columns=("*",), header=False)

    assert {"a.png": 7, "b.png": 8} == read_labels(path, options).by_name
    with pytest.raises(SourceError, match="names a file, so there are no titles: add --no-header"):
        read_labels(path, LabelOptions(key_column="2"))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json"])
def test_a_filter_leaves_the_other_pictures_out(tmp_path, suffix):
    """Rows of another value are left out and counted; found is packed and left out together, and verify agrees."""
    pictures(tmp_path / "p", "a.png", "b.png", "c.png")
    path = tmp_path / f"l{suffix}"
    rows = [line.split(",") for line in TABLE.splitlines()]
    records = [str(dict(zip(rows[0], row, strict=True))).replace("'", '"') for row in rows[1:]]
    texts = {".csv": TABLE, ".jsonl": "\n".join(records), ".json": f"[{','.join(records)}]"}
    path.write_text(texts[suffix])
    options = ("--labels", path, "--key-column", "image_file", "--label-column", "emotion")
    out = tmp_path / "s.lmdb"
    said = run("pack", tmp_path / "p", out, *options, "--filter", "split=train", "--without", "age")

    assert "left out: b.png (does not pass the filters of l" in said
    with open_store(out) as store:
        assert ["a.png", "c.png"] == store.keys([0, 1])
    assert "all good" in run("verify", out, "--against", tmp_path / "p", "--labels", path)
    assert "b.png" in run("info", out, "--skipped")


def test_filters_of_two_columns_and_two_values(tmp_path):
    """Values of one column are alternatives, columns conditions; a name that passes once is not left out."""
    path = tmp_path / "l.csv"
    path.write_text(
        "file,label,split,year\na.png,1,train,1\nb.png,2,val,1\nc.png,3,test,1\nd.png,4,train,2\na.png,1,val,2\n"
    )
    labels = read_labels(path, LabelOptions(filters=(("split", "train"), ("split", "val"), ("year", "1"))))

    assert {"a.png": 1, "b.png": 2} == labels.by_name
    assert {"c.png", "d.png"} == labels.filtered


def test_a_filter_of_labels(tmp_path):
    """Some classes of a file: the column of the labels may be filtered by, too."""
    (tmp_path / "l.csv").write_text("file,label\na.png,cat\nb.png,dog\nc.png,bee\n")
    labels = read_labels(tmp_path / "l.csv", LabelOptions(filters=(("label", "cat"), ("label", "bee"))))

    assert (("bee", "cat"), {"a.png": 1, "c.png": 0}) == (labels.classes, labels.by_name)


@pytest.mark.parametrize("file", ["l.json", "l.pkl"])
def test_files_without_columns(tmp_path, file):
    """Options that name columns are refused where there are none."""
    import pickle

    (tmp_path / "l.json").write_text('{"a.png": 1}')
    (tmp_path / "l.pkl").write_bytes(pickle.dumps({"a.png": 1}))
    with pytest.raises(SourceError, match="has no columns: drop the options"):
        read_labels(tmp_path / file, LabelOptions(label_columns=("x",)))


def test_coco_is_called_so(tmp_path):
    """An object of images and annotations is no object of names and labels."""
    (tmp_path / "l.json").write_text('{"images": [], "annotations": []}')
    with pytest.raises(SourceError, match="looks like COCO annotations"):
        read_labels(tmp_path / "l.json")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--label-column", "x"), "--label-column needs a label file: add --labels FILE"),
        (("--filter", "x="), "expected COLUMN=VALUE, as in split=train, or an expression"),
        (("--filter", "width>=400 and"), "expected COLUMN=VALUE, as in split=train, or an expression"),
        (("--filter", "a=b"), "--filter needs a label file"),
        (("--filter", "a >= 3"), "--filter needs a label file"),
    ],
)
def test_options_without_a_label_file(tmp_path, options, words):
    """One line, and nothing is written."""
    flat(tmp_path / "p", 2)

    assert words in run("pack", tmp_path / "p", tmp_path / "s.lmdb", *options, code=2)


def test_text_takes_no_options_of_labels(tmp_path):
    """They are refused for text."""
    (tmp_path / "a.txt").write_text("one\n")

    said = run("pack", tmp_path / "a.txt", tmp_path / "s.lmdb", "--filter", "a=b", code=2)

    assert "--filter is for pictures" in said


def test_explicit_options_are_recorded(tmp_path):
    """What was said of the label file stands in the store, so that it can be compared again."""
    labels = flat(tmp_path / "p", 3)
    (tmp_path / "l.csv").write_text("name,age,x\n" + "".join(f"{k},{v},1\n" for k, v in labels.items()))
    options = LabelOptions(label_columns=("age",), ignore_columns=("x",))
    source = open_source(tmp_path / "p", labels=tmp_path / "l.csv", label_options=options)
    pack(source, tmp_path / "s.h5")
    with open_store(tmp_path / "s.h5") as store:
        assert options == LabelOptions.from_json(store.metadata["source"]["label_options"])


@pytest.mark.parametrize(
    ("folder", "beside"),
    [
        ("images", "lists/a.xml"),
        ("JPEGImages", "Annotations/a.mat"),
        ("train", "annotations/a.xml"),
        ("train", "data.yaml"),
        ("labels", "classes.names"),
        ("test", "boxes.json"),
    ],
)
def test_typical_folders_ask_first(tmp_path, folder, beside):
    """Folders named as parts or fields, beside what annotates them, are no classes unless the user says so."""
    for name, numbers in ((folder, (0, 1)), ("others", (2, 3))):
        pictures(tmp_path / "d" / name, *(f"{name}{i}.png" for i in numbers))
    (tmp_path / "d" / beside).parent.mkdir(exist_ok=True)
    (tmp_path / "d" / beside).write_text("x")
    message = run("pack", tmp_path / "d", tmp_path / "x.lmdb", "--on-error", "skip", code=1)

    shown_beside = f"{beside.partition('/')[0]}/" if "/" in beside else beside
    assert f"'{folder}/' is hardly a class, by the name and beside {shown_beside!r}" in message
    run(*advised(message)[0][:2], tmp_path / "y.lmdb", *advised(message)[0][3:])
    with open_store(tmp_path / "y.lmdb") as store:
        assert (2, False) == (len(store), "label" in store.schema)
    run("pack", tmp_path / "d", tmp_path / "z.lmdb", "--source-kind", "imagefolder", "--on-error", "skip")


@pytest.mark.parametrize("beside", ["README.txt", "license.txt", ""])
def test_one_class_may_be_called_train(tmp_path, beside):
    """Vehicles have a class of that name; a note about the data says nothing."""
    for name in ("bus", "train"):
        pictures(tmp_path / "d" / name, f"{name}1.png", f"{name}2.png")
    if beside:
        (tmp_path / "d" / beside).write_text("x")
    run("pack", tmp_path / "d", tmp_path / "x.lmdb")

    with open_store(tmp_path / "x.lmdb") as store:
        assert ["bus", "train"] == store.metadata["classes"]
