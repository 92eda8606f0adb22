"""What ``fastio info`` says of stores and of sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastio.codec.headers import read_headers
from fastio.converters.packing.advice import packing_lines, shuffling_of
from fastio.converters.pictures.jumps import evenly_spaced, jump_advice, jump_lines
from fastio.dataset.form import has_many_fields
from fastio.store import FORMATS, SampleStore
from fastio.store.beside.joined import BesideStore
from fastio.store.files.local import is_local
from fastio.store.formats.format import Format
from fastio.store.protocol import read_values
from fastio.store.token_files import keeps_stream
from fastio.types.npy import npy_shape
from fastio.types.picture_kinds import PICTURE_KINDS
from fastio.types.receipt_sum import as_hex
from fastio.types.schema import Field

if TYPE_CHECKING:
    from fastio.converters.sources.source import Chunk, Source
    from fastio.store.kinds.scan import Problem

__all__ = [
    "count_matching",
    "describe",
    "describe_source",
    "field_places",
]


_LEDGERS = (
    "skipped",
    "left_out",
    "skipped_before",
    "left_aside",
    "misnamed",
    "blank_lines",
    "cut",
)  # lists of {"key", "problem"} in a store's metadata
_PROBED = 10_000  # headers looked at for the kinds of images: all of a million would read the whole file


def describe(store: SampleStore) -> dict[str, Any]:
    """Return everything that ``fastio info --json`` prints."""
    payload_bytes = sum(int(store.value_bytes(field.name).sum()) for field in store.schema.payload)
    size_bytes = store.size_bytes
    form = FORMATS.get(store.format)  # None: several stores side by side
    return {
        "path": store.path,
        "format": store.format,
        "shards": len(store.shard_paths),
        "folders": _folders(store),
        "merged": [{name: part[name] for name in ("set", "samples")} for part in store.metadata.get("merged") or ()],
        "samples": len(store),
        "receipt": _receipt(store),
        "size_bytes": size_bytes,
        "payload_bytes": payload_bytes,
        "overhead_bytes_per_sample": round((size_bytes - payload_bytes) / len(store), 1) if len(store) else None,
        "overhead_reason": form.overhead(store.schema) if form is not None else "",
        "schema": store.schema.to_json(),
        "classes": class_counts(store),
        "labels": _label_statistics(store),
        "fields": {field.name: _payload(store, field) for field in store.schema.payload},
        "source": _source(store.metadata),
        "tokenizer": _tokenizer(store.metadata),
        "chat": store.metadata.get("chat"),
        "packing": [*packing_lines(store.metadata), *jump_lines(store), *jump_advice(store)],
        "options": {name: store.metadata[name] for name in ("packing", "shuffle") if name in store.metadata},
        "shuffle": _shuffling(store),
        "document_counts": store.metadata.get("document_counts"),
        "skipped": len(store.metadata.get("skipped") or ()),
        "ledger": {name: store.metadata[name] for name in _LEDGERS if store.metadata.get(name)},
        "read_without_fastio": _plain_reader(store, form)
        if form is not None and store.schema.payload and is_local(store.path)
        else "",
        **(_many_fields(store) if has_many_fields(store) else {}),
    }


def count_matching(store: SampleStore, expression: str) -> int:
    """Return for how many samples an expression is true: see ``FastDataset.where``."""
    from fastio.dataset.columns import matching  # with Pillow, for this option only
    from fastio.dataset.row_reader import RowReader

    main = store.schema.picture or store.schema.payload[0]
    return int(np.count_nonzero(matching(store, expression, reader=RowReader(store, main.name, mode=None))))


def _many_fields(store: SampleStore) -> dict[str, Any]:

    return describe_fields(store)


def _folders(store: SampleStore) -> dict[str, int]:
    """Return how many shards lie in each folder, or prefix of an object store."""
    return dict(Counter(path.rpartition("/")[0] or "." for path in store.shard_paths))


def _receipt(store: SampleStore) -> str | None:
    """Return the number that the receipt of an epoch of all samples should have; None without checksums."""
    number = store.receipt()
    return None if number is None else as_hex(number)


def _plain_reader(store: SampleStore, form: Format) -> str:
    """Python that reads this very store without fastio."""
    path = f"{store.shard_paths[0]!r}"
    if len(store.shard_paths) > 1:
        shards = f"{path}  # the first of {len(store.shard_paths)} shards"
        together = form.plain_path(store.schema, store.shard_paths)
        path = shards if together is None else f"{together!r}"
    return f"path = {path}\n{form.plain_reader(store.schema)}"


def _shuffling(store: SampleStore) -> dict[str, Any] | None:
    report = shuffling_of(store)
    return None if report is None else {**asdict(report), "text": str(report)}


def class_counts(store: SampleStore) -> list[dict[str, Any]] | None:
    """Return label, name (None if labels are the user's own numbers) and number of samples of each class."""
    if not _are_classes(store):
        return None
    values, counts = np.unique(store.column("label"), return_counts=True)
    known = dict(zip(values.tolist(), counts.tolist(), strict=True))
    names = store.metadata.get("classes")
    if names:
        known = {**dict.fromkeys(range(len(names)), 0), **known}
    return [{"label": value, "name": _name(names, value), "samples": count} for value, count in sorted(known.items())]


def _are_classes(store: SampleStore) -> bool:
    """Whether each sample's label is one whole number."""
    if "label" not in store.schema:
        return False
    label = store.schema["label"]
    return not label.shape and np.dtype(label.dtype).kind in "biu"


def _label_statistics(store: SampleStore) -> dict[str, Any] | None:
    """Of labels that are no classes: dtype, and title (or None), least, mean and greatest of each number."""
    if "label" not in store.schema or _are_classes(store) or len(store) == 0:
        return None
    column = store.column("label")
    values = column.reshape(len(store), -1).astype(np.float64)
    titles = (store.metadata.get("source") or {}).get("label_titles") or [None] * values.shape[1]
    numbers = [
        {"title": title, "min": low, "mean": mean, "max": high}
        for title, low, mean, high in zip(
            titles, values.min(axis=0).tolist(), values.mean(axis=0).tolist(), values.max(axis=0).tolist(), strict=True
        )
    ]
    return {"dtype": column.dtype.name, "numbers": numbers}


def _name(names: list[str] | None, label: int) -> str | None:
    return names[label] if names and 0 <= label < len(names) else None


def _payload(store: SampleStore, field: Field) -> Mapping[str, Any]:
    """Statistics of one payload field; of a field of lists, of all elements and how many samples have of them."""
    if field.is_list:
        elements = store.elements(field.name)
        of_samples = _statistics(store.value_bytes(field.name))
        return {
            **_payload(elements, field.element),
            "size_bytes": of_samples,
            "elements": _statistics(elements.counts),
        }
    sizes = store.value_bytes(field.name)
    said: dict[str, Any] = {"size_bytes": _statistics(sizes)}
    if field.traits.is_ragged and field.unit_bytes:
        said |= {"length": _statistics(sizes // field.unit_bytes), "unit": "rows"}
    if field.traits.is_sequence:
        lengths = sizes // field.unit_bytes
        said |= {"length": _statistics(lengths), "histogram": length_histogram(lengths)}
        said["unit"] = "tokens" if field.traits.is_tokens else "bytes"
    if field.traits.is_npy and len(sizes):
        said["axes"] = [_statistics(axis) for axis in store.shapes(field.name).T]
    if not field.traits.is_picture:
        return said
    shapes = store.shapes(field.name)
    known = shapes[shapes.any(axis=1)]
    said["height"], said["width"] = _statistics(known[:, 0]), _statistics(known[:, 1])
    channels, counts = np.unique(known[:, 2], return_counts=True)
    said["channels"] = {str(c): n for c, n in zip(channels.tolist(), counts.tolist(), strict=True)}
    looked_at = evenly_spaced(len(store), _PROBED)
    kinds, counts = np.unique(read_headers(read_values(store, field.name, looked_at)).kind, return_counts=True)
    said["kinds"] = {PICTURE_KINDS[kind].name: n for kind, n in zip(kinds.tolist(), counts.tolist(), strict=True)}
    said["kinds_of"] = len(looked_at)
    return said


def _source(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where a store came from, without what only unpacking needs."""
    source = metadata.get("source")
    return None if source is None else {name: value for name, value in source.items() if name != "between"}


def _tokenizer(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """What made the tokens, without the tokenizer's own JSON."""
    said = metadata.get("tokenizer")
    return None if said is None else {**said, "json": said.get("json") is not None}


def _statistics(values: NDArray[Any]) -> dict[str, float] | None:
    if len(values) == 0:
        return None
    middle = float(np.median(values))
    return {
        "min": int(values.min()),
        "median": int(middle) if middle.is_integer() else middle,
        "mean": round(float(values.mean()), 1),
        "max": int(values.max()),
        "total": int(values.sum()),
    }


# What ``fastio info`` says of a store of many fields: types, columns, class names, a sample, and how to read it.

_WIDTH = 100  # characters of a value in the example
_DISTINCT = 6  # texts of a column that are listed


def describe_fields(store: SampleStore) -> dict[str, Any]:
    """
    Return what there is to say beside the sizes of each payload field.

    * ``types``: each field's type in words
    * ``columns``: of each column ``min``, ``mean`` and ``max`` of its finite numbers, and how many are ``not_finite``;
      how many are ``true``; or how many texts are ``distinct`` and the most frequent ``texts``
    * ``field_classes``: class names by field
    * ``example``: the ``key`` of the first sample, and its ``values`` in words; None in an empty store
    * ``read_with_fastio``: Python that reads this store
    """
    from fastio.converters.inspect.sample_words import type_words, value_words

    fields = store.schema.fields
    example = None
    if len(store):
        example = {"key": store.keys([0])[0], "values": value_words(store, 0, fields, width=_WIDTH)}
    return {
        "types": {field.name: type_words(field) for field in fields},
        "columns": {field.name: _column(store.column(field.name)) for field in store.schema.columns},
        "field_classes": dict(store.metadata.get("field_classes") or {}),
        "example": example,
        "read_with_fastio": _reader(store),
    }


def _column(column: NDArray[Any]) -> dict[str, Any] | None:
    if column.size == 0:
        return None
    if column.dtype.kind == "b":
        return {"true": int(column.sum()), "of": int(column.size)}
    if column.dtype.kind in "SU":
        texts, counts = np.unique(column, return_counts=True)
        often = np.argsort(-counts, kind="stable")[:_DISTINCT]
        shown = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts[often].tolist()]
        return {"distinct": len(texts), "texts": shown}
    numbers = np.abs(column) if column.dtype.kind == "c" else column
    known = numbers[np.isfinite(numbers)]
    if known.size == 0:
        return {"min": None, "mean": None, "max": None, "not_finite": int(numbers.size)}
    mean = float(known.mean(dtype=np.float64))
    return {
        "min": known.min().item(),
        "mean": mean,
        "max": known.max().item(),
        "not_finite": int(numbers.size - known.size),
    }


def _reader(store: SampleStore) -> str:
    """Return Python that reads the store by fastio: its first picture, and what belongs beside it."""
    names = [field.name for field in store.schema.fields]
    chosen = tuple(names[:2])
    if keeps_stream(store.metadata):
        return (
            "from fastio import FastLoader, TokenStream\n"
            f"stream = TokenStream({store.path!r})\n"
            "loader = FastLoader(stream.windows(1025, random=True), batch_size=32, shuffle=True)\n"
        )
    opens, store_text = "", repr(store.path)
    if isinstance(store, BesideStore):
        store_text = store.opened_by
        if store_text.startswith("beside("):
            opens, store_text = f"store = {store_text}\n", "store"
    return (
        f"from fastio import FastDataset, FastLoader{', beside' if opens else ''}\n{opens}"
        f"dataset = FastDataset({store_text})    # dataset[0] is a dict of {len(names)} fields\n"
        f"dataset = FastDataset({store_text}, fields={chosen!r})    # a tuple; other fields are not read\n"
        "loader = FastLoader(dataset, batch_size=32, shuffle=True)\n"
    )


# What ``fastio info`` says about a source that is not packed yet: its fields, its first samples, how to pack it.

_FIRST_BYTES, _FIRST_SAMPLES = 8 << 20, 512  # what is read to describe values
_SHOWN = 5  # problems


def describe_source(source: Source, what: str) -> dict[str, Any]:
    """
    Return what ``fastio info PATH --json`` prints: all counts, each field with its type, and what its first values are.

    ``what`` is its kind in words. The first samples are read, at most 512.
    """
    from fastio.converters.sources.in_place import lies_in_files
    from fastio.types.field_types import type_of

    pieces = source.chunks(_FIRST_BYTES, _FIRST_SAMPLES)
    chunk = source.begin(pieces[0])() if pieces else None
    places = field_places(source.metadata)
    classes = source.metadata.get("classes")
    return {
        "path": source.path,
        "is": "source",
        "kind": source.kind,
        "what": what,
        "samples": len(source),
        "files": source.files_opened,
        "size_bytes": source.size_bytes,
        "disk_bytes": source.disk_bytes,
        "fields": [
            {
                **stored,  # name, codec, dtype, shape, role
                "from": places.get(field.name),
                "type": type_of(field),
                "first": {} if chunk is None else _first(field, chunk),
            }
            for field, stored in zip(source.schema.fields, source.schema.to_json()["fields"], strict=True)
        ],
        "first_samples": 0 if chunk is None else len(chunk.batch.keys),
        "classes": classes,
        "field_classes": source.metadata.get("field_classes") or {},
        "problems": len(source.problems),
        "problems_shown": [
            {"key": problem.key, "problem": problem.problem} for problem in _problems(source, chunk)[:_SHOWN]
        ],
        "left_out": len(source.left_out),
        "left_out_columns": (source.metadata.get("source") or {}).get("left_out") or [],
        "in_place": lies_in_files(source),
    }


def field_places(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return where a source has each field, in the words of ``--field``, as far as its record says."""
    columns = (metadata.get("table") or {}).get("columns") or ()
    titles = {each["field"]: ".".join(each["path"]) for each in columns if "field" in each}
    choices = [str(words).partition("=") for words in (metadata.get("source") or {}).get("fields") or ()]
    return {**titles, **{name: where.rpartition(":")[0] or where for name, _, where in choices}}


def _problems(source: Source, chunk: Chunk | None) -> list[Problem]:
    return [*source.problems, *(() if chunk is None else chunk.problems)]


def _first(field: Field, chunk: Chunk) -> dict[str, Any]:
    """What the values of a field are in the first samples."""
    if not chunk.batch.keys:
        return {}
    if field.is_column:
        column = chunk.batch.columns[field.name]
        numbers = np.abs(column) if column.dtype.kind == "c" else column
        return {"min": numbers.min().item(), "max": numbers.max().item()} if numbers.size else {}
    found: dict[str, Any] = {}
    if field.is_list:
        lists = chunk.batch.lists[field.name]
        found["elements"] = [int(lists.counts.min()), int(lists.counts.max())]
        spans, shapes, field = lists.spans, lists.shapes, field.element
        if not len(spans):
            return found
    else:
        spans, shapes = chunk.batch.spans[field.name], chunk.batch.shapes.get(field.name)
    sizes = spans.sizes
    found["bytes"] = {"min": int(sizes.min()), "mean": float(sizes.mean()), "max": int(sizes.max())}
    if field.traits.is_picture and shapes is not None:
        kinds = np.unique(read_headers(spans).kind)
        found["kinds"] = [PICTURE_KINDS[kind].name for kind in kinds.tolist()]
        found["heights"] = [int(shapes[:, 0].min()), int(shapes[:, 0].max())]
        found["widths"] = [int(shapes[:, 1].min()), int(shapes[:, 1].max())]
    elif field.traits.is_npy:
        known = np.array([npy_shape(field, view.data) for view in spans.views()])
        found["axes"] = [[int(axis.min()), int(axis.max())] for axis in known.T]
    elif field.traits.is_ragged and field.unit_bytes:
        lengths = sizes // field.unit_bytes
        found["lengths"] = [int(lengths.min()), int(lengths.max())]
    return found


# Statistics on the lengths of a store's samples, and a histogram whose bins double in width.


def length_histogram(lengths: NDArray[np.int64]) -> list[dict[str, Any]]:
    """
    Count the lengths in 0, 1, 2..3, 4..7, 8..15, ... from the shortest to the longest.

    >>> length_histogram(np.array([1, 5, 6]))
    [{'from': 1, 'to': 1, 'samples': 1}, {'from': 2, 'to': 3, 'samples': 0}, {'from': 4, 'to': 7, 'samples': 2}]
    """
    if len(lengths) == 0:
        return []
    # The bit length of a number, 0 for 0: exact, where a logarithm is not at its powers of two.
    bits = np.frexp(lengths.astype(np.float64))[1]
    counts = np.bincount(bits)
    return [
        {"from": 1 << (bit - 1) if bit else 0, "to": (1 << bit) - 1, "samples": int(counts[bit])}
        for bit in range(int(bits.min()), len(counts))
    ]
