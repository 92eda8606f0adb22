"""Samples of shards as a source: which columns become which fields, and how their values are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.fields.arrays import common_shape
from fastio.converters.fields.types import FieldChoice, field_rank, name_from_column, refuse_equal_names
from fastio.converters.fields.values import EncodedField, document_problems, encode_values, is_document
from fastio.converters.labels.columns import ALL_OTHERS, LABEL_TITLES
from fastio.converters.labels.file import learn_classes
from fastio.converters.labels.values import TableLabels
from fastio.converters.sources.column_kinds.kind import begins_picture, field_of_bytes
from fastio.converters.sources.columns import SourceColumns
from fastio.converters.sources.listed import Indices, ListedSource, Values, names_at
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.sample_shards import ArrayHead, Encoding, LocatedValues, SampleShards, beside_index
from fastio.converters.sources.tables.names import RowKeys, passing, unique_keys
from fastio.converters.sources.tables.titles import nearest
from fastio.errors import SchemaError, SourceError
from fastio.store.kinds.scan import Problem, SourcePath
from fastio.types.bfloat16 import dtype_name
from fastio.types.field_types import FIELD_TYPES, field_of
from fastio.types.picture_kinds import JPEG_SIGNATURE, PNG_SIGNATURE
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans

__all__ = ["shard_source"]

_SEEN_SAMPLES: Final = 64  # that tell what bytes and arrays of any shape are
_HEAD_BYTES: Final = 4096  # of a value that may be a picture, or several


def shard_source(
    kind: str, place: SourcePath, folder: str, shards: SampleShards, options: SourceOptions, suffix: str
) -> ListedSource:
    """
    Return the samples of the shards that the ``index.json`` in a folder lists as a source; ``suffix`` is theirs.

    Keys are the shard's name and the sample's position (``shard.00000/0012``), or the values of ``--key-column``.
    Without ``--field``, all columns are fields: the first 64 samples tell whether bytes are pictures, and of which
    shape arrays are. A sample that has another array later is a problem.
    """
    path, columns = place.path, options.columns
    if not len(shards):
        raise SourceError(f"{path}: nothing to pack, its shards hold no sample")
    seen = {each.name: _Seen.of(shards, number) for number, each in enumerate(shards.columns)}
    fields = _choose(path, seen, options)
    every = np.arange(len(shards))

    def values_of(name: str) -> Iterator[Any]:
        return shards.values(_column(path, seen, name, f"--key-column or --filter {name}").number, every)

    row_keys = RowKeys.of([each.name for each in shards.shards], shards.counts, (suffix,))
    order, left_out = passing(row_keys, columns.row_filter, values_of, where=path)
    problems = list[Problem]()
    keys_at: Callable[[Indices], list[str]] = row_keys.at
    if columns.key_column is not None:
        keys, problems = unique_keys(row_keys, columns.key_column, order, values_of)
        keys_at, order = names_at(keys), order[np.array([bool(keys[i]) for i in order.tolist()], bool)]
    rule = _label_rule(path, shards, fields, many_classes=columns.many_classes)
    used = {each.seen.name for each in fields} | {columns.key_column or "", *columns.row_filter.columns}
    settled = {each.seen.name for each in fields if each.field.traits.is_picture or each.is_typed}
    unpacked = SourceColumns(path, [*seen], lambda name: seen[name].first_values, columns.ignore_columns).left_out(
        used & seen.keys(), set(seen) if options.as_recorded else settled
    )
    record = source_record(
        kind, place.name, labels=None, fields=[str(each.choice) for each in fields], left_out=unpacked
    )
    record["label_options"] = columns.to_json()
    unlisted, beside = beside_index(folder, [each.name for each in shards.shards], suffix)
    every_file = [*(each.file.path for each in shards.shards), f"{folder}/index.json"]
    return ListedSource(
        path=path,
        kind=kind,
        schema=Schema(tuple(each.field for each in fields)),
        metadata={"classes": None if rule is None else rule.classes, "source": record},
        keys_at=keys_at,
        sizes=shards.sizes,
        read=_ShardReader(shards, fields, rule).begin,
        disk_bytes=sum(Path(each).stat().st_blocks * 512 for each in every_file),
        files_opened=len(every_file),
        problems=[*problems, *unlisted],
        left_out=[*left_out, *beside],
        order=order,
        is_by_name=False,
        paths=lambda: every_file,
    )


# Which columns become which fields: those asked for, or all.


@dataclass(frozen=True, slots=True)
class _Seen:
    """A column by its first samples: ``heads`` are the first bytes of values, ``arrays`` what those are."""

    name: str
    number: int
    encoding: Encoding
    heads: Sequence[bytes]
    arrays: Sequence[ArrayHead]

    @classmethod
    def of(cls, shards: SampleShards, number: int) -> _Seen:
        column = shards.columns[number]
        located = shards.locate(np.arange(min(len(shards), _SEEN_SAMPLES)))
        views = [view for i, view in enumerate(shards.spans(located, number).views()) if i not in located.problems]
        arrays = list[ArrayHead]()
        for view in views if column.encoding.form == "array" and not column.encoding.refusal else ():
            try:
                arrays.append(column.encoding.head_of(view.data))
            except ValueError:  # a problem of its sample
                continue
        return cls(column.name, number, column.encoding, [view[:_HEAD_BYTES].tobytes() for view in views], arrays)

    @property
    def first_values(self) -> list[Any]:
        """What ``SourceColumns`` looks at for pictures: bytes, and lists of several in one value."""
        if self.encoding.refusal:
            starts = [max(head.find(mark) for mark in (JPEG_SIGNATURE, PNG_SIGNATURE)) for head in self.heads]
            return [[head[start:]] for head, start in zip(self.heads, starts, strict=True) if start >= 0]
        return list(self.heads) if self.encoding.form == "bytes" else []

    def __str__(self) -> str:
        return f"{self.name!r} ({self.encoding.words})"


@dataclass(frozen=True, slots=True)
class _ShardField:
    """
    A field of the samples and the column that it is read from.

    ``is_label``: whole numbers, or names of classes. ``is_typed``: the user named the type.
    """

    field: Field
    seen: _Seen
    is_label: bool = False
    is_typed: bool = False

    @property
    def choice(self) -> FieldChoice:
        """What the user could have typed for it."""
        return FieldChoice(self.field.name, self.seen.name, self.field)

    @property
    def is_direct(self) -> bool:
        """Whether values are the field's bytes as they lie in the shard."""
        traits, encoding = self.field.traits, self.seen.encoding
        if self.field.is_column:
            return False
        if encoding.form == "bytes":
            return True
        if encoding.form == "array":
            is_plain = traits.is_array or traits.is_ragged
            return is_plain and all(each.dtype == self.field.dtype for each in self.seen.arrays)
        return (encoding.form == "text" and traits.is_text) or (encoding.form in ("json", "text") and traits.is_json)


