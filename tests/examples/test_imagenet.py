"""The ImageNet scripts: before and after learn the same, and a training that was stopped goes on where it was."""

from __future__ import annotations

import ast
import difflib
import re
from pathlib import Path

import pytest

from tests.examples.class_photos import write_red_and_green
from tests.examples.running import EXAMPLES, numbers, run_example, run_script

TINY = ("--epochs", "2", "--size", "32", "--batch-size", "8", "--width", "4")


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Photos of two classes in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_red_and_green(tmp_path / "photos")


def test_a_stopped_training_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the second epoch and resumed, it ends with the loss and the accuracy of one that never stopped."""
    whole = run_example("imagenet_after.py", *TINY)
    replace, saves = Path.replace, []

    def stop_after_six(path: Path, target: str) -> Path:
        saves.append(replace(path, target))
        if len(saves) == 6:  # four batches, the end of the first epoch, one batch
            raise KeyboardInterrupt
        return saves[-1]

    stores = ("train.lmdb", "val.lmdb")
    monkeypatch.setattr(Path, "replace", stop_after_six)
    with pytest.raises(KeyboardInterrupt):
        run_script("imagenet_after.py", *stores, *TINY, "--save-every", "1")
    rest = run_script("imagenet_after.py", *stores, *TINY, "--resume", "checkpoint.pt")

    assert 2 == len(numbers("loss", whole))
    assert 1 == len(numbers("loss", rest))
    assert numbers("top-1", whole)[-1:] == numbers("top-1", rest)


def test_it_learns() -> None:
    """Losses fall, and photos of the other folder are told apart."""
    output = run_example("imagenet_after.py", *TINY, "--epochs", "8")

    losses = numbers("loss", output)
    assert losses[-1] < losses[0]
    assert numbers("top-1", output)[-1] > 75


def test_one_line_changes_nothing() -> None:
    """Over the store, torchvision's transforms and torch's DataLoader give the losses that they give over files."""
    pytest.importorskip("torchvision")
    before, after = (
        re.sub(r", [\d,]+ images/s", "", run_example(name, *TINY, "--workers", "0"))
        for name in ("imagenet_before.py", "imagenet_one_line.py")
    )

    assert 2 == len(numbers("loss", before))
    assert before == after


@pytest.mark.parametrize(("name", "most"), [("imagenet_one_line.py", 6), ("imagenet_after.py", 44)])
def test_little_changes(name: str, most: int) -> None:
    """What the docstring calls one line, and what it calls a larger step, in lines taken out or put in."""
    before, after = (code_of(script) for script in ("imagenet_before.py", name))
    changes = [line for line in difflib.ndiff(before, after) if line.startswith(("- ", "+ ")) and line[2:].strip()]

    assert 0 < len(changes) <= most


def code_of(name: str) -> list[str]:
    """The lines of a script behind its docstring."""
    text = (EXAMPLES / name).read_text()
    return text.splitlines()[ast.parse(text).body[0].end_lineno :]
