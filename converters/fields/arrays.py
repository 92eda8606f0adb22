"""Numbers of one field as arrays of its dtype and shape; a number that the dtype cannot hold is a problem."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.bfloat16 import array_of
from fastio.types.bfloat16 import BFLOAT16, dtype_name, is_bfloat16, rounded, widened
from fastio.types.field_types import type_of
from fastio.types.schema import Field

__all__ = [
    "UnfitError",
    "as_array",
    "as_numpy",
    "common_shape",
    "is_tensor",
    "number_column",
    "unfit",
]


# The kinds of dtypes whose values a dtype takes, each if it can hold the value. Floats are never made integers.
_KINDS: Final[Mapping[str, str]] = {"b": "biu", "i": "biu", "u": "biu", "f": "biuf", "c": "biufc", "S": "S", "U": "U"}

_IN_WORDS: Final = {"b": "True or False", "i": "a whole number", "u": "a whole number", "f": "a number"}


def number_column(field: Field, values: Sequence[Any]) -> tuple[NDArray[Any], dict[int, str]]:
    """Return the values of a column ``(n, *shape)``, zeros where a value does not fit, and what is wrong with those."""
    fast = _plain_numbers(field, values)
    if fast is not None:
        return fast, {}
    shape = field.shape
    column, problems = np.zeros((len(values), *(size or 0 for size in shape)), field.dtype), dict[int, str]()
    for position, value in enumerate(values):
        try:
            column[position] = as_array(field, value)
        except UnfitError as exc:
            problems[position] = exc.sentence(field.name)
    return column, problems


def _plain_numbers(field: Field, values: Sequence[Any]) -> NDArray[Any] | None:
    """The column of Python numbers of one type that all fit; None if a look at each is needed."""
    kinds = set(map(type, values))
    if field.shape or len(kinds) != 1 or not kinds <= {int, float, bool}:
        return None
    given = np.array(values)
    if given.dtype.kind not in _KINDS[np.dtype(field.dtype).kind]:
        return None
    column, misfit = _cast(given, np.dtype(field.dtype))
    return None if misfit is not None else column


def as_array(field: Field, value: Any) -> NDArray[Any]:
    """
    Return one value in the field's dtype and shape, C order; it may share memory with ``value``.

    Takes whatever NumPy makes an array of numbers of, and tensors of torch. Bool, integers and floats count as any
    wider one of these; floats are rounded to a narrower float. Raises UnfitError for another shape, text, None,
    masked values, and numbers that would change: a float for an integer, 300 for uint8, 1e300 for float32. bfloat16 is
    taken as tensors, as arrays of ml_dtypes, as ``|V2``, and rounded from other floats; it is returned as ``|V2``.
    """
    to_bfloat16, shape = field.dtype == BFLOAT16, field.shape
    dtype = np.dtype(np.float32 if to_bfloat16 else field.dtype)
    expected = _expected(field)
    if value is None:
        raise unfit(value, expected)
    role = _box_format(value)
    if role and field.is_box and role != field.role:
        raise UnfitError(f"holds boxes of the format {role}; expected {field.role}: convert them, or change the type")
    given = as_numpy(value, expected=expected)
    if given.size == 0 and given.ndim == 1 and shape[:1] == (None,):
        given = np.empty((0, *(size or 0 for size in shape[1:])), dtype)  # an empty list has no dtype
    fits = field.takes(given.shape)
    if is_bfloat16(given.dtype):
        if to_bfloat16 and fits:
            return np.ascontiguousarray(given).view(BFLOAT16).reshape(given.shape)
        given = widened(given)
    if given.dtype == object and fits and all(type(number) is int for number in given.flat):
        raise UnfitError(f"holds {_largest(given)}, which {dtype_name(field.dtype)} cannot hold")
    if not fits or given.dtype.kind not in _KINDS.get(dtype.kind, ""):
        raise unfit(value, expected, got=_description(given))
    cast, misfit = _cast(given, dtype)
    if to_bfloat16 and misfit is None:
        cast, misfit = _to_bfloat16(given, cast)
    if misfit is not None:
        raise UnfitError(f"holds {misfit}, which {dtype_name(field.dtype)} cannot hold")
    return cast


def _to_bfloat16(given: NDArray[Any], wide: NDArray[np.float32]) -> tuple[NDArray[Any], Any]:
    """As ``_cast``, by way of float32: floats are rounded, unless they become infinite; whole numbers must stay."""
    cast = rounded(wide)
    kept = widened(cast)
    misfits = kept != wide if given.dtype.kind in "biu" else np.isinf(kept) & ~np.isinf(wide)
    return cast, given[misfits].ravel()[0].item() if misfits.any() else None


def common_shape(shapes: Collection[tuple[int, ...]]) -> tuple[int | None, ...]:
    """
    Return the shape of a field that takes arrays of these shapes, of equally many axes: None for sizes that differ.

    >>> common_shape([(16, 32, 48), (16, 48, 32)])
    (16, None, None)
    """
    sizes = (set(axis) for axis in zip(*shapes, strict=True))
    return tuple(next(iter(size)) if len(size) == 1 else None for size in sizes)


def _expected(field: Field) -> str:
    """The values of a field in words."""
    if field.shape or not field.is_column:
        return type_of(field)
    kind = np.dtype(field.dtype).kind
    return {"b": "True or False", "i": "a whole number", "u": "a whole number", "f": "a number"}.get(
        kind, type_of(field)
    )


def _description(given: NDArray[Any]) -> str:
    name = {"U": "text", "S": "bytes", "O": "objects", "M": "dates", "m": "time spans"}.get(given.dtype.kind)
    name = name or dtype_name(given.dtype)
    return f"{name} of shape {given.shape}" if given.ndim else name


def as_numpy(value: Any, *, expected: str) -> NDArray[Any]:
    """
    Return an array of anything that is one: arrays, tensors, numbers, lists of them; ``|V2`` of bfloat16. Raises
    UnfitError otherwise.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise UnfitError("has masked values: fill them")
    if is_tensor(value):
        return _of_tensor(value, expected)
    if isinstance(value, (list, tuple)) and any(map(is_tensor, value)):
        value = [as_numpy(each, expected=expected) for each in value]
    try:
        return np.asarray(value)
    except OverflowError as exc:
        raise UnfitError(f"holds a number that is too large; expected {expected}") from exc
    except (ValueError, TypeError) as exc:  # the usual reason; NumPy's own words are of no use to readers
        raise unfit(value, expected, got="lists of different lengths") from exc


