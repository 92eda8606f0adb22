"""One name for one thing, executed: a search for a class finds that class, and a variable says what it holds."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "fastio" / "guide" / "examples"
FILES = sorted([*(ROOT / "fastio").rglob("*.py"), *(ROOT / "converters").rglob("*.py")])

# Words that mean a thing which has another name here, and the name that it has.
ONE_WORD = {
    "competitor": "peer",
    "datum": "sample",
    "elapsed": "..._s, of what took so long",
    "idx": "index",
    "lookahead": "depth",
    "minibatch": "batch",
    "qps": "samples_per_s",
    "speed": "..._per_s",
    "throughput": "..._per_s",
}
PUBLIC_ALREADY = {"class_to_idx"}  # as torchvision's datasets have it

SAYS_NOTHING = {"each", "found", "here", "place", "said", "seen", "those"}
TOOLS = ("cli", "doctor", "measure", "report", "trainer")


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file, parsed once for all tests."""
    return list(ast.walk(ast.parse(path.read_text())))


def names(path: Path) -> Iterator[tuple[str, int]]:
    """Every name that a file gives to a variable, an argument, an attribute, a function or a class, with its line."""
    for node in nodes(path):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node.lineno


def test_a_class_has_a_name_of_its_own() -> None:
    """
    No two classes of fastio/ and converters/ share a name, be they private or within a function.

    Examples are left out: each is a script that stands alone.
    """
    places = defaultdict(list)
    for path in FILES:
        if path.parent == EXAMPLES:
            continue
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert {} == {name: lines for name, lines in places.items() if len(lines) > 1}


def test_one_word_for_one_thing() -> None:
    """Names avoid the words that mean what another name means already."""
    odd = [
        f"{path.relative_to(ROOT)}:{line}: {name}: say {ONE_WORD[word]}"
        for path in FILES
        for name, line in names(path)
        for word in re.findall("[a-z]+", re.sub("([A-Z])", r"_\1", name).lower())
        if word in ONE_WORD and name not in PUBLIC_ALREADY
    ]

    assert [] == odd


@pytest.mark.parametrize("folder", TOOLS)
def test_names_say_what_they_hold(folder: str) -> None:
    """No variable or function of the tools is called found, said or seen: whatever it is, it has a better name."""
    odd = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "fastio" / folder).rglob("*.py"))
        for name, line in names(path)
        if name.strip("_") in SAYS_NOTHING
    ]

    assert [] == odd
