"""The reference is complete: what users import has an entry there, and a docstring that says what it is."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import fastio
from fastio import transforms

TOP = Path(__file__).parents[2]
GUIDE = TOP / "fastio" / "guide"
# An entry's name, and its options, of which `:members:` shows all members or those that it lists.
ENTRY = re.compile(r"(?m)^\.\. auto(?:class|function|exception):: ([\w.]+)\n((?:   :.*\n)*)")
SHOWN = {
    name: re.search(r"(?m)^   :members:(.*)$", options)
    for page in sorted((TOP / ".ci" / "docs" / "api").glob("*.md"))
    for name, options in ENTRY.findall(page.read_text())
}
SLOW = ("fastio.integrations.", "fastio.ray.")  # seconds of importing Ray and transformers, for seven docstrings


def imported_by_guides() -> set[str]:
    """Every name of ours that the Python blocks of README, guides and examples import, with its module."""
    pages = [TOP / "README.md", *sorted(path for path in GUIDE.rglob("*.md"))]
    blocks = [block for page in pages for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
    blocks += [path.read_text() for path in sorted((GUIDE / "examples").glob("*.py"))]
    lines = [line for block in blocks for line in re.findall(r"(?m)^\s*(from fastio[\w.]* import [^#\n(]+)", block)]
    nodes = [node for line in lines for node in ast.parse(line.strip()).body]
    return {f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_every_public_name_has_an_entry() -> None:
    """What ``fastio`` and ``fastio.transforms`` export, and what the guides import, stands in the reference."""
    public = {f"fastio.{name}" for name in fastio.__all__ if name != "__version__"}
    public |= {f"fastio.transforms.{name}" for name in transforms.__all__}

    missing = (public | imported_by_guides()) - set(SHOWN)

    assert [] == sorted(name for name in missing if not any(entry.startswith(f"{name}.") for entry in SHOWN))


def test_every_entry_says_what_it_is() -> None:
    """Each object has a docstring, and so has each method and property that the reference shows."""
    assert [] == [name for entry in SHOWN if not entry.startswith(SLOW) for name in without_docstring(entry)]


def without_docstring(entry: str) -> list[str]:
    """Name the object and the shown members that have no docstring."""
    module, _, name = entry.rpartition(".")
    value = getattr(import_module(module), name)
    option = SHOWN[entry]
    asked = {word.strip() for word in option[1].split(",") if word.strip()} if option else set()
    members = asked or (set(vars(value)) if option else set())
    public = [key for key in members if not key.startswith("_")]
    shown = [key for key in public if _is_documentable(inspect.getattr_static(value, key))]
    documented = {entry: value, **{f"{entry}.{key}": getattr(value, key) for key in sorted(shown)}}
    return [path for path, member in documented.items() if not inspect.getdoc(member)]


def _is_documentable(member: object) -> bool:
    """Whether a member is a method or a property, and no plain value."""
    return isinstance(member, (property, classmethod, staticmethod)) or inspect.isroutine(member)
