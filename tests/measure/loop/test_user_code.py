"""Scripts and modules of the user, run as Python itself would run them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastio.errors import FastioError
from fastio.measure.loop.user_code import run_script, without_python

MODULE = """
import sys
from .part import NAME
print(__name__, NAME, sys.argv[1:], sys.path[0])
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in the working directory, whose module needs another one of it."""
    (tmp_path / "user_package").mkdir()
    for name, text in (
        ("__init__", ""),
        ("part", "NAME = 'part'"),
        ("train", MODULE),
        ("broken", "import nowhere_at_all"),
    ):
        (tmp_path / "user_package" / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    for name in ("user_package", "user_package.part"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_module_runs_as_by_python(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is __main__ with its own arguments, imports its neighbours, and leaves nothing changed."""
    argv, path, main = sys.argv, sys.path[:], sys.modules["__main__"]
    run_script("-m user_package.train", ["--epochs", "1"])

    assert f"__main__ part ['--epochs', '1'] {package}\n" == capsys.readouterr().out
    assert (argv, path, main) == (sys.argv, sys.path, sys.modules["__main__"])


@pytest.mark.parametrize("name", ["user_package.missing", "nowhere_at_all", "nowhere_at_all.train", "no/path"])
def test_a_missing_module_is_one_line(name: str, package: Path) -> None:
    """It is named; what a module of the user misses itself is another matter."""
    del package
    with pytest.raises(FastioError, match=f"-m {name}: no such module"):
        run_script(f"-m {name}", [])
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        run_script("-m user_package.broken", [])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("train.py", "-m", "x"), ("train.py", "-m", "x")),
        (("-m", "a.b", "--x"), ("-m a.b", "--x")),
        ((sys.executable, "-m", "a.b", "--x"), ("-m a.b", "--x")),
        ((sys.executable, "train.py", "--x"), ("train.py", "--x")),
        (("-m",), ("-m",)),
    ],
)
def test_commands(command: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """A module is one word with its -m, and this Python's own name is left out."""
    assert expected == without_python(command)


def test_a_store_is_no_script(tmp_path: Path) -> None:
    """Who gives a packed store is told what reads it, not to pack it."""
    (tmp_path / "a.lmdb").touch()
    with pytest.raises(FastioError, match=r"a\.lmdb: is data, not a script: .*; FastDataset reads it in a script$"):
        run_script(str(tmp_path / "a.lmdb"), [])
