"""Options of classes and functions: what is said about one that does not exist, and the option ``verify``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

__all__ = [
    "VERIFY_ALL",
    "brief_repr",
    "cannot_be_set",
    "check_verify",
    "explains_fields",
    "explains_names",
    "resolve_verify",
]


_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class")
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_NO_GROUPS: Final[Mapping[str, type[Any]]] = MappingProxyType({})


def explains_names(
    elsewhere: Mapping[str, str] = _NONE,
    *,
    example: str = "",
    same: Mapping[str, str] = _NONE,
    groups: Mapping[str, type[Any]] = _NO_GROUPS,
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """
    Let a function or an ``__init__`` explain an option that it does not have.

    The TypeError names the option of nearly the same name, or all of them. ``elsewhere`` says what to do instead of
    options that users know from elsewhere. For too many values without a name, it says which may have none;
    ``example`` is then an option with its value.

    ``same`` maps words of other libraries to the options that they mean. ``groups`` maps an option to the class of its
    values; what is passed by the name of a field of that class is put into one, with a DeprecationWarning.
    """

    def explained(called: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        is_method = called.__name__ == "__init__"
        name = called.__qualname__.removesuffix(".__init__")
        options = list(inspect.signature(called).parameters.values())[is_method:]
        known = [option.name for option in options]
        unnamed = [option.name for option in options if option.kind is not option.KEYWORD_ONLY]
        takes_any = any(option.kind is option.VAR_POSITIONAL for option in options)
        named = example or f"{known[-1]}=..." if len(unnamed) < len(known) and not takes_any else ""
        homes = {field: group for group, kind in groups.items() for field in inspect.signature(kind).parameters}
        older = homes.keys() - set(known)

        @wraps(called)
        def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            options: dict[str, Any] = kwargs
            if not (same.keys().isdisjoint(options) and older.isdisjoint(options)):
                options = _grouped(name, _translated(name, options, same), {old: homes[old] for old in older}, groups)
            unknown = [option for option in options if option not in known]
            if unknown:
                raise TypeError("; ".join(_advice(name, option, known, elsewhere) for option in unknown))
            if named and len(args) > len(unnamed) + is_method:
                raise TypeError(
                    f"{name}({', '.join(unnamed)}): got {len(args) - is_method} values without a name: name the "
                    f"others, such as {named}"
                )
            return called(*args, **options)

        return checked

    return explained


def explains_fields(dataclass: type[_Class]) -> type[_Class]:
    """
    Let the ``__init__`` of a dataclass explain an option that it does not have, as ``explains_names`` does. Its
    ``_ELSEWHERE``, if it has that, says what to write instead of options from elsewhere.
    """
    elsewhere = getattr(dataclass, "_ELSEWHERE", _NONE)
    dataclass.__init__ = explains_names(elsewhere)(dataclass.__init__)  # type: ignore[method-assign] # of this very class
    return dataclass


def brief_repr(value: Any, *, newer: Collection[str]) -> str:
    """
    Return the repr of a dataclass, without those of the ``newer`` fields that have their defaults: states that earlier
    releases saved do not know them.
    """
    given = [
        f"{field.name}={getattr(value, field.name)!r}"
        for field in fields(value)
        if field.name not in newer or getattr(value, field.name) != field.default
    ]
    return f"{type(value).__name__}({', '.join(given)})"


def _translated(name: str, options: Mapping[str, Any], same: Mapping[str, str]) -> dict[str, Any]:
    """Return options by their own names, whatever other libraries call them."""
    for word, option in same.items():
        if word in options and option in options:
            raise TypeError(f"{name}: {word} is another word for {option}: pass one of them")
    return {same.get(option, option): value for option, value in options.items()}


def _grouped(
    name: str, options: Mapping[str, Any], homes: Mapping[str, str], groups: Mapping[str, type[Any]]
) -> dict[str, Any]:
    """Return options with those of ``homes``, which have become fields of a group, in a value of that group."""
    grouped = {option: value for option, value in options.items() if option not in homes}
    for group, kind in groups.items():
        given = {option: value for option, value in options.items() if homes.get(option) == group}
        if not given:
            continue
        listed = ", ".join(f"{field}=..." for field in given)
        now = f"{group}={kind.__name__}({listed})"
        if group in options:
            raise TypeError(f"{name}: {', '.join(given)}: {group}= has that too: write {now}")
        warnings.warn(f"{name}({listed}): write {name}({now}) instead", DeprecationWarning, stacklevel=3)
        grouped[group] = kind(**given)
    return grouped


def _advice(name: str, option: str, known: Sequence[str], elsewhere: Mapping[str, str]) -> str:
    """Return what to write instead of an option, in words."""
    start = f"{name} has no option {option}"
    near = [option] if option in elsewhere else get_close_matches(option, [*known, *elsewhere], n=1)
    if not near:
        return f"{start}: it has {', '.join(known)}" if known else f"{start}, and no others: leave it out"
    return f"{start}: did you mean {near[0]}?" if near[0] in known else f"{start}: {elsewhere[near[0]]}"


# The option ``verify``: whether samples are compared with their checksums.


VERIFY_ALL = "all"  # of a dataset: samples when they are read, and the whole index at once


def check_verify(verify: object) -> bool:
    """Return ``verify``. Raises ValueError unless it is True or False."""
    if verify is True or verify is False:
        return verify
    dataset = f"; FastDataset takes {VERIFY_ALL!r} too (the whole index at once)"
    raise ValueError(f"verify={verify!r}: expected True (compare every sample with its checksum) or False{dataset}")


def resolve_verify(verify: bool | None, *, dataset_verify: bool) -> bool:
    """
    Decide whether a loader compares samples: as it was told, or if it was not, as its dataset does.

    >>> resolve_verify(None, dataset_verify=True), resolve_verify(False, dataset_verify=True)
    (True, False)
    """
    return dataset_verify if verify is None else check_verify(verify)


def cannot_be_set(name: str, kind: type, instead: str = "") -> AttributeError:
    """
    Return the error for setting an attribute of an object that was planned with what it was built with, in one line.

    ``instead`` says what else there is to do than to build another one.
    """
    known = name in inspect.signature(kind).parameters
    if not known and not hasattr(kind, name):
        near = get_close_matches(name, inspect.signature(kind).parameters, n=1)
        hint = f"did you mean {near[0]}? Even so, build another one" if near else "nothing would read it"
        return AttributeError(f"{kind.__name__} has no attribute {name}: {hint}")
    other = f"build another one, {kind.__name__}(..., {name}=...)" if known else "it can only be read"
    return AttributeError(f"{name} of a {kind.__name__} cannot be set: {instead or other}")
