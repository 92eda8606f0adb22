"""
Reads a pickle as data: a small machine that knows containers and numbers and cannot call anything.

``pickle.Unpickler`` with a strict ``find_class`` is not enough for files from strangers: five bytes (``LONG_BINPUT
0x7fffffff``) make it allocate gigabytes, a nest of shared tuples used as a key keeps it hashing for years, and
``BUILD`` calls ``__setstate__`` of whatever is on the stack. Here, no name is ever looked up, no method of an object
is ever called, and memory is limited by the size of the file.

Understood: protocols 0 to 5; None, bool, int, float, str, bytes, bytearray; list, tuple, dict and
``collections.OrderedDict``; NumPy scalars and arrays of numbers and strings. Everything else is refused by name.
"""

from __future__ import annotations

import codecs
import pickletools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from fastio.errors import SourceError

__all__ = [
    "load_pickle",
]


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

_U32 = struct.Struct("<I")
_KEY_TYPES = (str, bytes, int)
_OPCODE_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}


def load_pickle(data: bytes) -> Any:
    """
    Return the value of a pickle without running any of it.

    bytearrays come back as bytes, NumPy scalars as Python's own numbers and strings, arrays as arrays. Raises
    SourceError that says what is not allowed, or where the pickle is malformed; the caller names the file.
    """
    machine = _Machine(data)
    try:
        value = machine.run()
    except (IndexError, struct.error) as exc:
        raise SourceError(f"malformed or truncated pickle at byte {machine.at} of {len(data)}") from exc
    return _plain(value)


