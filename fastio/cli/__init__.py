"""The command line: argument parsing and printing only; each command is a file of its own.

Nothing but click is imported before a command runs: ``fastio --help`` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from fastio.cli.bandwidth import bandwidth
from fastio.cli.bench import bench
from fastio.cli.doctor import doctor
from fastio.cli.failures import Interrupted, failed, notes, usage
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

__all__ = ["cli", "main"]

TERMINATED = 143  # what a shell makes of SIGTERM

# What an interrupted command leaves, unless the interrupt itself has a note of it; the others only look.
_LEFT = {
    "pack": "; the new store is not there, and one that lay under its name is as it was",
    "unpack": "; a folder that existed before may hold some of the files already, otherwise nothing was written",
    "show": "; nothing was written",
}


class _Commands(Group):
    """Turns errors that have a cause outside of fastio into one line."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as exc:
            raise usage(exc) from exc

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _end_quietly(ctx)
        except click.UsageError as exc:
            raise usage(exc) from exc
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt as exc:
            left = "; ".join(["", *notes(exc)]) or _LEFT.get(ctx.invoked_subcommand or "", "")
            raise Interrupted(f"interrupted{left}") from exc
        except Exception as exc:
            known = failed(exc)
            if known is None:
                raise
            raise known from exc


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
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # what the terminal cannot show is shown as Python writes it
    if sys.getfilesystemencoding() != "utf-8":
        other = sys.getfilesystemencoding()
        sys.exit(f"error: file names are {other} in this locale, UTF-8 in stores: set PYTHONUTF8=1 or LC_ALL=C.UTF-8")
    cli()
