"""Trainings on text: who takes part, and what a check refuses in a loader's batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.rounds import Results
from benchmarks.text import measure
from benchmarks.text.data import MAKERS
from benchmarks.text.loaders import native
from benchmarks.text.run import CASES, COMPARISON, LOADERS, PACKED
from benchmarks.text.work import (
    EOS,
    IGNORED,
    TRAININGS,
    VOCABULARY,
    WINDOW,
    OutputError,
    Texts,
    Work,
    from_json,
    lengths_file,
    plan_name,
    to_json,
    write_texts,
)

FILES = Path(__file__).parents[2] / "benchmarks" / "text" / "loaders"
LISTS: tuple[list[int], ...] = ([5, 6, 7], [8, 9], [3])


def texts_of(lists: tuple[list[int], ...], dtype: Any = np.uint16) -> Texts:
    """One after the other."""
    return Texts(np.concatenate(lists).astype(dtype), np.cumsum([0, *map(len, lists)]))


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Chats, pairs and sequences of LISTS."""
    for name in ("chats", "pairs/prompt", "pairs/chosen", "pairs/rejected", "sequences"):
        write_texts(tmp_path / "source" / name, texts_of(LISTS))
    np.save(tmp_path / "source" / "chats" / "counts.npy", np.array([0, 1, 0, 1, 1, 1], bool))
    (tmp_path / "packed").mkdir()
    return Work(tmp_path / "source", tmp_path / "packed", 0)


def check(training: str, work: Work, *batches: tuple[Mapping[str, Any], int]) -> dict[str, float]:
    """What the check says of an epoch."""
    found: Iterator[Any] = iter(batches)
    return TRAININGS[training].check(work, found)


def test_every_training_is_in_the_table() -> None:
    """Trainings that are defined are measured, by loaders that have a file; what they read is made."""
    assert list(TRAININGS) == list(CASES)
    assert set(LOADERS) == {name for names in CASES.values() for name in names}
    assert set(TRAININGS) == set(MAKERS)
    shared = {"__init__", "padding"}
    assert {module for module, _ in LOADERS.values()} == {path.stem for path in FILES.glob("*.py")} - shared
    assert {module for modules in PACKED.values() for module in modules} <= {module for module, _ in LOADERS.values()}


def test_work_survives_json(work: Work) -> None:
    """What the runner sends is what the loader gets."""
    assert work == from_json(to_json(work))


PACKED_BATCH = {
    "input_ids": np.array([[5, 6, 7, 3], [8, 9, 0, 0]]),
    "labels": np.array([[IGNORED, 6, IGNORED, IGNORED], [IGNORED, 9, IGNORED, IGNORED]]),
    "position_ids": np.array([[0, 1, 2, 0], [0, 1, 0, 0]]),
    "rows": 2,
}


def test_packed_chats_pass(work: Work) -> None:
    """The first id of a document never counts; a loader without labels passes, too."""
    without = {name: value for name, value in PACKED_BATCH.items() if name != "labels"}

    for batch in (PACKED_BATCH, without):
        assert {"filled": 6 / 4096} == check("packed", work, (batch, 3))


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("expected int64", {"input_ids": PACKED_BATCH["input_ids"].astype(np.int32)}),  # type: ignore[attr-defined]
        ("an epoch of", {"position_ids": np.array([[0, 1, 2, 3], [0, 1, 0, 0]])}),
        ("an epoch of", {"labels": np.full((2, 4), IGNORED)}),
        ("other ids than input_ids", {"labels": np.array([[5, 7, IGNORED, IGNORED], [IGNORED, 9, IGNORED, IGNORED]])}),
    ],
)
def test_wrong_rows_are_an_error(work: Work, message: str, change: dict[str, Any]) -> None:
    """Another type, positions that go on across documents, labels that are missing or wrong."""
    with pytest.raises(OutputError, match=message):
        check("packed", work, (PACKED_BATCH | change, 3))


