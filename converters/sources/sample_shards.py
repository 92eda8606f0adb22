"""
Shards that keep whole samples one behind the other, as MDS and LitData do: how values lie in them, and where.

Both begin a file with a table of offsets, all numbers little endian; sample i is the bytes from offset i to offset i+1:

    uint32 count | count + 1 uint32 offsets | whatever comes before the first sample | the samples

    sample: one uint32 for each column whose values differ in size | the values of all columns, in order

What the columns are called and how their values are encoded, an ``index.json`` says: ``mds.py`` and ``litdata.py`` read
those, and ``shard_source.py`` makes fields of columns.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.listed import Indices
from fastio.errors import SourceError, StoreError
from fastio.store.files import files_of
from fastio.store.files.mapped import MappedSource
from fastio.store.kinds.layouts import indexed_folders
from fastio.store.kinds.scan import Problem, SourcePath, is_hidden, junk_reason, names_in, shown
from fastio.types.schema import is_plain_path
from fastio.types.spans import Spans

__all__ = [
    "ArrayHead",
    "Encoding",
    "LocatedValues",
    "SampleShard",
    "SampleShards",
    "ShardColumn",
    "beside_index",
    "check_listed_once",
    "only_folder",
    "read_index",
    "unlisted_shards",
]

_COUNT_BYTES: Final = 4  # of the count, of an offset, and of the size of a value
_AT_ONCE: Final = 4096  # samples whose labels are read together
_LARGEST_INDEX: Final = 1 << 30
_MODES: Final = {"1": 1, "L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "I;16": 2}  # of pixels, and their bytes; "1": packed
_LOG = logging.getLogger(__name__)

Form = Literal["bytes", "text", "json", "number", "integer text", "float text", "array", "pixels"]


class ArrayHead(NamedTuple):
    """What is before the numbers of an array: how many bytes; and what it says."""

    nbytes: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Encoding:
    """
    How the values of a column lie in their shards; ``words`` is what the index calls it.

    * bytes, text, json: as they are
    * number: one of ``dtype``; integer text, float text: one as text
    * array: of ``dtype`` and ``shape``; where that is None, ``head`` reads what is before the numbers of each, and
      raises ValueError in words that follow the sample's key
    * pixels: width, height and the size of a mode as uint32, the mode of Pillow, rows of pixels

    ``refusal`` says why no field takes them, in words that follow "which"; "" if one does.
    """

    words: str
    form: Form = "bytes"
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    head: Callable[[memoryview], ArrayHead] | None = None
    refusal: str = ""

    @property
    def nbytes(self) -> int | None:
        """Bytes of each value; None if they differ."""
        if self.form == "number":
            return np.dtype(self.dtype).itemsize
        return None if self.shape is None else int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    def head_of(self, data: memoryview) -> ArrayHead:
        """Return what an array is. Raises ValueError for bytes that are none."""
        head = ArrayHead(0, self.dtype, self.shape or ()) if self.head is None else self.head(data)
        expected = head.nbytes + int(np.prod(head.shape, dtype=object)) * np.dtype(head.dtype).itemsize
        if expected != len(data):
            raise ValueError(f"has an array of {len(data):,} bytes, but {head.dtype} {head.shape} takes {expected:,}")
        return head

    def value(self, data: memoryview) -> Any:
        """Return a value as a Python object. Raises ValueError, in words that follow the sample's key."""
        if self.form == "number":
            if len(data) != self.nbytes:
                raise ValueError(f"has {len(data)} bytes, expected {self.nbytes} of {self.dtype}")
            return np.frombuffer(data, self.dtype)[0].item()
        if self.form == "array":
            head = self.head_of(data)
            return np.frombuffer(data[head.nbytes :], head.dtype).reshape(head.shape)
        if self.form == "pixels":
            return _pixels(data)
        if self.form in ("bytes", "json"):
            return data.tobytes()
        try:
            text = data.tobytes().decode()
            return text if self.form == "text" else int(text) if self.form == "integer text" else float(text)
        except ValueError as exc:
            raise ValueError(f"has {data[:40].tobytes()!r}, which is no {self.words}") from exc


def _pixels(data: memoryview) -> Any:
    """A PIL image. Raises ValueError, in words that follow the key."""
    from PIL import Image

    width, height, length = (int(each) for each in np.frombuffer(data[:12], "<u4")) if len(data) >= 12 else (0, 0, 0)
    mode = data[12 : 12 + min(length, 16)].tobytes().decode("ascii", "replace")
    rows = data[12 + length :]
    if mode not in _MODES:
        raise ValueError(f"is an image of mode {mode!r}, of which no PNG is made; expected {', '.join(_MODES)}")
    row = (width + 7) // 8 if mode == "1" else width * _MODES[mode]
    if not width or row * height != len(rows):
        raise ValueError(
            f"is an image of {width} x {height} pixels of mode {mode}, but has {len(rows):,} bytes of them"
        )
    return Image.frombytes(mode, (width, height), rows.tobytes())


