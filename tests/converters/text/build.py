"""Text as users have it, made for tests, and what a packed store gives back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastio.converters import PackReport, pack
from fastio.converters.sources.documents import Limits
from fastio.converters.text import BytesTokenizer, Encoder, Sequences, TextOptions, TextSamples, open_text
from fastio.converters.text.tokenizer import Tokenizer
from fastio.store import FORMATS, open_store
from fastio.types.runs import mask_of_runs

SUFFIXES = tuple(each.suffixes[0] for each in FORMATS.values())
BYTES = BytesTokenizer()


def packed(
    source: Path,
    out: Path,
    *,
    tokenizer: Tokenizer | None = None,
    options: TextOptions | None = None,
    sequences: Sequences | None = None,
    **how: Any,
) -> PackReport:
    """Pack a source as the command line does; ``how`` goes to ``pack``."""
    opened = open_text(source, options=options)
    encoder = Encoder(tokenizer, sequences or Sequences(), is_ids=opened.is_ids, has_labels=opened.has_labels)
    return pack(TextSamples(opened, encoder), out, **how)


def values(path: Path) -> dict[str, bytes]:
    """The payload of every sample by key, in order."""
    with open_store(path) as store:
        every = np.arange(len(store))
        spans = store.spans(store.schema.payload[0].name, every)
        return {key: view.tobytes() for key, view in zip(store.keys(every), spans.views(), strict=True)}


def ids(path: Path, dtype: str = "<u2") -> dict[str, list[int]]:
    """The token ids of every sample by key."""
    return {key: np.frombuffer(value, dtype).tolist() for key, value in values(path).items()}


def numbers_in(text: str) -> list[int]:
    """The numbers that runs say."""
    found: list[int] = []
    for run in filter(None, text.split(", ")):
        bounds, _, step = run.partition("/")
        first, _, last = bounds.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


def documents(
    source: Path, options: TextOptions | None = None, limits: Limits | None = None
) -> tuple[dict[str, bytes], dict[str, str]]:
    """What a source reads, unchecked: texts by key, and sentences by the keys of its problems."""
    opened = open_text(source, options=options)
    texts: dict[str, bytes] = {}
    problems = {problem.key: problem.problem for problem in opened.problems}
    for part in opened.read(limits or Limits()):
        for key, start, size in zip(part.keys, part.starts.tolist(), part.sizes.tolist(), strict=True):
            assert key not in texts
            texts[key] = part.data[start : start + size].tobytes()
        problems |= {problem.key: problem.problem for problem in part.problems}
    return texts, problems


def stored(path: Path | str) -> list[tuple[list[int], list[bool]]]:
    """The ids of each sample, and which count in the loss."""
    with open_store(path) as store:
        every = np.arange(len(store))
        ids = [np.frombuffer(view.tobytes(), "<u2") for view in store.spans("tokens", every).views()]
        runs = [np.frombuffer(view.tobytes(), "<i4") for view in store.spans("loss", every).views()]
    return [(each.tolist(), mask_of_runs(of, len(each)).tolist()) for each, of in zip(ids, runs, strict=True)]
