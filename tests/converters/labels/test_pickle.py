"""Label pickles are read as data: what is honest comes back as pickle.loads gives it, what is not runs nothing."""

from __future__ import annotations

import builtins
import collections
import copyreg
import os
import pickle
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.converters.labels.pickle import load_pickle
from fastio.errors import SourceError

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)

keys = st.text(max_size=40) | st.binary(max_size=40) | st.integers()
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=300) | st.binary()
nested = st.recursive(values, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner, inner, inner))


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


@given(st.dictionaries(keys, nested, max_size=20), st.sampled_from(PROTOCOLS))
@settings(max_examples=150, deadline=None)
def test_equals_pickle_loads(content, protocol):
    """Containers, strings and numbers come back as pickle.loads gives them, in every protocol."""
    assert content == load_pickle(pickle.dumps(content, protocol))


@given(st.dictionaries(st.text(max_size=10), st.integers(), max_size=1200), st.sampled_from(PROTOCOLS))
@settings(max_examples=20, deadline=None)
def test_large_dicts(content, protocol):
    """More entries than one batch of items, and more than the short memo opcodes reach."""
    assert content == load_pickle(pickle.dumps(content, protocol))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "<i4", ">i4", "i8", "u8", "f4", "f8", "?", "S4", "U4"])
