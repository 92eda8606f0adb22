"""Libraries of others are imported on use, and named with the extra that brings them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fastio.integrations.packages import imported


def test_a_missing_package_names_its_extra() -> None:
    """One line: what is missing, and what installs it."""
    with pytest.raises(ModuleNotFoundError, match=r"needs no_such_thing, .*pip install 'fastio\[lightning\]'"):
        imported("no_such_thing.part", extra="lightning")


def test_fastio_alone_imports_none_of_them() -> None:
    """FastLoader starts without Lightning, accelerate and transformers."""
    code = (
        "import sys; from fastio import FastLoader; import fastio.integrations; "
        "print([name for name in ('pytorch_lightning', 'accelerate', 'transformers') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert found.strip() == "[]"