def _choose(place: str, seen: Mapping[str, _Seen], options: SourceOptions) -> list[_ShardField]:
    """
    Return the fields of the samples, pictures first and the label last.

    Raises SourceError, with what to type, for columns that are not there or fit no field.
    """
    columns = options.columns
    if not columns.header:
        raise SourceError(f"{place}: its columns have names: drop --no-header")
    chosen = [_asked(place, _column(place, seen, each.where, f"--field {each}"), each) for each in options.fields]
    is_all = ALL_OTHERS not in columns.ignore_columns and not options.fields
    ignored = {*columns.ignore_columns, *(each.where for each in options.fields)}
    label = _label_name(place, seen, options, ignored)
    if label is not None:
        chosen.append(_label(place, seen[label]))
    if is_all:
        used = ignored | {columns.key_column, *(name for name, _ in columns.row_filter.pairs), label}
        chosen += _by_rule(place, [each for name, each in seen.items() if name not in used])
    if not chosen:
        raise SourceError(f"{place}: no column is left to pack, of {', '.join(map(str, seen.values()))}")
    refuse_equal_names(place, "column", ((each.field.name, each.seen.name) for each in chosen))
    return sorted(chosen, key=lambda each: field_rank(each.field))


def _column(place: str, seen: Mapping[str, _Seen], name: str, words: str) -> _Seen:
    if name not in seen:
        listed = ", ".join(map(str, seen.values()))
        raise SourceError(f"{place}: {words}: there is no such column among {listed:.500}{nearest(name, seen)}")
    return seen[name]


def _label_name(place: str, seen: Mapping[str, _Seen], options: SourceOptions, ignored: set[str]) -> str | None:
    named = options.columns.label_columns
    if len(named) > 1:
        raise SourceError(
            f"{place}: --label-column {','.join(named)}: a sample has one label; keep the others as fields: --field "
            f"NAME={named[1]}"
        )
    if any(choice.name == "label" for choice in options.fields):
        return None
    if named:
        return _column(place, seen, named[0], f"--label-column {named[0]}").name
    if ALL_OTHERS in options.columns.ignore_columns:
        return None
    titled = [name for name in LABEL_TITLES if name in seen and name not in ignored and _label_words(seen[name])]
    return next(iter(titled), None) or _second(seen, ignored)