def test_numpy_scalars_and_arrays(protocol, kind):
    """numpy scalars become Python values, arrays stay arrays."""
    array = np.array([0, 1, 1, 0, 1, 0]).astype(kind).reshape(2, 3)
    loaded = load_pickle(
        pickle.dumps({"scalar": array[0, 1], "array": array, "fortran": array.T, "zero": array[0, 0]}, protocol)
    )

    assert array[0, 1].item() == loaded["scalar"]
    assert array[0, 0].item() == loaded["zero"]
    np.testing.assert_array_equal(array, loaded["array"])
    np.testing.assert_array_equal(array.T, loaded["fortran"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ordered_dict_and_bytearray(protocol):
    """An OrderedDict becomes a dict, a bytearray bytes."""
    content = collections.OrderedDict([("b", bytearray(b"x\xff")), ("a", b"")])

    assert {"b": b"x\xff", "a": b""} == load_pickle(pickle.dumps(content, protocol))


def test_a_pickle_of_python_2():
    """str of Python 2 (STRING, SHORT_BINSTRING) come back as bytes."""
    assert {b"a.png": 1} == load_pickle(b"(dp0\nS'a.png'\np1\nI1\ns.")
    assert {b"caf\xe9.png": 1} == load_pickle(b"(dp0\nS'caf\\xe9.png'\np1\nI1\ns.")
    assert {b"a.png": 1} == load_pickle(b"\x80\x02}q\x00U\x05a.pngq\x01K\x01s.")


HOSTILE = {
    "posix.system": Calls(os.system, "true"),
    "builtins.eval": Calls(builtins.eval, "1"),
    "builtins.exec": Calls(builtins.exec, "1"),
    "builtins.getattr": Calls(getattr, "a", "upper"),
    "copyreg._reconstructor": Calls(copyreg._reconstructor, int, object, None),
    "numpy.load": Calls(np.load, "x"),
    "collections.defaultdict": collections.defaultdict(int),
}

# Protocols 0 to 2 write the names that Python 2 had.
ASKED = {name: f"({name}|{name.replace('builtins', '__builtin__').replace('copyreg', 'copy_reg')})" for name in HOSTILE}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", HOSTILE)
def test_anything_else_is_refused_by_name(name, protocol):
    """A pickle that asks for a function is refused with the function's name."""
    data = pickle.dumps({"a.png": HOSTILE[name]}, protocol)
    with pytest.raises(SourceError, match=ASKED[name]):
        load_pickle(data)


def test_nothing_of_it_runs(tmp_path):
    """A call at the top of a pickle leaves no trace."""
    witness = tmp_path / "witness"
    for protocol in PROTOCOLS:
        with pytest.raises(SourceError):
            load_pickle(pickle.dumps(Calls(os.mkdir, str(witness)), protocol))

    assert not witness.exists()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_object_arrays_are_refused(protocol):
    """An array of Python objects could hold anything."""
    with pytest.raises(SourceError, match="dtype O"):
        load_pickle(pickle.dumps({"a": np.array([{}], object)}, protocol))


def raw(*parts: bytes) -> bytes:
    return b"\x80\x04" + b"".join(parts) + b"."


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def name(module: str, attribute: str) -> bytes:
    return text(module) + text(attribute) + b"\x93"


RECONSTRUCT = name("numpy.core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R"
I8 = name("numpy", "dtype") + text("i8") + b"\x89\x88\x87R"

DAMAGED = {
    "empty": b"",
    "no STOP": b"\x80\x04}",
    "STOP alone": b".",
    "string beyond the end": b"X\xff\xff\xff\x7fab",
    "bytes beyond the end": b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fab",
    "a number of four billion bytes": b"\x8b\xff\xff\xff\x7fab",
    "nothing to remember": raw(b"r\xff\xff\xff\x7f"),
    "nothing remembered": raw(b"h\x07"),
    "marks missing": raw(b"u"),
    "unhashable key": raw(b"}]K\x01s"),
    "tuple as key": raw(b"}", b")K\x01s"),
    "items for a list": raw(b"]K\x01K\x02s"),
    "items for a number": raw(b"K\x01K\x02a"),
    "persistent id": b"Pabc\n.",
    "binary persistent id": raw(text("x"), b"Q"),
    "extension code": raw(b"\x82\x01"),
    "a set": raw(b"\x8f"),
    "out-of-band buffer": raw(b"\x97"),
    "NEWOBJ_EX": raw(name("numpy", "dtype"), b")}\x92"),
    "INST": b"(S'a'\nios\nsystem\n.",
    "OBJ": raw(b"(", name("numpy", "dtype"), b"o"),
    "BUILD on a name": raw(name("numpy", "dtype"), b"}", text("__call__"), b"K\x01s", b"b"),
    "BUILD on a dict": raw(b"}}", text("x"), b"K\x01s", b"b"),
    "a call of a string": raw(text("os.system"), b")R"),
    "a name that is no string": raw(b"K\x01K\x02\x93"),
    "dotted name": raw(name("numpy", "dtype.__init__")),
    "dtype with fields": raw(name("numpy", "dtype"), text("V8"), b"\x89\x88\x87R"),
    "dtype of a name": raw(name("numpy", "dtype"), text("i8, O"), b"\x89\x88\x87R"),
    "scalar of the wrong size": raw(name("numpy.core.multiarray", "scalar"), I8, b"C\x02ab\x86R"),
    "array larger than its bytes": raw(RECONSTRUCT, b"(K\x01J\xff\xff\xff\x7f\x85", I8, b"\x89C\x08abcdefgh", b"tb"),
    "array of a negative size": raw(RECONSTRUCT, b"(K\x01J\xff\xff\xff\xff\x85", I8, b"\x89C\x08abcdefgh", b"tb"),
    "array of objects as a list": raw(RECONSTRUCT, b"(K\x01K\x01\x85", I8, b"\x89]K\x01atb"),
    "array without content": raw(RECONSTRUCT),
    "a name as a value": raw(name("numpy", "dtype")),
    "no opcode": b"\xff",
    "a number of too many digits": b"I" + b"9" * 5000 + b"\n.",
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_and_crafted_pickles(what):
    """Whatever is malformed ends in one named error, at once."""
    with pytest.raises(SourceError):
        load_pickle(DAMAGED[what])


def test_a_memo_place_far_out_costs_nothing():
    """LONG_BINPUT to place two billion takes a dict entry, not sixteen gigabytes."""
    assert {} == load_pickle(b"\x80\x04}r\xff\xff\xff\x7f.")


def test_copies_are_bounded_by_the_file():
    """A long string that is turned into bytes again and again stops at a few times the file's size."""
    encode = name("_codecs", "encode") + b"\x94" + text("x" * 100_000) + b"\x94" + text("latin1") + b"\x94"
    again = b"h\x00" + b"h\x01" + b"h\x02" + b"\x86R"
    with pytest.raises(SourceError, match="unfolds"):
        load_pickle(b"\x80\x04" + encode + b"]" + again * 1000 + b".")


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_random_bytes(data):
    """Random bytes give a value or a SourceError, never anything else."""
    try:
        load_pickle(data)
    except SourceError:
        return


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_mutated_pickles(data):
    """An honest pickle with bytes changed gives a value or a SourceError."""
    content = {f"{i}.png": np.int64(i) for i in range(5)} | {"x": np.arange(3), b"y": "cat", "z": 2**70}
    raw_bytes = bytearray(pickle.dumps(content, data.draw(st.sampled_from(PROTOCOLS))))
    for _ in range(data.draw(st.integers(1, 4))):
        raw_bytes[data.draw(st.integers(0, len(raw_bytes) - 1))] = data.draw(st.integers(0, 255))
    try:
        load_pickle(bytes(raw_bytes))
    except SourceError:
        return
