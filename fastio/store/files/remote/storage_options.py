"""storage_options, in the names of obstore or of fsspec, completed from where the provider's own tools look."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from fastio.errors import StoreError

__all__ = [
    "OPTION_NAMES",
    "client_config",
]


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
