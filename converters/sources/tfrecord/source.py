"""TFRecord files as a source of samples: every record is one, the features of its Example are the fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import image_kind
from fastio.converters.fields.types import FieldChoice, field_rank, name_from_column, refuse_equal_names
from fastio.converters.fields.values import EncodedField, document_problems, encode_values
from fastio.converters.labels.columns import ALL_OTHERS
from fastio.converters.labels.file import learn_classes
from fastio.converters.labels.values import TableLabels
from fastio.converters.sources.columns import SourceColumns
from fastio.converters.sources.file_set import FileSet
from fastio.converters.sources.listed import Indices, ListedSource, Values, names_at
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.tables.names import RowKeys, passing, unique_keys
from fastio.converters.sources.tables.titles import nearest
from fastio.converters.sources.tfrecord.records import (
    BYTES_LIST,
    FLOAT_LIST,
    FOOT_BYTES,
    KINDS,
    Example,
    Feature,
    NotAnExampleError,
    RecordFile,
    masked,
    parse_examples,
    scan_records,
)
from fastio.errors import SourceError
from fastio.store.kinds.names import RECORD_SUFFIXES, is_record_name
from fastio.store.kinds.scan import Problem, SourcePath
from fastio.types.field_types import FIELD_TYPES
from fastio.types.picture_kinds import UNKNOWN
from fastio.types.schema import COLUMN, RAGGED, Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "open_tfrecord",
]


_KIND = "tfrecord"  # of sources
_SEEN_EXAMPLES = 64  # that tell which features there are


def open_tfrecord(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open the records of a TFRecord file, of those that a pattern matches, or of those in a folder.

    Keys are the file's name and the record's position (``train-00000-of-00010/0012``), or the values of
    ``--key-column``. A record that differs from its checksum, is no Example, or lacks a feature is a problem. Without
    ``--field``, the first 64 examples tell the features; another one in a later example is a problem of that record.
    """
    files = FileSet.of(place, is_record_name, "a TFRecord file", ", ".join((*RECORD_SUFFIXES, "-00000-of-00010")))
    records = _Records([scan_records(files.place(name)) for name in files.names])
    seen = records.seen(place.path)
    columns = choose_features(place.path, seen, options)
    key, row_filter = options.columns.key_column, options.columns.row_filter
    for name in row_filter.columns:
        feature_named(place.path, seen, name, f"--filter {row_filter}")
    row_keys = RowKeys.of(files.names, records.file_rows, RECORD_SUFFIXES)
    order, left_out = passing(row_keys, row_filter, records.values_of, where=place.path)
    problems = list[Problem]()
    keys_at: Callable[[Indices], list[str]] = row_keys.at
    if key is not None:
        feature_named(place.path, seen, key, f"--key-column {key}")
        keys, problems = unique_keys(row_keys, key, order, records.values_of)
        keys_at, order = names_at(keys), order[np.array([bool(keys[i]) for i in order.tolist()], bool)]
    rule = _label_rule(place.path, records, columns, many_classes=options.columns.many_classes)
    known = None if options.fields else frozenset(seen)
    unpacked = features_left_out(place.path, seen, columns, options)
    fields = [str(each.choice) for each in columns]
    record = source_record(_KIND, place.name, labels=None, fields=fields, left_out=unpacked)
    record["label_options"] = options.columns.to_json()
    return ListedSource(
        path=place.path,
        kind=_KIND,
        schema=Schema(tuple(each.field for each in columns)),
        metadata={"classes": None if rule is None else rule.classes, "source": record},
        keys_at=keys_at,
        sizes=records.sizes,
        read=_RecordReader(records, columns, rule, known).begin,
        disk_bytes=files.disk_bytes,
        files_opened=len(files.names),
        problems=[*files.problems, *problems],
        left_out=[*files.left_out, *left_out],
        order=order,
        is_by_name=False,
        paths=lambda: map(files.place, files.names),
    )


