"""What ``make wheel`` tries with each wheel, tried with this fastio, and what each wheel has to load without."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from fastio import _native

NATIVE = Path(__file__).parent.parent / "native"
SCRIPT = NATIVE / "try_wheel.py"


def test_what_wheels_must_do(capfd: pytest.CaptureFixture[str]) -> None:
    """The script that tries a wheel packs, checks and reads its pictures, and says with what."""
    spec = importlib.util.spec_from_file_location("try_wheel", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    script.main()

    assert capfd.readouterr().out.splitlines()[-1].startswith("works: fastio ")


def test_wheels_ask_for_no_newer_glibc() -> None:
    """Whatever the module takes from glibc 2.19 or later, the module of a wheel must get in another way."""
    listed = subprocess.run(["objdump", "-T", _native.__file__], check=True, capture_output=True, text=True).stdout
    newer = {
        name
        for minor, name in re.findall(r"\*UND\*\s+\w+\s+\(GLIBC_2\.(\d+)[\d.]*\)\s+(\w+)$", listed, re.MULTILINE)
        if int(minor) > 18
    }
    wrapped = re.search(r"IN ITEMS([^)]*)\)", (NATIVE / "old_glibc.cmake").read_text())
    assert wrapped is not None

    assert "gettid" in newer, "nothing was found in what objdump prints"
    assert newer - {*wrapped[1].split(), "__libc_single_threaded"} == set()
