"""FastDataset: a packed store as a map-style dataset, the one-line replacement for a folder of pictures."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset

from fastio._native import Buffers
from fastio.dataset.iterable import SequentialDataset
from fastio.dataset.own_samples import find_key, select_samples
from fastio.dataset.picture import LazyPicture, StoredPicture, small_picture
from fastio.dataset.row_reader import RowReader, is_uniform, label_values, one_by_one
from fastio.dataset.standard_transform import StandardTransform
from fastio.dataset.token_reader import TokenReader, read_text, stored_lengths
from fastio.errors import SampleError, SchemaError
from fastio.samplers.share import Share
from fastio.store import open_store
from fastio.store.files import Read
from fastio.store.sample_store import SampleStore
from fastio.types.spans import Spans
from fastio.types.verification import check_verify

__all__ = ["FastDataset"]

_LABEL = "label"
# Pixels; smaller pictures are decoded a batch at a time: putting that off would cost more than it saves.
_EAGER_PIXELS = 64 * 64
_LAZY = ("labels", "lengths", "targets", "keys", "extensions", "classes")  # made on first use
_MAX_POSITION = 65_535  # labels without names, up to this value, are positions in a list of classes


class FastDataset(Dataset[Any]):
    """
    A packed store as a map-style dataset; replaces ``torchvision.datasets.ImageFolder`` or a hand-written dataset.

        train = ImageFolder("data/train", transform)         # before
        train = FastDataset("data/train.lmdb", transform)    # after; the rest of the script stays

    ``dataset[i]`` is ``(picture, label)``: a PIL image in ``mode`` (or what ``transform`` makes of it) and an int (or
    what ``target_transform`` makes of it). Without labels in the store, it is the picture alone. A raw field that is
    not a picture yields a NumPy array, token ids an int64 tensor, text a ``str``, and a field of bytes ``bytes``.
    Order, classes and pixels are those of the files. Pictures larger than 64 x 64 are lazy: they decode only what is
    needed, when something asks for their pixels (see ``picture.LazyPicture``). A FastDataset works in any
    ``torch.utils.data.DataLoader``, with fork and spawn: it holds no threads, and is pickled by path.

    ``mode=None`` leaves pictures as stored ("L", "RGB" or "RGBA"); raw pixels always stay so. ``verify`` compares
    every sample with its checksum, that of a lazy picture when its pixels are first used. A bad sample then raises
    SampleError; FastLoader can skip it. ``read`` says how a store that is opened here is read: see ``open_store``.
    """

    def __init__(
        self,
        path: str | Path | SampleStore,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        *,
        mode: str | None = "RGB",
        verify: bool = True,
        read: Read = "auto",
    ) -> None:
        self.store = open_store(path, read=read) if isinstance(path, (str, Path)) else path
        if self.store is path and read != "auto":
            raise ValueError(f"{path.path}: read={read!r} is for a path; give it to open_store(path, read={read!r})")
        self.transform = transform
        self.target_transform = target_transform
        self.verify = check_verify(verify)
        self._whole = self.store
        self._read_from(self.store, mode)

    def _read_from(self, store: SampleStore, mode: str | None) -> None:
        self.store = store
        self.reader = RowReader(store, _payload_field(store), mode=mode)
        self.token_reader = TokenReader(self.reader) if self.reader.field.traits.is_tokens else None

    @property
    def makes_samples(self) -> bool:
        """
        Whether a subclass has a ``__getitem__`` or ``__getitems__`` of its own.

        Its samples are then what these return, and nothing may read past them from the store.
        """
        kind = type(self)
        return kind.__getitem__ is not FastDataset.__getitem__ or kind.__getitems__ is not FastDataset.__getitems__

    @property
    def makes_blanks(self) -> bool:
        """Whether a subclass has a ``blank`` of its own, which makes the replacement for a bad sample."""
        return type(self).blank is not FastDataset.blank

    @property
    def is_as_stored(self) -> bool:
        """Whether samples are the store's decoded values: no transform and no subclass changes them."""
        return self.transform is None and not self.makes_samples

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        return self._read([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples at these indices, decoded by one native call per group of equal shape."""
        if type(self).__getitem__ is not FastDataset.__getitem__:
            # torch's DataLoader prefers this method: a subclass that overrides only __getitem__ must not be passed
            # over.
            return [self[index] for index in indices]
        return self._read(indices)

    def _read(self, indices: Sequence[int]) -> list[Any]:
        chosen = self._checked(indices)
        values = self._values(chosen)
        labels = None if self.labels is None else one_by_one(self.labels[chosen])
        return [
            self._transformed(index, value, None if labels is None else labels[position])
            for position, (index, value) in enumerate(zip(chosen.tolist(), values, strict=True))
        ]

    def _checked(self, indices: Sequence[int]) -> NDArray[np.int64]:
        chosen = np.array([operator.index(index) for index in indices], np.int64)
        # A subclass that calls its parent gets samples of the store, whatever its own length.
        count = len(self.store) if self.makes_samples else len(self)
        chosen[chosen < 0] += count
        outside = (chosen < 0) | (chosen >= count)
        if outside.any():
            raise IndexError(f"{self.store.path}: index {indices[int(outside.argmax())]} of {count} samples")
        return chosen

    def _values(self, indices: NDArray[np.int64]) -> list[Any]:
        """Return PIL images, arrays or bytes as stored, before any transform."""
        reader = self.reader
        spans, status = self._spans(indices)
        if status is not None:
            raise reader.unreadable(indices, spans, status)
        if self.token_reader is not None:
            return list(self.token_reader.values(indices, spans, verify=self.verify))
        if reader.is_text:
            return list(read_text(reader, indices, spans, verify=self.verify))
        if not reader.has_rows:
            return [reader.encoded(indices, spans, position, verify=self.verify) for position in range(len(indices))]
        return self._pictures(indices, spans) if reader.is_picture else self._rows(indices, spans)

    def _rows(self, indices: NDArray[np.int64], spans: Spans) -> list[Any]:
        reader = self.reader
        return list(reader.read(indices, spans, reader.shapes(indices, spans), verify=self.verify))

    def _pictures(self, indices: NDArray[np.int64], spans: Spans) -> list[Image.Image]:
        """Return lazy pictures; small ones are decoded here, with one native call per size."""
        reader, verify = self.reader, self.verify
        shapes = reader.shapes(indices, spans)
        sources = [
            StoredPicture(reader, index, self._place(spans, position), shape, verify)
            for position, (index, shape) in enumerate(zip(indices.tolist(), shapes.tolist(), strict=True))
        ]
        if is_uniform(shapes) and sources[0].pixel_count <= _EAGER_PIXELS:
            return list(map(small_picture, sources, reader.read(indices, spans, shapes, verify=verify)))
        pictures: list[Image.Image] = [LazyPicture.of(source) for source in sources]
        # Pictures with bad headers have no pixels at all.
        chosen = np.flatnonzero(shapes[:, 0] * shapes[:, 1] <= _EAGER_PIXELS)
        for group in _groups(shapes[chosen]):
            positions = chosen[group]
            rows = reader.read(indices[positions], spans.at(positions), shapes[positions], verify=verify)
            for position, row in zip(positions.tolist(), rows, strict=True):
                pictures[position] = small_picture(sources[position], row)
        return pictures

    def _place(self, spans: Spans, position: int) -> tuple[Spans, int]:
        """
        Return the location of one value for a StoredPicture: in the mapping, or copied from what was read with it.
        """
        if self.store.files.in_place:
            return spans, position
        one = spans.part(position, position + 1)
        memory = Buffers([one.view(0).copy()] * len(self.store.shard_paths))
        return Spans(memory, one.shard, np.zeros(1, np.int64), one.sizes, one.checksums, one.intervals), 0

    def _spans(self, indices: NDArray[np.int64]) -> tuple[Spans, NDArray[np.int32] | None]:
        """Return the spans of the values, and a status for each if some cannot be read."""
        spans = self.store.spans(self.reader.field.name, indices)
        return self.store.files.fetch(spans).wait()

    def _transformed(self, index: int, value: Any, label: Any) -> Any:
        try:
            if self.transform is not None:
                value = self.transform(value)
            if self.labels is None:
                return value
            return value, label if self.target_transform is None else self.target_transform(label)
        except Exception as exc:
            # The transform is the user's: its exception stays as it is, with a note that names the sample.
            if not (isinstance(exc, SampleError) and exc.index == index):  # whose message says so itself
                exc.add_note(f"in the transform of {self.store.path}[{index}] ({self.store.keys([index])[0]!r})")
            raise

    def blank(self, index: int) -> Any:
        """
        Return the sample with a black picture (zeros), no tokens or empty text, in place of one that cannot be
        decoded.

        Raises SampleError if the size is unknown because the header is bad too.
        """
        chosen = self._checked([index])
        label = None if self.labels is None else one_by_one(self.labels[chosen])[0]
        return self._transformed(int(chosen[0]), self._blank(chosen), label)

    def _blank(self, chosen: NDArray[np.int64]) -> Any:
        if self.token_reader is not None:
            return torch.empty(0, dtype=torch.int64, device="cpu")
        if self.reader.is_text:
            return ""
        value = self.reader.blank(chosen, self._spans(chosen)[0])
        return _picture(value) if self.reader.is_picture else value

    def iterable(self, *, rank: int | None = None, world_size: int | None = None) -> SequentialDataset:
        """
        Return an iterable over all samples in order, split over ranks (see ``rank_and_world``) and DataLoader
        workers.
        """
        return SequentialDataset(self, Share.of(rank, world_size))

    @cached_property
    def labels(self) -> NDArray[Any] | None:
        """The label of every sample, int64 or float64 (or one array each); None without a label column."""
        if _LABEL not in self.store.schema:
            return None
        return label_values(self.store.column(_LABEL), where=f"{self.store.path}: column {_LABEL!r}")

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The length of every sample from the index alone: tokens, or for other fields, bytes as stored."""
        return stored_lengths(self.store, self.reader.field.name)

    def column(self, name: str) -> NDArray[Any]:
        """
        Return a column of the store, one value per sample; "length" means ``lengths`` if the store has no such
        column.
        """
        return self.lengths if name == "length" and name not in self.store.schema else self.store.column(name)

    @property
    def pad_id(self) -> int:
        """The id that pads token ids: the tokenizer's, or 0 if it has none or the samples are not tokens."""
        return 0 if self.token_reader is None else self.token_reader.pad_id

    @cached_property
    def targets(self) -> list[Any]:
        """The label of every sample as a list of Python numbers, as in torchvision's datasets."""
        return [] if self.labels is None else list(self.labels.tolist())

    @cached_property
    def keys(self) -> list[str]:
        """The path of every sample of the store in its source, whatever length a subclass has."""
        return self.store.keys(np.arange(len(self.store)))

    @property
    def samples(self) -> list[tuple[str, Any]]:
        """
        Pairs of key and label, as in ImageFolder; built anew at each call.

        Assign such a list (shorter, in another order, with other labels) to change what the dataset holds: its
        length, ``targets``, ``keys`` and samples follow, also in a FastLoader that is built afterwards. Raises
        SchemaError for keys that the store does not have.
        """
        return list(zip(self.keys, self.targets, strict=True)) if self.targets else [(key, None) for key in self.keys]

    @samples.setter
    def samples(self, samples: Iterable[tuple[str, Any]]) -> None:
        self._read_from(select_samples(self._whole, samples), self.reader.mode)
        for name in _LAZY:
            self.__dict__.pop(name, None)

    @property
    def imgs(self) -> list[tuple[str, Any]]:
        """Same as ``samples``, under ImageFolder's other name."""
        return self.samples

    @imgs.setter
    def imgs(self, samples: Iterable[tuple[str, Any]]) -> None:
        self.samples = samples

    @property
    def root(self) -> str:
        """The store's path; keys are paths relative to what was packed."""
        return self.store.path

    @cached_property
    def extensions(self) -> tuple[str, ...]:
        """The extensions of the keys, in lower case, sorted."""
        return tuple(sorted({PurePosixPath(key).suffix.lower() for key in self.keys} - {""}))

    def loader(self, key: str) -> Any:
        """Return what ``transform`` gets for the sample with this key: ``dataset.loader(dataset.samples[i][0])``."""
        return self._values(np.array([find_key(self.store, key)]))[0]

    @property
    def transforms(self) -> StandardTransform | None:
        """``transform`` and ``target_transform`` as one function of picture and label; None without either."""
        if self.transform is None and self.target_transform is None:
            return None
        return StandardTransform(self.transform, self.target_transform)

    @cached_property
    def classes(self) -> list[str]:
        """
        Class names by label; without names in the source, the numbers from 0 to the largest label as text.

        ``len(classes)`` is the size that the last layer of a classifier needs. Labels that cannot be positions in a
        layer (negative, or above 65,535) are listed as they occur, sorted: number them before training.
        """
        names = self.store.metadata.get("classes")
        if names is not None:
            return [str(name) for name in names]
        if self.labels is None or self.labels.dtype != np.int64 or self.labels.ndim != 1 or not len(self.labels):
            return []
        low, high = int(self.labels.min()), int(self.labels.max())
        numbers = range(high + 1) if low >= 0 and high <= _MAX_POSITION else np.unique(self.labels).tolist()
        return [str(number) for number in numbers]

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class name."""
        if self.store.metadata.get("classes") is None:
            return {name: int(name) for name in self.classes}
        return {name: label for label, name in enumerate(self.classes)}

    def close(self) -> None:
        """Release the store's mapping; calling it twice is harmless. Samples handed out stay valid."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a DataLoader worker needs, without the lists that are made on demand."""
        return {name: value for name, value in self.__dict__.items() if name not in _LAZY}

    def __repr__(self) -> str:
        return f"FastDataset({self.store.path!r}): {len(self)} samples, {self.store.format}, {self.reader.field}"


def _payload_field(store: SampleStore) -> str:
    """Return the field that samples are made of: the first picture, otherwise the first payload field."""
    payload = store.schema.payload
    if not payload:
        raise SchemaError(f"{store.path}: no payload field among {[field.name for field in store.schema.fields]}")
    return next((field for field in payload if field.traits.is_picture), payload[0]).name


def _groups(shapes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Group positions of equal shape."""
    if (shapes == shapes[:1]).all():
        return [np.arange(len(shapes))] if len(shapes) else []
    distinct, group_of = np.unique(shapes, axis=0, return_inverse=True)
    return [np.flatnonzero(group_of.reshape(-1) == group) for group in range(len(distinct))]


def _picture(row: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(row[:, :, 0] if row.shape[2] == 1 else row)
