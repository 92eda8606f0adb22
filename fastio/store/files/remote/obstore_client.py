"""Requests by obstore: S3, Google Cloud Storage, Azure and plain HTTP servers; and the options that open them."""

from __future__ import annotations

import asyncio
import configparser
import json
import logging
import mmap
import os
import re
import secrets
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from fastio.errors import FastioError, StoreError, StoreNotFound
from fastio.store.files.remote.client import WRONG_ANSWER, Answer, Cause, ObjectEntry, Precondition, RequestFailed
from fastio.store.files.remote.request_threads import answer_of
from fastio.types.units import size

__all__ = [
    "OPTION_NAMES",
    "ObstoreClient",
    "client_config",
    "put_mode",
    "upload",
]


# Instead of an ETag, which a server need not send: no quoted ETag begins so.
_MODIFIED = "modified "
_RENEWED_S = 5.0  # so long after credentials were looked for, others are not expected


class ObstoreClient:
    """
    See Client.

    obstore itself sends no request for reading a second time: ``download_retry`` would not be what it says. Parts of
    uploads it does, so that one that fails does not cost the others.
    """

    def __init__(self, bucket: str, options: Mapping[str, Any], *, timeout: float) -> None:
        try:
            import obstore
        except ImportError as exc:
            raise StoreError(f"{bucket}: object stores need obstore: pip install 'fastio[remote]'") from exc
        self._obstore: Any = obstore
        self._bucket = bucket
        self._timeout = timeout
        self._options = options
        self._opened_at = 0.0
        self._is_refused = False  # for a reason that may be set right in the environment of this process
        self._has_ranges = False  # known by an answer
        self._open()

    def _open(self) -> None:
        """Open the bucket, with the address, the credentials and the trusted authorities that are there now."""
        self._opened_at = time.monotonic()
        with self._translating(""):
            config = client_config(self._bucket, self._options)
            common = {"allow_http": True, "timeout": timedelta(seconds=self._timeout)}
            config["client_options"] = {**common, **config.get("client_options", {})}
            bucket = self._bucket.replace("gcs://", "gs://", 1)  # which obstore does not know by gcsfs's name
            opened = partial(self._obstore.store.from_url, bucket, **config)
            self._store: Any = opened(retry_config={"max_retries": 0})
            self._writer: Any = opened(retry_config={"max_retries": 2})
        self._is_refused = False

    def get(self, key: str, start: int, stop: int, *, etag: str | None = None) -> Answer:
        """See Client."""
        return answer_of(self.fetch(key, start, stop, etag=etag))

    async def fetch(self, key: str, start: int, stop: int, *, etag: str | None = None) -> Answer:
        """See Client."""
        return await self._answer(key, _options(start, stop, etag))

    def get_end(self, key: str, size: int) -> Answer:
        """See Client. An empty object has no range: some servers answer with an error, some with the whole object."""
        try:
            return answer_of(self._answer(key, {"range": {"suffix": size}}))
        except RequestFailed as exc:
            if exc.cause != "range":
                raise
            with self._translating(key):
                meta = answer_of(self._awaited("head_async", key))
            if meta["size"] != 0:
                self._check_ranges(key)
                raise
            return Answer(b"", 0, 0, _version(meta))

    async def _answer(self, key: str, options: Mapping[str, Any]) -> Answer:
        with self._translating(key):
            began = time.monotonic()
            result = await self._obstore.get_async(self._store, key, options=options)
            latency_s = time.monotonic() - began
            data = await result.bytes_async()
        self._has_ranges = True
        return Answer(data, result.range[0], result.meta["size"], _version(result.meta), latency_s)

    def _check_ranges(self, key: str) -> None:
        """
        Raise StoreError if the server says that it has no ranges: another attempt would get the whole object, too.

        obstore does not pass on Accept-Ranges, so the first byte is asked for without it; the rest is not read.
        """
        if self._has_ranges or not self._bucket.startswith(("http://", "https://")):
            return
        from http.client import HTTPException
        from urllib.parse import quote
        from urllib.request import Request, urlopen

        url = f"{self._bucket}/{key}"
        request = Request(f"{self._bucket}/{quote(key)}", headers={"Range": "bytes=0-0"})  # noqa: S310 - HTTP
        given = client_config(self._bucket, self._options).get("client_options", {}).get("default_headers", {})
        for name, value in given.items():  # which may be a token: not for servers that the answer leads to
            request.add_unredirected_header(name, value)
        try:
            with urlopen(request, timeout=self._timeout) as answer:  # noqa: S310 - HTTP
                is_whole = answer.status == _WHOLE and answer.headers.get("Accept-Ranges", "").lower() != "bytes"
        except (OSError, HTTPException, ValueError):
            return  # the attempts say what is wrong
        if is_whole:
            raise StoreError(
                f"{url}: the server has no ranges and sends the whole file where a part is asked for: use a server "
                "with ranges, such as nginx, or copy the file first"
            )

    async def _awaited(self, name: str, key: str) -> Any:
        """Await a function of obstore, which has to be called where the event loop runs."""
        return await getattr(self._obstore, name)(self._store, key)

    def entries(self, prefix: str) -> list[ObjectEntry]:
        """See Client."""
        with self._translating(prefix):
            listed = self._listed(prefix)["objects"]
            entries = [ObjectEntry(meta["path"][len(prefix) :], meta["size"], meta["e_tag"] or "") for meta in listed]
        return sorted(entries, key=lambda entry: entry.name)

    def folders(self, prefix: str) -> list[str]:
        """See Client."""
        with self._translating(prefix):
            found = self._listed(prefix)["common_prefixes"]
        return sorted(each.rstrip("/").rpartition("/")[2] for each in found)

    def _listed(self, prefix: str) -> Any:
        return answer_of(self._awaited("list_with_delimiter_async", prefix))

    def put(self, key: str, data: Any, *, if_absent: bool = False, etag: str | None = None) -> None:
        """See Client."""
        with self._translating(key):
            mode = put_mode(self._obstore, self._writer, key, if_absent=if_absent, etag=etag)
            if isinstance(data, Path):
                upload(self._obstore, self._writer, key, data, mode)
            else:
                self._obstore.put(self._writer, key, data, mode=mode)

    def remove(self, key: str) -> None:
        """See Client."""
        with self._translating(key):
            try:
                self._obstore.delete(self._writer, key)
            except FileNotFoundError:
                return

    @contextmanager
    def _translating(self, key: str) -> Iterator[None]:
        """
        Turn obstore's errors into ours, which name the URL.

        What was refused, or not reached, may be set right in the environment of this process, as notebooks do: the next
        request opens the bucket anew.
        """
        if self._is_refused and key:
            self._open()
        try:
            yield
        except (FastioError, asyncio.CancelledError):
            raise
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as exc:
            url = f"{self._bucket}/{key}" if key else self._bucket
            error = translated(exc, url, self._obstore.exceptions, self._timeout)
            if isinstance(error, RequestFailed) and error.cause == "expired":
                self._renew(error)
            elif not isinstance(error, (RequestFailed, Precondition, StoreNotFound)) or _NOT_REACHED in str(exc):
                self._is_refused = True
            raise error from None

    def _renew(self, error: RequestFailed) -> None:
        """Look for credentials again, for the next attempt. Raises StoreError if that was done just now."""
        if time.monotonic() < self._opened_at + _RENEWED_S:
            raise StoreError(f"{error.url}: {error.reason}: {error.advice}") from None
        self._open()