def _second(seen: Mapping[str, _Seen], ignored: set[str]) -> str | None:
    """The whole number in samples that are pairs of a picture and a number, as torchvision's are."""
    if [*seen] != ["0", "1"] or not ignored.isdisjoint(seen):
        return None
    picture, number = seen.values()
    is_number = number.encoding.form == "number" and _label_words(number) == "label"
    return (
        "1" if is_number and not picture.encoding.refusal and _field("", "image", picture).traits.is_picture else None
    )


def _label_words(seen: _Seen) -> str:
    """The type of a label with such values; "" if these are no labels."""
    if seen.encoding.form == "number":
        return "label" if np.dtype(seen.encoding.dtype).kind in "iub" else "float"
    return {"text": "label", "integer text": "label", "float text": "float"}.get(seen.encoding.form, "")


def _label(place: str, seen: _Seen) -> _ShardField:
    words = _label_words(seen)
    if not words:
        raise SourceError(
            f"{place}: column {seen}: expected one number or name a sample as label: keep it under another name: "
            f"--field NAME={seen.name}"
        )
    return _ShardField(Field("label", *FIELD_TYPES[words]), seen, is_label=words == "label")


def _asked(place: str, seen: _Seen, choice: FieldChoice) -> _ShardField:
    if choice.field is not None:
        _refuse(place, seen)
        is_label = choice.field == Field("label", *FIELD_TYPES["label"])
        return _ShardField(choice.field, seen, is_label=is_label, is_typed=True)
    return _label(place, seen) if choice.name == "label" else _ShardField(_field(place, choice.name, seen), seen)


def _by_rule(place: str, columns: Sequence[_Seen]) -> list[_ShardField]:
    """All these columns under their own names, except that the only picture that is no mask is called image."""
    names = [name_from_column(place, "column", _word(each.name)) for each in columns]
    fields = [_field(place, name, each) for name, each in zip(names, columns, strict=True)]
    pictures = [i for i, each in enumerate(fields) if each.traits.is_picture and not each.traits.is_mask]
    if len(pictures) == 1 and "image" not in names:
        fields[pictures[0]] = replace(fields[pictures[0]], name="image")
    return [_ShardField(field, seen) for field, seen in zip(fields, columns, strict=True)]


def _word(name: str) -> str:
    """The name of a column, with a word before one that only counts."""
    return f"value_{name}" if name[:1].isdigit() else name


def _refuse(place: str, seen: _Seen) -> None:
    if seen.encoding.refusal:
        raise SourceError(
            f"{place}: column {seen.name!r} has the encoding {seen.encoding.words}, which {seen.encoding.refusal}; "
            f"--without {seen.name} leaves it out"
        )


def _field(place: str, name: str, seen: _Seen) -> Field:
    """The field of a column by its encoding and first values."""
    _refuse(place, seen)
    encoding = seen.encoding
    if encoding.form == "bytes":
        return field_of_bytes(name, next(filter(begins_picture, seen.heads), b""))
    words = {"text": "text", "json": "json", "pixels": "image", "integer text": "int", "float text": "float"}
    if encoding.form in words:
        return field_of(name, words[encoding.form])
    if encoding.form == "number":
        return field_of(name, (encoding.dtype, ()))
    kinds = {(each.dtype, len(each.shape)) for each in seen.arrays}
    if len(kinds) != 1:
        listed = ", ".join(f"{each.dtype} {each.shape}" for each in seen.arrays[:3]) or "none that can be read"
        raise SourceError(
            f"{place}: column {seen}: expected arrays of one dtype and number of axes, got {listed}; "
            f"--without {seen.name} leaves it out"
        )
    dtype, _ = kinds.pop()
    try:
        return field_of(name, (dtype, common_shape({each.shape for each in seen.arrays})))
    except SchemaError as exc:
        raise SourceError(f"{place}: column {seen}: {exc}; --without {seen.name} leaves it out") from exc


def _label_rule(
    path: str, shards: SampleShards, fields: Sequence[_ShardField], *, many_classes: bool
) -> TableLabels | None:
    """How labels become numbers; where they are names, those of all samples are read."""
    label = next((each for each in fields if each.is_label), None)
    if label is None:
        return None
    rule = TableLabels(is_typed=True)
    if label.seen.encoding.form != "text":
        return rule
    values = shards.values(label.seen.number, np.arange(len(shards)))
    labels = ((f"sample {i}", value) for i, value in enumerate(values))
    learn_classes(rule, labels, len(shards), where=path, column=label.seen.name, many_classes=many_classes)
    return rule


# Reading samples.


