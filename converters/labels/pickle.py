"""Reads a pickle as data: a small machine that knows containers and numbers and cannot call anything.

The readers of ``pickletools`` take the opcodes apart; what they mean is here. ``pickle.Unpickler`` with a strict
``find_class`` is not enough for files from strangers: five bytes (``LONG_BINPUT 0x7fffffff``) make it allocate
gigabytes, a nest of shared tuples used as a key keeps it hashing for years, and ``BUILD`` calls ``__setstate__`` of
whatever is on the stack. Here, no name is ever looked up, no method of an object is ever called, and memory is limited
by the size of the file.

Understood: protocols 0 to 5; None, bool, int, float, str, bytes, bytearray; list, tuple, dict and
``collections.OrderedDict``; NumPy scalars and arrays of numbers and strings. Everything else is refused by name.
"""

from __future__ import annotations

import codecs
import io
import math
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np

from fastio.errors import SourceError

__all__ = ["load_pickle"]

# Names that a pickle may mention, and what they mean here. numpy 1 and 2 use different module names.
_NAMES = {
    ("numpy", "dtype"): "dtype",
    ("numpy", "ndarray"): "ndarray",
    ("collections", "OrderedDict"): "dict",
    ("_codecs", "encode"): "encode",  # how Python 3 writes bytes in protocols 0 to 2
    ("builtins", "bytes"): "bytes",  # ... and empty ones
    ("__builtin__", "bytes"): "bytes",
    ("builtins", "bytearray"): "bytes",
    ("__builtin__", "bytearray"): "bytes",
}
for _package in ("numpy.core", "numpy._core"):
    _NAMES[_package + ".multiarray", "scalar"] = "scalar"
    _NAMES[_package + ".multiarray", "_reconstruct"] = "reconstruct"
    _NAMES[_package + ".numeric", "_frombuffer"] = "frombuffer"

_KEY_TYPES = (str, bytes, int)


def load_pickle(data: bytes) -> Any:
    """
    Return the value of a pickle without running any of it.

    bytearrays come back as bytes, NumPy scalars as Python's own numbers and strings, arrays as arrays. Raises
    SourceError that says what is not allowed, or where the pickle is malformed; the caller names the file.
    """
    machine = _Machine(data)
    try:
        value = machine.run()
    except (IndexError, KeyError, ValueError) as exc:
        if isinstance(exc, SourceError):
            raise
        raise SourceError(f"malformed or truncated pickle at byte {machine.at} of {len(data)}") from exc
    if isinstance(value, dict):
        return {key: _leaf(each) for key, each in value.items()}
    return [_leaf(each) for each in value] if isinstance(value, list) else _leaf(value)


def _leaf(value: Any) -> Any:
    """What is outermost, or in a dict or list that is, as the caller gets it."""
    if isinstance(value, _DType | _Global):
        raise SourceError(f"the pickle holds a {_kind(value)} as a value; expected numbers, strings and containers")
    if isinstance(value, _Array):
        if value.array is None:
            raise SourceError("the pickle holds a numpy array without its content")
        return value.array
    return value


class _Global:
    """A name that the pickle mentions; only compared, never called."""

    __slots__ = ("role", "title")

    def __init__(self, module: object, name: object) -> None:
        role = _NAMES.get((module, name)) if isinstance(module, str) and isinstance(name, str) else None
        if role is None:
            raise SourceError(
                f"the pickle asks for {_short(module)}.{_short(name)}, which is not a plain container or number: "
                "save the labels as a dict of str to int or str, or as .csv"
            )
        self.role = role
        self.title = f"{module}.{name}"


class _DType:
    """A numpy dtype on its way through the machine."""

    __slots__ = ("dtype",)

    def __init__(self, code: object) -> None:
        text = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        if not isinstance(text, str) or text[:1] not in tuple("biufSU") or not text[1:].isdigit() or len(text) > 10:
            raise SourceError(f"the pickle holds a numpy dtype {_short(text)}; only numbers and strings are read")
        try:
            self.dtype = np.dtype(text)
        except TypeError as exc:
            raise SourceError(f"the pickle holds a numpy dtype {_short(text)}; there is none") from exc

    def set_state(self, state: object) -> None:
        """``(version, byte order, subdtype, names, fields, size, alignment, flags)``, of which the order counts."""
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise SourceError(
                f"the pickle holds a structured numpy dtype {_short(state)}; only numbers and strings are read"
            )
        order = state[1].decode("ascii", "replace") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "="):
            raise SourceError(f"the pickle holds a numpy dtype of byte order {_short(order)}")
        self.dtype = self.dtype.newbyteorder(">" if order == ">" else "<")


