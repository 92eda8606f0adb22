"""One answer to what a path is: the same from pack, info, FastDataset, bench and doctor."""

from __future__ import annotations

import pickle
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fastio import FastDataset, Unpacked
from fastio.cli import cli
from fastio.errors import StoreError
from fastio.store import open_store
from fastio.store.kinds.recognise import not_packed, recognise
from tests.converters.trees import cifar_folder, class_folders, flat, picture


def said(*words: object) -> str:
    """What a command prints when it refuses."""
    result = CliRunner().invoke(cli, list(map(str, words)))
    assert result.exit_code in (1, 2), result.output
    return result.output


def _arrays(folder: Path) -> Path:
    folder.mkdir()
    np.savez_compressed(folder / "a.npz", x=np.zeros((3, 4, 4, 3), np.uint8), y=np.arange(3))
    return folder / "a.npz"


def _cifar(folder: Path) -> Path:
    cifar_folder(folder, batches=1)
    batch = pickle.loads((folder / "data_batch_1").read_bytes(), encoding="bytes")
    (folder / "data_batch_1").write_bytes(pickle.dumps(batch, 2))  # for Python 2, by Python 3
    return folder


def _texts(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.txt").write_text("a text")
    return folder


def _table(folder: Path) -> Path:
    folder.mkdir()
    (folder / "rows.csv").write_text("text,label\na b,1\n")
    return folder / "rows.csv"


NOT_HERE = "but cannot be read where it lies, because its values 'image'"
SOURCES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "arrays": (_arrays, f"is arrays of NumPy (an array of NumPy), {NOT_HERE} are compressed"),
    "cifar": (_cifar, f"is CIFAR as it is downloaded (batches of CIFAR), {NOT_HERE} are pickled as text"),
    "texts": (_texts, "is a folder of texts, and not packed yet"),
    "table": (_table, "is a table (csv), and not packed yet"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_not_packed_is_named_by_all(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever expects a store says what was seen, which kind it is, and a command that packs it."""
    monkeypatch.chdir(tmp_path)
    make, expected = SOURCES[name]
    path = make(tmp_path / name)
    with pytest.raises(StoreError, match=re.escape(f"{path}: {expected}. Pack it: fastio pack ")) as caught:
        FastDataset(path)
    line = str(caught.value)

    assert all(line in said(command, path) for command in ("verify", "ls", "show"))
    assert f"{not_packed(str(path))}\n" in said("doctor", path)
    assert line.partition("ack it: ")[2] == not_packed(str(path)).partition("ack it: ")[2]
    command = shlex.split(line.partition("ack it: ")[2])
    CliRunner().invoke(cli, command[1:], catch_exceptions=False)
    assert len(open_store(command[3])) > 0


def test_the_command_that_packs_has_the_options_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read in place is packed by the same words."""
    monkeypatch.chdir(tmp_path)
    path = _arrays(tmp_path / "arrays")
    fields = ["image=x:image", "label=y"]
    with pytest.raises(StoreError, match=r"are compressed\. Pack it: ") as caught:
        FastDataset(path, unpacked=Unpacked(fields=fields))
    command = shlex.split(str(caught.value).partition("ack it: ")[2])
    assert ["--field", fields[0], "--field", fields[1]] == command[4:]
    CliRunner().invoke(cli, command[1:], catch_exceptions=False)
    assert len(FastDataset(command[3])) == 3


def test_token_ids_are_opened_in_place_by_their_own_class(tmp_path: Path) -> None:
    """A FastDataset has no dtype to pass: the message says which class has."""
    (tmp_path / "a.bin").write_bytes(bytes(64))
    with pytest.raises(
        StoreError, match=r"is a stream of token ids .*\. Open it where it lies by fastio\.TokenStream,"
    ):
        FastDataset(tmp_path / "a.bin")


def test_doubtful_folders_are_asked_about(tmp_path: Path) -> None:
    """Folders that are parts of a dataset get the commands of the parts, not one that would refuse."""
    for part in ("train", "val"):
        class_folders(tmp_path / "d" / part)
    with pytest.raises(
        StoreError, match=r"seem to be parts of a dataset, .*pack each by itself, `fastio pack .* --split"
    ):
        FastDataset(tmp_path / "d")


def test_nonsense_is_described(tmp_path: Path) -> None:
    """FastDataset and bench say what was seen in a folder of no kind, as pack does."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.md").write_text("x")
    expected = "is of no kind that fastio packs: found 1 file (1 .md); nearest: a folder of texts, for 1 file: "
    with pytest.raises(StoreError, match=re.escape(expected)):
        FastDataset(tmp_path / "d")

    assert expected in said("bench", "io", tmp_path / "d")
    assert expected in said("pack", tmp_path / "d", tmp_path / "o.lmdb")


def test_a_path_where_a_command_is_expected(tmp_path: Path) -> None:
    """``fastio bench ./photos`` names the command that measures it."""
    flat(tmp_path / "photos", 1)

    assert f"is a path, not a command: fastio bench io {tmp_path / 'photos'}" in said("bench", tmp_path / "photos")


def test_a_missing_path_is_just_missing(tmp_path: Path) -> None:
    """What does not exist is not described."""
    with pytest.raises(StoreError, match="no such file or folder"):
        FastDataset(tmp_path / "none")


def test_a_table_of_pictures_is_not_text(tmp_path: Path) -> None:
    """By its first row, whatever its columns are called."""
    (tmp_path / "a.png").write_bytes(picture(0))
    (tmp_path / "rows.csv").write_text("path,kind\na.png,1\n")
    found = recognise(tmp_path / "rows.csv")

    assert ("table", False, "a table") == (found.kind.name, found.is_text, found.signs)
