"""The trainings: what a loader is asked for, and what its batches must be. Imports nothing that a peer lacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EOS",
    "IGNORED",
    "LENGTHS",
    "PACKED_TOKENS",
    "ROWS",
    "TRAININGS",
    "VOCABULARY",
    "WINDOW",
    "Batch",
    "Epochs",
    "Lazy",
    "OutputError",
    "Texts",
    "Training",
    "Work",
    "from_json",
    "lengths_file",
    "plan_name",
    "read_texts",
    "to_json",
    "window_count",
    "write_texts",
]  # fmt: skip

# What a batch holds, by name, and the number of samples in it.
Batch = tuple[Mapping[str, Any], int]
Check = Callable[["Work", Iterator[Batch]], dict[str, float]]

VOCABULARY, EOS = 50_000, 50_256  # ids below the first; the second ends a document of the stream
IGNORED = -100

PACKED_TOKENS, ROWS = 2048, 8  # of a packed batch
WINDOW = 1024  # inputs; targets are one further

LENGTHS = ("chats", "log-normal", "two peaks")  # how long documents are that are packed into rows


class OutputError(Exception):
    """A loader gave other samples, shapes, types or values than it was asked for."""


@dataclass(frozen=True, slots=True)
class Work:
    """``source`` has a folder for each kind of text (``data.py``); ``packed`` is where a loader keeps what it packs."""

    source: Path
    packed: Path
    workers: int


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts one after the other: text i is ``ids[offsets[i]:offsets[i + 1]]``, uint16 as they are written."""

    ids: NDArray[Any]
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Of each text."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for start, stop in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            yield self.ids[start:stop]


def write_texts(folder: Path, texts: Texts) -> None:
    """As two arrays in a new folder."""
    folder.mkdir(parents=True)
    np.save(folder / "ids.npy", texts.ids)
    np.save(folder / "offsets.npy", texts.offsets)


def read_texts(folder: Path) -> Texts:
    """The reverse of ``write_texts``."""
    return Texts(np.load(folder / "ids.npy"), np.load(folder / "offsets.npy"))


@dataclass(frozen=True, slots=True)
class Training:
    """
    ``unit`` is what a sample is, ``batch_size`` how many a batch has (of windows, pairs, sequences).

    ``check`` takes an epoch, and gives the shares that are the further columns of the table, ``figures``. Rates are by
    CPU time, or by the clock if ``by_clock``: what uses all cores.
    """

    title: str
    unit: str
    check: Check
    batch_size: int = 0
    figures: tuple[str, ...] = ()
    by_clock: bool = False


def _sums(batches: Iterator[Batch], count: Callable[[Mapping[str, Any]], dict[str, int]]) -> dict[str, int]:
    """What the batches of an epoch add up to, with the number of their samples."""
    totals: dict[str, int] = {"samples": 0}
    for arrays, samples in batches:
        for name, value in (count(arrays) | {"samples": samples}).items():
            totals[name] = totals.get(name, 0) + int(value)
    return totals


def _equal(found: Mapping[str, int], expected: Mapping[str, int]) -> None:
    if any(found[name] != value for name, value in expected.items()):
        raise OutputError(f"an epoch of { ({name: found[name] for name in expected}) }, expected {dict(expected)}")


def _typed(arrays: Mapping[str, Any], *names: str, shape: tuple[int, ...] | None = None) -> list[Any]:
    """Arrays of these names, all int64 (masks may be bool) and of one shape."""
    found = [np.asarray(arrays[name]) for name in names]
    kinds = [(array.shape, array.dtype.name) for array in found]
    expected = shape or found[0].shape
    if any(size != expected or kind not in ("int64", "bool") for size, kind in kinds) or found[0].dtype != np.int64:
        raise OutputError(f"{dict(zip(names, kinds, strict=True))}: expected int64 {expected}")
    return found


