"""What ``fastio info`` says about a store: its content and size, and how to read it without fastio."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.codec.headers import read_headers
from fastio.converters.jump_fields import jump_advice, jump_lines
from fastio.converters.lengths import length_histogram
from fastio.converters.packing import packing_lines, shuffling_of
from fastio.converters.spread import spread_rows
from fastio.dataset.form import has_many_fields
from fastio.store import FORMATS, SampleStore
from fastio.store.files.local import is_local
from fastio.store.values import read_values
from fastio.types.picture_kinds import PICTURE_KINDS
from fastio.types.receipt_sum import as_hex
from fastio.types.schema import Field

__all__ = [
    "class_counts",
    "describe",
]

_LEDGERS = (
    "skipped",
    "left_out",
    "skipped_before",
    "left_aside",
    "misnamed",
)  # lists of {"key", "problem"} in a store's metadata
_PROBED = 10_000  # headers looked at for the kinds of images: all of a million would read the whole file


def describe(store: SampleStore) -> dict[str, Any]:
    """Return everything that ``fastio info --json`` prints."""
    every = np.arange(len(store))
    sizes = {field.name: store.spans(field.name, every).sizes for field in store.schema.payload}
    payload_bytes = sum(int(each.sum()) for each in sizes.values())
    size_bytes = store.size_bytes
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
        "overhead_reason": FORMATS[store.format].overhead(store.schema),
        "schema": store.schema.to_json(),
        "classes": class_counts(store),
        "labels": _label_statistics(store),
        "fields": {field.name: _payload(store, field, sizes[field.name]) for field in store.schema.payload},
        "source": _source(store.metadata),
        "tokenizer": _tokenizer(store.metadata),
        "packing": [*packing_lines(store.metadata), *jump_lines(store), *jump_advice(store)],
        "options": {name: store.metadata[name] for name in ("packing", "shuffle") if name in store.metadata},
        "shuffle": _shuffling(store),
        "document_counts": store.metadata.get("document_counts"),
        "skipped": len(store.metadata.get("skipped") or ()),
        "ledger": {name: store.metadata[name] for name in _LEDGERS if store.metadata.get(name)},
        "read_without_fastio": _plain_reader(store) if store.schema.payload and is_local(store.path) else "",
        **(_many_fields(store) if has_many_fields(store) else {}),
    }


def _many_fields(store: SampleStore) -> dict[str, Any]:
    from fastio.converters.describe_fields import describe_fields

    return describe_fields(store)


def _folders(store: SampleStore) -> dict[str, int]:
    """Return how many shards lie in each folder, or prefix of an object store."""
    return dict(Counter(path.rpartition("/")[0] or "." for path in store.shard_paths))


def _receipt(store: SampleStore) -> str | None:
    """Return the number that the receipt of an epoch of all samples should have; None without checksums."""
    number = store.receipt()
    return None if number is None else as_hex(number)


def _plain_reader(store: SampleStore) -> str:
    """Python that reads this very store without fastio."""
    form, path = FORMATS[store.format], f"{store.shard_paths[0]!r}"
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


def _payload(store: SampleStore, field: Field, sizes: NDArray[np.int64]) -> Mapping[str, Any]:
    """Statistics of one payload field."""
    said: dict[str, Any] = {"size_bytes": _statistics(sizes)}
    if field.traits.is_ragged and field.unit_bytes:
        said |= {"length": _statistics(sizes // field.unit_bytes), "unit": "rows"}
    if field.traits.is_sequence:
        lengths = sizes // field.unit_bytes
        said |= {"length": _statistics(lengths), "histogram": length_histogram(lengths)}
        said["unit"] = "tokens" if field.traits.is_tokens else "bytes"
    if not field.traits.is_picture:
        return said
    shapes = store.shapes(field.name)
    known = shapes[shapes.any(axis=1)]
    said["height"], said["width"] = _statistics(known[:, 0]), _statistics(known[:, 1])
    channels, counts = np.unique(known[:, 2], return_counts=True)
    said["channels"] = {str(c): n for c, n in zip(channels.tolist(), counts.tolist(), strict=True)}
    looked_at = spread_rows(len(store), _PROBED)
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