def test_pairs_count_answers(work: Work) -> None:
    """Prompts twice, with both answers; a mask that takes the prompt for an answer is an error."""
    rows = [np.array(ids * 2) for ids in LISTS] * 2
    width = max(map(len, rows))
    ids = np.stack([np.pad(row, (0, width - len(row))) for row in rows])
    mask = ids != 0
    answers = np.stack([np.arange(width) >= len(row) // 2 for row in rows]) & mask
    batch = {"input_ids": ids, "attention_mask": mask.astype(np.int64), "completion_mask": answers}

    assert {"filled": 24 / 36} == check("pairs", work, (batch, 3))
    with pytest.raises(OutputError, match="an epoch of"):
        check("pairs", work, (batch | {"completion_mask": mask}, 3))


def test_a_lost_token_is_an_error(work: Work) -> None:
    """Numbers and sums of padded sequences must be those of the source; ``filled`` is the share of slots."""
    ids, lengths = np.array([[5, 6, 7], [8, 9, 0], [3, 0, 0]]), np.array([3, 2, 1])

    assert {"filled": 6 / 9} == check("padded", work, ({"input_ids": ids, "lengths": lengths}, 3))
    ids[1, 1] = 0
    with pytest.raises(OutputError, match="an epoch of"):
        check("padded", work, ({"input_ids": ids, "lengths": lengths}, 3))


def write_stream(work: Work, windows: int) -> NDArray[np.int64]:
    """Ids that count up, with the end of a document in the middle of each window; they are returned."""
    ids = np.arange(windows * WINDOW + 1) % VOCABULARY
    ids[WINDOW // 2 :: WINDOW] = EOS
    texts = Texts(ids.astype(np.uint16), np.arange(windows + 1) * WINDOW)
    write_texts(work.source / "stream", texts)
    texts.ids.tofile(work.source / "stream" / "train.bin")
    return ids


def test_windows_are_runs_of_the_stream(work: Work) -> None:
    """Ids count up but for ends of documents; a window that is none, and targets that do not follow, are errors."""
    ids = write_stream(work, 10)
    rows = np.stack([ids[at : at + WINDOW + 1] for at in range(0, 10 * WINDOW, WINDOW)])
    batch = {"inputs": rows[:, :-1], "targets": rows[:, 1:]}

    assert {} == check("windows", work, (batch, 10))
    mixed = np.concatenate([rows[:, :9], rows[::-1, 9:]], 1)
    with pytest.raises(OutputError, match="do not follow each other"):
        check("windows", work, ({"inputs": mixed[:, :-1], "targets": mixed[:, 1:]}, 10))
    with pytest.raises(OutputError, match="not the ids that follow"):
        check("windows", work, (batch | {"targets": rows[:, :-1]}, 10))
    with pytest.raises(OutputError, match="expected 10"):
        check("windows", work, ({name: array[:5] for name, array in batch.items()}, 5))


def test_a_plan_has_every_document_once(work: Work) -> None:
    """Rows that are full of documents of one length are not mixed at all; a document that is missing is an error."""
    lengths = np.arange(300, dtype=np.int32) + 5
    np.save(lengths_file(work.source, "chats"), lengths[::-1])
    cuts = np.unique(np.minimum(np.arange(0, 320, 2), 300))
    name = plan_name("chats")
    found = check(name, work, ({"lengths": lengths, "cuts": cuts}, 300))

    assert 0 < found["filled"] < 1
    assert 0 < found["mixing"] < 0.1
    with pytest.raises(OutputError, match="expected 300, each once"):
        check(name, work, ({"lengths": lengths[1:], "cuts": cuts[:-1]}, 300))


@pytest.mark.parametrize("training", ["packed", "pairs", "padded"])
def test_fastio_passes_the_checks(work: Work, training: str) -> None:
    """It packs and loads what the trainings ask for."""
    native.PACKS[training](work)

    assert {3} == samples_of_epochs(work, training)


def test_windows_of_fastio_pass_the_check(work: Work) -> None:
    """At random places there is a window less: they are of one id more than the inputs."""
    write_stream(work, 200)

    assert {199, 200} == samples_of_epochs(work, "windows")


def samples_of_epochs(work: Work, training: str) -> set[float]:
    """The samples of an epoch of each of fastio's loaders of a training, after its check."""
    found = [
        measure.load(native, training, name, work, seconds=1e-9)
        for name, loaders in native.LOADERS.items()
        if training in loaders
    ]
    return {run["samples"] / run["epochs"] for run in found}


def test_tables_are_markdown() -> None:
    """Medians, the range, how many times each other's rate the first is, and why there is none."""
    runs = {
        "pairs: fastio": [{"samples": samples, "cpu_s": 1.0, "filled": 0.5} for samples in (100, 300, 200)],
        "pairs: TRL": [{"samples": samples, "cpu_s": 2.0} for samples in (100, 100, 100)],
    }
    table = COMPARISON.table("pairs", TRAININGS["pairs"], Results(runs, {"pairs: fastio, by length": "no wheel"}))

    assert [
        "| preference pairs, 16 a batch | pairs per CPU-second | fastio is | filled |",
        "| --- | ---: | ---: | ---: |",
        "| fastio | 200 (100-300) |  | 50.00% |",
        "| fastio, by length | no wheel |  |  |",
        "| TRL | 50 (50-50) | 4 (2-6) |  |",
    ] == table.splitlines()
