"""
Keys that count up, kept as a rule: numbered lines, rows of tables, running numbers.

A large index has them in one array instead of ``keys``:

    index.key_runs      uint8, JSON: [[count, prefix, first, width, suffix], ...]: so many keys that are ``prefix``, a
                        number that counts up from ``first``, with at least ``width`` digits, and ``suffix``:
                        [[3, "train/", 99, 3, ""]] is train/099, train/100, train/101
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import StoreCorrupt
from fastio.store.index.arrays import KEY_STARTS, IndexArray, Keys, key_text
from fastio.store.index.seal import KEY_RUNS

__all__ = ["KeyRun", "NumberedKeys", "are_apart", "encoded_runs", "keys_of_index", "runs_of"]

_KEYS_A_RUN = 256  # of fewer on average, each key is kept
_RUNS = 64  # that may be shorter
_MOST_DIGITS = 18  # longer ones do not count anything
_LEAST, _MOST = 1 << 6, 1 << 16  # keys compared at a time
_NUMBER = re.compile(rb"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)
# "000" to "999", as rows of bytes.
_THOUSAND = np.array([list(b"%03d" % number) for number in range(1000)], np.uint8)


@dataclass(frozen=True, slots=True)
class KeyRun:
    """Keys that are ``prefix``, a number that counts up from ``first``, with at least ``width`` digits, ``suffix``."""

    count: int
    prefix: bytes
    first: int
    width: int
    suffix: bytes

    @classmethod
    def from_key(cls, key: bytes) -> KeyRun | None:
        """Return a run of this key alone, by the last number in it; None if it has none."""
        found = _NUMBER.fullmatch(key)
        if found is None or len(found[2]) > _MOST_DIGITS:
            return None
        return cls(1, found[1], int(found[2]), len(found[2]), found[3])

    def key(self, index: int) -> bytes:
        """Return one of the keys, or what would come after them."""
        return b"%b%0*d%b" % (self.prefix, self.width, self.first + index, self.suffix)

    def ended(self, start: int, stop: int) -> bytes:
        """Return the keys ``start`` up to ``stop``, or what would come after them, with a NUL behind each."""
        return b"".join(self._of_width(*piece) for piece in self.of_one_width(start, stop))

    def of_one_width(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield the numbers of the keys ``start`` up to ``stop`` by their digits: from which, up to which, how many."""
        number, end = self.first + start, self.first + stop
        while number < end:
            digits = max(self.width, len(str(number)))
            upto = min(end, 10**digits)
            yield number, upto, digits
            number = upto

    def part(self, start: int, stop: int) -> KeyRun:
        """Return the keys ``start`` up to ``stop``."""
        return replace(self, count=stop - start, first=self.first + start)

    def is_followed_by(self, other: KeyRun) -> bool:
        """Whether the keys of ``other`` come after these, so that both are one run."""
        widths = {self.width, other.width}
        return (
            (other.prefix, other.first, other.suffix) == (self.prefix, self.first + self.count, self.suffix)
            # Numbers of at least as many digits look the same, however few are asked for.
            and (len(widths) == 1 or len(str(other.first)) >= max(widths))
        )

    def _of_width(self, number: int, upto: int, digits: int) -> bytes:
        """Return the keys of the numbers up to ``upto``, all of so many digits."""
        if digits < 3:
            return b"".join(self.key(each - self.first) + b"\0" for each in range(number, upto))
        low, high = number // 1000, -(-upto // 1000)  # each thousand has its first digits in common
        begin, end = len(self.prefix), len(self.prefix) + digits
        rows = np.zeros((high - low, 1000, end + len(self.suffix) + 1), np.uint8)
        rows[:, :, :begin] = np.frombuffer(self.prefix, np.uint8)
        common = b"".join(b"%0*d" % (digits - 3, each) if digits > 3 else b"" for each in range(low, high))
        rows[:, :, begin : end - 3] = np.frombuffer(common, np.uint8).reshape(high - low, 1, digits - 3)
        rows[:, :, end - 3 : end] = _THOUSAND
        rows[:, :, end:-1] = np.frombuffer(self.suffix, np.uint8)
        return rows.reshape(-1, rows.shape[2])[number - 1000 * low : upto - 1000 * low].tobytes()

    def going_on(self, keys: bytes, at: int) -> tuple[int, int]:
        """
        Return how many keys, each ended by NUL, from byte ``at`` on are those that come after this run, and where they
        end.
        """
        taken, together = 0, _LEAST
        while at < len(keys):
            expected = self.ended(self.count + taken, self.count + taken + together)
            found = keys[at : at + len(expected)]
            if found == expected:
                taken, at, together = taken + together, at + len(expected), min(2 * together, _MOST)
                continue
            differ = np.frombuffer(found, np.uint8) != np.frombuffer(expected[: len(found)], np.uint8)
            equal = int(differ.argmax()) if differ.any() else len(found)
            end = expected.rfind(b"\0", 0, equal) + 1
            return taken + expected[:end].count(b"\0"), at + end
        return taken, at


def runs_of(pieces: Iterable[bytes | KeyRun]) -> list[KeyRun] | None:
    """
    Return keys, which come some at a time, joined by NUL or as a run, as runs; None if these are no shorter than the
    keys.
    """
    runs: list[KeyRun] = []
    keys = 0
    for piece in pieces:
        if isinstance(piece, KeyRun):
            if runs and runs[-1].is_followed_by(piece):
                runs[-1] = replace(runs[-1], count=runs[-1].count + piece.count)
            else:
                runs.append(piece)
            keys += piece.count
            continue
        ended, at = piece + b"\0", 0
        while at < len(ended):
            taken, at = runs[-1].going_on(ended, at) if runs else (0, at)
            if taken:
                runs[-1] = replace(runs[-1], count=runs[-1].count + taken)
                keys += taken
                continue
            key = ended[at : ended.index(b"\0", at)]
            run = KeyRun.from_key(key)
            if run is None or len(runs) >= _RUNS + keys // _KEYS_A_RUN:
                return None
            runs.append(run)
            keys, at = keys + 1, at + len(key) + 1
    return runs or None


