"""Fields and schemas: what is taken, what is refused, and the way to JSON and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastio.errors import SchemaError
from fastio.types.schema import (
    ARRAYS_VERSION,
    BYTES,
    COLUMN,
    IMAGE,
    PER_SAMPLE_VERSION,
    RAW,
    TEXT,
    TOKENS,
    VERSION,
    Field,
    Schema,
    are_plain_paths,
    is_plain_path,
)

_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True)
_DTYPES = st.sampled_from(["|b1", "|u1", "<i2", "<i8", "<f4", "<c8", "|S4", "<U3"])
_FIXED = st.lists(st.integers(0, 9), max_size=3).map(tuple)
_FIELDS = st.builds(Field, name=_NAMES, codec=st.sampled_from([RAW, COLUMN]), dtype=_DTYPES, shape=_FIXED) | st.builds(
    Field,
    name=_NAMES,
    codec=st.sampled_from([IMAGE, BYTES, "audio"]),
    dtype=_DTYPES,
    shape=st.lists(st.none() | st.integers(0, 9), max_size=3).map(tuple),
)


@given(st.lists(_FIELDS, unique_by=lambda field: field.name, max_size=5))
def test_json_and_back(fields: list[Field]) -> None:
    """Any schema survives JSON."""
    schema = Schema(tuple(fields))
    assert schema == Schema.from_json(json.loads(json.dumps(schema.to_json())))


def test_payload_and_columns() -> None:
    """Columns are kept apart from what is a run of bytes."""
    image, label = Field("image", IMAGE, "|u1", (None, None, None)), Field("label", COLUMN, "<i8", ())
    schema = Schema((image, label))
    assert ((image,), (label,)) == (schema.payload, schema.columns)
    assert label == schema["label"]
    assert ("label" in schema, "depth" in schema) == (True, False)
    with pytest.raises(SchemaError, match=r"'depth'.*'image', 'label'"):
        schema["depth"]


def test_bytes_of_a_value() -> None:
    """The size of a fixed value is known, that of a varying one is an error."""
    assert Field("a", RAW, "<f4", (2, 3)).nbytes == 24
    assert Field("a", COLUMN, "<i8", ()).nbytes == 8
    with pytest.raises(SchemaError, match="not fixed"):
        _ = Field("a", IMAGE, "|u1", (None, 2)).nbytes


@pytest.mark.parametrize("name", ["", "Image", "1a", "a-b", "a.b", "_a", "ä", "a\n"])
def test_bad_names(name: str) -> None:
    """Names are lower-case identifiers."""
    with pytest.raises(SchemaError, match="field name"):
        Field(name, IMAGE, "|u1", ())


@pytest.mark.parametrize(
    "dtype",
    [
        "",
        "u1",
        "i8",
        ">i4",
        "=i8",
        "|O",
        "|V4",
        "<M8[s]",
        "|S0",
        "<i4,<i4",
        "nonsense",
        "None",
        "(,)f4",
        "<U" + "9" * 5000,
    ],
)
def test_bad_dtypes(dtype: str) -> None:
    """Dtypes are plain, little endian, and spelt as numpy spells them."""
    with pytest.raises(SchemaError, match="dtype"):
        Field("a", COLUMN, dtype, ())


@pytest.mark.parametrize("codec", [RAW, COLUMN])
def test_fixed_shapes(codec: str) -> None:
    """Raw values and columns have one shape for all samples."""
    with pytest.raises(SchemaError, match="fixed shape"):
        Field("a", codec, "|u1", (None, 3))


@pytest.mark.parametrize("dtype", ["<u2", "<u4"])
def test_token_fields(dtype: str) -> None:
    """Tokens are uint16 or uint32, as many as each sample has, and text is bytes."""
    for field in (Field("tokens", TOKENS, dtype, (None,)), Field("text", TEXT, "|u1", (None,))):
        assert Schema((field,)) == Schema.from_json(Schema((field,)).to_json())


@pytest.mark.parametrize(
    ("codec", "dtype", "shape"),
    [
        (TOKENS, "<i8", (None,)),
        (TOKENS, "<u2", (4,)),
        (TOKENS, "<u2", (None, 2)),
        (TEXT, "<u2", (None,)),
        (TEXT, "|u1", ()),
    ],
)
def test_bad_token_fields(codec: str, dtype: str, shape: tuple[int | None, ...]) -> None:
    """Tokens and text of another type or shape are refused by what is expected."""
    with pytest.raises(SchemaError, match=r"needs .* and the shape \(None,\)"):
        Field("a", codec, dtype, shape)


def test_negative_shape() -> None:
    """A negative size is refused."""
    with pytest.raises(SchemaError, match="shape"):
        Field("a", RAW, "|u1", (-1, 3))


def test_twice_the_same_name() -> None:
    """Names of fields differ."""
    field = Field("a", BYTES, "|u1", (None,))
    with pytest.raises(SchemaError, match="unique"):
        Schema((field, field))


def test_newer_version() -> None:
    """A newer schema is refused as that."""
    with pytest.raises(SchemaError, match="upgrade fastio"):
        Schema.from_json({"version": ARRAYS_VERSION + 1, "fields": []})


def test_ids_per_sample() -> None:
    """A schema of ids that are kept sample by sample is written as one that older versions refuse."""
    field = Field("tokens", TOKENS, "<u2", (None,))
    schema = Schema((field,), is_per_sample=True)

    assert schema == Schema.from_json(schema.to_json())
    assert PER_SAMPLE_VERSION == schema.to_json()["version"]
    assert schema.flat is None
    assert VERSION == Schema((field,)).to_json()["version"]


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        {"version": 1},
        {"version": "x", "fields": []},
        {"version": 1, "fields": [1]},
        {"version": 1, "fields": [{"name": "a"}]},
        {"version": 1, "fields": [{"name": "a", "codec": "raw", "dtype": "|u1", "shape": 3}]},
        {"version": 1, "fields": [{"name": "a", "codec": "raw", "dtype": "|u1", "shape": ["x"]}]},
        {"version": 1, "fields": [{"name": "a", "codec": "raw", "dtype": "|u1", "shape": [1e400]}]},
    ],
)
def test_malformed(data: object) -> None:
    """What is no schema is a SchemaError, whatever it is."""
    with pytest.raises(SchemaError):
        Schema.from_json(data)  # type: ignore[arg-type]


# Which keys are paths below a folder.


@pytest.mark.parametrize("key", ["a", "a/b.png", "a/b..c", "...", ".hidden/x", "é"])
def test_plain_paths(key: str) -> None:
    """Dots inside of names are harmless."""
    assert is_plain_path(key)


@pytest.mark.parametrize("key", ["", "/", "/a", "a/", "a//b", ".", "./a", "..", "../a", "a/../b", "a\0b"])
def test_others(key: str) -> None:
    """Empty and absolute keys, NUL, and parts that are empty or mean another folder."""
    assert not is_plain_path(key)


@given(keys=st.lists(st.text("a./\0", max_size=6), max_size=4))
def test_many_at_once(keys: list[str]) -> None:
    """All keys together are plain paths if each of them is."""
    assert all(map(is_plain_path, keys)) == are_plain_paths(keys)
