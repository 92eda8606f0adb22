"""Runs an example as its docstring says: the commands that pack the data, then the script."""

from __future__ import annotations

import ast
import io
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from click.testing import CliRunner

from fastio.cli import cli

__all__ = ["EXAMPLES", "commands", "numbers", "run_example", "run_script"]

EXAMPLES = Path(__file__).parents[2] / "fastio" / "guide" / "examples"


def commands(name: str) -> list[list[str]]:
    """The words of each command in the docstring of an example: the lines that begin with ``$``."""
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text())) or ""
    return [shlex.split(line, comments=True) for line in re.findall(r"^\s*\$ (.*)$", docstring, re.MULTILINE)]


def run_example(name: str, *more: str) -> str:
    """
    Run the commands of an example's docstring, as they stand, in the current folder; return what the script prints.

    ``more`` words go to the script itself: less data needs fewer epochs and smaller batches.
    """
    output = ""
    for words in commands(name):
        if words[0] == "fastio":
            result = CliRunner().invoke(cli, words[1:])
            assert result.exit_code == 0, f"{shlex.join(words)}\n{result.output}"
        else:
            assert words[0] == "python", f"{name}: {shlex.join(words)}: expected a command of fastio or python"
            output += run_script(*words[1:], *(more if words[1] == name else ()))
    return output


def run_script(name: str, *words: str) -> str:
    """Run an example by ``python NAME WORDS``, in this process; return what it prints."""
    printed = io.StringIO()
    with _arguments(name, *words), redirect_stdout(printed):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return printed.getvalue()


def numbers(label: str, output: str) -> list[float]:
    """
    The numbers behind a label in a script's output, in order; percentages as they are printed.

    >>> numbers("loss", "epoch 0: loss 2.5, accuracy 50.0%\\nepoch 1: loss 1.25, accuracy 75.0%")
    [2.5, 1.25]
    """
    return [float(number) for number in re.findall(rf"\b{label} ([\d.]+)", output)]


@contextmanager
def _arguments(*words: str) -> Iterator[None]:
    kept, sys.argv = sys.argv, list(words)
    try:
        yield
    finally:
        sys.argv = kept