def _options(start: int, stop: int, etag: str | None) -> dict[str, Any]:
    """Return the options of a GET. A weak ETag or a time is no condition that servers compare: the reader does."""
    options: dict[str, Any] = {"range": (start, stop)}
    if etag and not etag.startswith((_MODIFIED, "W/")):
        options["if_match"] = etag
    return options


def _version(meta: Mapping[str, Any]) -> str:
    return str(meta["e_tag"] or f"{_MODIFIED}{meta['last_modified'].isoformat()}")


# Uploads by obstore: a whole file appears under its key at once, or not at all, on a condition or without one.

_ONE_REQUEST = 32 << 20  # bytes; a larger file goes in parts, each of which is tried again alone
_PART_BYTES = 16 << 20  # S3 allows 10,000 parts
_PARTS_AT_ONCE = 4
_MAX_COPY = 5 << 30  # bytes that S3 copies with one request
_LOG = logging.getLogger(__name__)


def put_mode(obstore: Any, store: Any, key: str, *, if_absent: bool, etag: str | None) -> Any:
    """
    Return the ``mode`` of ``obstore.put`` for these conditions.

    Google's store compares a number, not the ETag: the number is asked for. Raises obstore's errors.
    """
    if etag is None:
        return "create" if if_absent else "overwrite"
    known = obstore.head(store, key)
    version = {"version": known["version"]} if known["e_tag"] == etag and known["version"] is not None else {}
    return {"e_tag": etag, **version}


