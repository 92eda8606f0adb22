"""The command line: argument parsing and printing only; each command is a file of its own.

Nothing but click is imported before a command runs: ``fastio --help`` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

import click

from fastio.cli.bandwidth import bandwidth
from fastio.cli.bench import bench
from fastio.cli.doctor import doctor
from fastio.cli.group import Group
from fastio.cli.info import info
from fastio.cli.ls import ls
from fastio.cli.monitor import monitor
from fastio.cli.pack import pack
from fastio.cli.profile import profile
from fastio.cli.show import show
from fastio.cli.tune import tune
from fastio.cli.unpack import unpack
from fastio.cli.verify import verify
from fastio.errors import FastioError

__all__ = ["cli", "main"]

INTERRUPTED = 130  # what a shell makes of SIGINT
TERMINATED = 143  # and of SIGTERM

# What an interrupted command leaves; the others only look.
_LEFT = {
    "pack": "; the new store is not there, and one that lay under its name is as it was",
    "unpack": "; a folder that existed before may hold some of the files already, otherwise nothing was written",
    "show": "; nothing was written",
}


class _OneLine(click.ClickException):
    """An expected failure: one line on stderr, no traceback."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split("\n")))

    def show(self, file: object = None) -> None:
        click.echo(f"error: {self.message}", err=True)


class _Interrupted(_OneLine):
    """Ctrl-C, with the exit code that a shell expects."""

    exit_code = INTERRUPTED


class _Commands(Group):
    """Turns the errors that fastio raises on purpose, and those of the system, into one line."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _end_quietly(ctx)
        except FastioError as exc:
            raise _OneLine(_sentence(exc)) from exc
        except OSError as exc:
            raise _OneLine(f"{exc.filename or 'system'}: {exc.strerror or exc}") from exc
        except KeyboardInterrupt as exc:
            raise _Interrupted(f"interrupted{_LEFT.get(ctx.invoked_subcommand or '', '')}") from exc


def _sentence(error: FastioError) -> str:
    """What the error says; out of a DataLoader worker it comes as the last line of a traceback in its own text."""
    text = str(error).rstrip()
    if text.startswith("Caught ") and "Original Traceback" in text:
        return text.rpartition("\n")[2].partition(": ")[2]
    return text


def _end_quietly(ctx: click.Context) -> NoReturn:
    """`fastio ls | head`: whoever read the output has enough of it. Only `verify` has a verdict to fall back on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())  # what is still buffered goes there when Python ends
    os.close(nowhere)
    ctx.exit(1 if ctx.invoked_subcommand == "verify" else 0)


@click.group(
    name="fastio", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="fastio", message="fastio %(version)s")
def cli() -> None:
    """
    Pack training data into one open container, check it, get the files back; measure what limits a training.

    \b
    Example:
      fastio pack ./pngs train.lmdb --labels labels.pkl
      fastio verify train.lmdb --decode
      fastio bench both train.py:loader_and_step
    """


for _command in (pack, info, ls, show, unpack, verify, doctor, bench, bandwidth, tune, profile, monitor):
    cli.add_command(_command)


def main() -> None:
    """The console script: as Ctrl-C, a batch system's SIGTERM leaves no half-written file behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    cli()
