"""PackOptions: how a source is packed, whatever becomes of its samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fastio.converters.planned.part import Part
from fastio.store.files.remote_options import DEFAULT, RemoteOptions

__all__ = ["PackOptions", "Progress"]

Progress = Callable[[int, int], object]  # called with the samples and bytes of each piece written


@dataclass(frozen=True, slots=True)
class PackOptions:
    """The arguments of ``pack``, which explains them."""

    jobs: int | None = None
    on_error: Literal["raise", "skip"] = "raise"
    shard_bytes: int | None = None
    overwrite: bool = False
    resume: bool = False
    part: Part | None = None
    progress: Progress | None = None
    remote: RemoteOptions = DEFAULT
    append: bool = False
    new_classes: bool = False
    jump: bool | None = None  # None: as the shards that are there, else yes
