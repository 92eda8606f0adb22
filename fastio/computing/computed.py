"""``compute``: a function of batches, run over all samples of a store, makes a store of the same keys."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from types import CodeType
from typing import Any, Literal

import numpy as np

from fastio import _native
from fastio._native import crc32
from fastio.converters import Part, pack
from fastio.converters.fields.arrays import UnfitError, as_numpy, is_tensor
from fastio.converters.fields.values import encode_values
from fastio.converters.packing.options import Progress
from fastio.converters.packing.record import PackReport
from fastio.converters.sources.listed import Indices, ListedSource, Values
from fastio.converters.sources.options import source_record
from fastio.converters.sources.source import split_by_bytes
from fastio.converters.write.fields import Fields, FieldsAsked, infer_field
from fastio.dataset.fast_dataset import FastDataset
from fastio.errors import FastioError, SampleError, SchemaError, StoreError
from fastio.loader.batch_steps import Numbered
from fastio.loader.fast_loader import FastLoader
from fastio.store import SampleStore
from fastio.store.beside.joined import BesideStore, open_with_fields, stores_of
from fastio.store.files.local import expanded, is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.index.store import SealedStore
from fastio.store.sets.names import NumberedName, set_path
from fastio.types.bfloat16 import BFLOAT16, widened
from fastio.types.options import explains_names
from fastio.types.schema import Schema
from fastio.types.spans import ListSpans, Spans
from fastio.types.units import counted

__all__ = ["BatchFunction", "ComputedSource", "compute", "computed_source"]

BatchFunction = Callable[[Any], Any]
_BATCHES, _BYTES = 16, 8  # of a piece: the batches, and how many times the bytes of another source's
_RECORDED = "computed"  # what the metadata of a result calls where its values are from


@explains_names(groups={"remote": Remote})
def compute(  # noqa: PLR0913 - an option of the command each
    store: str | os.PathLike[str] | SampleStore,
    out: str | os.PathLike[str],
    function: BatchFunction,
    *,
    fields: FieldsAsked = None,
    read: str | Sequence[str] | None = None,
    transforms: Sequence[Any] | None = None,
    batch_size: int = 64,
    threads: int = 0,
    allow_nan: bool = False,
    on_error: Literal["raise", "skip"] = "raise",
    shard_bytes: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    part: Part | None = None,
    progress: Progress | None = None,
    remote: Remote = DEFAULT,
) -> PackReport:
    """
    Run ``function`` over all samples of ``store`` and write what it returns as the store ``out``, with the same keys::

        def embed(images):  # uint8 (B, 3, 224, 224)
            with torch.no_grad():
                return {"embedding": model(images.float() / 255)}  # (B, 512)


        fastio.compute("photos.lmdb", "embeddings.h5", embed, read="image", transforms=[Resize(256), CenterCrop(224)])

    ``fastio.beside(store, out)`` then reads the new fields with the others.

    ``function`` gets batches as FastLoader makes them, in the order of the store: ``read`` names the fields (default:
    all), ``transforms`` are run by its native threads. It returns a dict of values by field: arrays or tensors
    ``(B, ...)``, or lists of B values, such as captions. Numbers ``(B,)`` become columns, rows arrays of their shape,
    strings text; ``fields`` says otherwise, as for ``fastio.Writer``. ``transforms`` and ``read`` may be attributes of
    the function. A bad sample of ``store``, one for which the function raises ``SampleError("why")``, and one that gets
    NaN or infinity, unless ``allow_nan``, stops the run or is left out and listed, as ``on_error`` says; other
    exceptions of the function pass through.

    A file appears when it is complete. A set of shards (``out-%06d.tar``) goes on after an interruption by ``resume``,
    and many machines make its parts, as in ``fastio.converters.pack``, which explains the other options. A shard does
    not depend on who makes it if the function's values depend on nothing but its batch. Shards of another function are
    refused: functions are the same by their source and by the numbers and texts that they were made with (arguments of
    ``partial``, variables of a function around them, attributes of an object). Weights, other objects and variables of
    a module are not compared. An attribute ``version`` of the function or object counts in place of what it was made
    with: set another one for other weights, or the same where attributes differ by machine, such as a device.

    Raises SchemaError for values that fit no field, SourceError for a bad sample, StoreError if ``out`` is the store
    itself, FastioError for a function that returns something else, and what opening ``store`` and writing ``out``
    raise.
    """
    opened = open_with_fields(store, remote=remote) if isinstance(store, (str, os.PathLike)) else store
    try:
        _check_apart(opened, expanded(os.fspath(out)))
        source = computed_source(
            opened,
            function,
            fields=fields,
            read=read,
            transforms=transforms,
            batch_size=batch_size,
            threads=threads,
            allow_nan=allow_nan,
        )
        return pack(
            source,
            out,
            on_error=on_error,
            shard_bytes=shard_bytes,
            overwrite=overwrite,
            resume=resume,
            part=part,
            progress=progress,
            remote=remote,
            jump=False,
        )
    finally:
        if opened is not store:
            opened.close()


def _check_apart(store: SampleStore, out: str) -> None:
    """Raise StoreError if ``out`` names files of ``store``, which ``overwrite`` would replace by what is computed."""
    folder, name = os.path.split(out)
    numbered = NumberedName.parse(name)
    name = name if numbered is None else os.path.basename(set_path(out))  # noqa: PTH119 - of a URL, too
    opened = stores_of(store) if isinstance(store, (SealedStore, BesideStore)) else ()
    objects = [each.set_object.path for each in opened if each.set_object is not None]
    for path in (*store.shard_paths, *objects):
        for place in {path, os.path.realpath(path)} if is_local(path) else {path}:
            above, file = os.path.split(place)
            is_here = above == folder or (is_local(out) and os.path.realpath(above) == os.path.realpath(folder))
            if is_here and (file == name or (numbered is not None and numbered.pattern.fullmatch(file))):
                raise StoreError(
                    f"{out}: is the store that values are computed from, which they would replace: write them as "
                    "another store, which fastio.beside reads with this one"
                )


@explains_names()
def computed_source(
    store: str | os.PathLike[str] | SampleStore,
    function: BatchFunction,
    *,
    fields: FieldsAsked = None,
    read: str | Sequence[str] | None = None,
    transforms: Sequence[Any] | None = None,
    batch_size: int = 64,
    threads: int = 0,
    allow_nan: bool = False,
) -> ComputedSource:
    """
    Return what ``compute`` packs, as a source: ``fastio.ray.pack(partial(computed_source, "photos.lmdb", embed), out)``
    has the shards made on a Ray cluster. The function is called for one batch, which tells the fields.
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size={batch_size!r}: expected a whole number from 1 on")
    if not callable(function):
        raise TypeError(f"function={function!r:.60}: expected a function of a batch, got {type(function).__name__}")
    opened = open_with_fields(store) if isinstance(store, (str, os.PathLike)) else store
    read = getattr(function, "read", None) if read is None else read
    transforms = getattr(function, "transforms", None) if transforms is None else transforms
    dataset = FastDataset(opened, fields=read)
    work = _Work(dataset, function, tuple(transforms or ()), batch_size, threads, allow_nan)
    definition = _definition(function)  # before the first batch, which may change what an object holds
    schema, sample_bytes = work.schema(Fields.of(fields))
    name = Path(opened.path.rstrip("/")).name
    record = source_record("python", name, computed_by=_name_of(function), reads=list(dataset.form.names))
    recorded = {
        "function": _name_of(function),
        "definition": definition,
        "store": f"{opened.identity & 0xFFFFFFFF:08x}",
        "reads": list(dataset.form.names),
        "transforms": [repr(transform) for transform in work.transforms],
        "batch_size": batch_size,
    }
    return ComputedSource(
        batch_size=batch_size,
        path=opened.path,
        kind="python",
        schema=schema,
        metadata={"classes": None, "source": record, _RECORDED: recorded},
        keys_at=opened.keys,
        sizes=np.full(len(opened), sample_bytes, np.int64),
        read=_Computed(work, schema).begin,
        disk_bytes=opened.size_bytes,
        files_opened=len(opened.shard_paths),
        paths=lambda: opened.shard_paths,
        is_by_name=False,
    )


