"""fastio.ray: Ray is imported when it is needed, and named where it is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fastio.ray


def run(code: str) -> str:
    """What Python prints for these lines, in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_package_does_not_import_ray() -> None:
    """Neither fastio nor fastio.ray imports Ray before one of its names is used."""
    assert "False" == run("import sys, fastio, fastio.ray; print('ray' in sys.modules)")


def test_without_ray() -> None:
    """One line says what is missing and how to install it."""
    code = """
import importlib.util
import fastio
importlib.util.find_spec = lambda name, package=None: None  # as where nothing is installed
import fastio.ray
try:
    fastio.ray.Sink
except ModuleNotFoundError as exc:
    print(exc)
"""
    assert "fastio.ray needs ray, which is not installed: pip install 'fastio[ray]'" == run(code)


def test_the_package_says_what_it_has() -> None:
    """Another name is an AttributeError that names what was meant, or lists what there is."""
    with pytest.raises(AttributeError, match=r"no attribute 'Sonk': did you mean Sink\?"):
        _ = fastio.ray.Sonk
    with pytest.raises(AttributeError, match=r"no attribute 'writer'; it has Sink, pack"):
        _ = fastio.ray.writer
    assert fastio.ray.__all__ == dir(fastio.ray)