@dataclass(frozen=True, slots=True)
class _ShardReader:
    """Finds values in their shards, and encodes those that are not what a store keeps."""

    shards: SampleShards
    fields: Sequence[_ShardField]
    rule: TableLabels | None
    _positions: dict[str, int] = field(default_factory=dict)

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read samples; see ``ListedSource.read``."""
        located = self.shards.locate(indices)
        jobs = [
            self.shards.files.read_ahead(self.shards.spans(located, each.seen.number), pool=pool)
            for each in self.fields
            if each.is_direct
        ]

        def finish() -> Values:
            for job in jobs:
                job.wait()
            return self._values(located, is_read=True)

        return finish

    def places(self, indices: Indices, *, check: bool) -> Values:
        """Say where values lie in their shards; see ``Placer``. With ``check``, hashes of shards are compared."""
        values = self._values(self.shards.locate(indices), is_read=check)
        direct = [each.field.name for each in self.fields if each.is_direct]
        pixels = [each.field.name for each in self.fields if each.seen.encoding.form == "pixels"]
        return replace(
            values,
            files=dict.fromkeys(direct, self.shards.paths),
            unfit=dict.fromkeys(pixels, "are pixels without compression, of which packing makes PNGs"),
        )

    def _values(self, located: LocatedValues, *, is_read: bool) -> Values:
        """Return the values; unless ``is_read``, bytes of those that stay where they lie are not looked at."""
        problems = dict(located.problems)
        if is_read:
            damage = self.shards.damaged(located.shard)
            problems |= {i: damage[n] for i, n in enumerate(located.shard.tolist()) if n in damage}
        spans, columns = dict[str, Spans](), dict[str, NDArray[Any]]()
        for each in self.fields:
            encoded = self._encoded(each, located, problems, is_read=is_read)
            for i, sentence in encoded.problems.items():
                problems.setdefault(i, sentence)
            if encoded.spans is not None:
                spans[each.field.name] = encoded.spans
            if encoded.column is not None:
                columns[each.field.name] = encoded.column
        return Values(spans, problems, columns)

    def _encoded(
        self, chosen: _ShardField, located: LocatedValues, problems: Mapping[int, str], *, is_read: bool
    ) -> EncodedField:
        spans = self.shards.spans(located, chosen.seen.number)
        if chosen.is_direct:
            return self._direct(chosen, spans, problems, is_read=is_read)
        good, values, unfit = list[int](), list[Any](), dict[int, str]()
        for i, view in enumerate(spans.views()):
            if i in problems:
                continue
            try:
                value = chosen.seen.encoding.value(view.data)
            except ValueError as exc:
                unfit[i] = f"{exc} (column {chosen.seen.name!r})"
                continue
            if chosen.is_label:
                assert self.rule is not None
                value = self.rule.number(value, self._numbers())
            if chosen.is_label and isinstance(value, str):
                unfit[i] = f"{value} (column {chosen.seen.name!r})"
                continue
            good.append(i)
            values.append(value)
        return encode_values(chosen.field, values).among(len(spans), good, unfit)

    def _numbers(self) -> dict[str, int]:
        """The number of each class."""
        if not self._positions and self.rule is not None:
            self._positions.update(self.rule.positions())
        return self._positions

    def _direct(self, chosen: _ShardField, spans: Spans, problems: Mapping[int, str], *, is_read: bool) -> EncodedField:
        """Values where they lie, without the head of an array; those that the field does not take are problems."""
        field, encoding, unfit = chosen.field, chosen.seen.encoding, dict[int, str]()
        if encoding.form == "array" and encoding.head is not None:
            skips = np.zeros(len(spans), np.int64)
            for i, view in enumerate(spans.views()):
                try:
                    skips[i] = 0 if i in problems else _fitting(field, encoding.head_of(view.data))
                except ValueError as exc:
                    unfit[i] = f"{exc} (column {chosen.seen.name!r})"
            spans = replace(spans, starts=spans.starts + skips, sizes=spans.sizes - skips)
        for i in np.flatnonzero(~field.fits(spans.sizes)).tolist():
            unfit.setdefault(
                i, f"has {int(spans.sizes[i]):,} bytes, which are no {field} (column {chosen.seen.name!r})"
            )
        if is_read and is_document(field):
            unfit |= {
                i: f"has a field {field.name!r} that {words}" for i, words in document_problems(spans, field).items()
            }
        return EncodedField(spans=spans, problems=unfit)


def _fitting(field: Field, head: ArrayHead) -> int:
    """The bytes before an array. Raises ValueError if the field does not take it."""
    fits = len(field.shape) == len(head.shape) and all(
        n in (None, m) for n, m in zip(field.shape, head.shape, strict=True)
    )
    if not fits or head.dtype != field.dtype:
        kept = f"{dtype_name(field.dtype)}[*{''.join(f',{n}' for n in head.shape[1:])}]"
        raise ValueError(
            f"has an array of {head.dtype} {head.shape}, the first samples {field.dtype} {field.shape}: if arrays "
            f"differ in their first size, name the type, as {kept}"
        )
    return head.nbytes