@dataclass(frozen=True, slots=True)
class ComputedSource(ListedSource):
    """Samples whose values a function computes. Pieces are larger than those of other sources: each begins batches."""

    batch_size: int = 1

    def chunks(self, max_bytes: int, max_samples: int) -> Sequence[range]:
        """Return the samples in pieces of many batches; see ``Source``."""
        most = max(max_samples, _BATCHES * self.batch_size)
        return split_by_bytes(self.sizes[self.indices], _BYTES * max_bytes, most)


def _name_of(function: BatchFunction) -> str:
    while isinstance(function, partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    module = (named.__module__ or "").rpartition(".")[2]
    return f"{module}:{named.__qualname__}"


def _definition(function: BatchFunction) -> str:
    """
    Return a checksum of what the function says and of the plain values that it was made with, by which shards of
    another one are known.
    """
    text = "\n".join(_words_of(function, set()))
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def _words_of(function: Any, seen: set[int]) -> Iterator[str]:
    """
    Yield the source of a function, or of an object's class, and the values and functions that it was made with: those
    of ``partial``, defaults and the function around it, attributes of the object; or its ``version`` in their place.
    """
    if id(function) in seen:
        return
    seen.add(id(function))
    given: list[Any] = []
    if isinstance(function, partial):
        yield from _words_of(function.func, seen)
        given += [*function.args, *_flat(function.keywords)]
    elif inspect.ismethod(function):
        yield from _words_of(function.__func__, seen)
        yield from _words_of(function.__self__, seen)
    elif inspect.isfunction(function):
        yield _source_of(function, function.__code__)
        given += [*(function.__defaults__ or ()), *_flat(function.__kwdefaults__ or {})]
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # of a name that has no value yet
                given.append(cell.cell_contents)
    elif hasattr(function, "__qualname__"):  # a class, or a function that is not written in Python
        yield _source_of(function)
    else:
        yield _source_of(type(function))
        given += _flat(_attributes(function))
    version = _plain(getattr(function, "version", None))
    for value in given if version in (None, "None") else ():
        if isinstance(value, partial) or inspect.isfunction(value):
            yield from _words_of(value, seen)
        elif (text := _plain(value)) is not None:
            yield text
    yield f"version {version}"


def _source_of(named: Any, code: CodeType | None = None) -> str:
    """
    Return the source of a function or class; its code instead where several may stand on one line, or where no source
    is known; a name where there is neither.
    """
    if code is None or code.co_name != "<lambda>":
        with suppress(OSError, TypeError):
            return inspect.getsource(named)
    return f"{named.__module__}:{named.__qualname__}" if code is None else "\n".join(_words_of_code(code))


def _words_of_code(code: CodeType) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names}"
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _words_of_code(value)
        else:
            yield _plain(value) or repr(value)


