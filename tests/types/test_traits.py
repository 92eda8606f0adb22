"""The table of traits: its rows, and the rule that nobody asks for a codec's name instead."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from fastio.codec import CODECS
from fastio.types import traits
from fastio.types.schema import BYTES, COLUMN, IMAGE, RAW, TEXT, TOKENS, Field
from fastio.types.traits import TRAITS, Traits, traits_of

ROOT = Path(__file__).parents[2]
NAMES = {name for name in traits.__all__ if name.isupper()} - {"TRAITS"}

# Who names a codec: those that make fields. What a field is like, all others ask of its traits.
MAKERS = {
    "converters/sources/arrow/values.py": "arrays of Arrow's types",
    "converters/sources/files.py": "pictures and labels of a folder",
    "converters/sources/arrays.py": "pixels and arrays of files that others wrote",
    "converters/sources/lmdb.py": "pixels and arrays in values of LMDB files that others wrote",
    "converters/pictures/raw.py": "--raw turns pictures into pixels",
    "converters/write/fields.py": "arrays that a program hands over",
    "converters/sources/tfrecord/source.py": "features of an Example",
    "converters/text/encode.py": "text, or the tokens made of it",
    "fastio/types/field_types.py": "types as users write them",
    "fastio/loader/producer/memory_cache.py": "pictures kept in memory as uncompressed PNGs",
    "fastio/measure/settings/decode.py": "a store of sample pictures",
    "fastio/store/foreign/fields.py": "npy members of tar shards that others wrote",
    "fastio/store/foreign/tar.py": "labels of tar shards that others wrote",
    "fastio/store/index/views.py": "labels of the user's and of several stores, rows kept in memory",
}

# Who reads Field.codec: the two that look a codec up by it.
READERS = {"fastio/dataset/row_reader.py", "fastio/types/schema.py"}


def sources() -> dict[str, ast.Module]:
    """Every module but the table itself, by its path."""
    paths = sorted([*(ROOT / "fastio").rglob("*.py"), *(ROOT / "converters").rglob("*.py")])
    trees = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}
    return {path: tree for path, tree in trees.items() if path != "fastio/types/traits.py"}


SOURCES = sources()


def test_only_makers_of_fields_name_a_codec() -> None:
    """Constants are imported where fields are made, and by schema.py, which hands them on."""
    users = {
        path
        for path, tree in SOURCES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and NAMES & {alias.name for alias in node.names}
    }

    assert {*MAKERS, "fastio/types/schema.py"} == users


def test_makers_compare_no_names() -> None:
    """Not even they ask whether a codec is this one or that."""
    compared = {
        (path, node.lineno)
        for path, tree in SOURCES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and part.id in NAMES
    }

    assert compared == set()


def test_nobody_else_looks_at_the_name_of_a_codec() -> None:
    """``field.codec`` is looked up in a table, and never compared."""
    readers = {
        path
        for path, tree in SOURCES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "codec" and path != "fastio/codec/table.py"
    }

    assert readers == READERS


def test_every_row_has_a_codec_but_columns() -> None:
    """Each codec can be loaded, and does what the protocol says."""
    assert [name for name in TRAITS if name != COLUMN] == list(CODECS)
    for codec in CODECS.values():
        assert all(callable(getattr(codec, name)) for name in ("encode", "probe", "decode"))
    assert COLUMN not in CODECS
    assert TRAITS[COLUMN].is_column


def test_a_codec_of_a_later_fastio() -> None:
    """Of a name without a row nothing is known."""
    assert Traits(title="audio") == traits_of("audio")
    assert "audio in 'clip'" == str(Field("clip", "audio", "<f4", (None, 2)))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (Field("a", RAW, "<f4", (2, 3)), [24]),
        (Field("a", TOKENS, "<u2", (None,)), [0, 4, 24]),
        (Field("a", TEXT, "|u1", (None,)), [0, 4, 7, 24]),
        (Field("a", IMAGE, "|u1", (None, None, None)), [0, 4, 7, 24]),
        (Field("a", BYTES, "<i8", (None,)), [0, 4, 7, 24]),
    ],
)
def test_sizes_that_fit(field: Field, expected: list[int]) -> None:
    """Arrays have the size of their shape, tokens whole ids; all else has any size."""
    sizes = np.array([0, 4, 7, 24])

    assert expected == sizes[field.fits(sizes)].tolist()