def upload(obstore: Any, store: Any, key: str, file: Path, mode: Any) -> None:
    """
    Store a local file. ``mode`` is that of ``obstore.put``: "create", "overwrite" or the version to replace.

    Conditions and parts exclude each other in obstore: a large file that must not replace another is uploaded in
    parts under a hidden key beside it, then copied within the store on the condition, and the hidden one removed.
    Raises obstore's errors, and StoreError for a file that is too large for that.
    """
    size_bytes = file.stat().st_size
    if size_bytes > _ONE_REQUEST and mode == "create":
        _create(obstore, store, key, file, size_bytes)
    elif size_bytes > _ONE_REQUEST and mode == "overwrite":
        _put_parts(obstore, store, key, file)
    else:
        obstore.put(store, key, _mapped(file, size_bytes), mode=mode)


def _create(obstore: Any, store: Any, key: str, file: Path, size_bytes: int) -> None:
    if size_bytes > _MAX_COPY:
        raise StoreError(f"{key}: {size(size_bytes)}, object stores take {size(_MAX_COPY)}: use a smaller shard size")
    folder, slash, name = key.rpartition("/")
    hidden = f"{folder}{slash}.{name}.partial-{secrets.token_hex(8)}"
    try:
        _put_parts(obstore, store, hidden, file)
        obstore.copy(store, hidden, key, overwrite=False)
    finally:
        try:
            obstore.delete(store, hidden)
        except FileNotFoundError:
            pass  # the upload failed before
        except (obstore.exceptions.BaseError, OSError) as exc:
            _LOG.warning("%s: could not be removed (%s); it is a copy that nobody needs", hidden, exc)


def _put_parts(obstore: Any, store: Any, key: str, file: Path) -> None:
    obstore.put(store, key, file, use_multipart=True, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)


def _mapped(file: Path, size_bytes: int) -> Any:
    """The content of a file, of which the system keeps in memory what it likes to."""
    if size_bytes == 0:
        return b""
    with file.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


# What obstore's errors mean. Their text has many lines, most of them for debugging.

_STATUS = re.compile(r"status code: (\d{3})([^:\n]*)")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_OS_MESSAGE = re.compile(r'message: "([^"]*)"')
_PREFIX = re.compile(r"Generic \w+ error: ")
_RANGE = re.compile(r"Requested (\d+)\.\.(\d+), got (\d+)\.\.(\d+)")
_WHOLE = 200
_NO_RANGE = 416
_PASSING = frozenset({408, 409, _NO_RANGE, 425, 429})  # and all from 500
_BUSY = frozenset({429, 503, 509})
_EXPIRED = re.compile("expired|InvalidToken|TokenRefreshRequired", re.IGNORECASE)
_LOG_IN = "log in again, or pass new ones"
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|specified bucket does not exist")
_UNKNOWN_OPTION = re.compile(r"Configuration key: '([^']*)' is not valid")
_METADATA = re.compile(r"169\.254\.1(69\.254|70\.2)|metadata\.google")
_PROVIDER = re.compile(r"credential provider: (?:[\w.]+: )?([^\n]*)")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_ITS_NAMES = re.compile(r'(?:DnsName|IpAddress)\(\\?"?([^"\\)]+)')
_DISTRUST = {
    "UnknownIssuer": "nobody vouches for it here: name a file with its authority's certificate in SSL_CERT_FILE",
    "Expired": "it has expired: renew it, or set the clock of this machine",
}
_SERVER_ERROR = 500
_NOT_REACHED = "kind: Connect"


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
    distrusted = _CERTIFICATE.search(text)
    if distrusted is not None:
        return StoreError(f"{url}: the server's certificate is not trusted: {_distrust(distrusted[1], text)}")
    if "InvalidContentType" in text:
        return StoreError(f"{url}: the server answers without TLS: check the port, or write http:// for https://")
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


