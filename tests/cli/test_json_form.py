"""Every JSON that a command prints has its form, and every key of it is in the guide, in its section."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastio import StepTimer
from fastio.cli import cli
from fastio.cli.result import form
from tests.cli.tiny_training import SCRIPT

GUIDE = Path(__file__).parents[2] / "fastio" / "guide" / "json.md"
SHORT = ("--seconds", "0.1")
TINY = ("--batch-size", "1", "--steps", "2")
# Format to the command that prints it, without DATA, a store.
COMMANDS = {
    "fastio.profile/1": ("profile", "user_forms.py:pair"),
    "fastio.monitor/1": ("monitor", "--pid", str(os.getpid()), "--interval", "0.05", *SHORT),
    "fastio.bench.io/1": ("bench", "io", "DATA", "--epochs", "1"),
    "fastio.bench.both/1": ("bench", "both", "user_forms.py:pair", *SHORT),
    "fastio.bench.train/1": ("bench", "train", "--model", "cifar10cnn", "--data", "synthetic", *TINY),
    "fastio.bench.grid/1": ("bench", "grid", "DATA", "--rounds", "1", "--seconds", "0.01"),
    "fastio.bench.decode/1": ("bench", "decode", "DATA", "--count", "2", "--rounds", "1"),
    "fastio.bench.disk/1": ("bench", "disk", "--size", "4MiB", "--files", "16"),
    "fastio.bench.bus/1": ("bench", "bus"),
    "fastio.bandwidth/1": ("bandwidth", "1PB"),
    "fastio.stage/1": ("stage", "DATA", "copy"),
    "fastio.tune/1": ("tune", "DATA", *SHORT),
    "fastio.plan/2": ("plan", "DATA", "--world", "2x2", "--batch-size", "4"),
}
# The names in these are those of arguments, or bounds.
FREE = ("settings", "stalls")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the user's functions."""
    (tmp_path / "user_forms.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_forms_are_described(name: str, png_stores: dict[str, Path]) -> None:
    """The format comes first, and no key of the output is missing in its section."""
    words = [str(png_stores["lmdb"]) if word == "DATA" else word for word in COMMANDS[name]]
    result = CliRunner().invoke(cli, [*words, "--json"])
    assert result.exit_code == 0, result.output
    printed = result.stdout.splitlines()[0] if name == "fastio.monitor/1" else result.stdout
    check(name, json.loads(printed))


def test_the_steps_of_a_timer_are_described(folder: Path) -> None:
    """The file that StepTimer writes has a form too."""
    timer = StepTimer()
    for _ in timer([[1], [2]]):
        pass
    timer.write_json(folder / "steps.json")
    check("fastio.steps/1", json.loads((folder / "steps.json").read_text()))


def test_what_is_no_number_is_null() -> None:
    """A loss that went astray leaves the JSON readable for every program."""
    said = form("bench.train", {"losses": (1.5, float("nan"), float("inf")), "data": "x"})

    assert {"format": "fastio.bench.train/1", "losses": [1.5, None, None], "data": "x"} == said


def check(name: str, said: dict[str, object]) -> None:
    """The first key is the format, and the section knows the others."""
    assert next(iter(said.items())) == ("format", name)
    section = GUIDE.read_text().split(f"## {name.partition('/')[0]}\n")[1].split("\n## ")[0]
    known = {*re.findall(r"`([^`]+)`", section), "format"}
    if name in ("fastio.bench.both/1", "fastio.bench.train/1"):  # refer to other sections
        known |= set(re.findall(r"`([^`]+)`", GUIDE.read_text()))
    assert set() == {key for key in keys(said) if key not in known}


def keys(said: object) -> Iterator[str]:
    """All keys of an object and of what is in it."""
    for part in said if isinstance(said, list) else ():
        yield from keys(part)
    for key, value in said.items() if isinstance(said, dict) else ():
        yield key
        if key not in FREE:
            yield from keys(value)