class _Records:
    """The records of several files, counted over all of them."""

    def __init__(self, files: Sequence[RecordFile]) -> None:
        self.file_rows = np.array([len(file.starts) for file in files], np.int64)
        self.sizes: NDArray[np.int64] = np.concatenate([np.zeros(0, np.int64), *(file.sizes for file in files)])
        self._starts = np.concatenate([np.zeros(0, np.int64), *(file.starts for file in files)])
        self._shard = np.repeat(np.arange(len(files), dtype=np.int32), self.file_rows)
        self._buffers = _native.Buffers([file.data for file in files])
        self._views = [file.data.data for file in files]
        self.paths = [file.place for file in files]

    def spans(self, rows: Indices) -> Spans:
        """Return where the records' bytes lie."""
        return Spans(self._buffers, self._shard[rows], self._starts[rows], self.sizes[rows])

    def begin_check(self, spans: Spans, pool: _native.ThreadPool | None) -> Callable[[], dict[int, str]]:
        """Begin to compare records with their checksums; the function waits, and says which differ, by position."""
        expected = np.zeros(len(spans), np.uint32)
        job = _native.checksum_crc32c(spans, expected, pool)

        def finish() -> dict[int, str]:
            job.wait()
            wrong = np.flatnonzero(masked(expected) != self._checksums(spans)).tolist()
            return dict.fromkeys(wrong, "differs from its checksum: the file is damaged")

        return finish

    def _checksums(self, spans: Spans) -> NDArray[np.uint32]:
        """The masked checksums that follow the records."""
        feet = np.full(len(spans), FOOT_BYTES)
        behind = Spans(spans.buffers, spans.shard, spans.starts + spans.sizes, feet)
        return np.array([view.view("<u4")[0] for view in map(np.array, behind.views())], np.uint32)

    def examples(self, rows: Indices) -> Iterator[Example | NotAnExampleError]:
        """Yield the features of each of these records, or why it is no Example."""
        return parse_examples(self.spans(rows), self._views)

    def values_of(self, name: str) -> Iterator[object]:
        """Yield a feature's value in each record, None where it has none."""
        for example in self.examples(np.arange(len(self.sizes))):
            try:
                yield None if isinstance(example, NotAnExampleError) else feature_value(example.get(name))
            except NotAnExampleError:
                yield None

    def seen(self, path: str) -> dict[str, SeenFeature]:
        """Return the features of the first examples. Raises SourceError if none of these records is an Example."""
        seen: dict[str, SeenFeature] = {}
        reason, good = "", 0
        for example in self.examples(np.arange(min(len(self.sizes), _SEEN_EXAMPLES))):
            try:
                if isinstance(example, NotAnExampleError):
                    raise example
                for name, feature in example.items():
                    seen.setdefault(name, SeenFeature(name)).see(feature)
                good += 1
            except NotAnExampleError as exc:
                reason = reason or str(exc)
        if len(self.sizes) and not good:
            raise SourceError(f"{path}: the first record {reason}")
        if not len(self.sizes):
            raise SourceError(f"{path}: nothing to pack, there is no record in it")
        return seen