class _Global:
    """A name that the pickle mentions; only compared, never called."""

    __slots__ = ("role", "title")

    def __init__(self, module: str, name: str) -> None:
        role = _NAMES.get((module, name))
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
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.copied = 0

    def run(self) -> Any:
        """
        Execute until STOP.

        What nearly all of a label file consists of (a short string, its place in the memo, a small number)
        is handled here, everything else through the table.
        """
        data, memo = self.data, self.memo
        size = len(data)
        at, stack = self.at, self.stack
        while True:
            op = data[at]
            if op in (0x58, 0x8C):  # BINUNICODE, SHORT_BINUNICODE
                if op == 0x58:
                    start = at + 5
                    stop = start + _U32.unpack_from(data, at + 1)[0]
                else:
                    start = at + 2
                    stop = start + data[at + 1]
                if stop > size:
                    raise IndexError("string beyond the end")
                try:
                    text = data[start:stop].decode()
                except UnicodeDecodeError:
                    text = _utf8(data[start:stop])
                stack.append(text)
                at = stop
            elif op == 0x71:  # BINPUT
                memo[data[at + 1]] = stack[-1]
                at += 2
            elif op == 0x72:  # LONG_BINPUT
                memo[_U32.unpack_from(data, at + 1)[0]] = stack[-1]
                at += 5
            elif op == 0x94:  # MEMOIZE
                memo[len(memo)] = stack[-1]
                at += 1
            elif op == 0x4B:  # BININT1
                stack.append(data[at + 1])
                at += 2
            elif op == 0x2E:  # STOP
                return stack[-1]
            else:
                self.at = at + 1
                _HANDLERS.get(op, _Machine.refuse)(self)
                at, stack = self.at, self.stack

    def refuse(self) -> None:
        """Any opcode that is not understood."""
        op = self.data[self.at - 1]
        name = _OPCODE_NAMES.get(op)
        what = f"opcode {name}" if name else f"byte {op:#04x}, which is no opcode,"
        raise SourceError(
            f"the pickle holds {what} at byte {self.at - 1}; only containers, strings and numbers are read"
        )

    # Reading the pickle's own bytes.

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes; never more than there are."""
        stop = self.at + size
        if size < 0 or stop > len(self.data):
            raise IndexError(f"{size} bytes announced")
        part = self.data[self.at : stop]
        self.at = stop
        return part

    def counted(self, width: int) -> bytes:
        """Bytes with their little-endian length before them."""
        return self.take(int.from_bytes(self.take(width), "little"))

    def line(self) -> bytes:
        """Bytes up to the next newline (protocol 0)."""
        stop = self.data.find(b"\n", self.at)
        if stop < 0:
            raise IndexError("line without end")
        part = self.data[self.at : stop]
        self.at = stop + 1
        return part

    def number(self, text: bytes) -> int:
        """A decimal number; Python's own limit on digits bounds the work."""
        try:
            return int(text)
        except ValueError as exc:
            raise SourceError(f"the pickle holds a number that cannot be read: {_short(text)}") from exc

    # What the opcodes do.

    def push(self, value: object) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def mark(self) -> None:
        """Begin a group of values."""
        self.marks.append(self.stack)
        self.stack = []

    def group(self) -> list[Any]:
        """End the group and give its values."""
        values = self.stack
        self.stack = self.marks.pop()
        return values

    def tuple_of(self, count: int) -> None:
        """Replace the last values by a tuple of them."""
        if count > len(self.stack):
            raise IndexError("stack too short")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def put(self, place: int) -> None:
        """Remember the top of the stack."""
        self.memo[place] = self.stack[-1]

    def get(self, place: int) -> None:
        """Bring back what was remembered."""
        if place not in self.memo:
            raise IndexError("nothing remembered there")
        self.stack.append(self.memo[place])

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

    def charge(self, parts: tuple[Any, ...]) -> None:
        """
        Count bytes that are about to be copied.

        A call may name the same long string again and again in a few bytes each: an honest file copies each once.
        """
        self.copied += sum(len(part) for part in parts if isinstance(part, str | bytes))
        if self.copied > 4 * len(self.data) + 65536:
            raise SourceError(f"the pickle of {len(self.data)} bytes unfolds to more than {self.copied} bytes")

    def new_dict(self) -> None:
        """DICT: a group as a dict."""
        values = self.group()
        result: dict[Any, Any] = {}
        self.set_items(result, values)
        self.stack.append(result)

    def stack_global(self) -> None:
        """STACK_GLOBAL: a name from two strings."""
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise SourceError(f"malformed pickle at byte {self.at}: a name that is not a string")
        self.stack.append(_Global(module, name))

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

    def text_int(self) -> None:
        """INT: a decimal number, or 00 and 01 for False and True."""
        line = self.line()
        self.stack.append(line == b"01" if line in (b"00", b"01") else self.number(line))

    def text_float(self) -> None:
        """FLOAT: a decimal fraction."""
        line = self.line()
        try:
            self.stack.append(float(line))
        except ValueError as exc:
            raise SourceError(f"the pickle holds a number that cannot be read: {_short(line)}") from exc

    def text_string(self) -> None:
        """STRING: a quoted str of Python 2, taken as bytes."""
        line = self.line().strip()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
            raise SourceError(f"malformed string in the pickle: {_short(line)}")
        self.stack.append(_decoded(line[1:-1], codecs.escape_decode))

    def text_unicode(self) -> None:
        """UNICODE: a str with escapes."""
        self.stack.append(_decoded(self.line(), codecs.raw_unicode_escape_decode))


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
            return _latin1(text)
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
        raw = _latin1(raw)
    if not isinstance(raw, bytes) or not isinstance(kind, _DType) or not isinstance(shape, tuple):
        raise SourceError(f"the pickle holds a numpy array of {_kind(raw)}; only numbers and strings are read")
    if not all(type(size) is int and size >= 0 for size in shape) or len(shape) > 8:
        raise SourceError(f"the pickle holds a numpy array of shape {_short(shape)}")
    count = 1
    for size in shape:
        count *= size
    if kind.dtype.itemsize == 0 or count * kind.dtype.itemsize != len(raw):
        raise SourceError(
            f"the pickle holds a numpy array of shape {_short(shape)} and {kind.dtype} in {len(raw)} bytes"
        )
    flat = np.frombuffer(raw, kind.dtype)
    return flat.reshape(shape, order="F" if order == "F" else "C")


def _plain(value: Any) -> Any:
    """The outermost value, and those of a dict or list, as the caller gets them."""
    if isinstance(value, dict):
        if any(isinstance(v, _Array | _DType | _Global) for v in value.values()):
            return {k: _leaf(v) for k, v in value.items()}
        return value
    return [_leaf(v) for v in value] if isinstance(value, list) else _leaf(value)