def is_tensor(value: Any) -> bool:
    """Whether this is a tensor of torch, which is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _of_tensor(tensor: Any, expected: str) -> NDArray[Any]:
    plain = tensor.detach().cpu()
    try:
        return array_of(plain.resolve_conj().resolve_neg().contiguous())
    except (RuntimeError, TypeError, NotImplementedError) as exc:  # sparse, quantised, nested, 8-bit floats
        raise UnfitError(f"is a tensor {tensor.dtype} that NumPy has no array for; expected {expected}") from exc


def _box_format(value: Any) -> str:
    """The format of boxes that torchvision's ``tv_tensors.BoundingBoxes`` names; "" for anything else."""
    return value.format.name.lower() if is_tensor(value) and type(value).__name__ == "BoundingBoxes" else ""


def _cast(given: NDArray[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], Any]:
    """The array in this dtype, C order, and the first number that it cannot hold; None if it holds all."""
    if given.dtype == dtype:
        return np.ascontiguousarray(given).reshape(given.shape), None
    with np.errstate(all="ignore"):
        cast = np.asarray(given.astype(dtype, order="C"))
        misfits = _misfits(given, cast)
    if misfits is None or not misfits.any():
        return cast, None
    return cast, given[misfits].ravel()[0].item()


def _misfits(given: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Where the cast changed a number by more than rounding a float; None: nowhere, by the dtypes alone."""
    if np.can_cast(given.dtype, cast.dtype, "safe"):
        return ~_same_integers(given, cast) if _is_wide(given, cast) else None
    if given.dtype.kind in "fc":
        return np.asarray(np.isinf(cast) & ~np.isinf(given))
    if cast.dtype.kind in "fc":
        return ~_same_integers(given, cast)
    if cast.dtype.kind in "iu":
        limits = np.iinfo(cast.dtype)
        low, high = np.iinfo(given.dtype).min, np.iinfo(given.dtype).max
        return np.logical_or(given < max(limits.min, low), given > min(limits.max, high))
    return np.asarray(cast != given)


def _is_wide(given: NDArray[Any], cast: NDArray[Any]) -> bool:
    """NumPy calls the cast of 64-bit integers to float64 safe."""
    return given.dtype.kind in "iu" and given.dtype.itemsize == 8 and cast.dtype.kind in "fc"


def _same_integers(given: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    """Which integers a cast to floats kept, compared as Python's numbers where float64 could hide it."""
    real = np.asarray(cast.real)
    if given.dtype.itemsize < 8:
        return np.asarray(real.astype(np.float64) == given)
    limit = 1 << (np.finfo(real.dtype).nmant + 1)
    near = np.asarray((given <= limit) & (given >= (-limit if given.dtype.kind == "i" else 0)))
    if near.all():
        return near
    pairs = zip(given.ravel().tolist(), real.ravel().tolist(), strict=True)
    return np.array([number == kept for number, kept in pairs]).reshape(given.shape)


def _largest(numbers: NDArray[Any]) -> int:
    return int(max(numbers.flat, key=abs))


# UnfitError: a value that is not of its field's type.

_SHOWN = 60  # characters of a value in a message


class UnfitError(Exception):
    """A value that does not fit its field; the message follows "has a field 'name' that"."""

    def sentence(self, field: str) -> str:
        """Return the problem in words that follow the sample's key."""
        return f"has a field {field!r} that {self}"


def unfit(value: Any, expected: str, *, got: str = "") -> UnfitError:
    """Return the error for a value of another type than ``expected``; ``got`` says more than the type's name."""
    if value is None:
        return UnfitError(f"is None; expected {expected}")
    try:
        text = " ".join(repr(value).split())
    except Exception:  # any class may be handed over, and its repr may fail in any way
        text = "..."
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return UnfitError(f"is {got or type(value).__name__} ({text}); expected {expected}")
