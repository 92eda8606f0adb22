"""Options of classes and functions: what is said about one that does not exist, and the option ``verify``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from types import MappingProxyType
from typing import Final, ParamSpec, TypeVar

__all__ = [
    "check_verify",
    "explains_fields",
    "explains_names",
    "resolve_verify",
]


_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class")
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def explains_names(
    elsewhere: Mapping[str, str] = _NONE, *, example: str = ""
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """
    Let a function or an ``__init__`` explain an option that it does not have.

    The TypeError names the option of nearly the same name, or all of them. ``elsewhere`` says what to do instead of
    options that users know from elsewhere. For too many values without a name, it says which may have none;
    ``example`` is then an option with its value.
    """

    def explained(called: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        is_method = called.__name__ == "__init__"
        name = called.__qualname__.removesuffix(".__init__")
        options = list(inspect.signature(called).parameters.values())[is_method:]
        known = [option.name for option in options]
        unnamed = [option.name for option in options if option.kind is not option.KEYWORD_ONLY]
        named = example or f"{known[-1]}=..." if len(unnamed) < len(known) else ""

        @wraps(called)
        def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            unknown = [option for option in kwargs if option not in known]
            if unknown:
                raise TypeError("; ".join(_advice(name, option, known, elsewhere) for option in unknown))
            if named and len(args) > len(unnamed) + is_method:
                raise TypeError(
                    f"{name}({', '.join(unnamed)}): got {len(args) - is_method} values without a name: name the "
                    f"others, such as {named}"
                )
            return called(*args, **kwargs)

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


def _advice(name: str, option: str, known: Sequence[str], elsewhere: Mapping[str, str]) -> str:
    """Return what to write instead of an option, in words."""
    start = f"{name} has no option {option}"
    near = [option] if option in elsewhere else get_close_matches(option, [*known, *elsewhere], n=1)
    if not near:
        return f"{start}: it has {', '.join(known)}" if known else f"{start}, and no others: leave it out"
    return f"{start}: did you mean {near[0]}?" if near[0] in known else f"{start}: {elsewhere[near[0]]}"


# The option ``verify``: whether samples are compared with their checksums.


def check_verify(verify: object) -> bool:
    """Return ``verify``. Raises ValueError unless it is True or False."""
    if verify is True or verify is False:
        return verify
    raise ValueError(f"verify={verify!r}: expected True (compare every sample with its checksum) or False")


def resolve_verify(verify: bool | None, *, dataset_verify: bool) -> bool:
    """
    Decide whether a loader compares samples: as it was told, or if it was not, as its dataset does.

    >>> resolve_verify(None, dataset_verify=True), resolve_verify(False, dataset_verify=True)
    (True, False)
    """
    return dataset_verify if verify is None else check_verify(verify)