def _distrust(kind: str, text: str) -> str:
    """Return why a certificate is not trusted, and what to do."""
    kind = kind.removesuffix("Context")
    if kind == "NotValidForName":
        names = ", ".join(_ITS_NAMES.findall(text.partition("presented:")[2])) or "another server"
        return f"it is that of {names}: use that name, or check the address"
    return _DISTRUST.get(kind, f"{kind}: check the server, and the address")


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
    if _NOT_REACHED in text:
        message = _OS_MESSAGE.search(text)
        return f"no connection ({message[1]})" if message else "no connection", network
    if "IncompleteBody" in text or "kind: Body" in text or "Interrupted" in text:
        return "the connection was cut before the last byte", "check the network, or raise download_retry"
    return _PREFIX.sub("", (text.splitlines() or ["unknown error"])[0]), network


# storage_options, in the names of obstore or of fsspec, completed from where the provider's own tools look.

# Names of s3fs, gcsfs and adlfs for what obstore calls otherwise.
_ALIASES = {
    "s3": {
        "anon": "skip_signature",
        "key": "access_key_id",
        "secret": "secret_access_key",
        "token": "session_token",
        "endpoint_url": "endpoint",
        "aws_endpoint_url": "endpoint",
        "aws_endpoint": "endpoint",
        "region_name": "region",
    },
    "gs": {"anon": "skip_signature"},
    "az": {"anon": "skip_signature", "sas_token": "sas_key", "credential": "token"},
    "http": {},
}
# What people write most often, to name what a misspelt one may have meant.
OPTION_NAMES = (
    "endpoint", "region", "access_key_id", "secret_access_key", "session_token", "skip_signature", "profile",
    "virtual_hosted_style_request", "account_name", "account_key", "sas_key", "token", "application_credentials",
    "service_account", "client_options", *(name for aliases in _ALIASES.values() for name in aliases),
)  # fmt: skip
_FAMILIES = {"s3a": "s3", "gcs": "gs", "azure": "az", "adl": "az", "abfs": "az", "abfss": "az", "https": "http"}