class _Array:
    """A numpy array on its way through the machine."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray[Any, Any] | None = None) -> None:
        self.array = array

    def set_state(self, state: object) -> None:
        """``(version, shape, dtype, fortran, bytes)``."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise SourceError(f"malformed numpy array in the pickle: {_short(state)}")
        self.array = _array(state[4], state[2], state[1], "F" if state[3] else "C")


class _Machine:
    """The stack, the memo and the position of one run."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0  # of the opcode under way
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.copied = 0

    def run(self) -> Any:
        """Execute until STOP. Every argument is read by ``pickletools``, which takes no more bytes than there are."""
        file = io.BytesIO(self.data)
        while code := file.read(1):
            self.at = file.tell() - 1
            if code == b".":
                return self.stack[-1]
            read, do = _OPCODES.get(code) or self.refuse(code)
            do(self, read(file) if read else None)
        raise IndexError("no STOP")

    def refuse(self, code: bytes) -> Any:
        """Any opcode that is not understood."""
        name = next((op.name for op in pickletools.opcodes if op.code == code.decode("latin-1")), None)
        what = f"opcode {name}" if name else f"byte {code[0]:#04x}, which is no opcode,"
        raise SourceError(f"the pickle holds {what} at byte {self.at}; only containers, strings and numbers are read")

    def group(self) -> list[Any]:
        """End the group that MARK began and give its values."""
        values = self.stack
        self.stack = self.marks.pop()
        return values

    def mark(self) -> None:
        """Begin a group of values."""
        self.marks.append(self.stack)
        self.stack = []

    def push_group(self, kind: Callable[[list[Any]], Any]) -> None:
        """LIST and TUPLE: replace the group by what it becomes."""
        values = self.group()
        self.stack.append(kind(values))

    def tuple_of(self, count: int) -> None:
        """Replace the last values by a tuple of them."""
        if count > len(self.stack):
            raise IndexError("the stack is too short")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def put(self, place: int) -> None:
        """Remember the top of the stack."""
        self.memo[place] = self.stack[-1]

    def set_items(self, target: object, values: list[Any]) -> None:
        """Fill a dict from alternating keys and values; keys of any other type than str, bytes, int are refused."""
        if not isinstance(target, dict) or len(values) % 2:
            raise SourceError(f"malformed pickle at byte {self.at}: items for something that is not a dict")
        keys = values[::2]
        for key in keys:
            if not isinstance(key, _KEY_TYPES):
                raise SourceError(f"the pickle has a dict key of type {_kind(key)}; expected str, bytes or int")
        target.update(zip(keys, values[1::2], strict=True))

    def extend(self, target: object, values: list[Any]) -> None:
        """Append to a list."""
        if not isinstance(target, list):
            raise SourceError(f"malformed pickle at byte {self.at}: items for something that is not a list")
        target.extend(values)

    def set_group(self) -> None:
        """SETITEMS: the group's keys and values into the dict below it."""
        values = self.group()
        self.set_items(self.stack[-1], values)

    def extend_group(self) -> None:
        """APPENDS: the group's values into the list below it."""
        values = self.group()
        self.extend(self.stack[-1], values)

    def new_dict(self) -> None:
        """DICT: a group as a dict."""
        values = self.group()
        self.stack.append({})
        self.set_items(self.stack[-1], values)

    def charge(self, parts: tuple[Any, ...]) -> None:
        """
        Count bytes that are about to be copied.

        A call may name the same long string again and again in a few bytes each: an honest file copies each once.
        """
        self.copied += sum(len(part) for part in parts if isinstance(part, str | bytes))
        if self.copied > 4 * len(self.data) + 65536:
            raise SourceError(f"the pickle of {len(self.data)} bytes unfolds to more than {self.copied} bytes")

    def reduce(self) -> None:
        """REDUCE and NEWOBJ: one of the few meanings of ``_NAMES``, never a call of what the name stands for."""
        args, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, _Global) or not isinstance(args, tuple):
            raise SourceError(f"malformed pickle at byte {self.at}: a call of {_kind(function)}")
        self.charge(args)
        self.stack.append(_meaning(function, args))

    def build(self) -> None:
        """BUILD: the state of a dtype or an array."""
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, _DType | _Array):
            self.charge(state if isinstance(state, tuple) else ())
            target.set_state(state)
        elif state not in (None, ()):
            raise SourceError(f"the pickle sets attributes of a {_kind(target)} at byte {self.at}; that is not allowed")