def are_apart(runs: Iterable[KeyRun]) -> bool:
    """
    Whether no key comes twice in these runs; False also where arithmetic does not tell, though each key comes once.

    Keys of different lengths differ, and so do those of different ends. Of one length, the keys of a run lie between
    its first and its last.
    """
    of_length = defaultdict[int, list[tuple[bytes, bytes, bytes]]](list)  # the first key, the last, the suffix
    for run in runs:
        for number, upto, digits in run.of_one_width(0, run.count):
            first, last = (run.key(each - run.first) for each in (number, upto - 1))
            of_length[len(run.prefix) + digits + len(run.suffix)].append((first, last, run.suffix))
    for pieces in of_length.values():
        end = min(len(suffix) for _, _, suffix in pieces)
        pieces.sort(key=lambda piece: (piece[2][len(piece[2]) - end :], piece[0]))
        for (_, last, suffix), (first, _, other) in pairwise(pieces):
            if suffix[len(suffix) - end :] == other[len(other) - end :] and first <= last:
                return False
    return True


def encoded_runs(runs: Sequence[KeyRun]) -> NDArray[np.uint8]:
    """Return the index array of these runs."""
    rows = [[run.count, key_text(run.prefix), run.first, run.width, key_text(run.suffix)] for run in runs]
    return np.frombuffer(json.dumps(rows, separators=(",", ":")).encode("ascii"), np.uint8)


class NumberedKeys:
    """The keys of so many samples as runs; otherwise as ``Keys``. Raises StoreCorrupt for other than so many keys."""

    are_fixed = False

    def __init__(self, array: NDArray[np.uint8], count: int, *, path: str) -> None:
        """``array`` is what ``encoded_runs`` returns."""
        try:
            rows = json.loads(array.tobytes())
            self.runs = [KeyRun(n, _bytes(prefix), first, w, _bytes(suffix)) for n, prefix, first, w, suffix in rows]
            self._ends = list(accumulate(run.count for run in self.runs))
            bad = next((run for run in self.runs if min(run.count, run.width) < 1 or run.first < 0), None)
        except (ValueError, TypeError, AttributeError, RecursionError) as exc:
            raise StoreCorrupt(f"{path}: index array {KEY_RUNS!r} is not one that fastio writes ({exc!r})") from exc
        found = self._ends[-1] if self._ends else 0
        if bad is not None or found != count:
            raise StoreCorrupt(f"{path}: index array {KEY_RUNS!r} has {found} keys, expected {count}: pack again")
        self._count, self._path = count, path

    @property
    def nbytes(self) -> int:
        """How many bytes they would take, joined by NUL."""
        pieces = ((run, piece) for run in self.runs for piece in run.of_one_width(0, run.count))
        ended = (
            (upto - number) * (len(run.prefix) + digits + len(run.suffix) + 1) for run, (number, upto, digits) in pieces
        )
        return max(sum(ended) - 1, 0)

    @property
    def array(self) -> NDArray[np.uint8]:
        """All of them, joined by NUL, made here."""
        return np.frombuffer(self.joined(0, self._count), np.uint8)

    def __getitem__(self, index: int) -> bytes:
        """Return the key of a sample."""
        which = bisect_right(self._ends, index)
        return self.runs[which].key(index - self._ends[which] + self.runs[which].count)

    def joined(self, start: int, stop: int) -> bytes:
        """Return the keys ``start`` up to ``stop`` in UTF-8, joined by NUL."""
        return b"".join(run.ended(first, last) for run, first, last in self._within(start, stop))[:-1]

    def part(self, start: int, stop: int) -> NumberedKeys:
        """Return the keys ``start`` up to ``stop``."""
        runs = [run.part(first, last) for run, first, last in self._within(start, stop)]
        return NumberedKeys(encoded_runs(runs), stop - start, path=self._path)

    def _within(self, start: int, stop: int) -> Iterator[tuple[KeyRun, int, int]]:
        """Yield the runs that have the keys ``start`` up to ``stop``, and which of a run's keys these are."""
        for which in range(bisect_right(self._ends, start), len(self.runs)):
            run, first = self.runs[which], self._ends[which] - self.runs[which].count
            if first >= stop:
                break
            yield run, max(start - first, 0), min(stop - first, run.count)

    def compare(self) -> None:
        """Do nothing: the runs were compared when the index was opened."""


def _bytes(text: Any) -> bytes:
    return bytes(text.encode("utf-8", "surrogateescape"))


def keys_of_index(lies: Mapping[str, IndexArray], count: int, *, path: str) -> Keys | NumberedKeys:
    """Return the keys of an index of so many samples. Raises StoreCorrupt."""
    if KEY_RUNS in lies:
        return NumberedKeys(lies[KEY_RUNS].all(), count, path=path)
    keys = lies.get("keys", IndexArray(np.empty(0, np.uint8)))
    if len(keys.shape) != 1 or (keys.dtype.kind != "S" and keys.dtype != np.uint8):
        raise StoreCorrupt(f"{path}: index array 'keys' is {keys.dtype} {keys.shape}: pack again")
    return Keys(keys, count, path=path, starts=lies.get(KEY_STARTS))