def client_config(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the arguments with which obstore opens this bucket.

    ``options`` may use its names or those of fsspec's file systems. What they leave out comes from the environment
    (obstore looks there by itself), from ``~/.aws``, or from ``az login``. Raises StoreError for an AWS profile that
    cannot be used.
    """
    scheme = url.partition("://")[0]
    family = _FAMILIES.get(scheme, scheme)
    config = _renamed(options, _ALIASES[family])
    if family == "s3":
        profile = config.pop("profile", None)
        if not config.get("skip_signature") and (profile is not None or not has_own_credentials(config)):
            config = {**profile_options(url, profile), **config}
        config.setdefault("copy_if_not_exists", "multipart")
    elif family == "gs":
        _add_google_token(config)
    elif family == "az":
        _add_azure_defaults(config)
    return config


def _renamed(options: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    config = {**options, **dict(options.get("client_kwargs", {}))}
    config.pop("client_kwargs", None)
    headers = config.pop("headers", None)
    if headers:
        config["client_options"] = {**dict(config.get("client_options", {})), "default_headers": dict(headers)}
    return {aliases.get(name, name): value for name, value in config.items()}


def _add_google_token(config: dict[str, Any]) -> None:
    """gcsfs takes "anon" or the path of a key file as its token."""
    given = config.pop("token", None)
    if given == "anon":
        config["skip_signature"] = True
    elif isinstance(given, str):
        config["application_credentials"] = given


def _add_azure_defaults(config: dict[str, Any]) -> None:
    """The account as the ``az`` command knows it, and its login if nothing else is given."""
    if "account_name" not in config and "AZURE_STORAGE_ACCOUNT" in os.environ:
        config["account_name"] = os.environ["AZURE_STORAGE_ACCOUNT"]
    given = {"account_key", "sas_key", "token", "client_id", "skip_signature", "credential_provider", "use_azure_cli"}
    known = any(name.startswith(("AZURE_CLIENT_", "AZURE_STORAGE_SAS", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY",
                                 "AZURE_FEDERATED_TOKEN")) for name in os.environ)  # fmt: skip
    folder = Path(os.environ.get("AZURE_CONFIG_DIR") or Path.home() / ".azure")
    if not given & config.keys() and not known and (folder / "azureProfile.json").exists():
        config["use_azure_cli"] = True


# Profiles of AWS: keys, region and address from ``~/.aws``, read again when they expire.

_GIVEN = frozenset({"access_key_id", "aws_access_key_id", "credential_provider", "web_identity_token_file"})
# By these obstore finds credentials itself.
_IN_ENVIRONMENT = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")
_BELIEVED = timedelta(minutes=5)  # then the files are read again: tools renew the keys in them
_PROCESS_S = 60.0

Credential = dict[str, Any]


def has_own_credentials(config: Mapping[str, Any]) -> bool:
    """Return whether the options or the environment hold credentials, which come before any profile."""
    return bool(_GIVEN & config.keys()) or any(os.environ.get(name) for name in _IN_ENVIRONMENT)


def profile_options(url: str, profile: str | None) -> dict[str, Any]:
    """
    Return what a profile says, as arguments of obstore; None: AWS_PROFILE, or the default one, which may be missing.

    Keys and ``credential_process`` are read here; SSO, roles and everything else by boto3. Raises StoreError for a
    profile that is not there, and for one that needs boto3 where it is not installed.
    """
    wanted = profile or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    name = wanted or "default"
    section = _section(name)
    if section is None:
        if wanted is None:
            return {}  # instance roles: obstore asks the machine's metadata service
        raise StoreError(f"{url}: AWS profile {name!r} is in neither {_path('credentials')} nor {_path('config')}")
    options: dict[str, Any] = {}
    if "region" in section:
        options["region"] = section["region"]
    if "endpoint_url" in section:
        options["endpoint"] = section["endpoint_url"]
    if "aws_access_key_id" in section:
        options["credential_provider"] = partial(_from_files, url, name)
    elif "credential_process" in section:
        options["credential_provider"] = partial(_from_process, url, name, section["credential_process"])
    elif any(key.startswith(("sso_", "role_arn", "source_profile", "web_identity", "login_")) for key in section):
        options["credential_provider"] = _from_boto3(url, name)
    return options


def _path(kind: str) -> Path:
    variable = {"credentials": "AWS_SHARED_CREDENTIALS_FILE", "config": "AWS_CONFIG_FILE"}[kind]
    return Path(os.environ.get(variable) or Path.home() / ".aws" / kind).expanduser()


def _section(name: str) -> dict[str, str] | None:
    """Return the settings of a profile, of both files; None if neither has it."""
    settings: dict[str, str] = {}
    is_there = False
    titles = {"config": name if name == "default" else f"profile {name}", "credentials": name}
    for kind, title in titles.items():
        parser = configparser.RawConfigParser()
        path = _path(kind)
        try:
            parser.read(path)
        except configparser.Error as exc:
            raise StoreError(f"{path}: is not a file of AWS settings ({str(exc).splitlines()[0]}): mend it") from exc
        if parser.has_section(title):
            is_there = True
            settings |= dict(parser.items(title))
    return settings if is_there else None


def _from_files(url: str, name: str) -> Credential:
    """Return the keys that the files hold now."""
    section = _section(name) or {}
    if "aws_secret_access_key" not in section:
        raise StoreError(f"{url}: AWS profile {name!r} has no aws_access_key_id with aws_secret_access_key any more")
    return {
        "access_key_id": section["aws_access_key_id"],
        "secret_access_key": section["aws_secret_access_key"],
        "token": section.get("aws_session_token"),
        "expires_at": datetime.now(UTC) + _BELIEVED,
    }


def _from_process(url: str, name: str, command: str) -> Credential:
    """Return the keys that the profile's command prints, as AWS defines it."""
    try:
        done = subprocess.run(  # noqa: S603 - a command of the user's own settings
            shlex.split(command),
            capture_output=True,
            text=True,
            timeout=_PROCESS_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        keys = json.loads(done.stdout)
        expires = keys.get("Expiration")
        return {
            "access_key_id": keys["AccessKeyId"],
            "secret_access_key": keys["SecretAccessKey"],
            "token": keys.get("SessionToken"),
            "expires_at": datetime.fromisoformat(expires) if expires else datetime.now(UTC) + _BELIEVED,
        }
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as exc:
        raise StoreError(f"{url}: credential_process of AWS profile {name!r} failed ({exc}): run it by hand") from exc


def _from_boto3(url: str, name: str) -> Callable[[], Any]:
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as exc:
        raise StoreError(
            f"{url}: AWS profile {name!r} uses SSO or a role: pip install boto3, or set the keys in the environment "
            "(aws configure export-credentials --format env)"
        ) from exc
    provider: Callable[[], Any] = Boto3CredentialProvider(boto3.Session(profile_name=name), ttl=_BELIEVED)
    return provider
