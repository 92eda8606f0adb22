"""`fastio bench io` and `bench both` as a user meets them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from fastio.cli import cli
from fastio.cli.bench import bench
from fastio.measure.machine.disk import DiskReport, ReadRate
from fastio.measure.machine.disk_kind import DiskKind
from fastio.measure.report.machine import disk_page
from tests.commands import run
from tests.conftest import encode, pictures

SCRIPT = "import torch\ndef pair():\n    return [torch.ones(4, 2)] * 3, lambda batch: batch.sum()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five PNGs."""
    for number, pixels in enumerate(pictures(5)):
        (tmp_path / f"{number}.png").write_bytes(encode(pixels))
    return tmp_path


@pytest.mark.parametrize("command", sorted(bench.commands))
def test_every_measurement_has_an_example(command: str) -> None:
    """Help shows how each is called, and each speaks JSON."""
    said = run("bench", command, "--help")

    assert "Example:\n    fastio bench" in said
    assert "--json" in said


def test_io_of_files_and_functions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same figures for whatever DATA is."""
    (folder / "user_bench.py").write_text(SCRIPT)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    files = json.loads(run("bench", "io", folder, "--workers", 0, "--batch-size", 2, "--epochs", 2, "--json"))
    function = json.loads(run("bench", "io", "user_bench.py:pair", "--epochs", 2, "--json"))

    assert (files["kind"], files["samples"], files["batches"]) == ("folder", 10, 6)
    assert (function["kind"], function["samples"], function["batches"]) == ("function", 24, 6)
    assert "of the files" in run("bench", "io", folder, "--workers", 0)


def test_io_of_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of token ids, and a store of them, are read in windows."""
    monkeypatch.chdir(tmp_path)
    np.arange(5000, dtype=np.uint16).tofile("train.bin")
    run("pack", "train.bin", "train.h5", "--dtype", "uint16")
    asked = ("--batch-size", 2, "--epochs", 1, "--threads", 1, "--json")
    for words in (("train.bin", "--dtype", "uint16"), ("train.h5", "--window", 1025, "--shuffle")):
        found = json.loads(run("bench", "io", *words, *asked))
        assert ("store", 4, 2) == (found["kind"], found["samples"], found["batches"])
    assert "pass dtype='uint16' (--dtype uint16)" in run("bench", "io", "train.bin", code=1)
    assert "--crop has no effect" in run("bench", "io", "train.h5", "--window", 9, "--crop", 4, code=1)
    trained = run("bench", "train", "--model", "transformer", "--data", "train.h5", "--window", 9, code=1)
    assert "--window has no effect, because networks of fastio are trained on samples" in trained


def test_io_of_files_beside_what_they_were_packed_into(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Files are opened one a sample, a store once; the ratio of both rates is told."""
    store = tmp_path_factory.mktemp("packed") / "packed.lmdb"
    run("pack", folder, store)
    arguments = ("bench", "io", folder, store, "--workers", 0, "--threads", 1, "--epochs", 1)
    said = json.loads(run(*arguments, "--json"))
    (beside,) = said["beside"]
    printed = run(*arguments)

    assert (said["samples_per_s"], 0.0) == (said["opens_per_s"], beside["opens_per_s"])
    assert (5, 5) == (said["samples"], beside["samples"])
    assert "files opened/s" in printed
    assert "of the first" in printed


def test_all_data_are_opened_before_one_is_measured(folder: Path) -> None:
    """A misspelt second name is said at once, not after the first has been read for seconds."""
    output = run("bench", "io", folder, folder / "nothing.lmdb", "--workers", 0, code=1)

    assert "nothing.lmdb" in output
    assert "samples/s" not in output
    assert "loading" not in output


def test_an_error_in_a_worker_is_one_line(folder: Path) -> None:
    """torch's traceback in the text of an error stays away."""
    (folder / "9.png").write_bytes(encode(pictures(1, (4, 4, 3))[0]))
    output = run("bench", "io", folder, "--workers", 1, code=1)

    assert output.startswith(f"error: {folder}: pictures of different sizes")
    assert output.count("\n") == 1


def test_both(png_stores: dict[str, Path]) -> None:
    """The two rates, the loop, the verdict with evidence and next step."""
    arguments = ("bench", "both", png_stores["lmdb"], "--step-ms", 2, "--seconds", 0.1, "--batch-size", 25)
    said = json.loads(run(*arguments, "--json"))
    printed = run(*arguments)

    assert said["verdict"]["bound"] in ("io_bound", "balanced", "compute_bound")
    assert said["training"]["training"]["mean_s"] >= 0.002
    assert min(said[f"{name}_samples_per_s"] for name in ("io", "training", "loop")) > 0
    assert all(line in printed for line in ("loading alone", "training alone", "next: "))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --model, --step"),
        (("--step", "a:b", "--step-ms", 1), "exclude each other"),
        (("--step", "a_module_not_there:b"), "no module"),
    ],
)
def test_a_step_is_needed_once(arguments: tuple[object, ...], message: str, png_stores: dict[str, Path]) -> None:
    """A store has no training step of its own, and one is enough."""
    result = CliRunner().invoke(cli, ["bench", "both", str(png_stores["lmdb"]), *map(str, arguments)])

    assert result.exit_code != 0
    assert message in result.output