def _meaning(function: _Global, args: tuple[Any, ...]) -> Any:
    """What a pickled call of an allowed name stands for."""
    match function.role, args:
        case "dtype", (code, *_):
            return _DType(code)
        case "scalar", (_DType() as kind, bytes() | str() as raw):
            return _array(raw, kind, (), "C").item()
        case "reconstruct", (_Global(role="ndarray"), *_):
            return _Array()
        case "frombuffer", (bytes() as raw, _DType() as kind, tuple() as shape, *order):
            return _Array(_array(raw, kind, shape, "F" if order == ["F"] else "C"))
        case "dict", ():
            return {}
        case "encode" | "bytes", (str() as text, ("latin1" | "latin-1")):
            return text.encode("latin1")
        case "bytes", ():
            return b""
        case "bytes", (bytes() as raw,):
            return raw
    raise SourceError(
        f"the pickle calls {function.title} with {_short(args)}, which is not how a number or container is saved"
    )


def _array(raw: object, kind: object, shape: object, order: str) -> np.ndarray[Any, Any]:
    """An array over bytes that are all there: a shape can promise no more than the file holds."""
    if isinstance(raw, str):
        raw = raw.encode("latin1")
    if not isinstance(raw, bytes) or not isinstance(kind, _DType) or not isinstance(shape, tuple):
        raise SourceError(f"the pickle holds a numpy array of {_kind(raw)}; only numbers and strings are read")
    if not all(type(size) is int and size >= 0 for size in shape) or len(shape) > 8:
        raise SourceError(f"the pickle holds a numpy array of shape {_short(shape)}")
    if kind.dtype.itemsize == 0 or math.prod(shape) * kind.dtype.itemsize != len(raw):
        raise SourceError(
            f"the pickle holds a numpy array of shape {_short(shape)} and {kind.dtype} in {len(raw)} bytes"
        )
    return np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if order == "F" else "C")


def _kind(value: object) -> str:
    if isinstance(value, _Global):
        return value.title
    return {_DType: "numpy.dtype", _Array: "numpy.ndarray"}.get(type(value), type(value).__name__)


def _short(value: object) -> str:
    """A few characters of a value for a message; containers by type alone, for they may be endless."""
    if isinstance(value, tuple):
        return "(" + ", ".join(_kind(part) if isinstance(part, tuple) else _short(part) for part in value[:6]) + ")"
    if isinstance(value, str):
        return value[:60] if value[:60].isprintable() else ascii(value[:60])
    if isinstance(value, bytes):
        return ascii(value[:60])
    if isinstance(value, int) and value.bit_length() <= 64:
        return str(value)
    return _kind(value)


# The opcodes that are understood, by what they do with their argument. What is missing (persistent ids, extension
# codes, sets, out-of-band buffers, INST, OBJ, NEWOBJ_EX) is refused by name.
_PUSHED = (
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 "
    "STRING BINBYTES SHORT_BINBYTES BINBYTES8"
)
_MEANINGS: dict[str, Callable[[_Machine, Any], object]] = {
    **dict.fromkeys(_PUSHED.split(), lambda m, arg: m.stack.append(arg)),
    "BYTEARRAY8": lambda m, arg: m.stack.append(bytes(arg)),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), lambda m, arg: m.stack.append(arg.encode("latin1"))),
    "NONE": lambda m, _: m.stack.append(None),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "MARK": lambda m, _: m.mark(),
    "LIST": lambda m, _: m.push_group(list),
    "TUPLE": lambda m, _: m.push_group(tuple),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "DICT": lambda m, _: m.new_dict(),
    "APPEND": lambda m, _: m.extend(m.stack[-2], [m.stack.pop()]),
    "APPENDS": lambda m, _: m.extend_group(),
    "SETITEM": lambda m, _: m.set_items(m.stack[-3], [m.stack.pop(-2), m.stack.pop()]),
    "SETITEMS": lambda m, _: m.set_group(),
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.group(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda m, arg: m.put(arg)),
    "MEMOIZE": lambda m, _: m.put(len(m.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda m, arg: m.stack.append(m.memo[arg])),
    "GLOBAL": lambda m, arg: m.stack.append(_Global(*arg.split(" ", 1))),
    "STACK_GLOBAL": lambda m, _: m.stack.append(_Global(m.stack.pop(-2), m.stack.pop())),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda m, _: m.reduce()),
    "BUILD": lambda m, _: m.build(),
    **dict.fromkeys(("PROTO", "FRAME"), lambda m, _: None),  # the length of a frame says nothing that opcodes do not
}


def _read_bytes(file: io.BytesIO) -> bytes:
    """The argument of STRING, a str of Python 2: bytes, which pickletools would take for ASCII."""
    quoted: Any = pickletools.read_stringnl(file, decode=False)
    return codecs.escape_decode(quoted)[0]


_OPCODES: dict[bytes, tuple[Callable[[io.BytesIO], Any] | None, Callable[[_Machine, Any], object]]] = {
    op.code.encode("latin-1"): (
        _read_bytes if op.name == "STRING" else op.arg.reader if op.arg else None,
        _MEANINGS[op.name],
    )
    for op in pickletools.opcodes
    if op.name in _MEANINGS
}
