"""What ``fastio plan`` says of its settings: those that make no sense are refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.types.schema import RAW, Field
from tests.conftest import write_store

COUNT = 41


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """41 samples of 16 bytes."""
    values = [np.full(4, number, np.int32).tobytes() for number in range(COUNT)]
    return write_store(tmp_path_factory.mktemp("options") / "n.h5", values, field=Field("x", RAW, "<i4", (4,)))


def refusal(store: Path, options: str) -> str:
    """The one line with which a plan is refused."""
    result = CliRunner().invoke(cli, ["plan", str(store), *options.split()])
    assert result.exit_code in (1, 2), result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize("world", ["42", "6x7", "99999999999x8", "8x999999999999999999"])
def test_more_ranks_than_samples_are_refused(store: Path, world: str) -> None:
    """No step has a sample for each of 42 ranks."""
    assert "41 samples: expected at most 41 ranks" in refusal(store, f"--world {world} --epochs 1")


def test_a_rank_for_each_sample_is_planned(store: Path) -> None:
    """As many ranks as samples are the most that can be planned."""
    result = CliRunner().invoke(cli, ["plan", str(store), "--world", "41x1", "--batch-size", "1", "--epochs", "1"])
    assert result.exit_code == 0, result.output


OTHERS = {"repeated": "repeated in an epoch", "left out": "left out of an epoch"}


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--batch-size 99999999999999999999", "is not in the range 1<=x<=2147483648"),
        ("--epochs 99999999999999999999", "is not in the range 1<=x<=100000"),
        ("--batch-size 2147483648 --world 41 --uneven repeat", "more than memory holds"),
        (f"--world {'9' * 5000}", "expected NODESxRANKS"),
    ],
)
def test_numbers_without_measure_are_refused(store: Path, options: str, line: str) -> None:
    """What no training has is refused before anything is computed."""
    assert line in refusal(store, options)


@pytest.mark.parametrize("uneven", ["pad", "drop"])
def test_epochs_without_a_batch_are_refused(store: Path, uneven: str) -> None:
    """With --drop-last, a step that 41 samples cannot fill is the only one, and it is left out."""
    line = refusal(store, f"--world 2 --batch-size 32 --drop-last --uneven {uneven}")
    assert "41 samples for 2 ranks (batch_size=32, drop_last=True): the epoch has no batch at all" in line


def test_an_empty_store_has_no_batch(tmp_path: Path) -> None:
    """Where there is no sample, nothing is to blame but the store."""
    empty = write_store(tmp_path / "e.h5", [], field=Field("x", RAW, "<i4", (4,)))
    assert "0 samples for 1 rank: the epoch has no batch at all" in refusal(empty, "")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--batch-size 64", "1 step of 41 samples"),
        ("--batch-size 41", "1 step of 41 samples"),
        ("--batch-size 10", "5 steps of 10 samples, the last of 1"),
        ("--batch-size 10 --drop-last", "4 steps of 10 samples; left out 1 (drop_last=True)"),
        ("--batch-size 10 --world 2", "3 steps of 20 samples, the last of 2; repeated 1 (uneven='pad')"),
        ("--batch-size 10 --world 2 --uneven drop", "2 steps of 20 samples; left out 1 (uneven='drop')"),
        (
            "--batch-size 7 --world 2 --uneven drop --drop-last",
            "2 steps of 14 samples; left out 13 (uneven='drop', drop_last=True)",
        ),
        (
            "--batch-size 10 --world 2 --uneven repeat --drop-last",
            "3 steps of 20 samples; repeated 19 (uneven='repeat')",
        ),
    ],
)
def test_steps_are_those_of_the_store(store: Path, options: str, line: str) -> None:
    """No step is said to have more samples than it has, and the option is named that repeats or leaves out samples."""
    result = CliRunner().invoke(cli, ["plan", str(store), *options.split(), "--epochs", "1"])
    assert result.exit_code == 0, result.output
    said = {name.strip(): words for name, _, words in (row.partition("  ") for row in result.stdout.splitlines()[2:])}
    found = [said["an epoch"], *(f"{word} {said[key].strip()}" for word, key in OTHERS.items() if key in said)]
    assert "; ".join(words.strip() for words in found) == line


def test_a_page_names_the_world_as_it_is_typed(store: Path, tmp_path: Path) -> None:
    """Its two numbers, as the option takes them."""
    arguments = ["plan", str(store), "--world", "2x3", "--batch-size", "4", "--html", str(tmp_path / "p.html")]
    assert CliRunner().invoke(cli, arguments).exit_code == 0

    assert "<dt>--world</dt><dd>2x3</dd>" in (tmp_path / "p.html").read_text()
