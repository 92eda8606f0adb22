"""PieceWriter: writes encoded samples into a store, looks into pictures, and keeps account of what is left out."""

from __future__ import annotations

import multiprocessing
import random
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.fields.problems import mask_size_problems, row_problems
from fastio.converters.fields.values import joined
from fastio.converters.packing.pipeline import threads
from fastio.converters.pictures.counts import LossyMasks
from fastio.converters.pictures.jumps import begin_noting, has_jumps
from fastio.converters.pictures.probe import picture_shapes
from fastio.converters.text.encode import TextTokens
from fastio.converters.write.datasets import DatasetSamples, Unreadable
from fastio.converters.write.encoder import Misfit, Piece, SampleEncoder, SampleForm, check_key
from fastio.errors import SampleError, StoreError
from fastio.store import SampleBatch, SampleWriter
from fastio.store.kinds.scan import Problem
from fastio.store.write.writer import DuplicateKeyError
from fastio.types.schema import Schema
from fastio.types.spans import ListSpans, Spans

__all__ = [
    "Ledger",
    "PartWork",
    "PieceWriter",
    "Refused",
    "encoded_parts",
]


Refused = Sequence[tuple[str, Misfit]]  # samples that are left out: key, and what is wrong

_UNCHECKED = '; on_error="skip" lists such samples, jump=False packs them unchecked'
_NAMED = 3  # further bad keys in a message


@dataclass(slots=True)
class Ledger:
    """What becomes of samples that are wrong: ``on_error="raise"`` or "skip", which lists them in ``skipped``."""

    path: str
    on_error: Literal["raise", "skip"]
    skipped: list[Problem] = field(default_factory=list)

    def refuse(self, refused: Refused) -> None:
        """List samples that are left out. Raises SampleError that names the first ones, unless they are skipped."""
        if not refused:
            return
        if self.on_error == "skip":
            self.skipped += [Problem(key, str(misfit)) for key, misfit in refused]
            return
        key, misfit = refused[0]
        message = f"{self.path}: {key!r} {misfit}{misfit.way_out}"
        if len(refused) > 1:
            others = [repr(other) for other, _ in refused[1 : 1 + _NAMED]]
            others += ["..."] if len(refused) > 1 + _NAMED else []
            message += f"; with it are left out {', '.join(others)}, {len(refused)} samples in all"
        raise SampleError(message, path=self.path, key=key, field=misfit.field)


@dataclass(slots=True)
class PieceWriter:
    """
    Writes the pieces of a ``SampleEncoder``, without the samples that are wrong.

    ``progress(samples, bytes)`` is called for every piece written.
    """

    schema: Schema
    store: SampleWriter
    ledger: Ledger
    tokenizer: TextTokens | None = None
    progress: Callable[[int, int], object] | None = None
    jump: bool = True
    jobs: int | None = None  # threads for start points; None: the CPUs that this process may use
    packed: int = 0
    size_bytes: int = 0
    made_pngs: int = 0
    lossy_masks: LossyMasks = field(init=False)
    _pool: _native.ThreadPool | None = None

    def __post_init__(self) -> None:
        self.lossy_masks = LossyMasks(self.schema)

    def write(self, piece: Piece, refused: Refused = ()) -> None:
        """
        Write a piece. Wrong samples, with those that were ``refused`` before, go to the ledger, which may raise, after
        the others are written.
        """
        if not piece.rows:
            self.ledger.refuse(refused)
            return
        batch, problems = _batch(self.schema, piece, self.tokenizer)
        if self.jump and has_jumps(self.schema):
            self._pool = self._pool or _native.ThreadPool(threads(self.jobs))
            batch = self._with_jumps(batch, self._pool, problems)
        left = np.setdiff1d(np.arange(len(batch.keys)), np.fromiter(problems, np.int64, len(problems)))
        left = self._append(batch, left, problems)
        if len(left):
            self.lossy_masks.count(batch.at(left))
        sizes = [*(each.sizes for each in batch.spans.values()), *(each.sizes for each in batch.lists.values())]
        size = sum(int(each[left].sum()) for each in sizes)
        self.packed += len(left)
        self.size_bytes += size
        self.made_pngs += piece.made_pngs
        if self.progress is not None and len(left):
            self.progress(len(left), size)
        self.ledger.refuse([*refused, *((batch.keys[i], problems[i]) for i in sorted(problems))])

    def _with_jumps(self, batch: SampleBatch, pool: _native.ThreadPool, problems: dict[int, Misfit]) -> SampleBatch:
        """The batch with start points; damaged JPEGs become problems."""
        noted, damaged = begin_noting(batch, self.schema, pool)()
        for i, (name, sentence) in damaged.items():
            problems.setdefault(i, Misfit(sentence, name, _UNCHECKED))
        return noted

    def _append(self, batch: SampleBatch, left: NDArray[np.int64], problems: dict[int, Misfit]) -> NDArray[np.int64]:
        """Write the samples at ``left``, except those whose keys the store has already; they become problems."""
        while len(left):
            try:
                self.store.append(batch if len(left) == len(batch.keys) else batch.at(left))
            except DuplicateKeyError as exc:
                problems[int(left[exc.position])] = Misfit("has the key of an earlier sample; keys must be unique")
                left = np.delete(left, exc.position)
            else:
                break
        return left