def test_a_step_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that returns its step needs no other."""
    (folder / "user_pair.py").write_text(SCRIPT)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))

    assert "training alone" in run("bench", "both", "user_pair:pair", "--seconds", 0.1)
    assert "a step of its own" in run("bench", "both", "user_pair:pair", "--step-ms", 1, code=2)
    assert "(did you mean 'pair'?); expected one that returns a loader, or a loader and step(batch) as a pair" in run(
        "bench", "both", "user_pair:pairs", code=1
    )


def test_decode(png_stores: dict[str, Path]) -> None:
    """A table with the differences from Pillow, and JSON."""
    said = json.loads(run("bench", "decode", png_stores["lmdb"], "--count", 4, "--rounds", 1, "--json"))

    assert [0, 0] == [said["decoders"][each]["max_difference"] for each in (0, -1)]
    assert "fastio, fast" in run("bench", "decode", png_stores["h5"], "--count", 4, "--rounds", 1, "--crop", 4)


def test_disk(tmp_path: Path) -> None:
    """A latency table, and what the courses expect."""
    arguments = ("bench", "disk", "--path", tmp_path, "--size", "4MiB", "--files", 16)
    said = json.loads(run(*arguments, "--json"))
    printed = run(*arguments)

    assert said["size_bytes"] == 4 << 20
    assert "p99 us" in printed
    assert "expect " in printed or "nothing could be read cold" in printed


@pytest.mark.parametrize(
    ("kind", "yardsticks"),
    [
        ("nvme", ["3.0 GB/s"]),
        ("rotating", ["150.0 MB/s"]),
        ("flash", ["150.0 MB/s"]),
        (None, ["3.0 GB/s", "150.0 MB/s"]),
    ],
)
def test_yardstick_of_a_disk(kind: DiskKind | None, yardsticks: list[str]) -> None:
    """A disk is measured by the figure for its kind; where that is not known, both stand there and no ratio."""
    cold = ReadRate("sequential 4 MiB", "cold", 1, 1, 3e8, 1.0, 0.1, 0.1, 0.1)
    report = DiskReport("/d", 1, 1, 1.0, True, (cold,), kind)
    page = disk_page({**asdict(report), "sequential_bytes_per_s": report.sequential_bytes_per_s})
    said = str(page.sections[0])

    assert yardsticks == [each for each in ("3.0 GB/s", "150.0 MB/s") if each in said]
    assert (kind is not None) == ("x of what" in said)


def test_bandwidth() -> None:
    """A petabyte over each link, fastest first; sizes up to petabytes are understood."""
    said = json.loads(run("bandwidth", "1PB", "--json"))

    assert said["size_bytes"] == 10**15
    assert "9.3 h" in run("bandwidth", "1PB")
    assert [link["bytes_per_s"] for link in said["links"]] == sorted(
        (link["bytes_per_s"] for link in said["links"]), reverse=True
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_bus_without_a_device() -> None:
    """One clear line, and no failure."""
    assert "no CUDA device" in run("bench", "bus")
    assert json.loads(run("bench", "bus", "--json"))["rates"] == []


def test_grid(png_stores: dict[str, Path], folder: Path) -> None:
    """Every row with its units, several formats in one table, values by hand."""
    short = ("--rounds", 1, "--seconds", 0.01, "--batch-size", 25)
    printed = run("bench", "grid", png_stores["lmdb"], png_stores["h5"], *short, "--set", "threads=1")
    rows = json.loads(run("bench", "grid", folder, *short[:4], "--batch-size", 2, "--set", "num_workers=0", "--json"))[
        "rows"
    ]

    assert "training" in printed
    assert "opened" not in printed
    assert printed.partition("All settings")[2].count("png.h5") == 6
    assert all(row["opens_per_s"] == row["samples_per_s"] for row in rows)
    assert "opened/s" in run("bench", "grid", folder, *short[:4], "--batch-size", 2, "--set", "num_workers=0")
    assert [row["settings"]["drop_last"] for row in rows].count(True) == 1
    assert [row["loading_s"] for row in rows] == sorted(row["loading_s"] for row in rows)


@pytest.mark.parametrize("text", ["nothing=1", "threads=x", "threads=64000"])
def test_grid_values_that_make_no_sense(text: str, png_stores: dict[str, Path]) -> None:
    """A setting that is none, a value that is none, more threads than CPUs."""
    result = CliRunner().invoke(cli, ["bench", "grid", str(png_stores["lmdb"]), "--set", text])

    assert result.exit_code != 0
    assert isinstance(result.exception, SystemExit)


def test_tune(png_stores: dict[str, Path]) -> None:
    """A line of code to paste, and the same for machines."""
    arguments = ("tune", png_stores["lmdb"], "--seconds", 0.5, "--batch-size", 10, "--shuffle")
    said = json.loads(run(*arguments, "--json"))

    names: dict[str, Any] = {}
    exec(said["code"], names)
    with names["loader"] as loader:
        assert len(next(iter(loader))[0]) == 10
    assert "shuffle=True" in said["code"]
    assert f"loader = FastLoader('{png_stores['lmdb']}', batch_size=10, shuffle=True, threads=" in run(*arguments)
