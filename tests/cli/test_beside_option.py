"""--beside: commands that read a store read others with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastio import Writer
from fastio.cli import cli
from tests.commands import run
from tests.conftest import encode, pictures


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    """Photos and captions, the words of a command that reads both."""
    with Writer(tmp_path / "photos.lmdb", {"image": "image"}) as photos:
        for number, pixels in enumerate(pictures(6, (40, 40, 3))):
            photos.write({"image": encode(pixels)}, key=f"k{number}")
    with Writer(tmp_path / "captions.h5", {"caption": "text"}) as captions:
        for number in reversed(range(6)):
            captions.write({"caption": f"caption of {number}"}, key=f"k{number}")
    return [str(tmp_path / "photos.lmdb"), "--beside", str(tmp_path / "captions.h5")]


def test_ls_info_plan_and_show(pair: list[str], tmp_path: Path) -> None:
    """Each shows the fields of both."""
    lines = run("ls", *pair).splitlines()
    assert 6 == len(lines)
    assert lines[2].endswith("k2  caption: 'caption of 2'")
    described = json.loads(run("info", *pair, "--json", "--where", "width == 40"))
    assert ("beside", 6, 6) == (described["format"], described["samples"], described["where"]["samples"])
    assert f"store = beside({pair[0]!r}, {pair[2]!r})" in described["read_with_fastio"]
    assert "caption  text" in run("info", *pair)
    assert 6 == json.loads(run("plan", *pair, "--world", "1", "--json"))["samples"]
    assert "contact" in run("show", *pair, "-o", str(tmp_path / "contact.png"))


def test_bench_reads_both(pair: list[str]) -> None:
    """The rate is that of all fields."""
    report = json.loads(run("bench", "io", *pair, "--epochs", "1", "--batch-size", "2", "--json"))
    assert pair[0] in json.dumps(report)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--allow", "lost"], "--allow 'lost': expected some of missing, extra, double"),
        (["--stems", "--rename", "caption"], "--rename 'caption': expected NAME=NEW"),
    ],
)
def test_options_that_make_no_sense(pair: list[str], words: list[str], said: str) -> None:
    """One line each; without --beside, they are for nothing."""
    result = CliRunner().invoke(cli, ["ls", *pair, *words])
    assert (result.exit_code, said in result.output) == (2, True), result.output
    result = CliRunner().invoke(cli, ["ls", pair[0], *words])
    assert "is for --beside: add it" in result.output


def test_allow_and_rename(pair: list[str], tmp_path: Path) -> None:
    """Extra keys are refused with what to type, which works."""
    with Writer(tmp_path / "more.h5", {"caption": "text"}) as captions:
        for number in range(7):
            captions.write({"caption": "!"}, key=f"k{number}")
    words = ["ls", *pair, "--beside", str(tmp_path / "more.h5")]
    result = CliRunner().invoke(cli, words)
    assert "(--allow extra)" in result.output
    result = CliRunner().invoke(cli, [*words, "--allow", "extra"])
    rename = result.output.rpartition("(--rename ")[2].partition(",")[0]
    assert "caption: 'caption of 0'  caption_2: '!'" in run(*words, "--allow", "extra", "--rename", rename)