def _batch(schema: Schema, piece: Piece, tokenizer: TextTokens | None) -> tuple[SampleBatch, dict[int, Misfit]]:
    """The piece as a batch, and what is wrong with samples, by position."""
    keys, *values_of = zip(*piece.rows, strict=True)
    spans, columns, shapes = dict[str, Spans](), dict[str, NDArray[Any]](), dict[str, NDArray[np.int32]]()
    lists = dict[str, ListSpans]()
    problems: dict[int, Misfit] = {}
    for each, of_samples in zip(schema.fields, values_of, strict=True):
        if each.is_column:
            shape = (len(keys), *(size or 0 for size in each.shape))
            columns[each.name] = np.array(of_samples, each.dtype).reshape(shape)
            continue
        element, values, counts = each.element, of_samples, np.ones(len(keys), np.int64)
        if each.is_list:
            values, counts = tuple(chain.from_iterable(of_samples)), np.fromiter(map(len, of_samples), np.int64)
        encoded = joined(element, values, {}, tokenizer=tokenizer)
        assert encoded.spans is not None
        # Headers of pictures are right: the encoder has checked them.
        sizes = picture_shapes(encoded.spans, element) if element.traits.is_picture else None
        if each.is_list:
            lists[each.name] = ListSpans(encoded.spans, counts, sizes)
        else:
            spans[each.name] = encoded.spans
            shapes |= {} if sizes is None else {each.name: sizes}
        rows = np.repeat(np.arange(len(keys)), counts)
        for i, sentence in encoded.problems.items():
            problems.setdefault(int(rows[i]), Misfit(sentence, each.name))
    for found in (row_problems(schema, spans, problems), mask_size_problems(schema, shapes)):
        for i, (name, sentence) in found.items():
            problems.setdefault(i, Misfit(sentence, name))
    return SampleBatch(list(keys), spans, columns, shapes, lists), problems


# Worker processes that read samples of a dataset and encode them, in the dataset's order.


@dataclass(frozen=True, slots=True)
class PartWork:
    """What a worker needs to encode samples: where they come from, their form, and their types."""

    samples: DatasetSamples
    form: SampleForm
    encoder: SampleEncoder
    is_skipping: bool  # a sample that its dataset cannot read is left out


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """Some samples, encoded, and what is wrong with others: key, sentence, field."""

    piece: Piece
    refused: list[tuple[str, str, str]]
    count: int


_Part = tuple[range, list[str]]
_work: PartWork | None = None  # of this process, if it is a worker


def encoded_parts(work: PartWork, parts: Iterable[_Part], jobs: int) -> Generator[EncodedPart, None, None]:
    """
    Yield the samples at the indices of each part, with these keys, in order, while ``jobs`` processes work ahead.

    At most ``jobs + 1`` parts wait. Workers are forked, so the dataset need not be pickled. Raises StoreError if one
    dies, and what a dataset raises in one.
    """
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), _begin, (work,)) as pool:
        waiting: deque[Future[EncodedPart]] = deque()
        try:
            for part in parts:
                waiting.append(pool.submit(_encode, *part))
                if len(waiting) > jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as exc:
            raise StoreError(
                f"one of {jobs} worker processes died while it read samples (out of memory, or killed): nothing was "
                "kept; pack with fewer jobs"
            ) from exc
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin(work: PartWork) -> None:
    global _work  # noqa: PLW0603 - a worker process has one dataset
    _work = work
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _encode(indices: range, keys: list[str]) -> EncodedPart:
    assert _work is not None
    _seed(indices.start)
    refused: list[tuple[str, str, str]] = []
    for key_, sample in zip(keys, _work.samples.read(indices), strict=True):
        key = key_
        try:
            if isinstance(sample, Unreadable):
                if not _work.is_skipping:
                    raise sample.error
                raise sample.misfit
            key = _work.form.key_of(sample, key)
            check_key(key)
            _work.encoder.add(key, _work.form.mapping(sample))
        except Misfit as exc:
            refused.append((str(key), str(exc), exc.field))
    return EncodedPart(_work.encoder.take(), refused, len(indices))


def _seed(number: int) -> None:
    """Random augmentations differ from part to part, and not from run to run."""
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 - the generator that datasets use
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)
