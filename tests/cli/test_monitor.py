"""`fastio monitor` with a command, with a process, alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastio.cli import cli

SHORT = ("--interval", "0.05")


def run(*args: object, code: int = 0) -> str:
    """What a command prints; its exit code is as expected."""
    result = CliRunner().invoke(cli, ["monitor", *map(str, args)])
    assert code == result.exit_code, result.output
    return result.output


def test_a_command_is_watched_to_its_end(tmp_path: Path) -> None:
    """Its exit code is ours, every sample is in the log, mean and maximum are printed."""
    script = "import time; time.sleep(0.3); raise SystemExit(4)"
    output = run(*SHORT, "--out", tmp_path / "log.jsonl", "--", sys.executable, "-c", script, code=4)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]

    assert "maximum" in output
    assert "process, CPU of one" in output
    assert all(line["process"]["processes"] >= 1 for line in lines)
    assert lines


def test_a_signal_is_told_as_a_shell_tells_it() -> None:
    """A command that SIGKILL ended gives 137."""
    run(*SHORT, "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)", code=137)


def test_json_lines() -> None:
    """One object a sample, for the time that was asked for."""
    lines = run(*SHORT, "--seconds", "0.12", "--json").splitlines()

    assert len(lines) >= 1
    assert all("cpu_percents" in json.loads(line) for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--pid", 1, "--", "true"), 2, "not both"),
        (("--", "a-command-that-is-not-there"), 127, "cannot be started"),
        (("--pid", 2**30), 1, "no such process"),
    ],
)
def test_what_cannot_be_watched(arguments: tuple[object, ...], code: int, message: str) -> None:
    """One line says why."""
    assert message in run(*arguments, code=code)
