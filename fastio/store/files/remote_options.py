"""How files in object stores are read: what ``FastDataset`` and the commands take, in one value."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any

from fastio.store.files.local import is_local
from fastio.types.options import explains_names
from fastio.types.units import parse_size

__all__ = ["DEFAULT", "SECRET", "Remote"]

# In the names of storage options whose values must not be shown.
SECRET = re.compile(r"secret|key|token|password|credential|signature|authorization", re.IGNORECASE)


@dataclass(frozen=True, slots=True, init=False)
class Remote:
    """
    How files behind URLs are read; paths of this machine ignore it::

        FastDataset("s3://bucket/train.fastio-set", remote=Remote(cache_dir="/scratch/fastio", cache_limit="200GB"))

    * ``storage_options`` go to the client as they are: ``{"endpoint": "http://127.0.0.1:8333", "region": ...}``.
      Credentials come from where the provider's own tools find them unless they are given there.
    * ``cache_dir``: a folder that keeps what was read, up to ``cache_limit`` bytes or "200GB" (default: nine tenths of
      what is free when it is first used).
    * ``download_retry``: attempts after the first; ``download_timeout``: seconds that one request may take.
    * ``epoch_retry``: attempts after the first that all requests of a FastLoader's epoch have together (default: any
      number).
    * ``stage``: a folder that the whole store is copied to while it is read, or before with ``stage_wait=True``.

    Folders may have ``~`` and ``$VARIABLES``. Raises ValueError for a value that means nothing.
    More: fastio/guide/remote.md and fastio/guide/staging.md.
    """

    storage_options: Mapping[str, Any]
    cache_dir: str | None
    cache_limit: int | None
    download_retry: int
    download_timeout: float
    epoch_retry: int | None
    stage: str | None
    stage_wait: bool

    @explains_names()
    def __init__(
        self,
        storage_options: Mapping[str, Any] | None = None,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
        download_retry: int = 5,
        download_timeout: float = 60.0,
        epoch_retry: int | None = None,
        stage: str | os.PathLike[str] | None = None,
        stage_wait: bool = False,
    ) -> None:
        values = {
            "storage_options": {} if storage_options is None else storage_options,
            "cache_dir": _folder("cache_dir", cache_dir),
            "cache_limit": parse_size(cache_limit) if isinstance(cache_limit, str) else cache_limit,
            "download_retry": download_retry,
            "download_timeout": download_timeout,
            "epoch_retry": epoch_retry,
            "stage": _folder("stage", stage),
            "stage_wait": stage_wait,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check()

    def shown(self) -> dict[str, Any]:
        """Return what differs from the defaults, as its arguments; values of secrets are "***"."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        given = {name: value for name, value in given.items() if value != getattr(DEFAULT, name)}
        if "storage_options" in given:
            given["storage_options"] = _without_secrets(given["storage_options"])
        return given

    def _check(self) -> None:
        """Raise ValueError for a value that means nothing."""
        if not isinstance(self.storage_options, Mapping):
            raise ValueError(f"storage_options={self.storage_options!r}: expected a dict of names and values")
        for name in ("download_retry", "download_timeout", "epoch_retry", "cache_limit"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, NoneType)):
                raise ValueError(f"{name}={value!r}: expected a number")
        if not isinstance(self.stage_wait, bool):
            raise ValueError(f"stage_wait={self.stage_wait!r}: expected True or False")
        if self.stage_wait and self.stage is None:
            raise ValueError("stage_wait=True: waits for a stage, and none is given")
        if self.download_retry < 0:
            raise ValueError(f"download_retry={self.download_retry}: expected 0 or more attempts")
        if self.epoch_retry is not None and self.epoch_retry < 0:
            raise ValueError(f"epoch_retry={self.epoch_retry}: expected 0 or more attempts")
        if not self.download_timeout > 0:
            raise ValueError(f"download_timeout={self.download_timeout}: expected seconds above 0")
        if self.cache_limit is not None and self.cache_limit < 0:
            raise ValueError(f"cache_limit={self.cache_limit}: expected 0 or more bytes")
        if self.cache_limit is not None and self.cache_dir is None:
            raise ValueError(f"cache_limit={self.cache_limit}: limits a cache_dir, and none is given")


def _without_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: _without_secrets(value) if isinstance(value, Mapping) else value for key, value in options.items()}
    return {key: "***" if SECRET.search(key) else value for key, value in plain.items()}


def _folder(name: str, path: str | os.PathLike[str] | None) -> str | None:
    if path is None:
        return None
    expanded = os.path.expanduser(os.path.expandvars(os.fspath(path)))  # noqa: PTH111 - pathlib has no expandvars
    if not expanded or "$" in expanded:
        raise ValueError(f"{name}={os.fspath(path)!r}: a variable in it is not set")
    if not is_local(expanded):
        raise ValueError(f"{name}={expanded!r}: expected a folder of this machine, got a URL")
    return expanded


DEFAULT = Remote()


class _RemoteOptions(Remote):
    """What Remote was called in 0.1, with the function that took options as users write them."""

    @staticmethod
    def of(storage_options: Mapping[str, Any] | None = None, **others: Any) -> Remote:
        """Return Remote with these options."""
        return Remote(storage_options, **others)


def __getattr__(name: str) -> Any:
    if name == "RemoteOptions":
        warnings.warn(f"{__name__}.RemoteOptions: write fastio.Remote instead", DeprecationWarning, stacklevel=2)
        return _RemoteOptions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
