"""When a busy server wants to be asked again: its Retry-After, which obstore does not pass on."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["RetryAfter", "seconds_of"]

_TIMEOUT_S = 5.0
_SHARED_S = 1.0  # many requests meet a busy server at once: one of them asks


class RetryAfter:
    """
    Asks a server that was busy for one byte, to see the header of its answer; once for all who want to know.

    ``address`` makes the URL of a key, signed if need be. Safe to share between threads.
    """

    def __init__(self, address: Callable[[str], str | None], headers: Mapping[str, str]) -> None:
        self._address = address
        self._headers = {**headers, "Range": "bytes=0-0"}
        self._asking = threading.Lock()
        self._asked_at = float("-inf")
        self._until: float | None = None

    def seconds(self, key: str) -> float | None:
        """Return the seconds until the server wants another request; None if it does not say."""
        with self._asking:
            if time.monotonic() > self._asked_at + _SHARED_S:
                wanted = self._ask(key)
                self._asked_at = time.monotonic()
                self._until = None if wanted is None else self._asked_at + wanted
            return None if self._until is None else max(0.0, self._until - time.monotonic())

    def _ask(self, key: str) -> float | None:
        url = self._address(key)
        if url is None or not url.startswith(("http://", "https://")):
            return None
        request = urllib.request.Request(url, headers=self._headers)  # noqa: S310 - checked above
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
                return None
        except urllib.error.HTTPError as exc:
            exc.close()
            return seconds_of(exc.headers.get("Retry-After"))
        except (OSError, ValueError):  # the request that counts will name it
            return None


def seconds_of(header: str | None) -> float | None:
    """
    Return the seconds that a Retry-After stands for, a number or a date; None for any other.

    >>> seconds_of("7"), seconds_of("Thu, 01 Jan 1970 00:00:00 GMT"), seconds_of("soon")
    (7.0, 0.0, None)
    """
    if header is None:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
