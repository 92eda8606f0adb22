"""How commands fail: one line; the user's own traceback, and nothing of ours, where the user's code has failed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fastio.cli import cli

SCRIPT = """
class Data:
    def __len__(self):
        return 8
    def __getitem__(self, index):
        raise ValueError("two\\nlines")

def raises():
    raise RuntimeError("no data")

def needs_argument(x):
    return x

def missing():
    open("nowhere.pkl")

def in_worker():
    from torch.utils.data import DataLoader
    return DataLoader(Data(), num_workers=1)

def empty():
    return []
"""


def run(*args: object) -> Result:
    """A command in this process."""
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A file of functions that fail, each in its own way."""
    path = tmp_path / "failing_script.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize(
    ("function", "last"),
    [
        ("raises", "RuntimeError: no data"),
        ("missing", "FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.pkl'"),
        ("in_worker", "ValueError: two lines"),
    ],
)
def test_code_of_the_user_that_fails_shows_its_own_frames(script: Path, function: str, last: str) -> None:
    """The traceback begins in the user's file; the last line says what it was."""
    result = run("bench", "io", f"{script}:{function}")
    lines = result.stderr.splitlines()

    assert (result.exit_code, lines[-1]) == (1, f"error: your code failed: {last}")
    assert f'File "{script}"' in result.stderr
    assert "fastio/cli" not in result.stderr
    assert "click" not in result.stderr


def test_a_script_that_python_cannot_read_is_shown_by_its_line(tmp_path: Path) -> None:
    """A syntax error has no frame of the user's: its file and line are in its text."""
    (tmp_path / "broken.py").write_text("x = 1\ndef (\n")
    result = run("profile", "--", tmp_path / "broken.py")

    assert "error: your code failed: SyntaxError: invalid syntax" == result.stderr.splitlines()[-1]
    assert "broken.py" in result.stderr
    assert "line 2" in result.stderr
    assert "runpy" not in result.stderr


def test_a_function_that_needs_an_argument_says_so(script: Path) -> None:
    """The mistake is in how it is written, not in a frame of the user's."""
    result = run("bench", "io", f"{script}:needs_argument")

    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"error: {script}:needs_argument: fastio calls it without arguments, but its signature is (x)"
    ]


def test_a_loader_without_batches_is_an_error(script: Path) -> None:
    """Nothing was measured: a rate of 0 would look like a result."""
    result = run("bench", "io", f"{script}:empty")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == f"error: {script}:empty: the loader is empty: nothing to measure"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pack", "error: Missing argument 'SRC'; see 'fastio pack --help'\n"),
        ("--nope", "error: No such option:? '?--nope'?; see 'fastio --help'\n"),  # as this version of click words it
        ("pack a b.lmdb --document", "error: Option '--document' requires an argument; see 'fastio pack --help'\n"),
        ("bench nothing", "error: No such command 'nothing'; see 'fastio bench --help'\n"),
        (
            "bench train",
            r"error: Missing option '--model'. Choose from: cifar10cnn, \w+, \w+; see 'fastio bench train --help'\n",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line(line: str, said: str) -> None:
    """What is wrong, and where to read how it is; exit code 2."""
    result = CliRunner().invoke(cli, line.split(), prog_name="fastio")

    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(said, result.stderr)


def test_a_group_alone_shows_its_help() -> None:
    """`fastio bench` is a question."""
    assert "Commands:" in run("bench").output


def fastio(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, in another locale."""
    program = "import sys; from fastio.cli import main; sys.argv[0] = 'fastio'; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        encoding="latin-1",
        check=False,
    )


def test_what_a_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    """A name in Japanese on a Latin-1 terminal is no traceback."""
    (tmp_path / "日本.txt").write_text("one\n")
    store = str(tmp_path / "s.lmdb")
    assert run("pack", tmp_path, store).exit_code == 0
    done = fastio("ls", store, PYTHONIOENCODING="latin-1")

    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u65e5\\u672c.txt" in done.stdout


def test_a_locale_whose_file_names_are_not_utf8_is_refused() -> None:
    """Keys of a store are UTF-8; a name that was decoded otherwise would be another one."""
    done = fastio("ls", "x.lmdb", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")

    assert done.returncode == 1
    assert done.stderr == (
        "error: this locale encodes file names as ascii, stores need UTF-8: set PYTHONUTF8=1 or LC_ALL=C.UTF-8\n"
    )


@pytest.mark.parametrize("command", ["monitor", "doctor", "profile"])
def test_an_unknown_option_is_no_command(command: str) -> None:
    """Options of a script stand behind its name; before that a misspelt one of ours is named."""
    result = run(command, "--sconds", "3", "--", "train.py")

    assert result.exit_code == 2
    near = r"did you mean '--seconds'\?"
    assert re.fullmatch(f"error: No such option:? '?--sconds'?: {near} See 'fastio {command} --help'\n", result.output)


def test_only_the_nearest_option_is_proposed() -> None:
    """Of --bos, --eos and --labels, which are all near by click's measure."""
    result = run("pack", "a", "b.lmdb", "--lables", "c.csv")

    assert re.search(r"'?--lables'?: did you mean '--labels'\? See 'fastio pack --help'\n$", result.output)


def test_control_characters_of_a_message_are_escaped(tmp_path: Path) -> None:
    """What another library says of a damaged file, and the file's name, cannot move the cursor."""
    path = tmp_path / "\x1b[31mred.parquet"
    pq.write_table(pa.table({"text": ["a"]}), path)
    data = path.read_bytes()
    for i in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data) - 8):
        path.write_bytes(data[:i] + b"\x0f" + data[i + 1 :])
        try:
            pq.ParquetFile(path)
        except OSError as exc:
            if "\x0f" in str(exc):
                break
    said = run("info", path).output

    assert "\\x1b[31mred.parquet: expected parquet data: " in said
    assert "\\x0f" in said
    assert said.replace("\n", "").isprintable()
