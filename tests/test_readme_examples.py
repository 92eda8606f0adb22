"""The README's lines run as they stand there, and its figures are those of benchmarks/results."""

from __future__ import annotations

import gzip
import json
import pickle
import re
import shlex
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch.utils.data import default_collate

from fastio.cli import cli

TOP = Path(__file__).parent.parent
TEXT = (TOP / "README.md").read_text()
RESULTS = TOP / "benchmarks" / "results"


def blocks(language: str) -> list[str]:
    """The README's fenced blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def commands(word: str) -> list[list[str]]:
    """The arguments of every ``fastio WORD ...`` line."""
    lines = [line.removeprefix("$ fastio ") for block in blocks("console") for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith(f"{word} ")]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with the folders and files that the README packs."""
    names = {}
    for number in range(8):
        photo = tmp_path / "photos" / f"class{number % 2}" / f"{number}.jpg"
        png = tmp_path / "pngs" / f"{number}.png"
        for path, size in ((photo, (300, 260)), (png, (32, 32))):
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", size, (number * 30, 90, 40)).save(path)
        names[png.name] = number % 2
        for folder, mode in (("images", "RGB"), ("masks", "P")):
            (tmp_path / folder).mkdir(exist_ok=True)
            Image.new(mode, (300, 260), number).save(tmp_path / folder / f"{number}.png")
    (tmp_path / "labels.pkl").write_bytes(pickle.dumps(names))
    with gzip.open(tmp_path / "train.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": "word " * (1 + number)}) + "\n" for number in range(200))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("sources")
def test_the_lines_run_in_order() -> None:
    """Every pack of the README packs, and every Python block gives batches from what was packed."""
    for words in commands("pack"):
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
    seen: list[Any] = []
    for code in blocks("python"):
        names: dict[str, Any] = {"transform": lambda picture: torch.tensor(picture.size)}
        exec(compile(code, "README.md", "exec"), names)
        loader = names.get("loader")
        seen.append(default_collate([names["dataset"][0]]) if loader is None else next(iter(loader)))

    one_line, photos, text, scenes = seen
    assert [300, 260] == one_line[0][0].tolist()
    assert (8, 3, 224, 224) == photos[0].shape
    assert {"input_ids", "attention_mask", "lengths"} == set(text)
    assert 64 == len(text["lengths"])
    assert [(8, 3, 256, 256), (8, 256, 256)] == [tuple(part.shape) for part in scenes]


def rate(file: str, case: str) -> float:
    """Median samples per CPU-second of a case."""
    runs = json.loads((RESULTS / file).read_text())["runs"][case]
    return median(run["samples"] / run["cpu_s"] for run in runs)


def test_gains_of_the_loader_are_those_measured() -> None:
    """So many times the samples per CPU-second of files, Pillow and a DataLoader with 2 workers."""
    (pngs,) = re.findall(r"([\d.]+) times as many 32x32 PNGs", TEXT)
    fast, plain = (rate("2026-11-22-vm.json", case) for case in ("png fastio lmdb", "png files, PIL, 2 workers"))

    assert f"{fast / plain:.1f}" == pngs


def test_rates_of_changed_lines_are_those_measured() -> None:
    """The row below what a user changes, and two peers beside it."""
    (row,) = re.findall(r"files, Pillow, DataLoader \| `FastDataset`.*\n.*\n\|(.*)\|\n", TEXT)
    names = (
        "files, Pillow, DataLoader",
        "FastDataset, DataLoader",
        "FastLoader",
        "FastLoader, --jump",
        "FFCV, raw",
        "DALI",
    )
    rates = [f"{rate('2026-11-23-vm-peers.json', f'floats_224: {name}'):,.0f}" for name in names]

    assert rates == re.findall(r"[\d,]+", row)


def test_gains_of_one_line_and_of_text_are_those_of_the_guides() -> None:
    """The README rounds what the guides' tables say."""
    loading = (TOP / "fastio" / "guide" / "loading.md").read_text()
    packed = loading.partition("| transform | DataLoader | files | store | gain |")[2].partition("\n\n")[0]
    crop, centre = re.findall(r"\| (?:RandomResizedCrop|Resize)\S.*, PILToTensor \| no workers .* ([\d.]+) \(", packed)
    assert f"{float(crop):.1f} times as many photos" in TEXT
    assert f"{float(centre):.1f} times with Resize" in TEXT
    text = (TOP / "fastio" / "guide" / "text.md").read_text()
    (filled,) = re.findall(r"\*\*fastio\*\*, by length .* \| [\d.]+ M \| \| ([\d.]+ %)", text)
    ((ratio, plain),) = re.findall(r"DataLoader, `pad_sequence` \| [\d,]+ \| ([\d.]+) \| ([\d.]+ %)", text)
    assert f"{float(ratio):.0f} times as many sequences" in TEXT
    assert f"{filled} of the slots filled instead of {float(plain[:-2]):.0f} %" in TEXT


def test_the_gain_of_scenes_is_the_one_measured() -> None:
    """Picture and mask: fastio's rate over that of files and OpenCV, round by round."""
    runs = json.loads((RESULTS / "2026-11-22-vm-fields.json").read_text())["scenes"]["runs"]
    ours, theirs = ([run["samples"] / run["cpu_s"] for run in runs[name]] for name in ("fastio", "files, OpenCV"))
    gain = median(one / other for one, other in zip(ours, theirs, strict=True))

    assert f"{gain:.1f} times as many scenes" in TEXT
