"""What ``make wheel`` tries with each wheel, tried with this fastio."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "native" / "try_wheel.py"


def test_what_wheels_must_do(capfd: pytest.CaptureFixture[str]) -> None:
    """The script that tries a wheel packs, checks and reads its pictures, and says with what."""
    spec = importlib.util.spec_from_file_location("try_wheel", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    script.main()

    assert capfd.readouterr().out.splitlines()[-1].startswith("works: fastio ")
