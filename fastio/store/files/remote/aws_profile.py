"""Profiles of AWS: keys, region and address from ``~/.aws``, read again when they expire."""

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

__all__ = ["has_own_credentials", "profile_options"]

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
