"""Text beside pictures, packed: placeholders become as many tokens as their pictures have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec import describe_status
from fastio.dataset.row_reader import RowReader
from fastio.dataset.token_collate import IGNORED, beside_name
from fastio.dataset.token_reader import TokenReader
from fastio.errors import SampleError
from fastio.loader.output import Output
from fastio.loader.producer.batch_part import BatchPart
from fastio.loader.producer.field_options import PackedText
from fastio.loader.producer.tokens import JoinedTokens, TokenField, beside_misfit
from fastio.loader.producer.values import begin_check
from fastio.types.runs import mask_of_runs
from fastio.types.units import counted

__all__ = ["PendingText", "Pictures", "VisionText"]

# The grid of patches of each picture of a batch, (N, 2), and where those of each sample begin among them, (B + 1,).
Pictures = tuple[NDArray[np.int64], NDArray[np.int64]]


_AXES = ("mrope_time", "mrope_row", "mrope_column")  # of positions, until they are one entry of a batch


@dataclass(frozen=True, slots=True)
class VisionText:
    """Makes packed text on the threads of one process."""

    text: PackedText
    readers: Mapping[str, RowReader]
    pool: _native.ThreadPool
    verify: bool
    output: Output

    def begin(self, part: BatchPart, pictures: Pictures) -> PendingText:
        """Start the text of a batch, whose pictures are planned."""
        return PendingText(self, part, pictures)


class PendingText:
    """
    The text of a batch in progress; see PendingFields.

    The text of a bad sample is the placeholders of its pictures, none of which counts in the loss.
    """

    def __init__(self, vision: VisionText, part: BatchPart, pictures: Pictures) -> None:
        self._vision, self._text, self._part = vision, vision.text, part
        tokens = TokenReader(vision.readers[self._text.ids])
        self._ids = JoinedTokens(TokenField(tokens, "list", vision.pool, None, vision.verify, vision.output), part)
        self._checked = begin_check(part, self._text.beside, vision.pool, verify=vision.verify)
        self._grids, self._firsts = pictures
        self._lengths = self._text.lengths(self._grids)
        self._tokens: list[NDArray[np.int64]] = []  # of each sample
        self._errors: dict[int, SampleError] = {}
        self.counts = 0, 0  # tokens of the batch, and its slots for them

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        errors = self._ids.errors()
        self._tokens = self._ids.of_samples()
        for name in self._text.beside:
            self._note(errors, name, self._beside_problems(name))
        self._note(errors, self._text.ids, self._count_problems())
        self._errors = errors
        return errors

    def _note(self, errors: dict[int, SampleError], name: str, problems: Mapping[int, str]) -> None:
        """Add an error of a field for each of these problems, by position; those that are known already stay."""
        reader, spans = self._vision.readers[name], self._part.encoded(name).spans
        for position, words in problems.items():
            errors.setdefault(position, reader.error(self._part.indices, spans, position, words))

    def _beside_problems(self, name: str) -> dict[int, str]:
        """Return what is wrong with values beside the ids, by position."""
        problems = {position: describe_status(status) for position, status in self._checked.bad(name).items()}
        field, views = self._vision.readers[name].field, self._part.encoded(name).spans.views()
        for position, ids in enumerate(self._tokens):
            if position not in problems and (words := beside_misfit(field, views[position].tobytes(), len(ids))):
                problems[position] = words
        return problems

    def _count_problems(self) -> dict[int, str]:
        """Return where there are more or fewer placeholders than pictures, by position."""
        token, counts = self._text.collate.image_token, np.diff(self._firsts)
        found = np.array([np.count_nonzero(ids == token) for ids in self._tokens], np.int64)
        return {
            position: f"{counted(int(found[position]), 'placeholder')} (id {token}) for "
            f"{counted(int(counts[position]), 'picture')} in {self._text.picture!r}: expected one for each: pack again"
            for position in np.flatnonzero(found != counts).tolist()
        }

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        positions = range(len(self._tokens)) if kept is None else kept.tolist()
        samples = [self._sample(position) for position in positions]
        batch = self._text.collate.arrays(samples)
        if self._text.side is not None:
            batch["mrope_position_ids"] = np.stack([batch.pop(name) for name in _AXES])
        self.counts = int(batch["lengths"].sum()), batch["input_ids"].size
        output = self._vision.output
        made = {name: output.of(each) if isinstance(each, np.ndarray) else each for name, each in batch.items()}
        return {self._text.ids: made}

    def _sample(self, position: int) -> dict[str, NDArray[Any]]:
        """Return the ids of a sample and what lies beside them, with a placeholder for each token of its pictures."""
        lengths = self._lengths[self._firsts[position] : self._firsts[position + 1]]
        token, is_bad = self._text.collate.image_token, position in self._errors
        ids = np.full(len(lengths), token, np.int64) if is_bad else self._tokens[position]
        is_image = ids == token
        times = np.ones(len(ids), np.int64)
        times[is_image] = lengths
        sample = {self._text.ids: np.repeat(ids, times)}
        if self._text.side is not None:
            grids = self._grids[self._firsts[position] : self._firsts[position + 1]] // self._text.side
            sample |= zip(_AXES, _rotary_positions(np.flatnonzero(is_image), len(ids), grids), strict=True)
        for name in self._text.beside:
            field = self._vision.readers[name].field
            data = b"" if is_bad else self._part.encoded(name).spans.view(position).tobytes()
            values: NDArray[Any] = np.zeros(len(ids), np.int64 if field.is_loss else field.dtype)
            if field.is_loss and not is_bad:
                values = np.where(mask_of_runs(np.frombuffer(data, "<i4"), len(ids)), ids, IGNORED)
                values[:1] = IGNORED  # what comes before it is another sample
            elif not is_bad:
                values = np.frombuffer(data, field.dtype)
            if beside_name(field) == "labels":
                values = np.where(is_image, IGNORED, values)
            sample[beside_name(field)] = np.repeat(values.astype(np.int64) if field.traits.is_tokens else values, times)
        return sample

    def cancel(self) -> None:
        """See PendingFields."""
        self._ids.cancel()
        self._checked.cancel()


def _rotary_positions(places: NDArray[np.int64], length: int, grids: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    Return the positions in time, rows and columns ``(3, L)`` of a sample's tokens, as ``get_rope_index`` of Qwen2-VL in
    transformers does: text counts on all three, a picture stays at one time and goes on by its longer side.

    There are ``length`` ids, of which those at ``places`` are pictures with these grids of tokens.
    """
    parts, begun, position = [], 0, 0
    for place, (rows, columns) in zip(places.tolist(), grids.tolist(), strict=True):
        parts.append(np.tile(np.arange(position, position + place - begun), (3, 1)))
        position, begun = position + place - begun, place + 1
        row, column = np.divmod(np.arange(rows * columns), columns)
        parts.append(position + np.stack((np.zeros_like(row), row, column)))
        position += max(rows, columns)
    return np.concatenate([*parts, np.tile(np.arange(position, position + length - begun), (3, 1))], axis=1)
