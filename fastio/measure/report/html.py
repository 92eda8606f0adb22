"""Writes a page as one self-contained HTML file, with styles, scripts, figures and pictures inside."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import psutil
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fastio.errors import FastioError
from fastio.machine import available_cpus
from fastio.measure.report.page import Page, finite
from fastio.types.units import counted, size

__all__ = [
    "check_target",
    "html_of",
    "machine",
    "versions",
    "write_page",
]


_HERE = Path(__file__).parent


def html_of(page: Page, setting: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """
    Return the whole file as text; ``setting`` maps headings, such as the machine, to pairs of name and value.

    Everything but the templates is escaped. The page forbids itself the network, and all scripts but its own two.
    """
    files = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    files.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    files.filters["base64"] = lambda data: base64.b64encode(data).decode()
    files.filters["finite"] = finite
    files.filters["capitalized"] = capitalized
    scripts = [_read("uplot/uPlot.iife.min.js"), _read("page.js")]
    return files.get_template("page.html").render(
        page=page,
        setting=setting,
        styles=Markup(_read("uplot/uPlot.min.css") + _read("style.css")),  # noqa: S704 - files of this folder
        scripts=[Markup(script) for script in scripts],  # noqa: S704 - files of this folder
        script_hashes=[_hash(script) for script in scripts],
    )


def write_page(path: str | Path, page: Page, setting: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Write the page beside ``path`` and rename it when complete; replaces an older one. Raises FastioError."""
    target = check_target(path)
    text = html_of(page, setting)
    try:
        descriptor, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.partial-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            Path(partial).chmod(0o666 & ~_umask())
            Path(partial).replace(target)
        except BaseException:
            Path(partial).unlink()
            raise
    except OSError as exc:
        raise FastioError(f"{path}: cannot be written ({exc.strerror or exc}): choose another path") from exc


def check_target(path: str | Path) -> Path:
    """Return the path if a file can be created there. Raises FastioError otherwise, before anything is measured."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FastioError(f"{path}: the folder {target.parent} does not exist: create it, or choose another path")
    if target.is_dir():
        raise FastioError(f"{path}: is a folder; expected the name of a file, such as report.html")
    if not os.access(target.parent, os.W_OK):
        raise FastioError(f"{path}: the folder {target.parent} cannot be written to: choose another path")
    return target


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """Return the hash by which a Content-Security-Policy names a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _umask() -> int:
    """Return this process's umask; the only way to read it is to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Begins a sentence with a capital letter, but never a command or a file's name.

_WORD = re.compile(r"[a-z]+(?=[ ,:;'-]|$)")


def capitalized(text: str) -> str:
    """
    Return the text with a capital first letter if it begins with an ordinary word.

    >>> capitalized("loading alone would keep up")
    'Loading alone would keep up'
    >>> capitalized("`fastio verify` compared them"), capitalized("train.py:31 in Photos waits"), capitalized("fastio")
    ('`fastio verify` compared them', 'train.py:31 in Photos waits', 'fastio')
    """
    word = _WORD.match(text)
    return text if word is None or word[0] == "fastio" else text[:1].upper() + text[1:]


# What a report was made with: the command, the machine, the versions.

_PACKAGES = ("fastio", "torch", "numpy", "pillow", "h5py")


def machine() -> Sequence[tuple[str, str]]:
    """Return name and value of what it runs on, and when."""
    allowed, all_cpus = available_cpus(), psutil.cpu_count() or 1
    of = "" if allowed == all_cpus else f" of {all_cpus}"
    return [
        ("CPU", f"{_cpu_model()}, {counted(allowed, 'logical CPU')}{of} for this process"),
        ("memory", size(psutil.virtual_memory().total)),
        *_gpus(),
        ("system", f"{_system()}, kernel {platform.release()}, {platform.machine()}"),
        ("time", time.strftime("%Y-%m-%d %H:%M %z")),
    ]


def versions() -> Sequence[tuple[str, str]]:
    """Return packages and versions, Python first."""
    versions = [("Python", platform.python_version())]
    for name in _PACKAGES:
        try:
            versions.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            versions.append((name, "not installed"))
    return versions


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:  # a container without /etc/os-release
        return "Linux"


def _gpus() -> Sequence[tuple[str, str]]:
    """Return the GPUs that torch sees, if the command has used CUDA already: asking would initialise it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [(f"GPU {i}", torch.cuda.get_device_name(i)) for i in range(torch.cuda.device_count())]
