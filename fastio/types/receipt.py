"""Receipt: one number for the samples that an epoch gave, and one for those that it should give."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from fastio.types.metrics import Requests, Staged
from fastio.types.receipt_sum import MODULUS, as_hex

__all__ = ["Receipt", "ReceiptPart"]


_HEX: Final = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class ReceiptPart:
    """
    What one rank was given of an epoch, between two of its positions.

    ``start`` and ``stop`` say what all ranks together had had of the epoch by then, as in a loader's state (None:
    nothing). ``number`` sums over ``samples`` samples, by ``sum_samples`` if their bytes were compared with their
    checksums (``is_verified``), otherwise by ``sum_indices``. Besides those, ``repeated`` samples came to make the
    shares of the ranks equal, and ``skipped`` ones were bad.
    """

    rank: int
    world_size: int
    start: Any
    stop: Any
    number: int
    samples: int
    repeated: int
    skipped: int
    is_verified: bool
    fields: tuple[str, ...]

    @property
    def key(self) -> str:
        """What identifies the part: two with the same key are the same part."""
        return json.dumps([self.start, self.stop, self.world_size, self.rank, self.fields], sort_keys=True)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a state; the number as text, because many programs read no integer of 64 bits."""
        return asdict(self) | {"number": as_hex(self.number), "fields": list(self.fields)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ReceiptPart:
        """Return the part of ``to_json``. Raises ValueError, naming the value that cannot be, if it is none."""
        names = {field.name for field in fields(cls)}
        if not isinstance(values, Mapping) or set(values) != names:
            raise ValueError(f"receipt={values!r}: expected the part of a receipt, as a loader's state has it")
        for name, least in (("rank", 0), ("world_size", 1), ("samples", 0), ("repeated", 0), ("skipped", 0)):
            if type(values[name]) is not int or values[name] < least:
                raise _damaged(name, values[name], f"a whole number from {least}")
        if values["rank"] >= values["world_size"]:
            raise _damaged("rank", values["rank"], f"0 to {values['world_size'] - 1}")
        number, names_of_fields = values["number"], values["fields"]
        if not isinstance(number, str) or not _HEX.fullmatch(number):
            raise _damaged("number", number, "16 hexadecimal digits")
        if not isinstance(values["is_verified"], bool):
            raise _damaged("is_verified", values["is_verified"], "true or false")
        if not isinstance(names_of_fields, (list, tuple)) or not all(isinstance(name, str) for name in names_of_fields):
            raise _damaged("fields", names_of_fields, "a list of names")
        return cls(**{**values, "number": int(number, 16), "fields": tuple(names_of_fields)})


@dataclass(frozen=True, slots=True)
class Receipt:
    """
    Proves that an epoch gave each of its samples once, with the right bytes: ``is_exact``.

    ``number`` sums a hash of index and CRC-32 over all samples given, whatever their order and whichever rank was
    given them; ``expected`` is the sum over the samples that the epoch should give (None: unknown), from the store's
    index. For an epoch of a whole store, that is ``store.receipt()``, which ``fastio info`` prints. Each payload field
    that the loader reads has its own sum; these are added. Columns belong to the index, which was compared with its
    checksum when the store was opened.

    * ``samples`` were given, of ``expected_samples``: these are ``distinct`` different ones, each at least ``times[0]``
      and at most ``times[1]`` times (None: unknown). Besides them, ``repeated`` came to give all ranks equal batches,
      ``dropped`` are left out for that, or by ``drop_last``, and ``skipped`` were bad, and left out or made zero.
    * ``views``: how many views of each sample the batches had (see FastLoader), all of one decoding.
    * ``is_verified``: all bytes were compared with their checksums. If not, ``unverified`` says why, and ``number``
      sums over indices alone: it equals no store's.
    * ``has_ended``: the epoch was iterated to its end.
    * ``missing`` names the parts of the epoch that are not in the sum, such as other ranks' states.
    * ``requests``: of a store behind a URL, what became of this process's requests; it is no part of the proof.
    * ``staged``: of one with ``stage=``, how much of it was on this machine by then; it is no part of the proof.
    """

    epoch: int
    parts: tuple[ReceiptPart, ...]
    expected: int | None
    expected_indices: int | None  # what ``number`` should be if bytes were not compared
    expected_samples: int | None
    distinct: int | None
    times: tuple[int, int] | None
    dropped: int
    has_ended: bool
    is_whole_store: bool
    unverified: str | None = None
    missing: tuple[str, ...] = ()
    views: int = 1
    requests: Requests | None = field(default=None, compare=False)
    staged: Staged | None = field(default=None, compare=False)

    @property
    def number(self) -> int:
        """The sum over all samples given, 0 to 2**64 - 1."""
        return sum(part.number for part in self.parts) % MODULUS

    @property
    def samples(self) -> int:
        """How many samples were given, without the repeated and the skipped ones."""
        return sum(part.samples for part in self.parts)

    @property
    def repeated(self) -> int:
        """How many samples came once more to give all ranks equal batches."""
        return sum(part.repeated for part in self.parts)

    @property
    def skipped(self) -> int:
        """How many bad samples were left out, or made zero."""
        return sum(part.skipped for part in self.parts)

    @property
    def is_verified(self) -> bool:
        """Whether the bytes of all samples were compared with their checksums."""
        return self.unverified is None and all(part.is_verified for part in self.parts)

    @property
    def is_complete(self) -> bool:
        """Whether the sum has all ranks' parts from the beginning of the epoch."""
        return not self.missing

    @property
    def is_exact(self) -> bool:
        """Whether each sample of the epoch was given as often as it should, with verified bytes."""
        return self.is_complete and self.is_verified and self.number == self.expected and self._has_expected_count

    @property
    def _has_expected_count(self) -> bool:
        return self.samples == self.expected_samples

    def to_json(self) -> dict[str, Any]:
        """Return plain values; numbers of 64 bits as text."""
        names = ("epoch", "samples", "expected_samples", "distinct", "repeated", "dropped", "skipped", "has_ended")
        flags = ("is_exact", "is_complete", "is_verified", "is_whole_store")
        return {
            **{name: getattr(self, name) for name in (*names, *flags)},
            "number": as_hex(self.number),
            "expected": None if self.expected is None else as_hex(self.expected),
            "times": None if self.times is None else list(self.times),
            "missing": list(self.missing),
            "views": self.views,
            "parts": [part.to_json() for part in self.parts],
            **({} if self.requests is None else {"requests": asdict(self.requests)}),
            **({} if self.staged is None else {"staged": asdict(self.staged)}),
        }

    def __str__(self) -> str:
        of = "" if self.expected_samples is None else f" of {self.expected_samples:,}"
        is_done = self._gave_all()
        views = f" in {self.views:,} views each" if self.views > 1 else ""
        counts = [f"{self.samples:,}{of} samples{self._how_often() if is_done else ''}{views}"]
        counts += [f"{count:,} {what}" for what, count in self._exceptions() if count]
        return f"{', '.join(counts)}{'' if self.has_ended or is_done else ' so far'}, {self._verdict()}"

    def _how_often(self) -> str:
        """Say how often each sample came, of an epoch that gave all that it should."""
        least, most = self.times or (1, 1)
        if most == 1:
            return " once"
        how_often = f"{least} to {most} times" if least < most else "twice" if most == 2 else f"{most} times"
        return f": {self.distinct:,} different ones, each {how_often}"

    def _exceptions(self) -> Sequence[tuple[str, int]]:
        return ("repeated", self.repeated), ("dropped", self.dropped), ("skipped", self.skipped)

    def _gave_all(self) -> bool:
        """Whether each sample came as often as it should."""
        expected = self.expected if self.is_verified else self.expected_indices
        is_uniform = self.is_verified or not any(part.is_verified for part in self.parts if part.samples)
        return self.is_complete and is_uniform and self.number == expected and self._has_expected_count

    def _verdict(self) -> str:
        if self.missing:
            return f"incomplete: {'; '.join(self.missing)}"
        if not self.is_verified:
            return f"bytes not compared ({self.unverified or 'verify=False in a part of the epoch'})"
        number = f"bytes verified: {as_hex(self.number)}"
        if self.expected is None:
            return number
        whose = "the store's" if self.is_whole_store else "what the epoch should give"
        if self.is_exact:
            return f"{number} equals {whose}"
        if self.number == self.expected:
            return f"{number} equals {whose}, but {self.samples:,} samples were counted"
        return f"{number} differs from {whose}, {as_hex(self.expected)}" if self.has_ended else number


def _damaged(name: str, value: object, expected: str) -> ValueError:
    return ValueError(f"receipt: {name}={value!r}: expected {expected}: the state is damaged")
