"""storage_options, in the names of obstore or of fsspec, completed from where the provider's own tools look."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastio.store.files.remote.aws_profile import has_own_credentials, profile_options

__all__ = ["OPTION_NAMES", "client_config"]

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