def _check_packed(work: Work, batches: Iterator[Batch]) -> dict[str, float]:
    """
    ``input_ids``, ``labels`` (if the loader makes them) and ``position_ids`` of one shape; ``rows`` of PACKED_TOKENS.

    All ids, those that count (not the first of a document), and the positions of all tokens, by number and sum.
    """
    texts, counts = read_texts(work.source / "chats"), np.load(work.source / "chats" / "counts.npy")
    counts[texts.offsets[:-1]] = False
    lengths = texts.lengths
    expected = {
        "samples": len(texts),
        "tokens": len(texts.ids),
        "ids": int(texts.ids.sum(dtype=np.int64)),
        "positions": int((lengths * (lengths - 1) // 2).sum()),
    }
    labelled = {"counting": int(counts.sum()), "labels": int(texts.ids[counts].sum(dtype=np.int64))}

    def count(arrays: Mapping[str, Any]) -> dict[str, int]:
        ids, positions = _typed(arrays, "input_ids", "position_ids")
        is_token = ids != 0
        sums = {"tokens": is_token.sum(), "ids": ids.sum(), "positions": positions[is_token].sum()}
        sums["slots"] = arrays["rows"] * PACKED_TOKENS
        if "labels" in arrays:
            (labels,) = _typed(arrays, "labels", shape=ids.shape)
            counting = labels != IGNORED
            if (labels[counting] != ids[counting]).any():
                raise OutputError("labels that count are other ids than input_ids")
            sums |= {"counting": counting.sum(), "labels": labels[counting].sum()}
        return sums

    found = _sums(batches, count)
    _equal(found, expected | (labelled if "labels" in found else {}))
    return {"filled": found["tokens"] / found["slots"]}


def _check_pairs(work: Work, batches: Iterator[Batch]) -> dict[str, float]:
    """``input_ids``, ``attention_mask`` and ``completion_mask``: rows with the chosen answers, then the rejected."""
    prompt, *answers = (read_texts(work.source / "pairs" / name) for name in ("prompt", "chosen", "rejected"))
    expected = {
        "samples": len(prompt),
        "tokens": 2 * len(prompt.ids) + sum(len(each.ids) for each in answers),
        "ids": 2 * int(prompt.ids.sum(dtype=np.int64)) + sum(int(each.ids.sum(dtype=np.int64)) for each in answers),
        "answers": sum(int(each.ids.sum(dtype=np.int64)) for each in answers),
    }

    def count(arrays: Mapping[str, Any]) -> dict[str, int]:
        ids, mask, completions = _typed(arrays, "input_ids", "attention_mask", "completion_mask")
        tokens, answered = mask.astype(bool), completions.astype(bool)
        return {
            "tokens": tokens.sum(),
            "ids": ids[tokens].sum(),
            "answers": ids[answered & tokens].sum(),
            "slots": ids.size,
        }

    found = _sums(batches, count)
    _equal(found, expected)
    return {"filled": found["tokens"] / found["slots"]}


def window_count(work: Work) -> int:
    """How many windows an epoch has: those that lie in the stream side by side."""
    return ((work.source / "stream" / "train.bin").stat().st_size // 2 - 1) // WINDOW


def _check_windows(work: Work, batches: Iterator[Batch]) -> dict[str, float]:
    """``inputs`` and ``targets`` of WINDOW ids: within a document each id is one more than the last."""

    def count(arrays: Mapping[str, Any]) -> dict[str, int]:
        inputs, targets = _typed(arrays, "inputs", "targets", shape=(len(arrays["inputs"]), WINDOW))
        if (inputs[:, 1:] != targets[:, :-1]).any():
            raise OutputError("targets are not the ids that follow the inputs")
        is_end = (inputs == EOS) | (targets == EOS)
        if ((inputs + 1) % VOCABULARY != targets)[~is_end].any():
            raise OutputError("a window has ids that do not follow each other in the stream")
        return {"ends": (inputs == EOS).sum(), "tokens": inputs.size}

    found = _sums(batches, count)
    texts = read_texts(work.source / "stream")
    windows, share = window_count(work), found["ends"] / found["tokens"]
    expected = len(texts) / len(texts.ids)
    if abs(found["samples"] - windows) > 0.01 * windows or not 0.9 < share / expected < 1.1:
        raise OutputError(
            f"{found['samples']} windows with {share:.5f} ends a token, expected {windows}, {expected:.5f}"
        )
    return {}


def _check_padded(work: Work, batches: Iterator[Batch]) -> dict[str, float]:
    """``input_ids`` int64 (B, longest), 0 where they are padded, and ``lengths`` (B,)."""
    texts = read_texts(work.source / "sequences")

    def count(arrays: Mapping[str, Any]) -> dict[str, int]:
        ids, lengths = _typed(arrays, "input_ids")[0], np.asarray(arrays["lengths"])
        if ids.ndim != 2 or len(ids) != len(lengths) or ids.shape[1] < lengths.max():
            raise OutputError(f"a batch of {ids.shape} with lengths {lengths.shape}, expected (B, longest)")
        return {"tokens": lengths.sum(), "ids": ids.sum(), "slots": ids.size}

    found = _sums(batches, count)
    ids = int(texts.ids.sum(dtype=np.int64))
    _equal(found, {"samples": len(texts), "tokens": len(texts.ids), "ids": ids})
    return {"filled": found["tokens"] / found["slots"]}


def plan_name(kind: str) -> str:
    """The training that plans rows of such lengths."""
    return f"plan {kind}"


def lengths_file(source: Path, kind: str) -> Path:
    """Where ``source`` has the lengths of such documents."""
    return source / f"lengths-{kind}.npy"


def _check_plan(kind: str) -> Check:
    """``lengths`` in the order of a plan, and the ``cuts`` between its rows: the first of the file, each once."""

    def check(work: Work, batches: Iterator[Batch]) -> dict[str, float]:
        ((arrays, samples),) = batches
        lengths, cuts = np.asarray(arrays["lengths"]), np.asarray(arrays["cuts"])
        expected = np.bincount(np.load(lengths_file(work.source, kind))[:samples])
        rows = np.add.reduceat(lengths, cuts[:-1], dtype=np.int64)
        if not np.array_equal(np.bincount(lengths), expected) or rows.max() > PACKED_TOKENS:
            raise OutputError(f"{len(lengths)} documents in rows of up to {rows.max()}, expected {samples}, each once")
        sizes = np.diff(cuts)
        spread = np.square(lengths - np.repeat(rows / sizes, sizes)).sum() / (len(lengths) - len(sizes))
        return {"filled": rows.mean() / PACKED_TOKENS, "mixing": float(np.sqrt(spread) / lengths.std())}

    return check


def _check_tokens(work: Work, batches: Iterator[Batch]) -> dict[str, float]:
    """``documents``, and as many ids as the ``tokenizer`` makes of them."""
    expected = json.loads((work.source / "paragraphs" / "expected.json").read_text())
    ((arrays, samples),) = batches
    wanted = {"documents": expected["documents"], "tokens": expected[arrays["tokenizer"]]}
    _equal({"documents": arrays["documents"], "tokens": samples}, wanted)
    return {}


_FILLED = ("filled",)

TRAININGS = {
    "packed": Training(f"chats in rows of {PACKED_TOKENS:,}, {ROWS} a batch", "chats", _check_packed, 0, _FILLED),
    "pairs": Training("preference pairs, 16 a batch", "pairs", _check_pairs, 16, _FILLED),
    "windows": Training(f"windows of {WINDOW:,} + 1 tokens of one stream, 16 a batch", "windows", _check_windows, 16),
    "padded": Training("sequences of 5 to 512 tokens, padded, 64 a batch", "sequences", _check_padded, 64, _FILLED),
    **{
        plan_name(kind): Training(
            f"planning rows of {PACKED_TOKENS:,}: {kind}", "lengths", _check_plan(kind), 0, (*_FILLED, "mixing")
        )
        for kind in LENGTHS
    },
    "tokenise": Training("paragraphs to ids, all cores", "tokens", _check_tokens, by_clock=True),
}


def to_json(work: Work) -> str:
    """``work`` as JSON."""
    return json.dumps(asdict(work), default=str)


def from_json(text: str) -> Work:
    """The reverse of ``to_json``."""
    values = json.loads(text)
    return Work(Path(values["source"]), Path(values["packed"]), values["workers"])


class Epochs:
    """Something that yields batches, again for each epoch."""

    def __init__(self, batches: Callable[[], Iterable[Batch]]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches())


class Lazy:
    """An array that is computed where somebody wants to see it: a check, not a round."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute = compute

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._compute(), dtype)