@dataclass(frozen=True, slots=True)
class ShardColumn:
    """A column of all samples; ``nbytes`` are those of each value, None if a size lies before it."""

    name: str
    encoding: Encoding
    nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class SampleShard:
    """A mapped shard: where its samples begin, and where the last one ends; ``hashes`` of the file by name, in hex."""

    name: str
    file: MappedSource
    offsets: NDArray[np.int64]
    hashes: Mapping[str, str]

    @staticmethod
    def mapped(folder: str, name: Any, count: Any) -> MappedSource:
        """Map the file of this name and count in an index. Raises SourceError if it is another one."""
        if not isinstance(name, str) or not is_plain_path(name):
            raise SourceError(f"{folder}/index.json: names a shard {name!r:.80}, expected a file below the folder")
        path = f"{folder}/{name}"
        try:
            file = MappedSource(path)
        except StoreError as exc:
            raise SourceError(f"{exc}; {folder}/index.json lists it") from exc
        data, size = file.memory, file.size
        if size < _COUNT_BYTES:
            raise SourceError(f"{path}: has {size:,} bytes, which are no shard: get the shard again")
        own = int(data[:_COUNT_BYTES].view("<u4")[0])
        if own != count:
            raise SourceError(f"{path}: holds {own} samples, index.json says {count!r:.40}: get the shard again")
        return file

    @classmethod
    def open(cls, folder: str, name: Any, count: Any, hashes: Mapping[str, str] | None = None) -> SampleShard:
        """Open the shard of this name and count in an index. Raises SourceError if it is another one, or damaged."""
        file = cls.mapped(folder, name, count)
        data, size, path, own = file.memory, file.size, file.path, int(count)
        stop = _COUNT_BYTES * (own + 2)
        if size < stop:
            raise SourceError(f"{path}: is cut off at byte {size:,}, within its offsets: get the shard again")
        offsets = data[_COUNT_BYTES:stop].copy().view("<u4").astype(np.int64)
        if int(offsets[0]) < stop or (np.diff(offsets) < 0).any():
            raise SourceError(f"{path}: its offsets do not ascend: the shard is damaged: get it again")
        if int(offsets[-1]) != size:
            raise SourceError(
                f"{path}: has {size:,} bytes, but its samples end at byte {int(offsets[-1]):,}: get the shard again"
            )
        return cls(name, file, offsets, hashes or {})

    @property
    def head(self) -> bytes:
        """What comes between the offsets and the first sample."""
        return self.file.memory[_COUNT_BYTES * (len(self.offsets) + 1) : int(self.offsets[0])].tobytes()


def only_folder(place: SourcePath, kind: str) -> str:
    """Return the folder at ``place``, or the only one below, whose index lists shards of a kind. Raises SourceError."""
    folders = indexed_folders(place, kind)
    if len(folders) > 1:
        names = ", ".join(Path(each).name for each in folders)
        raise SourceError(f"{place.path}: holds several splits, {names:.200}: choose one with --split")
    if not folders:
        raise SourceError(f"{place.path}: expected a folder with an index.json of {kind}, found none")
    return folders[0]


def read_index(folder: str) -> Any:
    """Return the JSON of the ``index.json`` in a folder. Raises SourceError."""
    path = Path(folder, "index.json")
    try:
        if path.stat().st_size > _LARGEST_INDEX:
            raise SourceError(f"{path}: has more than {_LARGEST_INDEX:,} bytes, expected the list of some shards")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise SourceError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    except (ValueError, RecursionError) as exc:
        raise SourceError(f"{path}: is damaged, and no JSON: {exc}: get it again") from exc


def beside_index(folder: str, names: Collection[str], suffix: str) -> tuple[list[Problem], list[Problem]]:
    """
    Return what lies beside the shards ``names`` that an index lists: other shards, which are problems, since a writer
    was killed or an index is old, and everything else.
    """
    listed = {"index.json", *(name.partition("/")[0] for name in names)}
    folders, files = names_in(folder)
    there = [name for name in files if not junk_reason(name)] + [f"{name}/" for name in folders if not is_hidden(name)]
    others = [name for name in there if name.removesuffix("/") not in listed]
    left_out = [Problem(shown(name), "is not in index.json") for name in others if not name.endswith(suffix)]
    return unlisted_shards(others, names, suffix), left_out


def check_listed_once(paths: Sequence[str]) -> None:
    """Raise SourceError if an index lists a shard twice: its samples would come twice."""
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise SourceError(f"{twice[0]}: is listed twice in index.json: remove one of the entries")