@dataclass(frozen=True, slots=True)
class _RecordReader:
    """Checks records, and encodes their features."""

    records: _Records
    columns: Sequence[FeatureField]
    rule: TableLabels | None
    known: frozenset[str] | None  # features that there may be; None: any

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to check records on native threads; see ``ListedSource.read``."""
        spans = self.records.spans(indices)
        damaged = self.records.begin_check(spans, pool)
        return lambda: self._values(indices, spans, damaged())

    def places(self, indices: Indices, *, check: bool) -> Values:
        """Say where values of bytes lie in the records; see ``Placer``."""
        spans = self.records.spans(indices)
        values = self._values(indices, spans, self.records.begin_check(spans, None)() if check else {})
        in_records = (each.field.name for each in self.columns if lies_in_record(each.field))
        return replace(values, files=dict.fromkeys(in_records, self.records.paths))

    def _values(self, indices: Indices, spans: Spans, problems: dict[int, str]) -> Values:
        examples = list[Example]()
        for i, example in enumerate(self.records.examples(indices)):
            if isinstance(example, NotAnExampleError):
                problems.setdefault(i, str(example))
            elif words := self._unknown(example):
                problems.setdefault(i, words)
            examples.append({} if i in problems or isinstance(example, NotAnExampleError) else example)
        encoded = {each.field.name: self._encoded(each, examples, spans) for each in self.columns}
        for values in encoded.values():
            for i, sentence in values.problems.items():
                problems.setdefault(i, sentence)
        return Values(
            {name: field.spans for name, field in encoded.items() if field.spans is not None},
            problems,
            {name: field.column for name, field in encoded.items() if field.column is not None},
        )

    def _unknown(self, example: Example) -> str:
        """What to say of a feature that there may not be; "" without any."""
        unknown = set() if self.known is None else example.keys() - self.known
        if not unknown:
            return ""
        return (
            f"has the feature {min(unknown)!r}, which the first {_SEEN_EXAMPLES} examples lack: name the fields to "
            "pack with --field"
        )

    def _encoded(self, column: FeatureField, examples: Sequence[Example], spans: Spans) -> EncodedField:
        if not column.is_label or self.rule is None:
            return encode_features(column, examples, spans)
        labels, problems = np.zeros(len(examples), np.int64), dict[int, str]()
        positions = self.rule.positions()
        for i, example in enumerate(examples):
            try:
                number = self.rule.number(feature_value(example.get(column.feature)), positions)
            except NotAnExampleError as exc:
                number = str(exc)
            if isinstance(number, str):
                problems[i] = f"{number} (feature {column.feature!r})"
            else:
                labels[i] = number
        return EncodedField(column=labels, problems=problems)


def _label_rule(
    path: str, records: _Records, columns: Sequence[FeatureField], *, many_classes: bool
) -> TableLabels | None:
    """How labels become numbers; where they are names, all records are read."""
    label = next((each for each in columns if each.is_label), None)
    if label is None:
        return None
    rule = TableLabels(is_typed=True)
    first = next((value for value in records.values_of(label.feature) if value is not None), None)
    if not isinstance(first, str):
        return rule
    labels = ((f"record {i}", value) for i, value in enumerate(records.values_of(label.feature)))
    learn_classes(rule, labels, len(records.sizes), where=path, column=label.feature, many_classes=many_classes)
    return rule


# Features of examples as the bytes, or the column, that a store keeps of a field.


def lies_in_record(field: Field) -> bool:
    """Return whether the values of a field are those of a feature as they lie in their records."""
    traits = field.traits
    return not field.is_column and (traits.is_text or not (traits.is_plain or traits.is_npy or traits.is_json))


def encode_features(chosen: FeatureField, examples: Sequence[Example], spans: Spans) -> EncodedField:
    """
    Encode one feature of each example; ``spans`` are those of the records, which the values of bytes lie in.

    A feature that is not there is an empty ragged array or list, as for TensorFlow, and a problem in any other field.
    """
    field, name = chosen.field, chosen.feature
    if lies_in_record(field):
        return _in_records(field, name, examples, spans)
    problems = dict[int, str]()
    values = list[Any]()
    good = list[int]()
    for i, example in enumerate(examples):
        try:
            values.append(_value(chosen, example.get(name)))
            good.append(i)
        except NotAnExampleError as exc:
            problems[i] = f"{exc} (feature {name!r})"
    return encode_values(field, values).among(len(examples), good, problems)


def feature_value(feature: Feature | None) -> Any:
    """Return a feature as a Python value: one number or text, or a list of several; None if it is not there."""
    if feature is None:
        return None
    if feature.kind == BYTES_LIST:
        values: list[Any] = [value.decode("utf-8", "surrogateescape") for value in feature.bytes_values()]
    else:
        values = feature.numbers().tolist()
    return values[0] if len(values) == 1 else values


def _in_records(field: Field, name: str, examples: Sequence[Example], spans: Spans) -> EncodedField:
    """Values of bytes where they lie in their files; texts are checked for being UTF-8."""
    starts, sizes = np.zeros(len(examples), np.int64), np.zeros(len(examples), np.int64)
    problems = dict[int, str]()
    for i, example in enumerate(examples):
        feature = example.get(name)
        if feature is None:
            problems[i] = f"has no feature {name!r}"
        elif feature.kind != BYTES_LIST:
            problems[i] = f"has {KINDS[feature.kind]} in the feature {name!r}, expected bytes"
        elif len(feature.parts) != 1:
            problems[i] = f"has {len(feature.parts)} values in the feature {name!r}, expected one"
        else:
            starts[i], sizes[i] = feature.parts[0][0], feature.parts[0][1] - feature.parts[0][0]
    found = Spans(spans.buffers, spans.shard, starts, sizes)
    if field.traits.is_text:
        problems |= {i: f"{words} (feature {name!r})" for i, words in document_problems(found, field).items()}
    return EncodedField(spans=found, problems=problems)


def _value(chosen: FeatureField, feature: Feature | None) -> Any:
    """What ``encode_values`` takes. Raises NotAnExampleError, in words that follow the key, for what is missing."""
    field = chosen.field
    if feature is None:
        if field.traits.is_json and chosen.is_list:
            return []
        if field.traits.is_ragged or field.traits.is_tokens:
            return np.zeros((0, *field.shape[1:]), field.dtype)
        raise NotAnExampleError("has no such feature")
    if field.traits.is_json:
        return _list_of(feature) if chosen.is_list else _document(feature)
    if field.traits.is_text:
        values = _only_bytes(feature)
        return values[0] if len(values) == 1 else values
    if feature.kind == BYTES_LIST:
        return _packed_array(field, _only_bytes(feature))
    return _shaped(field, feature.numbers())


def _list_of(feature: Feature) -> list[Any]:
    value = feature_value(feature)
    return value if isinstance(value, list) else [value]


def _document(feature: Feature) -> bytes:
    values = _only_bytes(feature)
    if len(values) != 1:
        raise NotAnExampleError(f"has {len(values)} values, expected one JSON document")
    return values[0]


def _only_bytes(feature: Feature) -> list[bytes]:
    if feature.kind != BYTES_LIST:
        raise NotAnExampleError(f"has {KINDS[feature.kind]} where bytes are expected")
    return feature.bytes_values()


def _packed_array(field: Field, values: Sequence[bytes]) -> Any:
    """An array whose elements are kept as bytes, as ``tf.io.decode_raw`` takes them."""
    dtype = np.dtype(field.dtype)
    if len(values) != 1 or len(values[0]) % dtype.itemsize:
        sizes = ", ".join(str(len(value)) for value in values[:3])
        raise NotAnExampleError(f"has {len(values)} values of {sizes} bytes, expected one array of {dtype.name}")
    return _shaped(field, np.frombuffer(values[0], dtype))


def _shaped(field: Field, flat: Any) -> Any:
    """Numbers, which a feature has in one row, in the shape of the field."""
    shape = [-1 if size is None else size for size in field.shape]
    if not shape:
        return flat[0] if len(flat) == 1 else flat
    if field.traits.is_npy:
        raise NotAnExampleError(f"has {len(flat)} numbers in one row, which do not tell the shape of {field}")
    known = int(np.prod([size for size in shape if size >= 0]))
    fits = len(flat) % max(known, 1) == 0 if -1 in shape else len(flat) == known
    return flat.reshape(shape) if fits else flat


# Which features become which fields: those asked for, or all, by their first values.

_LABELS = ("label", "image/class/label", "image/label", "class")
_MASKS = re.compile(r"(?:.*[/_])?(?:masks?|segmentation(?:/class/encoded)?|annotation)\Z")


@dataclass(slots=True)
class SeenFeature:
    """What the first examples say of a feature: its kinds, how many values there are, the first values of bytes."""

    name: str
    kinds: set[int] = field(default_factory=set)
    counts: set[int] = field(default_factory=set)
    values: list[bytes] = field(default_factory=list)

    def see(self, feature: Feature) -> None:
        """Take one more example into account."""
        self.kinds.add(feature.kind)
        self.counts.add(len(feature.parts) if feature.kind == BYTES_LIST else len(feature.numbers()))
        if feature.kind == BYTES_LIST:
            self.values += feature.bytes_values()

    def __str__(self) -> str:
        """Return the feature and its type, in words."""
        kinds = " or ".join(KINDS[kind] for kind in sorted(self.kinds))
        counts = str(*self.counts) if len(self.counts) == 1 else f"{min(self.counts)} to {max(self.counts)}"
        return f"{self.name!r} ({counts} {kinds})"


@dataclass(frozen=True, slots=True)
class FeatureField:
    """
    A field of the samples and the feature that it is read from.

    ``is_label``: whole numbers, or names of classes. ``is_list``: JSON is the list of the values, and not a document
    that the only value holds.
    """

    field: Field
    feature: str
    is_label: bool = False
    is_list: bool = False

    @property
    def choice(self) -> FieldChoice:
        """What the user could have typed for it."""
        return FieldChoice(self.field.name, self.feature, self.field)


def choose_features(place: str, seen: Mapping[str, SeenFeature], options: SourceOptions) -> list[FeatureField]:
    """
    Return the fields of the samples, pictures first and the label last.

    With ``--field`` these are the fields asked for, otherwise all features that are not ignored and not the key or a
    COLUMN=VALUE. The label is the feature of ``--label-column``, else one called label or image/class/label. Raises
    SourceError, with what to type, for features that are not there or fit no field.
    """
    columns = options.columns
    if not columns.header:
        raise SourceError(f"{place}: its features have names: drop --no-header")
    ignored = set(columns.ignore_columns)  # ``features_left_out`` refuses those that do not exist
    chosen = [_asked(place, seen, choice) for choice in options.fields]
    label = _label_name(place, seen, options, ignored)
    if label is not None:
        chosen.append(_label(place, seen[label]))
    if not options.fields and ALL_OTHERS not in columns.ignore_columns:
        used = ignored | {
            columns.key_column,
            *(name for name, _ in columns.row_filter.pairs),
            *(each.feature for each in chosen),
        }
        chosen = [*_by_rule(place, [each for name, each in sorted(seen.items()) if name not in used]), *chosen]
    if not chosen:
        raise SourceError(f"{place}: no feature is left to pack, of {_listed(seen)}")
    refuse_equal_names(place, "feature", ((each.field.name, each.feature) for each in chosen))
    return sorted(chosen, key=lambda each: field_rank(each.field))


def features_left_out(
    place: str, seen: Mapping[str, SeenFeature], chosen: Sequence[FeatureField], options: SourceOptions
) -> list[str]:
    """Return the features that are not packed. Raises SourceError for those of them that hold pictures."""
    columns = options.columns
    names = sorted(seen)
    selecting = {columns.key_column or "", *columns.row_filter.columns}
    typed = {choice.where for choice in options.fields if choice.field is not None}
    settled = {each.feature for each in chosen if each.field.traits.is_picture or each.feature in typed}
    return SourceColumns(place, names, lambda name: seen[name].values, columns.ignore_columns, noun="feature").left_out(
        {each.feature for each in chosen} | (selecting & seen.keys()),
        set(names) if options.as_recorded else settled,
    )


def feature_named(place: str, seen: Mapping[str, SeenFeature], name: str, words: str) -> str:
    """Return ``name`` if there is such a feature. Raises SourceError that lists the features; ``words`` were typed."""
    if name not in seen:
        raise SourceError(f"{place}: {words}: there is no such feature among {_listed(seen)}{nearest(name, seen)}")
    return name


def _listed(seen: Mapping[str, SeenFeature]) -> str:
    return ", ".join(str(each) for _, each in sorted(seen.items())) or "none"


def _asked(place: str, seen: Mapping[str, SeenFeature], choice: FieldChoice) -> FeatureField:
    feature = seen[feature_named(place, seen, choice.where, f"--field {choice}")]
    if choice.field is not None:
        is_label = choice.field == Field("label", *FIELD_TYPES["label"])
        is_list = feature.kinds != {BYTES_LIST} or feature.counts != {1}
        return FeatureField(choice.field, feature.name, is_label=is_label, is_list=is_list)
    return _label(place, feature) if choice.name == "label" else _of_values(place, choice.name, feature)


def _label_name(place: str, seen: Mapping[str, SeenFeature], options: SourceOptions, ignored: set[str]) -> str | None:
    named = options.columns.label_columns
    if len(named) > 1:
        raise SourceError(
            f"{place}: --label-column {','.join(named)}: an example has one label; keep the others as fields: --field "
            f"NAME={named[1]}"
        )
    if any(choice.name == "label" for choice in options.fields):
        return None
    if named:
        return feature_named(place, seen, named[0], f"--label-column {named[0]}")
    if ALL_OTHERS in options.columns.ignore_columns:
        return None
    taken = ignored | {choice.where for choice in options.fields}
    return next((name for name in _LABELS if name in seen and name not in taken and _label_words(seen[name])), None)


def _label_words(feature: SeenFeature) -> str:
    """The type of a label with such values; "" if these are no labels."""
    if feature.counts != {1} or len(feature.kinds) != 1 or _is_picture(feature.values):
        return ""
    return "float" if FLOAT_LIST in feature.kinds else "label"


def _label(place: str, feature: SeenFeature) -> FeatureField:
    words = _label_words(feature)
    if not words:
        raise SourceError(
            f"{place}: feature {feature}: expected one number or name a sample as label: keep it under another name: "
            f"--field NAME={feature.name}"
        )
    return FeatureField(Field("label", *FIELD_TYPES[words]), feature.name, is_label=words == "label")


def _by_rule(place: str, features: Sequence[SeenFeature]) -> list[FeatureField]:
    """All these features under their own names, except that the only picture that is no mask is called image."""
    pictures = [each.name for each in features if _is_picture(each.values) and not _MASKS.match(each.name.lower())]
    return [
        _of_values(place, "image" if [each.name] == pictures else _field_name(place, each.name), each)
        for each in features
    ]


def _of_values(place: str, name: str, feature: SeenFeature) -> FeatureField:
    """A field by the kind and the number of the first values."""
    if len(feature.kinds) != 1:
        raise SourceError(f"{place}: feature {feature}: holds values of several kinds; --without {feature.name}")
    kind, is_single = next(iter(feature.kinds)), feature.counts == {1}
    if kind != BYTES_LIST:
        dtype = "<f4" if kind == FLOAT_LIST else "<i8"
        return FeatureField(
            Field(name, *((COLUMN, dtype, ()) if is_single else (RAGGED, dtype, (None,)))), feature.name
        )
    if not is_single:
        if not all(map(_is_text, feature.values)):
            raise SourceError(
                f"{place}: feature {feature}: holds several values of bytes, which fit no field; --without "
                f"{feature.name} leaves it out"
            )
        return FeatureField(Field(name, *FIELD_TYPES["json"]), feature.name, is_list=True)
    if _is_picture(feature.values):
        return FeatureField(
            Field(name, *FIELD_TYPES["mask" if _MASKS.match(feature.name.lower()) else "image"]), feature.name
        )
    words = "text" if all(map(_is_text, feature.values)) else "bytes"
    return FeatureField(Field(name, *FIELD_TYPES[words]), feature.name)


def _is_picture(values: Sequence[bytes]) -> bool:
    first = next((value for value in values if value), b"")
    return image_kind(np.frombuffer(first, np.uint8)) != UNKNOWN


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in value


def _field_name(place: str, feature: str) -> str:
    name = name_from_column(place, "feature", feature)
    return name if name != "label" else "labels"
