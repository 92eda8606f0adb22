"""One name for one thing, executed: what fastio/README.md and the reader rely on when they search for a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = sorted([*(ROOT / "fastio").rglob("*.py"), *(ROOT / "converters").rglob("*.py")])


def test_a_class_has_a_name_of_its_own() -> None:
    """No two classes of fastio/ and converters/ share a name, be they private or within a function."""
    places = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert {} == {name: lines for name, lines in places.items() if len(lines) > 1}
