"""When a failed request is sent again."""

from __future__ import annotations

import random

__all__ = ["pause_s"]

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
