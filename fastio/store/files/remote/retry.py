"""When a failed request is sent again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from fastio.errors import StoreError
from fastio.store.files.remote.client import RequestFailed
from fastio.store.files.remote_options import RemoteOptions

__all__ = ["after_attempts", "pause_s", "repeated"]

Result = TypeVar("Result")

_FIRST_S = 0.1
_LONGEST_S = 15.0
_LONGEST_ASKED_S = 60.0  # that a server's Retry-After is believed


def pause_s(attempt: int, retry_after_s: float | None = None) -> float:
    """
    Return the seconds to wait after failed attempt number ``attempt`` (counted from 0).

    They double from a tenth of a second up to 15, less a random part of up to a half, so that many readers do not come
    back at once. A server that named a time is given it, up to a minute.
    """
    pause = min(_LONGEST_S, _FIRST_S * 2.0**attempt) * random.uniform(0.5, 1.0)
    return pause if retry_after_s is None else max(pause, min(retry_after_s, _LONGEST_ASKED_S))


def repeated(path: str, options: RemoteOptions, attempt: Callable[[], Result]) -> Result:
    """
    Return what ``attempt`` returns, asked again after a pause while it fails for a reason that may pass.

    Raises StoreError when the last attempt failed.
    """
    for number in range(options.download_retry + 1):
        try:
            return attempt()
        except RequestFailed as exc:
            if number == options.download_retry:
                raise StoreError(str(after_attempts(path, exc, number + 1))) from None
            time.sleep(pause_s(number, exc.retry_after_s()))
    raise AssertionError


def after_attempts(path: str, failure: RequestFailed, attempts: int) -> RequestFailed:
    """Return the error that ends the attempts."""
    tried = "" if attempts == 1 else f", at the last of {attempts} attempts"
    return RequestFailed(path, f"{failure.reason}{tried}", failure.advice)
