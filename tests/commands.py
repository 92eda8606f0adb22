"""Runs the commands of fastio in this process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from fastio.cli import cli

__all__ = ["outcome", "result_of", "run"]


def result_of(*words: object, code: int = 0) -> Result:
    """What a command leaves; its exit code is as expected."""
    result = CliRunner().invoke(cli, list(map(str, words)))
    assert code == result.exit_code, result.output
    return result


def run(*words: object, code: int = 0) -> str:
    """What a command prints; its exit code is as expected."""
    return result_of(*words, code=code).output


def outcome(*words: object) -> tuple[int, str]:
    """The exit code of a command, whatever it is, and what it prints."""
    result = CliRunner().invoke(cli, list(map(str, words)))
    return result.exit_code, result.output
