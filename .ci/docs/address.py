"""The address of the project's repository, to which pages that are published elsewhere link."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

__all__ = ["repository_address"]


def repository_address(root: Path) -> str | None:
    """
    Return the https address of the repository, without a slash at its end; None if it has none.

    It is Repository or Source in [project.urls] of pyproject.toml, else that of the clone's origin.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls = project.get("urls", {})
    address = next((urls[name] for name in ("Repository", "Source") if name in urls), None) or _origin(root)
    return address.removesuffix(".git").rstrip("/") if address.startswith("https://") else None


def _origin(root: Path) -> str:
    """Return the address of origin; "" outside a clone, or without an origin."""
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
