"""Weights & Biases, offline: the rows of a run, read back from its file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastio.measure.trackers import WandB
from tests.measure.trackers.numbers import CURVES, figures

wandb = pytest.importorskip("wandb")
pytestmark = pytest.mark.filterwarnings("ignore")  # of wandb's own


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No server, no account, no output; settings are read anew for each test."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    yield
    wandb.teardown()


def records(log: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: a log as LevelDB writes it, in blocks of 32 KiB, behind a header of 7 bytes."""
    position, record = 7, b""
    while position < len(log):
        left = 32_768 - position % 32_768
        if left < 7:  # too short for the header of a fragment: filled with zeros
            position += left
            continue
        _, size, kind = struct.unpack_from("<IHB", log, position)
        record += log[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # whole, last
            yield record
            record = b""


def rows(folder: Path) -> list[dict[str, float]]:
    """The history of the run below the folder, once the process that writes it has ended."""
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    history = []
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            pairs = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            history.append({name: float(value) for name, value in pairs.items()})
    return history


def test_a_project_gets_a_run(tmp_path: Path) -> None:
    """One row per write, over a step of their own."""
    tracker = WandB("fastio")
    tracker.write(figures(50))
    tracker.write(figures(100, 0.5))
    tracker.close()
    tracker.close()
    first, second = rows(tmp_path)

    assert {f"fastio/{path}" for path in CURVES} < set(first)
    assert (50, 0.25) == (first["fastio/step"], first["fastio/loading_median_s"])
    assert (100, 0.5) == (second["fastio/step"], second["fastio/loading_median_s"])


def test_a_run_of_the_program_keeps_its_steps(tmp_path: Path) -> None:
    """Figures join the program's rows: none of those is refused for a step that went by, and the run stays open."""
    run = wandb.init(project="mine")
    tracker = WandB(run)
    for step in range(3):
        tracker.write(figures(100 * step))
        tracker.write(figures(100 * step + 50))
        run.log({"loss": 0.5**step}, step=step)
    tracker.close()
    run.log({"loss": 0.0625}, step=3)
    run.finish()
    history = rows(tmp_path)

    assert [1.0, 0.5, 0.25, 0.0625] == [row["loss"] for row in history if "loss" in row]
    assert 250 == max(row.get("fastio/step", 0) for row in history)


def test_only_the_first_rank_opens_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others write nothing; what is no run is refused."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    tracker = WandB("fastio")
    tracker.write(figures(1))
    tracker.close()

    assert [] == list(tmp_path.glob("wandb/*"))
    with pytest.raises(TypeError, match=r"wandb\.init"):
        WandB(None)
