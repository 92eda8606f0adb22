"""What one module alone knows or asks: everybody else asks that module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fastio.types import traits
from fastio.types.picture_kinds import is_picture_extension

ROOT = Path(__file__).parents[1]
TRAITS_TABLE = "fastio/types/traits.py"
NAMES = {name for name in traits.__all__ if name.isupper()} - {"TRAITS"}
Sources = dict[str, ast.Module]  # by their paths

# Who names a codec: those that make fields. What a field is like, all others ask of its traits.
MAKERS = {
    "converters/sources/arrow/values.py": "arrays of Arrow's types",
    "converters/sources/files.py": "pictures and labels of a folder",
    "converters/sources/lmdb.py": "pixels and arrays in values of LMDB files that others wrote",
    "converters/pictures/raw.py": "--raw turns pictures into pixels",
    "fastio/dataset/window_store.py": "windows of such streams",
    "converters/sources/tokens.py": "streams of token ids that others wrote",
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


@pytest.fixture(scope="module")
def sources() -> Sources:
    """Every module."""
    paths = sorted([*(ROOT / "fastio").rglob("*.py"), *(ROOT / "converters").rglob("*.py")])
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}


def test_only_makers_of_fields_name_a_codec(sources: Sources) -> None:
    """Constants are imported where fields are made, and by schema.py, which hands them on."""
    users = {
        path
        for path, tree in sources.items()
        if path != TRAITS_TABLE
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and NAMES & {alias.name for alias in node.names}
    }

    assert {*MAKERS, "fastio/types/schema.py"} == users


def test_makers_compare_no_names(sources: Sources) -> None:
    """Not even they ask whether a codec is this one or that."""
    compared = {
        (path, node.lineno)
        for path, tree in sources.items()
        if path != TRAITS_TABLE
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and part.id in NAMES
    }

    assert compared == set()


def test_nobody_else_looks_at_the_name_of_a_codec(sources: Sources) -> None:
    """``field.codec`` is looked up in a table, and never compared."""
    readers = {
        path
        for path, tree in sources.items()
        if path != TRAITS_TABLE
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "codec" and path != "fastio/codec/table.py"
    }

    assert readers == READERS


def knows_kinds(node: ast.AST) -> bool:
    """Whether this is a list of extensions, or a signature."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bytes) and node.value.startswith((b"\x89PNG", b"\xff\xd8"))
    if not isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
        return False
    parts = node.keys if isinstance(node, ast.Dict) else node.elts
    texts = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return sum(is_picture_extension(text.lstrip(".")) for text in texts) >= 3


def test_nobody_else_lists_extensions_or_signatures(sources: Sources) -> None:
    """What is known of kinds is known to their table alone."""
    assert {"fastio/types/picture_kinds.py"} == {
        path for path, tree in sources.items() if any(map(knows_kinds, ast.walk(tree)))
    }


def test_nobody_else_compares_the_methods_of_a_dataset(sources: Sources) -> None:
    """No other module looks at a FastDataset's methods to find out whether samples are as stored."""
    asking = {
        path
        for path, tree in sources.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and "FastDataset." in ast.unparse(node)
    }

    assert {"fastio/dataset/fast_dataset.py"} == asking


def test_the_loader_compares_process_ids_in_one_place(sources: Sources) -> None:
    """What a forked child inherits is asked of ``PerProcess``."""
    asking = {
        path
        for path, tree in sources.items()
        for node in ast.walk(tree)
        if path.startswith("fastio/loader/") and isinstance(node, ast.Attribute) and node.attr == "getpid"
    }

    assert {"fastio/loader/forks.py"} == asking
