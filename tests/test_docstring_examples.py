"""The examples in docstrings give what stands there."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.conftest import encode, pictures
from tests.test_layers import MODULES, ROOT

SITE = {"docs.pages": ROOT / ".ci" / "docs" / "pages.py"}
PROMPT = re.compile(r"^ *>>> ", re.MULTILINE)
FILES = {module: path for module, path in (MODULES | SITE).items() if PROMPT.search(path.read_text())}

Documented = ast.FunctionDef | ast.ClassDef | ast.Module


def docstrings(path: Path) -> Iterator[Documented]:
    """
    What has examples in its docstring, at any depth.

    It is taken from the source: doctest's own finder passes over whatever has a decorator.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Documented) and PROMPT.search(ast.get_docstring(node) or ""):
            yield node


def examples(module: str, path: Path, node: Documented) -> doctest.DocTest:
    """The examples of one docstring, in the names of its module."""
    name = module if isinstance(node, ast.Module) else f"{module}.{node.name}"
    names = {**vars(import_module(module))}
    text = ast.get_docstring(node) or ""
    return doctest.DocTestParser().get_doctest(text, names, name, str(path), node.body[0].lineno)


@pytest.mark.parametrize("module", FILES)
def test_examples_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line that begins with ``>>>`` is run, in a folder with a picture."""
    monkeypatch.chdir(tmp_path)
    Path("cat.jpg").write_bytes(encode(pictures(1)[0], "JPEG"))
    path, runner, report = FILES[module], doctest.DocTestRunner(verbose=False), list[str]()

    for node in docstrings(path):
        runner.run(examples(module, path, node), out=report.append)

    assert "" == "".join(report)
    assert len(PROMPT.findall(path.read_text())) == runner.tries
