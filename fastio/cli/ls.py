"""``fastio ls``: the samples of a store, one per line."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.remote_options import remote_options
from fastio.cli.screen import printable
from fastio.report.finite import finite
from fastio.types.units import counted

if TYPE_CHECKING:
    from fastio.store import SampleStore
    from fastio.store.files.remote_options import RemoteOptions
    from fastio.types.schema import Field

__all__ = ["ls"]

_STEP = 4096
_PREVIEW = 60  # characters shown of a text
_FIELD_PREVIEW = 32  # of each of many fields


@click.command()
@click.argument("path")
@click.argument("pattern", required=False)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after N lines.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@remote_options
@click.pass_context
def ls(
    ctx: click.Context, path: str, pattern: str | None, *, limit: int | None, as_json: bool, remote: RemoteOptions
) -> None:
    """
    List the samples of the store PATH. Shows index, size in bytes, label or class, key, and the beginning of a text.

    Of samples with many fields, it shows the beginning of text, JSON, token ids and boxes, and the columns; --json
    has their values.

    PATTERN selects keys by shell wildcards: *, ?, [abc].

    The exit code is 1 if no key matches PATTERN.

    \b
    Example:
      fastio ls train.lmdb --limit 10
      fastio ls train.lmdb 'dog/*.jpg'
    """
    from fastio.store import open_store

    with open_store(path, remote=remote) as store:
        any_line = False
        for lines in _lines(store, pattern, limit, as_json=as_json):
            any_line = True
            click.echo("\n".join(lines))
    if pattern and not any_line and limit != 0:
        click.echo(f"{printable(path)}: no key of {counted(len(store), 'sample')} matches {pattern!r}", err=True)
        ctx.exit(1)


def _lines(store: SampleStore, pattern: str | None, limit: int | None, *, as_json: bool) -> Iterator[list[str]]:
    """Yield the lines, some thousand at a time."""
    import numpy as np

    wanted = re.compile(fnmatch.translate(pattern)).match if pattern else None
    reads = _reader(store)
    labels = store.column("label") if "label" in store.schema else None
    classes: list[Any] = store.metadata.get("classes") or []
    left = len(store) if limit is None else limit
    width = len(str(max(len(store) - 1, 0)))
    for start in range(0, len(store), _STEP):
        if left <= 0:
            return
        indices = np.arange(start, min(start + _STEP, len(store)))
        sizes = sum(store.spans(field.name, indices).sizes for field in store.schema.payload)
        values = [None] * len(indices) if labels is None else labels[indices].tolist()
        rows = zip(
            indices.tolist(), store.keys(indices), np.broadcast_to(sizes, len(indices)).tolist(), values, strict=True
        )
        matching = [row for row in rows if wanted is None or wanted(row[1])][:left]
        left -= len(matching)
        if not matching:
            continue
        if as_json:
            yield [json.dumps(finite(_sample_form(row, classes) | reads(row[0], json=True))) for row in matching]
        else:
            yield [
                f"{index:>{width}}  {size:>10}  {printable(_named(value, classes)):<16}  {printable(key)}"
                + "".join(f"  {printable(text)}" for text in reads(index, json=False))
                for index, key, size, value in matching
            ]


def _reader(store: SampleStore) -> Callable[..., Any]:
    """
    Return a function from a sample's index to what it holds: the beginnings in words, or with ``json`` entries by name.
    """
    from fastio.converters.text.decode import text_field
    from fastio.dataset.form import has_many_fields

    if has_many_fields(store):
        return _fields_reader(store)
    field = text_field(store.schema)
    return _text_reader(store, field) if field is not None else lambda index, *, json: {} if json else ()


def _text_reader(store: SampleStore, field: Field) -> Callable[..., Any]:
    import numpy as np

    from fastio.converters.text.decode import StoredText
    from fastio.store.values import read_values

    stored = StoredText.of(store, field)

    def read(index: int, *, json: bool) -> Any:
        value = read_values(store, field.name, np.array([index])).view(0)
        text = stored.preview(value, max(len(value), 1) if json else _PREVIEW)
        return {"text": text} if json else (text,)

    return read


def _fields_reader(store: SampleStore) -> Callable[..., Any]:
    from fastio.converters.sample_words import json_values, value_words

    shown = [field for field in store.schema.fields if _is_shown(field)]

    def read(index: int, *, json: bool) -> Any:
        if json:
            return {"fields": json_values(store, index)}
        return [f"{name}: {words}" for name, words in value_words(store, index, shown, width=_FIELD_PREVIEW).items()]

    return read


def _is_shown(field: Field) -> bool:
    """Whether the beginning of a value says something: not of pictures, embeddings and bytes."""
    traits = field.traits
    is_short = field.is_column or traits.is_sequence or traits.is_json or traits.is_ragged
    return is_short and field.name != "label"


def _named(value: Any, classes: list[Any]) -> str:
    if value is None:
        return "-"
    return str(classes[value]) if classes and 0 <= value < len(classes) else str(value)


def _sample_form(row: tuple[int, str, int, Any], classes: list[Any]) -> dict[str, Any]:
    index, key, size, value = row
    form: dict[str, Any] = {"index": index, "key": key, "size_bytes": size}
    if value is not None:
        form |= {"label": value, "class": _named(value, classes) if classes else None}
    return form
