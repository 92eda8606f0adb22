"""Worker processes that read samples of a dataset and encode them, in the dataset's order."""

from __future__ import annotations

import multiprocessing
import random
import sys
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import numpy as np

from fastio.converters.write.dataset_samples import DatasetSamples, Unreadable
from fastio.converters.write.sample_encoder import Misfit, Piece, SampleEncoder, check_key
from fastio.converters.write.sample_form import SampleForm
from fastio.errors import StoreError

__all__ = ["EncodedPart", "PartWork", "encoded_parts"]


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
