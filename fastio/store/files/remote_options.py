"""How files in object stores are read: what ``FastDataset`` and the commands take, in one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DEFAULT", "RemoteOptions"]


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """
    How objects are read, for every URL opened with it; paths of this machine ignore it.

    ``storage_options`` go to the client as they are (``{"endpoint": "http://127.0.0.1:8333", "region": ...}``);
    credentials come from where the provider's own tools find them unless they are given there.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict)
    cache_dir: str | None = None  # None: nothing is kept on the disk
    cache_limit: int | None = None  # bytes; None: nine tenths of what is free when it is first used
    download_retry: int = 5  # attempts after the first
    download_timeout: float = 60.0  # seconds that one request may take
    stage: str | None = None  # a folder of this machine to copy the whole set into

    def __post_init__(self) -> None:
        if self.download_retry < 0:
            raise ValueError(f"download_retry={self.download_retry}: expected 0 or more attempts")
        if not self.download_timeout > 0:
            raise ValueError(f"download_timeout={self.download_timeout}: expected seconds above 0")
        if self.cache_limit is not None and self.cache_limit < 0:
            raise ValueError(f"cache_limit={self.cache_limit}: expected 0 or more bytes")


DEFAULT = RemoteOptions()