def unlisted_shards(there: Iterable[str], names: Collection[str], suffix: str) -> list[Problem]:
    """Return which of the files that are ``there`` are shards, but not among the ``names`` that an index lists."""
    words = "is a shard that index.json does not list: merge the indexes of all, or remove it"
    others = sorted(name for name in there if name.endswith(suffix) and name not in names)
    return [Problem(shown(name), words) for name in others]


@dataclass(frozen=True, slots=True)
class LocatedValues:
    """Where the values of some samples lie: ``starts`` and ``sizes`` (columns, n); nothing of samples with problems."""

    shard: NDArray[np.int32]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    problems: dict[int, str]


class SampleShards:
    """The samples of several shards, counted over all of them. ``is_bare``: a sample is one value, without its size."""

    def __init__(self, shards: Sequence[SampleShard], columns: Sequence[ShardColumn], *, is_bare: bool = False) -> None:
        check_listed_once([each.file.path for each in shards])
        self.columns, self._is_bare = columns, is_bare
        self._sized = [] if is_bare else [i for i, each in enumerate(columns) if each.nbytes is None]
        self.shards = shards
        self.counts = np.array([len(each.offsets) - 1 for each in shards], np.int64)
        self._shard = np.repeat(np.arange(len(shards), dtype=np.int32), self.counts)
        empty = [np.zeros(0, np.int64)]
        self._starts = np.concatenate([*empty, *(each.offsets[:-1] for each in shards)])
        self._stops = np.concatenate([*empty, *(each.offsets[1:] for each in shards)])
        self.paths = [each.file.path for each in shards]
        self.files = files_of([each.file for each in shards])
        self._damage: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each sample."""
        sizes: NDArray[np.int64] = self._stops - self._starts
        return sizes

    def locate(self, indices: Indices) -> LocatedValues:
        """Find the values of some samples by the sizes before them; those that differ from the offsets are problems."""
        shard, starts, stops = self._shard[indices], self._starts[indices], self._stops[indices]
        head, count = _COUNT_BYTES * len(self._sized), len(indices)
        whole = np.flatnonzero(stops - starts >= head)
        sizes = np.zeros((len(self.columns), count), np.int64)
        for i, column in enumerate(self.columns):
            sizes[i] = column.nbytes or 0
        if self._is_bare:
            sizes[0] = stops - starts
        elif head:
            sizes[np.array(self._sized)[:, None], whole] = (
                self._gathered(shard[whole], starts[whole], head).view("<u4").T
            )
        differs = sizes.sum(axis=0) + head != stops - starts
        sizes[:, differs] = 0
        words = "has values of other sizes than its offsets say: the shard is damaged"
        problems = {i: f"{words} ({self.shards[shard[i]].name})" for i in np.flatnonzero(differs).tolist()}
        return LocatedValues(shard, starts + head + np.cumsum(sizes, axis=0) - sizes, sizes, problems)

    def spans(self, located: LocatedValues, column: int) -> Spans:
        """Return the values of a column where they lie."""
        starts, sizes = (np.ascontiguousarray(each[column]) for each in (located.starts, located.sizes))
        return Spans(self.files.buffers, located.shard, starts, sizes)

    def values(self, column: int, indices: Indices) -> Iterator[Any]:
        """Yield the values of a column, None for those that cannot be read."""
        encoding = self.columns[column].encoding
        for start in range(0, len(indices), _AT_ONCE):
            located = self.locate(indices[start : start + _AT_ONCE])
            for position, view in enumerate(self.spans(located, column).views()):
                try:
                    yield None if position in located.problems else encoding.value(view.data)
                except ValueError:
                    yield None

    def damaged(self, numbers: NDArray[np.int32]) -> dict[int, str]:
        """
        Return what is wrong with these shards by the hashes that their index lists, which are compared once.

        A shard is read whole for that.
        """
        for number in np.unique(numbers).tolist():
            if number not in self._damage:
                self._damage[number] = _hash_problem(self.shards[number])
        return {number: words for number in np.unique(numbers).tolist() if (words := self._damage[number])}

    def _gathered(self, shard: NDArray[np.int32], starts: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
        """The ``size`` bytes from each start on, (n, size)."""
        rows = np.empty((len(shard), size), np.uint8)
        for number in np.unique(shard).tolist():
            chosen = np.flatnonzero(shard == number)
            rows[chosen] = self.shards[number].file.memory[starts[chosen, None] + np.arange(size)]
        return rows


def _hash_problem(shard: SampleShard) -> str:
    """What is wrong with the content of a shard, in words that follow a key; "" if nothing is, or nobody can tell."""
    for name, expected in shard.hashes.items():
        if name in hashlib.algorithms_available:
            if hashlib.new(name, shard.file.memory.data, usedforsecurity=False).hexdigest() == expected:
                return ""
            return f"lies in {shard.name}, whose {name} is not the one in index.json: get the shard again"
    if shard.hashes:
        _LOG.warning("%s: Python has no %s to check it by", shard.file.path, " or ".join(shard.hashes))
    return ""
