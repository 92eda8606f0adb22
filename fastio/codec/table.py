"""The table of codecs, by the names that a schema may give a field; and what their statuses mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from fastio import _native
from fastio.types.traits import TRAITS

if TYPE_CHECKING:
    from fastio.codec.codec import Codec

__all__ = ["CODECS", "describe_status"]


class _Codecs(Mapping[str, "Codec"]):
    """The codecs of all rows of ``TRAITS``, each imported when it is first asked for."""

    def __getitem__(self, name: str) -> Codec:
        path = TRAITS[name].codec
        if path is None:
            raise KeyError(name)
        return _codec(path)

    def __iter__(self) -> Iterator[str]:
        return (name for name, traits in TRAITS.items() if traits.codec is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def _codec(path: str) -> Codec:
    module, name = path.split(":")
    codec: Codec = getattr(import_module(module), name)()
    return codec


CODECS: Final[Mapping[str, Codec]] = _Codecs()

_WORDS: Final[dict[int, str]] = {
    _native.OK: "no error",
    _native.BAD_CHECKSUM: "its bytes differ from the checksum in the index: the file was damaged after packing",
    _native.TRUNCATED: "its data end too early",
    _native.CORRUPT: "its data are damaged",
    _native.UNSUPPORTED: "only Pillow may be able to decode this kind",
    _native.NO_MEMORY: "there is not enough memory for it",
    _native.BAD_SHAPE: "its decoded size differs from the row of the batch",
    _native.NOT_IMAGE: "it is not recognised as a picture",
    _native.IO_ERROR: "it could not be opened or read",
    _native.FAILED: "a function in the transforms raised an exception: call them on dataset[i][0] to see which",
    _native.TOO_LARGE: "its header announces more pixels than the limit allows",
    _native.CHANGED: "its file has changed",
}


def describe_status(status: int) -> str:
    """Return what a status of the native core means, as words that end a message.

    >>> describe_status(2)
    'its data end too early'
    """
    return _WORDS.get(status, f"unknown status {status}")
