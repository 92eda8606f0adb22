"""The options of all commands that open a store which may lie behind a URL, gathered into one argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.screen import SIZE
from fastio.cli.whole_number import WholeNumber

if TYPE_CHECKING:
    from fastio.store.files.remote_options import RemoteOptions

__all__ = ["REMOTE_NAMES", "hidden_secrets", "remote_options"]

REMOTE_NAMES = ("storage_option", "cache_dir", "cache_limit", "download_retry", "download_timeout")

_OPTION = "--storage-option"
_OPTIONS = (
    click.option(
        _OPTION,
        "storage_option",
        multiple=True,
        metavar="KEY=VALUE",
        help="For a URL: an option of its client, such as endpoint=http://127.0.0.1:9000; may be repeated.",
    ),
    click.option("--cache-dir", metavar="DIR", help="For a URL: keep what is read in this folder."),
    click.option("--cache-limit", type=SIZE, metavar="SIZE", help="How much DIR may hold: 200GB."),
    click.option(
        "--download-retry", type=WholeNumber(min=0), metavar="N", help="Attempts after the first.  [default: 5]"
    ),
    click.option(
        "--download-timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="How long one request may take.  [default: 60]",
    ),
)


def remote_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets them as one argument ``remote``."""

    @wraps(command)
    def with_options(
        *args: Any,
        storage_option: Sequence[str],
        cache_dir: str | None,
        cache_limit: int | None,
        download_retry: int | None,
        download_timeout: float | None,
        **rest: Any,
    ) -> None:
        given = {"download_retry": download_retry, "download_timeout": download_timeout}
        others = {name: value for name, value in given.items() if value is not None}
        if cache_limit is not None and cache_dir is None:
            raise click.UsageError("--cache-limit says how much --cache-dir may hold: add it")
        command(*args, remote=_gathered(storage_option, cache_dir, cache_limit, others), **rest)

    with_all: Callable[..., None] = with_options
    for option in reversed(_OPTIONS):
        with_all = option(with_all)
    return with_all


def hidden_secrets(arguments: Sequence[str]) -> list[str]:
    """
    Return a command line without what must not stand in a report.

    >>> hidden_secrets(["ls", "--storage-option", "secret_access_key=x", "--storage-option=region=eu"])
    ['ls', '--storage-option', 'secret_access_key=***', '--storage-option=region=eu']
    """
    from fastio.store.files.remote_options import SECRET

    shown: list[str] = []
    for number, argument in enumerate(arguments):
        option, sign, own = argument.partition("=")
        is_joined = option == _OPTION and bool(sign)
        text = own if is_joined else argument
        if is_joined or (number and arguments[number - 1] == _OPTION):
            key, sign, _ = text.partition("=")
            text = f"{key}=***" if sign and SECRET.search(key) else text
        shown.append(f"{_OPTION}={text}" if is_joined else text)
    return shown


def _gathered(
    storage: Sequence[str], cache_dir: str | None, cache_limit: int | None, others: dict[str, Any]
) -> RemoteOptions:
    from fastio.store.files.remote_options import RemoteOptions

    pairs = [option.partition("=") for option in storage]
    bad = next((key for key, sign, _ in pairs if not key or not sign), None)
    if bad is not None:
        raise click.UsageError(f"{_OPTION} {bad!r}: expected KEY=VALUE, e.g. endpoint=http://127.0.0.1:9000")
    try:
        return RemoteOptions.of(
            {key: value for key, _, value in pairs}, cache_dir=cache_dir, cache_limit=cache_limit, **others
        )
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
