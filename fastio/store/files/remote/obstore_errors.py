"""What obstore's errors mean. Their text has many lines, most of them for debugging."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from fastio.errors import StoreError, StoreNotFound
from fastio.store.files.remote.client import WRONG_ANSWER, Cause, Precondition, RequestFailed
from fastio.store.files.remote.storage_options import OPTION_NAMES

__all__ = ["translated"]

_STATUS = re.compile(r"status code: (\d{3})([^:\n]*)")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_OS_MESSAGE = re.compile(r'message: "([^"]*)"')
_PREFIX = re.compile(r"Generic \w+ error: ")
_RANGE = re.compile(r"Requested (\d+)\.\.(\d+), got (\d+)\.\.(\d+)")
_NO_RANGE = 416
_PASSING = frozenset({408, 409, _NO_RANGE, 425, 429})  # and all from 500
_BUSY = frozenset({429, 503, 509})
_EXPIRED = re.compile("expired|InvalidToken|TokenRefreshRequired", re.IGNORECASE)
_LOG_IN = "log in again, or pass new ones"
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|specified bucket does not exist")
_UNKNOWN_OPTION = re.compile(r"Configuration key: '([^']*)' is not valid")
_METADATA = re.compile(r"169\.254\.1(69\.254|70\.2)|metadata\.google")
_PROVIDER = re.compile(r"credential provider: (?:[\w.]+: )?([^\n]*)")
_SERVER_ERROR = 500


def translated(exc: Exception, url: str, errors: Any, timeout_s: float) -> StoreError:
    """
    Return the error that fastio raises for one of obstore's, whose classes ``errors`` holds.

    It names the URL and says in one line what happened and what to do.
    """
    text = str(exc)
    if isinstance(exc, (errors.PreconditionError, errors.AlreadyExistsError)):
        return Precondition(f"{url}: is there already, or is another version than expected: open the store again")
    if _NO_BUCKET.search(text):
        bucket = "/".join(url.split("/")[:3])
        return StoreNotFound(f"{bucket}: no such bucket: check its name, and the endpoint")
    if isinstance(exc, FileNotFoundError):
        return StoreNotFound(f"{url}: no such object; check the name, or pack the dataset first")
    provider = _PROVIDER.search(text)
    if provider is not None:
        return StoreError(provider[1] if provider[1].startswith(url.partition("//")[0]) else f"{url}: {provider[1]}")
    unknown = _UNKNOWN_OPTION.search(text)
    if unknown is not None:
        near = get_close_matches(unknown[1], OPTION_NAMES, 1)
        hint = f": did you mean {near[0]!r}?" if near else ": see the names of obstore's or fsspec's options"
        return StoreError(f"{url}: storage option {unknown[1]!r} is unknown{hint}")
    status, code, reason = _answer(text)
    if _EXPIRED.search(code) or (status in (400, 401, 403) and _EXPIRED.search(reason)):
        return RequestFailed(url, f"the credentials have expired ({reason})", _LOG_IN, cause="expired")
    if _METADATA.search(text) and (status is None or status < _SERVER_ERROR):
        return StoreError(
            f"{url}: found no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE (s3), "
            "GOOGLE_APPLICATION_CREDENTIALS (gs), AZURE_STORAGE_ACCOUNT_NAME and _KEY (az), or pass "
            'storage_options={"anon": True} for public data'
        )
    if status in (401, 403) or isinstance(exc, (errors.PermissionDeniedError, errors.UnauthenticatedError)):
        return StoreError(f"{url}: access denied ({reason}): check the credentials and what they allow")
    if status is None or status in _PASSING or status >= _SERVER_ERROR:
        has_no_range = status == _NO_RANGE or "RangeNotSupported" in text
        cause: Cause = "busy" if status in _BUSY else "range" if has_no_range else ""
        words = (reason, "check the server, or raise download_retry") if reason else _failure(text, timeout_s)
        return RequestFailed(url, *words, cause=cause)
    return StoreError(f"{url}: cannot be read or written ({reason}): check the address and the options")


def _answer(text: str) -> tuple[int | None, str, str]:
    """Return the HTTP status in an error's text, the server's code, and both with its message; None without one."""
    match = _STATUS.search(text)
    if match is None:
        return None, "", ""
    code, message = _CODE.search(text), _MESSAGE.search(text)
    words = f"the server answers {match[1]}{match[2].rstrip()}"
    details = ": ".join(part[1].strip() for part in (code, message) if part is not None)
    return int(match[1]), code[1] if code else "", f"{words}, {details}" if details else words


def _failure(text: str, timeout_s: float) -> tuple[str, str]:
    """Return what went wrong with a request that has no whole answer, and what to do about it."""
    wrong, network = _RANGE.search(text), "check the address and the network"
    if wrong is not None:
        reason = f"asked for bytes {wrong[1]} to {wrong[2]}, the server sent {wrong[3]} to {wrong[4]}"
        return reason, WRONG_ANSWER
    if "RangeNotSupported" in text:
        return "asked for a range, the server sent the whole object", "use a server that knows ranges, or a copy"
    if "kind: Timeout" in text or "TimedOut" in text:
        return f"no whole answer within {timeout_s:g} s", "check the server, or raise download_timeout"
    if "dns error" in text:
        return "the name of the server is unknown", network
    if "kind: Connect" in text:
        message = _OS_MESSAGE.search(text)
        return f"no connection ({message[1]})" if message else "no connection", network
    if "IncompleteBody" in text or "kind: Body" in text or "Interrupted" in text:
        return "the connection was cut before the last byte", "check the network, or raise download_retry"
    return _PREFIX.sub("", (text.splitlines() or ["unknown error"])[0]), network
