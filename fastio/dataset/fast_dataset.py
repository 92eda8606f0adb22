"""FastDataset: a packed store as a map-style dataset, the one-line replacement for a folder of pictures."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.dataset.columns import SIDES, matching, stored_lengths
from fastio.dataset.field_values import FieldValues, column_values
from fastio.dataset.form import LABEL, BlankTransform, FieldTransform, Form
from fastio.dataset.row_reader import RowReader, label_values, one_by_one
from fastio.dataset.token_reader import stored_tokenizer
from fastio.dataset.tv_values import TvTypes
from fastio.errors import SampleError, SchemaError
from fastio.lazy import Dataset, Subset, data_worker
from fastio.samplers.share import Ranks
from fastio.store.beside.joined import open_with_fields
from fastio.store.files import Read
from fastio.store.files.fetch import fetch_together
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.index.elements import Elements
from fastio.store.index.views import SelectedStore
from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked
from fastio.store.protocol import SampleStore
from fastio.store.staging import staged_path
from fastio.types.field_types import type_of
from fastio.types.options import VERIFY_ALL, check_verify, explains_names
from fastio.types.placement import IN_THE_INDEX, Placement, Stage, steps_of
from fastio.types.schema import LOSS, Field, Schema
from fastio.types.spans import Spans, distinct

if TYPE_CHECKING:
    from fastio.dataset.iterable import SequentialDataset

__all__ = [
    "FastDataset",
    "FastSubset",
    "not_a_path",
    "sample_placement",
]


_LAZY = ("labels", "lengths", "targets", "keys", "extensions", "classes")  # made on first use
_OF_THE_LOADER = "pass it to FastLoader(dataset, batch_size), or to torch's DataLoader"
# Options of torchvision's datasets and of loaders: what to write instead.
_ELSEWHERE = {
    "root": "the store comes first: FastDataset(path)",
    "train": "give the path of the store: one for training, one for validation",
    "split": "give the path of the store: one for training, one for validation",
    "download": "leave it out: pack the files once, with fastio pack",
    "loader": "leave it out: pictures are decoded here, as mode= says",
    "is_valid_file": "leave it out: fastio pack decides which files are in the store",
    "batch_size": _OF_THE_LOADER,
    "shuffle": _OF_THE_LOADER,
    "num_workers": "pass it to your DataLoader; FastLoader has threads= instead",
}
_FIXED = ("fields", "mode", "tv_tensors")  # options that count when a dataset is built
_MAX_POSITION = 65_535  # labels without names, up to this value, are positions in a list of classes


class FastDataset(Dataset[Any]):
    """
    A packed store, or files where they lie, as a map-style dataset; replaces ``torchvision.datasets.ImageFolder`` or a
    hand-written dataset::

        train = ImageFolder("data/train", transform)         # before
        train = FastDataset("data/train.lmdb", transform)    # after; the rest of the script stays

    ``dataset[i]`` is ``(picture, label)``: a PIL image in ``mode`` and an int, or what ``transform`` and
    ``target_transform`` make of them; without labels in the store, the picture alone. Order, classes and pixels are
    those of the files. It works in any DataLoader, with fork and spawn: it is pickled by path.

    * ``path``: a store, also behind a URL (``s3://``, ``gs://``, ``az://``, ``https://``, ``hf://``), which
      ``remote=Remote(...)`` says how to read: fastio/guide/remote.md. ``read`` as in ``open_store``. Or a folder of
      files, or a container of another program, that is not packed, see "Folders in place" in
      fastio/guide/loading.md; ``unpacked=Unpacked(labels=...)`` says what it does not tell itself. ``jump`` as in
      ``open_store``.
    * ``fields``: of a store with more fields, ``dataset[i]`` is a dict of all by name; ``fields=("image", "mask")``
      reads only these and makes a tuple, ``fields="image"`` the value alone. ``transform`` gets the sample whole.
      fastio/guide/fields.md says what each type of field becomes.
    * A field of lists (``image[*]``) is a list of such values, as many as the sample has; one that may be missing
      (``image?``) is its value, or None.
    * ``mode``: "RGB"; None leaves pictures as stored ("L", "RGB" or "RGBA"). Raw pixels always stay so.
    * ``tv_tensors=True`` makes pictures, masks, boxes and points ``torchvision.tv_tensors``.
    * ``verify`` compares every sample with its checksum; a bad one raises SampleError. "all" compares the whole index
      at once, too, of which a large store's is compared where it is touched: see "What is checked when" in
      fastio/guide/loading.md.

    Pictures larger than 64 x 64 are lazy: they decode, and are verified, only when something asks for their pixels.

    Raises StoreNotFound, StoreIncomplete or StoreCorrupt if the store does not open, SchemaError for ``fields`` that it
    lacks, ValueError for a ``mode`` or option that is unknown, and SampleError from ``dataset[i]`` for a bad sample. A
    transform that raises ``SampleError("why")`` makes a sample a bad one; its other exceptions pass through, with a
    note that names the sample.
    """

    @explains_names(_ELSEWHERE, example='fields="image"', groups={"remote": Remote})
    def __init__(  # noqa: PLR0913 - one flat call, as torchvision's datasets have it
        self,
        path: str | Path | SampleStore,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        *,
        fields: str | Sequence[str] | None = None,
        mode: str | None = "RGB",
        verify: bool | Literal["all"] = True,
        read: Read = "auto",
        tv_tensors: bool = False,
        remote: Remote = DEFAULT,
        unpacked: Unpacked = AS_IT_IS,
        jump: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(remote, Remote):
            raise TypeError(f"remote={remote!r}: expected fastio.Remote, such as Remote(cache_dir=...)")
        if not isinstance(unpacked, Unpacked):
            raise TypeError(f"unpacked={unpacked!r}: expected fastio.Unpacked, such as Unpacked(labels=...)")
        if isinstance(path, (str, Path)):
            self.store: SampleStore = open_with_fields(
                staged_path(path, remote, read), read=read, remote=remote, unpacked=unpacked, jump=jump
            )
        elif not hasattr(path, "schema"):
            raise TypeError(not_a_path("the path of a store", path))
        else:
            self.store = path
            _check_defaults(path, read, remote, unpacked, jump=jump)
        for name, function in (("transform", transform), ("target_transform", target_transform)):
            if function is not None and not callable(function):
                raise TypeError(f"{name}={function!r}: expected a function, such as Compose([...])")
        if fields is not None and not isinstance(fields, Sequence):
            raise TypeError(f"fields={fields!r}: expected the name of a field, or a tuple of names")
        self.transform = transform
        self.target_transform = target_transform
        self.fields = fields if fields is None or isinstance(fields, str) else tuple(fields)
        self.verify = verify == VERIFY_ALL or check_verify(verify)
        if verify == VERIFY_ALL:
            self.store.check_index()
        self.mode = mode
        self.tv_tensors = tv_tensors
        self._whole = self.store
        self._read_from(self.store)

    if not TYPE_CHECKING:  # type checkers would let any attribute be set

        def __setattr__(self, name: str, value: Any) -> None:
            """
            Raise AttributeError, with what to do, for options that readers were made of: setting them would change
            nothing. A subclass may use these names for its own.
            """
            if name in _FIXED and type(self) is FastDataset and "_whole" in self.__dict__:
                raise AttributeError(
                    f"{name} of a FastDataset cannot be set, because its samples are read as it was built: build "
                    f"another one, FastDataset(path, {name}={value!r})"
                )
            super().__setattr__(name, value)

    def _read_from(self, store: SampleStore) -> None:
        form = Form.of(store, self.fields)
        _check_target_transform(store, form, self.target_transform)
        names = form.payload(store.schema)
        readers = {name: _reader(store, name, self.mode) for name in names}
        beside = _beside_ids(store.schema, form)
        counts_loss = beside is not None and LOSS in beside
        main = _main_field(store.schema, [name for name in names if name not in (beside or ())])
        tv_types = TvTypes(store, form) if self.tv_tensors else None
        self.store, self.form, self._tv_types = store, form, tv_types
        self.readers: Mapping[str, RowReader] = readers
        sources = {name: reader.store for name, reader in readers.items()}
        self.lists: Mapping[str, Elements] = {
            name: source for name, source in sources.items() if isinstance(source, Elements)
        }
        self.reader = readers.get(main) or _reader(store, main, self.mode)
        self._payload = {name: FieldValues(reader) for name, reader in readers.items()}
        self._column_names = form.columns(store.schema)
        self._columns: dict[str, NDArray[Any]] = {}
        self.parallel = None if beside is None else tuple(readers[name] for name in beside)
        has_more = (form.is_joint and not counts_loss) or main in self.lists
        self.token_reader = None if has_more or not names else self._payload[main].tokens
        self.ids_reader = self._payload[main].tokens if beside is not None else self.token_reader

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
        """
        Whether samples are the decoded values of ``reader``, each with its label if there are ``labels``, or token ids
        with what counts of them in the loss, and perhaps more fields of one value an id.

        No transform, no subclass and no choice of fields makes something else of them.
        """
        if self.transform is not None or self.makes_samples or self.lists:
            return False
        if self.form.is_joint:
            return self.token_reader is not None
        return self.form.kind == "pair" or (bool(self.readers) and LABEL not in self.store.schema)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        return self._read([index])[0]

    def __iter__(self) -> Iterator[Any]:
        """Yield every sample. Without this, Python would take an IndexError of a transform for the end."""
        return (self[index] for index in range(len(self)))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """
        Return the samples at these indices, decoded by one native call per group of equal shape.

        In a worker of torch's DataLoader, which calls this and hands the samples to ``collate_fn``, their tensors are
        of a subclass of ``torch.Tensor``, which ``default_collate`` stacks in shared memory that was used before.
        """
        if type(self).__getitem__ is not FastDataset.__getitem__:
            # torch's DataLoader prefers this method: a subclass that overrides only __getitem__ must not be passed
            # over.
            samples = [self[index] for index in indices]
        else:
            samples = self._read(indices)
        if data_worker() is not None and type(self).__getitems__ is FastDataset.__getitems__:
            from fastio.dataset.worker_batches import for_default_collate

            return for_default_collate(samples)
        return samples

    def read_with_spans(self, indices: Sequence[int]) -> tuple[list[Any], dict[str, Spans]]:
        """
        As ``__getitems__`` of this class, with the spans that the values were read from, by payload field.

        With ``verify``, their bytes were compared with the checksums of these spans; those of a lazy picture are when
        its pixels are asked for.
        """
        spans: dict[str, Spans] = {}
        return self._read(indices, spans), spans

    def _read(self, indices: Sequence[int], spans: dict[str, Spans] | None = None) -> list[Any]:
        """Return samples; what they are read from is added to ``spans``."""
        chosen = self._checked(indices)
        if len(chosen) == 0:
            return []
        values = self._values(chosen, spans)
        rows = zip(*map(values.__getitem__, self.form.names), strict=True)
        return [self._transformed(index, row) for index, row in zip(chosen.tolist(), rows, strict=True)]

    def _checked(self, indices: Sequence[int]) -> NDArray[np.int64]:
        # A subclass that calls its parent gets samples of the store, whatever its own length.
        count = len(self.store) if self.makes_samples else len(self)
        # Python numbers: of one sample, as ``dataset[i]`` asks for, arrays would take several times as long.
        chosen = [index if index >= 0 else index + count for index in map(operator.index, indices)]
        if chosen and not 0 <= min(chosen) <= max(chosen) < count:
            outside = next(index for index, number in zip(indices, chosen, strict=True) if not 0 <= number < count)
            raise IndexError(f"{self.store.path}: index {outside} of {count} samples")
        return np.array(chosen, np.int64)

    def _values(self, indices: NDArray[np.int64], used: dict[str, Spans] | None = None) -> dict[str, list[Any]]:
        """Return the values of each field of the form, before any transform; their spans are added to ``used``."""
        lists = {name: elements.of(indices) for name, elements in self.lists.items()}
        rows = {name: lists[name][0] if name in lists else indices for name in self.readers}
        wanted = {name: reader.store.spans(name, rows[name]) for name, reader in self.readers.items()}
        arrived = fetch_together(self.store.files, wanted).wait()
        values: dict[str, list[Any]] = {}
        for name, (spans, status) in arrived.items():
            if status is not None:
                raise self.readers[name].unreadable(rows[name], spans, status)
            read = self._payload[name].read(rows[name], spans, verify=self.verify) if len(rows[name]) else []
            values[name] = self.lists[name].grouped(read, lists[name][1]) if name in lists else read
            if used is not None:
                used[name] = spans
        self._add_numbers(values, indices)
        return values

    def _add_numbers(self, values: dict[str, list[Any]], indices: NDArray[np.int64]) -> None:
        """Add the values of the columns of the form."""
        for name in self._column_names:
            values[name] = one_by_one(self._column(name)[indices])

    def _column(self, name: str) -> NDArray[Any]:
        if self.form.kind == "pair":  # its only column is "label"
            assert self.labels is not None
            return self.labels
        if name not in self._columns:
            self._columns[name] = column_values(self.store, name)
        return self._columns[name]

    def _transformed(self, index: int, row: tuple[Any, ...], *, is_blank: bool = False) -> Any:
        """Return the sample of these values, which are in the order of the form's names."""
        transform = self.transform
        if is_blank and isinstance(transform, BlankTransform):
            transform = transform.for_blanks()
        try:
            if self._tv_types is not None:
                row = self._tv_types.typed(row)
            if self.form.kind == "pair":
                value, label = row
                value = value if transform is None else transform(value)
                return value, label if self.target_transform is None else self.target_transform(label)
            sample = self._sample(row)
            if isinstance(transform, FieldTransform):  # which is told what fields samples have
                fields = (self.store.schema[name] for name in self.form.names)
                if self.form.is_joint:
                    return transform.for_fields(fields)(sample)
                if self.lists:
                    return transform.for_fields(fields)((sample,))[0]
            return sample if transform is None else transform(sample)
        except Exception as exc:
            if isinstance(exc, SampleError) and exc.index == -1:  # a transform said so, which does not know the sample
                path, key = self.store.path, self.store.keys([index])[0]
                words = f"{path}[{index}] ({key!r}): {exc}"
                raise SampleError(words, path=path, index=index, key=key) from exc.__cause__
            # The transform is the user's: its exception stays as it is, with a note that names the sample.
            if not (isinstance(exc, SampleError) and exc.index == index):  # whose message says so itself
                exc.add_note(f"in the transform of {self.store.path}[{index}] ({self.store.keys([index])[0]!r})")
            raise

    def _sample(self, row: tuple[Any, ...]) -> Any:
        """Return what the transform gets: a value, or the whole of a tuple or dict."""
        if self.form.kind == "dict":
            return dict(zip(self.form.names, row, strict=True))
        return row if self.form.kind == "tuple" else row[0]

    def blank(self, index: int) -> Any:
        """
        Return the sample with blanks in place of what cannot be read: zeros, no rows, empty text, None for JSON.

        A sample of one payload field gets the blank whether it can be read or not; of several fields, those that can
        be read stay. Raises SampleError if the size of a picture is unknown because its header is bad too.
        """
        chosen = self._checked([index])
        values = {name: [self._readable_or_blank(name, chosen)] for name in self.readers}
        self._add_numbers(values, chosen)
        return self._transformed(int(chosen[0]), tuple(values[name][0] for name in self.form.names), is_blank=True)

    def _readable_or_blank(self, name: str, chosen: NDArray[np.int64]) -> Any:
        if name not in self.lists:
            return self._value_or_blank(name, chosen)
        which, counts = self.lists[name].of(chosen)
        return self.lists[name].grouped([self._value_or_blank(name, each) for each in which.reshape(-1, 1)], counts)[0]

    def _value_or_blank(self, name: str, chosen: NDArray[np.int64]) -> Any:
        values = self._payload[name]
        fetched = fetch_together(self.store.files, {name: values.reader.store.spans(name, chosen)})
        spans, status = fetched.wait()[name]
        if self.form.is_joint and status is None:
            with suppress(SampleError):
                value = values.read(chosen, spans, verify=self.verify)[0]
                if isinstance(value, Image.Image):
                    value.load()  # a lazy picture is bad when its pixels are asked for
                return value
        return values.blank(chosen, spans)

    @explains_names(groups={"ranks": Ranks})
    def iterable(
        self, *, rank: int | None = None, world_size: int | None = None, ranks: Ranks | None = None
    ) -> SequentialDataset:
        """
        Return an iterable over all samples in order, split over ranks (the options are FastLoader's) and DataLoader
        workers.
        """
        from fastio.dataset.iterable import SequentialDataset

        return SequentialDataset(self, Ranks.of(ranks, rank, world_size).share())

    @cached_property
    def labels(self) -> NDArray[Any] | None:
        """The label of every sample, int64 or float64 (or one array each); None without a label column."""
        if LABEL not in self.store.schema:
            return None
        return label_values(self.store.column(LABEL), where=f"{self.store.path}: column {LABEL!r}")

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The length of every sample from the index alone: tokens, or for other fields, bytes as stored."""
        return stored_lengths(self.store, self.reader.field.name)

    def lengths_of(self, field: str) -> NDArray[np.int64]:
        """
        Return the length of every sample's value of a payload field, ``(n,)`` int64, from the index alone: token ids,
        rows of a ragged array, or for other fields, bytes as stored.
        """
        return stored_lengths(self.store, field)

    def sizes(self, field: str | None = None) -> NDArray[np.int64]:
        """
        Return ``(n, 2)`` int64: the height and the width of every sample's picture, in this order, as stored.

        ``field`` names a picture or mask other than the main one. Stores that fastio packed have sizes in their index,
        so no picture is read; of tar files of other tools, the first bytes of each picture are, once in a process.
        A picture with a bad header has zeros. Raises SchemaError for a field that is no picture.
        """
        reader = self.reader if field is None else self.readers.get(field)
        if reader is None:
            names = ", ".join(map(repr, self.readers))
            raise SchemaError(f"{self.store.path}: sizes({field!r}): no such field among {names} of this dataset")
        if isinstance(reader.store, Elements):
            name = reader.field.name
            raise SchemaError(
                f"{self.store.path}: sizes are those of one picture a sample, but {self.store.schema[name]} are "
                f"several: store.elements({name!r}).shapes({name!r}) has them all"
            )
        if not (reader.is_picture or reader.is_mask):
            raise SchemaError(f"{self.store.path}: sizes are those of pictures, but {reader.field.name!r} has none")
        return reader.sizes()

    def column(self, name: str) -> NDArray[Any]:
        """
        Return a column of the store, one value per sample.

        If there is no such column, "length" is ``lengths``, and "height" and "width" are those of ``sizes()``, int64.
        """
        if name in self.store.schema:
            return self.store.column(name)
        if name in SIDES and (self.reader.is_picture or self.reader.is_mask):
            return self.sizes()[:, SIDES.index(name)]
        return self.lengths if name == "length" else self.store.column(name)

    def where(self, expression: str) -> FastSubset:
        """
        Return the samples for which an expression over columns is true, as a part that FastLoader, torch's tools for
        subsets, states and receipts know::

            large = dataset.where("width >= 400 and aesthetic >= 5 and label in ('dog', 'cat')")

        Columns are those of the store with one value a sample (classes go by name or number), ``width`` and ``height``
        of pictures, ``length`` of token ids, ``key``, and ``size_bytes``, the bytes of a sample as stored. Comparisons,
        ``in``, ``and``, ``or``, ``not``, ``is None``, arithmetic and ``.startswith()``, ``.endswith()`` and
        ``.contains()`` of text are computed by pyarrow; nothing else is run. Missing values make no comparison true.

        Raises SchemaError, with the place, for anything else and for unknown columns, and where pyarrow is missing
        (``pip install 'fastio[text]'``).
        """
        return FastSubset(self, np.flatnonzero(_matching(self, expression)))

    @property
    def tokenizer(self) -> Mapping[str, Any]:
        """
        What the store says about its tokenizer; empty without one. "vocab_size" is what an embedding needs, "special"
        has the ids of "bos", "eos", "pad" and "unk", and "json" is the tokenizer's file as text (None for ``bytes``).
        """
        return stored_tokenizer(self.store)

    @property
    def pad_id(self) -> int:
        """The id that pads token ids: the tokenizer's, or 0 if it has none or the samples are not tokens."""
        return 0 if self.token_reader is None else self.token_reader.pad_id

    def pad_id_of(self, field: str) -> int:
        """Return the id that pads a field of token ids: its tokenizer's, or 0 for any other field."""
        tokens = self._payload[field].tokens if field in self._payload else None
        return 0 if tokens is None else tokens.pad_id

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
        self._read_from(select_samples(self._whole, samples))
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
        values = self._values(np.array([find_key(self.store, key)]))
        row = tuple(values[name][0] for name in self.form.names)
        return self._sample(row if self._tv_types is None else self._tv_types.typed(row))

    @property
    def transforms(self) -> StandardTransform | None:
        """
        ``transform`` and ``target_transform`` as one function of picture and label.

        None without either, and for tuples and dicts, of which ``transform`` takes the whole.
        """
        if self.form.is_joint or (self.transform is None and self.target_transform is None):
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
        numbers = range(high + 1) if low >= 0 and high <= _MAX_POSITION else distinct(self.labels).tolist()
        return [str(number) for number in numbers]

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class name."""
        if self.store.metadata.get("classes") is None:
            return {name: int(name) for name in self.classes}
        return {name: label for label, name in enumerate(self.classes)}

    def classes_of(self, field: str) -> list[str]:
        """Return the class names of a field of class numbers; empty if the store has none for it."""
        if field == LABEL:
            return self.classes
        names = self.store.metadata.get("field_classes") or {}
        if field not in self.store.schema:
            raise SchemaError(f"{self.store.path}: no field {field!r}; class names are stored for {sorted(names)}")
        return [str(name) for name in names.get(field, ())]

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
        return {name: value for name, value in self.__dict__.items() if name not in _LAZY} | {"_columns": {}}

    def __repr__(self) -> str:
        parts = str(self.reader.field)
        if self.form.is_joint or self.form.names[0] not in self.readers:
            fields = [f"{name}: {type_of(self.store.schema[name])}" for name in self.form.names]
            parts = f"{self.form.kind} of {', '.join(fields)}"
        first = f"FastDataset({self.store.path!r}): {len(self)} samples, {self.store.format}, {parts}"
        if self.transform is None and self.target_transform is None:
            return first
        return "\n  ".join([first, *sample_placement(self, "dataset[i]").lines])


# FastSubset: some samples of a FastDataset as torch's Subset, with keys, labels and classes; and how they are chosen.


class FastSubset(Subset[Any]):
    """
    Some samples of a FastDataset: ``dataset.where(...)``, and ``loader.dataset`` of a ``FastLoader(..., indices=...)``.
    Sample i is ``dataset[indices[i]]``.
    """

    dataset: FastDataset

    def __init__(self, dataset: FastDataset, indices: NDArray[np.int64]) -> None:
        super().__init__(dataset, indices.tolist())
        self._chosen = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, idx: Any) -> Any:  # the names of torch's Subset
        return self.__getitems__(idx) if isinstance(idx, list) else self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return self.dataset.__getitems__([self.indices[idx] for idx in indices])

    @property
    def keys(self) -> list[str]:
        """Each sample's path in its source."""
        return self.dataset.store.keys(self._chosen)

    @property
    def labels(self) -> NDArray[Any] | None:
        """The label of each sample, as FastDataset's."""
        labels = self.dataset.labels
        return None if labels is None else labels[self._chosen]

    @property
    def targets(self) -> list[Any]:
        """The label of each sample as a list of Python numbers."""
        return [] if self.labels is None else list(self.labels.tolist())

    @property
    def classes(self) -> list[str]:
        """All classes of the dataset, whether the subset has samples of them or not."""
        return self.dataset.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class name."""
        return self.dataset.class_to_idx

    def sizes(self, field: str | None = None) -> NDArray[np.int64]:
        """Return height and width of each sample's picture, ``(n, 2)``, as FastDataset's."""
        return self.dataset.sizes(field)[self._chosen]

    def column(self, name: str) -> NDArray[Any]:
        """Return a column, one value per sample; "length", "height" and "width" as in FastDataset."""
        return self.dataset.column(name)[self._chosen]

    def where(self, expression: str) -> FastSubset:
        """Return the samples of these for which an expression is true: see ``FastDataset.where``."""
        return FastSubset(self.dataset, self._chosen[_matching(self.dataset, expression)[self._chosen]])

    def __repr__(self) -> str:
        return f"FastSubset({self.dataset.store.path!r}): {len(self)} of {len(self.dataset)} samples"


def _matching(dataset: FastDataset, expression: str) -> NDArray[np.bool_]:
    """Return for which samples an expression is true, ``(n,)``."""
    store = dataset.store
    if len(dataset) != len(store):
        raise SchemaError(
            f"{store.path}: {type(dataset).__name__} has a length of its own, so columns do not tell of its samples"
        )
    return matching(store, expression, reader=dataset.reader)


def not_a_path(what: str, value: object) -> str:
    """Return in one line that ``what`` was expected instead of a value of another kind, and what to do."""
    advice = ""
    if isinstance(value, (list, tuple)):
        advice = (
            ": the shards of a store are one path ('train-*.tar'), several stores a ConcatDataset of FastDatasets for "
            "FastLoader; files are packed first: fastio pack FOLDER train.lmdb"
        )
    elif isinstance(value, Mapping):
        advice = ": rows are packed first, by fastio.pack(rows, 'train.lmdb'); datasets by name are a fastio.Mixture"
    elif isinstance(value, FastDataset):
        advice = ", which needs no other around it"
    return f"expected {what}, such as 'train.lmdb', got {'None' if value is None else type(value).__name__}{advice}"


def _main_field(schema: Schema, names: Sequence[str]) -> str:
    """Return the field that ``reader`` reads: the first picture among these, otherwise the first, or of the store."""
    payload = [schema[name] for name in names] or schema.payload
    pictures = (field for field in payload if field.traits.is_picture and not field.traits.is_mask)
    return next(pictures, payload[0]).name


def _beside_ids(schema: Schema, form: Form) -> tuple[str, ...] | None:
    """
    Return the fields that may have one value for each token id, besides columns; None if samples are no dicts of token
    ids, the first field, and of such.
    """
    names = form.payload(schema)
    ids, *others = [name for name in names if name != LOSS] or [""]
    beside = [name for name in names if name == LOSS] + others
    if form.kind != "dict" or not beside or not schema[ids].traits.is_tokens:
        return None
    fields = [schema[name] for name in beside]
    is_parallel = all(field.is_loss or field.traits.is_tokens or _is_flat(field) for field in fields)
    return tuple(beside) if is_parallel else None


def _is_flat(field: Field) -> bool:
    return field.traits.is_ragged and field.shape == (None,) and not field.role


def _check_defaults(store: SampleStore, read: Read, remote: Remote, unpacked: Unpacked, *, jump: bool) -> None:
    """Raise ValueError for options that only the opening of a path uses."""
    if read != "auto":
        raise ValueError(f"{store.path}: read={read!r} is for a path; give it to open_store(path, read={read!r})")
    if remote != DEFAULT:
        raise ValueError(f"{store.path}: remote= is for a path; give it to open_store(path, remote=...)")
    if unpacked != AS_IT_IS:
        raise ValueError(f"{store.path}: unpacked= is for a path; give it to open_store(path, unpacked=...)")
    if jump:
        raise ValueError(f"{store.path}: jump= is for a path; give it to open_store(path, jump=True)")


def _reader(store: SampleStore, name: str, mode: str | None) -> RowReader:
    """Return what reads a field; of a field of lists, its elements as the samples of a store of their own."""
    field = store.schema[name]
    source: SampleStore = store.elements(name) if field.is_list else store
    return RowReader(source, name, mode=None if field.element.traits.is_mask else mode)


def _check_target_transform(store: SampleStore, form: Form, target_transform: object) -> None:
    if form.is_joint and target_transform is not None:
        raise ValueError(
            f"{store.path}: target_transform= is for samples of a value and a label, but these are a {form.kind} of "
            f"{', '.join(form.names)}: change the label in transform=, which gets the whole sample"
        )


# Where samples are made, for descriptions of datasets and loaders.


def sample_placement(dataset: FastDataset, where: str) -> Placement:
    """Return where ``dataset[i]`` makes each field of a sample, if it is called in ``where``."""
    if dataset.makes_samples:
        return Placement({"sample": [Stage(where, (f"{type(dataset).__name__}.__getitem__",))]})
    steps, form = steps_of(dataset.transform), dataset.form
    fields: dict[str, Sequence[Stage]] = {}
    for field in form.names:
        if field in dataset.readers:
            decodes = ("decode when used",) if dataset.readers[field].is_picture else ()
            fields[field] = [Stage(where, (*decodes, *steps))]
        else:
            own = steps_of(dataset.target_transform) if form.kind == "pair" else steps if form.is_joint else ()
            fields[field] = [Stage(IN_THE_INDEX), *([Stage(where, own)] if own else [])]
    return Placement(fields)


# Finds the samples of the store that a list assigned by the user means, and their labels.


def select_samples(store: SampleStore, samples: Iterable[tuple[str, Any]]) -> SelectedStore:
    """
    Select the samples of ``store`` that ``samples`` lists as pairs of key and label (all labels may be None).

    Raises SchemaError if it is not such a list, or if the store lacks a key or has it twice.
    """
    pairs = [tuple(pair) for pair in samples]
    if any(len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs):
        raise SchemaError(f"{store.path}: expected samples as pairs of key and label, like those of dataset.samples")
    indices = _places(store)
    try:
        chosen = np.array([indices[key] for key, _ in pairs], np.int64)
    except KeyError as exc:
        raise SchemaError(_unknown(store, exc.args[0])) from None
    return SelectedStore(store, chosen, _labels(store, [label for _, label in pairs]))


def find_key(store: SampleStore, key: str) -> int:
    """Return the index of the sample with this key. Raises SchemaError if there is none."""
    try:
        return _places(store)[key]
    except KeyError:
        raise SchemaError(_unknown(store, key)) from None


def _places(store: SampleStore) -> dict[str, int]:
    keys = store.keys(np.arange(len(store)))
    indices = {key: index for index, key in enumerate(keys)}
    if len(indices) < len(keys):
        raise SchemaError(f"{store.path}: several samples have the same key, so a key does not name a sample")
    return indices


def _labels(store: SampleStore, labels: list[Any]) -> NDArray[Any] | None:
    if not labels or all(label is None for label in labels):
        return None if labels or "label" not in store.schema else store.column("label")[:0]
    column = np.array([np.nan if label is None else label for label in labels])
    if column.dtype.kind not in "biuf" or any(label is None for label in labels):
        raise SchemaError(f"{store.path}: expected a number as the label of each sample, or None for all of them")
    return column


def _unknown(store: SampleStore, key: object) -> str:
    return f"{store.path}: no sample has the key {key!r}; dataset.keys lists them"


# StandardTransform: a dataset's transform and target_transform as one function of (picture, target).


@dataclass(frozen=True)
class StandardTransform:
    """What torchvision's datasets have as ``transforms``; either part may be None."""

    transform: Callable[[Any], Any] | None
    target_transform: Callable[[Any], Any] | None

    def __call__(self, picture: Any, target: Any) -> tuple[Any, Any]:
        """Return picture and target, each transformed."""
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, target if self.target_transform is None else self.target_transform(target)

    def __repr__(self) -> str:
        parts = [
            _indented(title, part)
            for title, part in (("Transform", self.transform), ("Target transform", self.target_transform))
            if part is not None
        ]
        return "\n".join(["StandardTransform", *parts])


def _indented(title: str, part: object) -> str:
    """Return ``Transform: Compose(`` and the following lines, indented below it."""
    return f"{title}: " + f"\n{' ' * (len(title) + 2)}".join(repr(part).splitlines())
