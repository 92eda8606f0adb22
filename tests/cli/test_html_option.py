"""Every command that measures writes its report, and says early where it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

from fastio.cli import cli
from tests.cli.tiny_training import SCRIPT

SHORT = ("--seconds", "0.1")
# What is read on top of the page to the command that writes it; DATA is a store.
COMMANDS = {
    "A store of training data": ("info", "DATA"),
    "How fast data can be loaded": ("bench", "io", "DATA", "--epochs", "1"),
    "Loading or training?": ("bench", "both", "user_pages.py:pair", *SHORT),
    "Training cifar10cnn": (
        *("bench", "train", "--model", "cifar10cnn", "--data", "synthetic"),
        *("--batch-size", "1", "--steps", "2"),
    ),
    "Settings of a loader": ("bench", "grid", "DATA", "--rounds", "1", "--seconds", "0.01"),
    "Decoders on one CPU": ("bench", "decode", "DATA", "--count", "2", "--rounds", "1"),
    "How fast the disk is": ("bench", "disk", "--size", "4MiB", "--files", "16"),
    "How fast the bus to the GPU is": ("bench", "bus"),
    "How long data takes": ("bandwidth", "1PB"),
    "What the epochs will read": ("plan", "DATA", "--world", "2x2", "--batch-size", "4"),
    "The best setting of a loader": ("tune", "DATA", *SHORT),
    "Where the time of a step goes": ("profile", "user_pages.py:pair"),
    "What the machine did": ("monitor", "--pid", str(os.getpid()), "--interval", "0.05", *SHORT),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the user's functions."""
    (tmp_path / "user_pages.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("title", COMMANDS)
def test_each_command_writes_its_page(title: str, png_stores: dict[str, Path], folder: Path) -> None:
    """The page says what it is about, under which settings, and what it ran on; it stays below 1.5 MB."""
    words = [str(png_stores["lmdb"]) if word == "DATA" else word for word in COMMANDS[title]]
    result = CliRunner().invoke(cli, [*words, "--html", "page.html"])
    assert result.exit_code == 0, result.output
    text = (folder / "page.html").read_text()

    assert "report: page.html" in result.stderr
    assert f'<p class="title">{title}</p>' in text
    assert "<dt>torch</dt>" in text
    assert len(text) < 1_500_000


@pytest.mark.parametrize(
    ("words", "shown", "hidden"),
    [
        (("bench", "both", "user_pages.py:pair", *SHORT), ["--seconds"], ["--batch-size", "--amp", "--shuffle"]),
        (
            ("bench", "train", "--model", "cifar10cnn", "--data", "synthetic", "--batch-size", "1", "--steps", "2"),
            ["--batch-size", "--amp"],
            [],
        ),
        (("bench", "disk", "--size", "4MiB", "--files", "16"), ["--size", "4,194,304 B"], []),
    ],
)
def test_settings_are_those_in_force(words: tuple[str, ...], shown: list[str], hidden: list[str], folder: Path) -> None:
    """Defaults stand on the page only where the command took them."""
    result = CliRunner().invoke(cli, [*words, "--html", "page.html"])
    assert result.exit_code == 0, result.output
    settings = (folder / "page.html").read_text().partition("<h3>Settings</h3>")[2].partition("<h3>")[0]
    settings = settings.partition("</div>")[2]  # behind the command as it was typed

    assert [True] * len(shown) == [name in settings for name in shown]
    assert [False] * len(hidden) == [name in settings for name in hidden]


def test_a_class_name_is_only_text(folder: Path) -> None:
    """A class whose name is a tag is shown by its name."""
    tag = "<script>alert(1)"
    for name, file in ((tag, "a.png"), ("other", "b.png")):
        (folder / "data" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(folder / "data" / name / file)
    for words in (("pack", "data", "s.lmdb"), ("info", "s.lmdb", "--html", "page.html")):
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
    text = (folder / "page.html").read_text()

    assert "&lt;script&gt;alert(1)" in text
    assert tag not in text


def test_a_missing_folder_is_told_before_anything_runs(folder: Path) -> None:
    """One line, and nothing was measured."""
    result = CliRunner().invoke(cli, ["bench", "disk", "--size", "4MiB", "--html", "missing/page.html"])

    assert result.exit_code == 1
    assert (
        "error: missing/page.html: the folder missing does not exist: create it, or choose another path\n"
        == result.stderr
    )
    assert ["user_pages.py"] == [each.name for each in folder.iterdir()]
