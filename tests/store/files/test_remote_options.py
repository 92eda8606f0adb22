"""Remote: values that mean nothing are refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from fastio.store.files.remote_options import Remote


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"download_timeout": "x"}, "download_timeout='x': expected a number"),
        ({"download_timeout": 0}, "download_timeout=0: expected seconds above 0"),
        ({"download_retry": True}, "download_retry=True: expected a number"),
        ({"download_retry": -1}, "download_retry=-1: expected 0 or more attempts"),
        ({"epoch_retry": -1}, "epoch_retry=-1: expected 0 or more attempts"),
        ({"cache_limit": -1, "cache_dir": "c"}, "cache_limit=-1: expected 0 or more bytes"),
        ({"cache_limit": "1GB"}, "cache_limit=1000000000: limits a cache_dir, and none is given"),
        ({"storage_options": "x"}, "storage_options='x': expected a dict"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    """The line names the option, its value, and what is expected."""
    with pytest.raises(ValueError, match=message):
        Remote(**options)