def _leaf(value: Any) -> Any:
    if isinstance(value, _DType | _Global):
        raise SourceError(f"the pickle holds a {_kind(value)} as a value; expected numbers, strings and containers")
    if isinstance(value, _Array):
        if value.array is None:
            raise SourceError("the pickle holds a numpy array without its content")
        return value.array
    return value


def _utf8(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as exc:
        raise SourceError(f"the pickle holds a string that is not UTF-8: {_short(raw)}") from exc


def _latin1(text: str) -> bytes:
    try:
        return text.encode("latin1")
    except UnicodeEncodeError as exc:
        raise SourceError(f"the pickle holds bytes that are not bytes: {_short(text)}") from exc


def _decoded(raw: bytes, decode: Callable[[bytes], tuple[Any, int]]) -> Any:
    try:
        return decode(raw)[0]
    except ValueError as exc:
        raise SourceError(f"malformed string in the pickle: {_short(raw)}") from exc


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


def _signed(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


# Each opcode by its byte; what is missing here (persistent ids, extension codes, sets, out-of-band buffers,
# INST, OBJ, NEWOBJ_EX) is refused by name.
_HANDLERS: dict[int, Callable[[_Machine], object]] = {
    ord("("): _Machine.mark,
    ord("0"): lambda m: m.stack.pop(),
    ord("1"): lambda m: m.group(),
    ord("2"): lambda m: m.push(m.stack[-1]),
    ord("N"): lambda m: m.push(None),
    ord("I"): _Machine.text_int,
    ord("L"): lambda m: m.push(m.number(m.line().removesuffix(b"L"))),
    ord("F"): _Machine.text_float,
    ord("S"): _Machine.text_string,
    ord("V"): _Machine.text_unicode,
    ord("J"): lambda m: m.push(_signed(m.take(4))),
    ord("M"): lambda m: m.push(int.from_bytes(m.take(2), "little")),
    ord("G"): lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    ord("T"): lambda m: m.push(m.counted(4)),
    ord("U"): lambda m: m.push(m.counted(1)),
    ord("B"): lambda m: m.push(m.counted(4)),
    ord("C"): lambda m: m.push(m.counted(1)),
    0x8E: lambda m: m.push(m.counted(8)),  # BINBYTES8
    0x96: lambda m: m.push(m.counted(8)),  # BYTEARRAY8
    0x8D: lambda m: m.push(_utf8(m.counted(8))),  # BINUNICODE8
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    0x8A: lambda m: m.push(_signed(m.counted(1))),  # LONG1
    0x8B: lambda m: m.push(_signed(m.counted(4))),  # LONG4
    ord("]"): lambda m: m.push([]),
    ord("}"): lambda m: m.push({}),
    ord(")"): lambda m: m.push(()),
    ord("l"): lambda m: m.push(m.group()),
    ord("t"): lambda m: m.push(tuple(m.group())),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("d"): _Machine.new_dict,
    ord("a"): lambda m: m.extend(m.stack[-2], [m.stack.pop()]),
    ord("e"): _Machine.extend_group,
    ord("s"): lambda m: m.set_items(m.stack[-3], [m.stack.pop(-2), m.stack.pop()]),
    ord("u"): _Machine.set_group,
    ord("p"): lambda m: m.put(m.number(m.line())),
    ord("g"): lambda m: m.get(m.number(m.line())),
    ord("h"): lambda m: m.get(m.take(1)[0]),
    ord("j"): lambda m: m.get(int.from_bytes(m.take(4), "little")),
    ord("c"): lambda m: m.push(_Global(_utf8(m.line()), _utf8(m.line()))),
    0x93: _Machine.stack_global,
    ord("R"): _Machine.reduce,
    0x81: _Machine.reduce,  # NEWOBJ
    ord("b"): _Machine.build,
    0x80: lambda m: m.take(1),  # PROTO
    0x95: lambda m: m.take(8),  # FRAME: its length says nothing that the opcodes do not
}