def _attributes(made: Any) -> dict[str, Any]:
    """Return what an object holds, by name."""
    slots = [name for kind in type(made).__mro__ for name in _names(getattr(kind, "__slots__", ()))]
    return {**{name: getattr(made, name) for name in slots if hasattr(made, name)}, **getattr(made, "__dict__", {})}


def _names(slots: str | Iterable[str]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _flat(values: Mapping[str, Any]) -> list[Any]:
    """Return names and values, by name."""
    return [each for pair in sorted(values.items()) for each in pair]


def _plain(value: Any) -> str | None:
    """Return the text of numbers, texts, paths and collections of these, the same in each process; None of others."""
    if isinstance(value, (tuple, list, set, frozenset, dict)):
        each = [_plain(item) for item in (value.items() if isinstance(value, dict) else value)]
        texts = [text for text in each if text is not None]
        if len(texts) < len(each):
            return None
        return f"{type(value).__name__}({', '.join(texts if isinstance(value, (tuple, list)) else sorted(texts))})"
    is_plain = value is None or isinstance(value, (bool, int, float, str, bytes, np.generic, PurePath))
    return repr(value) if is_plain else None


@dataclass(frozen=True, slots=True)
class _Work:
    """The function, and the batches that it gets."""

    dataset: FastDataset
    function: BatchFunction
    transforms: tuple[Any, ...]
    batch_size: int
    threads: int
    allow_nan: bool

    def loader(self, indices: Indices, batch_size: int) -> FastLoader:
        """Return the batches of these samples, in this order; ``skipped`` has bad ones."""
        return FastLoader(
            self.dataset,
            batch_size,
            indices=indices,
            transforms=self.transforms or None,
            threads=self.threads,
            on_error="skip",
        )

    def values(self, batch: Numbered) -> dict[str, list[Any]]:
        """Return what the function makes of a batch: a value a sample, by field."""
        name, count = _name_of(self.function), len(batch.indices)
        made = self.function(batch.batch)
        if not isinstance(made, Mapping) or not made:
            got = "an empty dict" if made == {} else type(made).__name__
            raise FastioError(
                f'{name} returned {got}, expected a dict of values by field, such as {{"embedding": ...}}'
            )
        values = dict[str, list[Any]]()
        for field, each in made.items():
            try:
                values[str(field)] = _one_by_one(each)
            except UnfitError as exc:
                raise FastioError(f"{name} returned a field {field!r} that {exc}") from exc
        for field, each in values.items():
            if len(each) != count:
                raise FastioError(
                    f"{name} returned {counted(len(each), 'value')} of {field!r} for a batch of "
                    f"{counted(count, 'sample')}, expected one for each"
                )
        return values

    def computed(self, indices: Indices) -> tuple[dict[int, Mapping[str, Any]], dict[int, str]]:
        """
        Return what the function makes of these samples, by position, and what is wrong with the others.

        Batches of which it refuses a sample are computed once more, sample by sample.
        """
        places = {index: position for position, index in enumerate(indices.tolist())}
        made: dict[int, Mapping[str, Any]] = {}
        refused: list[int] = []
        with self.loader(indices, self.batch_size) as loader:
            for each in loader.numbered():
                positions = [places[index] for index in each.indices.tolist()]
                try:
                    made.update(_samples(positions, self.values(each)))
                except SampleError:
                    refused += positions
            problems = {places[error.index]: _words(error) for error in loader.skipped}
        if refused:
            with self.loader(indices[refused], 1) as loader:
                for each in loader.numbered():
                    position = places[int(each.indices[0])]
                    try:
                        made.update(_samples([position], self.values(each)))
                    except SampleError as exc:
                        problems[position] = f"is refused by {_name_of(self.function)}: {exc}"
        if len(made) + len(problems) != len(indices):
            raise AssertionError(f"{len(made)} samples and {len(problems)} problems, expected {len(indices)}")
        return made, problems

    def schema(self, asked: Fields) -> tuple[Schema, int]:
        """Return the fields of what the function returns for a first batch, and the bytes of a sample's values."""
        store, first = self.dataset.store, ""  # what is wrong with the first sample, if no batch has a good one
        samples: list[Mapping[str, Any]] = []
        for start in range(0, len(store), self.batch_size):
            computed, problems = self.computed(np.arange(start, min(start + self.batch_size, len(store))))
            samples = list(computed.values())
            if samples:
                break
            first = first or problems[0]
        if not samples:
            raise SchemaError(
                f"{store.path}: none of its samples is good, so nothing tells what the function returns; the "
                f"first {first}"
            )
        made = {name: [sample[name] for sample in samples if name in sample] for name in samples[0]}
        named = asked.named or dict.fromkeys(made)
        lacking = next((name for name in named if name not in made), None)
        if lacking is not None:
            raise SchemaError(
                f"{_name_of(self.function)} returns {', '.join(made)}, and no {lacking!r}, which fields= asks for"
            )
        schema = Schema(tuple(field or infer_field(name, made[name]) for name, field in named.items()))
        encoded = [encode_values(field, made[field.name]).spans for field in schema.payload]
        nbytes = sum(int(spans.sizes.sum()) for spans in encoded if spans is not None)
        return schema, -(-nbytes // len(samples))


def _one_by_one(values: Any) -> list[Any]:
    """
    Return the values of a batch as a list. Raises UnfitError, in words that follow the name of the field.

    Arrays and tensors are copied: a function may write its next batch into the same ones.
    """
    if isinstance(values, (list, tuple)):
        return [_copied(value) for value in values]
    expected = "an array, a tensor or a list, one value for each sample"
    whole = as_numpy(values, expected=expected) if is_tensor(values) or isinstance(values, np.ndarray) else None
    if whole is None or not whole.ndim:
        raise UnfitError(f"is {'a single number' if whole is not None else type(values).__name__}; expected {expected}")
    return list(whole.copy())


def _copied(value: Any) -> Any:
    if is_tensor(value):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else value


@dataclass(frozen=True, slots=True)
class _Computed:
    """Makes values of samples when a packer reads them; see ``ListedSource.read``."""

    work: _Work
    schema: Schema

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin nothing: batches are made, ahead of the function, while values are waited for."""
        del pool
        return lambda: self._values(indices)

    def _values(self, indices: Indices) -> Values:
        made, problems = self.work.computed(indices)
        return self._encoded(len(indices), made, problems)

    def _encoded(self, count: int, made: Mapping[int, Mapping[str, Any]], problems: dict[int, str]) -> Values:
        spans, columns, lists = dict[str, Spans](), dict[str, Any](), dict[str, ListSpans]()
        for field in self.schema.fields:
            lacking = next((sample for sample in made.values() if field.name not in sample), None)
            if lacking is not None:
                raise FastioError(
                    f"{_name_of(self.work.function)} returned {', '.join(lacking)} for a batch, and no {field.name!r}, "
                    "which it returned for the first one"
                )
            blank = next((sample[field.name] for sample in made.values()), None)
            if blank is None:
                blank = _blank(field.dtype, field.shape)
            encoded = encode_values(field, [made[at][field.name] if at in made else blank for at in range(count)])
            for position, words in encoded.problems.items():
                problems.setdefault(position, words)
            if not self.work.allow_nan and (field.dtype == BFLOAT16 or np.dtype(field.dtype).kind in "fc"):
                for position in made.keys() - problems.keys():
                    number = _not_finite(made[position][field.name])
                    if number is not None:
                        problems[position] = self._refusal(field.name, number)
            if encoded.spans is not None and encoded.counts is not None:
                lists[field.name] = ListSpans(encoded.spans, encoded.counts)
            elif encoded.spans is not None:
                spans[field.name] = encoded.spans
            elif encoded.column is not None:
                columns[field.name] = encoded.column
        return Values(spans, problems, columns, lists=lists)

    def _refusal(self, field: str, number: Any) -> str:
        return (
            f"has {number} in the field {field!r}, which {_name_of(self.work.function)} returned: expected finite "
            "numbers; allow_nan=True (--allow-nan) keeps others"
        )


def _not_finite(value: Any) -> Any:
    """Return a number of an array, or of the arrays in a list, that is NaN or infinite; None if there is none."""
    if value is None:
        return None
    try:
        numbers = widened(as_numpy(value, expected="numbers"))
    except UnfitError:  # arrays of several shapes
        return next((number for number in map(_not_finite, value) if number is not None), None)
    bad = numbers[~np.isfinite(numbers)]
    return bad[0] if bad.size else None


def _blank(dtype: str, shape: Sequence[int | None]) -> Any:
    """Return a value in the place of bad ones, where there is no good one; nobody sees it."""
    zeros = np.zeros([size or 0 for size in shape], dtype)
    return zeros if shape else zeros[()]


def _words(error: SampleError) -> str:
    """Return what is wrong with a sample, without its path and key."""
    return str(error).partition("): ")[2] or str(error)


def _samples(positions: Sequence[int], values: Mapping[str, list[Any]]) -> dict[int, Mapping[str, Any]]:
    rows = zip(*values.values(), strict=True)
    return {at: dict(zip(values, row, strict=True)) for at, row in zip(positions, rows, strict=True)}
