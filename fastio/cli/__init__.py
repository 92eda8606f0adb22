"""The command line: parses arguments and prints results.

A command line imports click and the room of its own command; that room imports what a run needs when it runs.
"""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from fastio.cli.group import Group, Interrupted, LazyCommands, failed, notes, start_lean, usage

__all__ = ["COMMANDS", "cli", "main"]

# In the order in which people need them. The first ones run no code of the user's.
_ABOUT_STORES = {
    "pack": "fastio.cli.pack",
    "seal": "fastio.cli.stores",
    "info": "fastio.cli.info",
    "ls": "fastio.cli.samples",
    "show": "fastio.cli.samples",
    "unpack": "fastio.cli.samples",
    "verify": "fastio.cli.verify",
    "merge": "fastio.cli.stores",
    "repair": "fastio.cli.stores",
    "index": "fastio.cli.stores",
    "stage": "fastio.cli.stores",
}
_ABOUT_TRAINING = {
    "compute": "fastio.cli.compute",
    "add-field": "fastio.cli.compute",
    "doctor": "fastio.cli.doctor",
    "plan": "fastio.cli.plan",
    "bench": "fastio.cli.bench",
    "bandwidth": "fastio.cli.bench_machine",
    "tune": "fastio.cli.bench_settings",
    "profile": "fastio.cli.profile",
    "monitor": "fastio.cli.monitor",
}
COMMANDS = LazyCommands({**_ABOUT_STORES, **_ABOUT_TRAINING})

TERMINATED = 143  # the exit code that a shell reports for SIGTERM

# What an interrupted command leaves behind, unless the interrupt carries a note that says so. Commands that are not
# listed only read.
_LEFT = {
    "pack": "; the new store was not written, and an existing one under this name is unchanged",
    "compute": "; the new store was not written, and an existing one under this name is unchanged",
    "add-field": "; the field was not added, and the store is as it was",
    "seal": "; the set was not written",
    "merge": "; the set was not written",
    "repair": "; shards that were mended before stay so, the others are as they were",
    "unpack": "; if the folder existed before, some files may already be in it; otherwise nothing was written",
    "show": "; nothing was written",
    "stage": "; what was copied is kept: the same command goes on from there",
}


class _Commands(Group):
    """Prints one line instead of a traceback for errors whose cause lies outside fastio."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as exc:
            raise usage(exc) from exc

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _ABOUT_STORES:
            start_lean()
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _end_quietly(ctx)
        except click.UsageError as exc:
            raise usage(exc, " ".join(filter(None, (ctx.command_path, ctx.invoked_subcommand)))) from exc
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt as exc:
            left = "; ".join(["", *notes(exc)]) or _LEFT.get(ctx.invoked_subcommand or "", "")
            raise Interrupted(f"interrupted{left}") from exc
        except SystemExit as exc:  # SIGTERM, see ``main``
            if notes(exc):
                click.echo(f"terminated; {'; '.join(notes(exc))}", err=True)
            raise
        except Exception as exc:
            known = failed(exc)
            if known is None:
                raise
            raise known from exc


def _end_quietly(ctx: click.Context) -> NoReturn:
    """
    Stop quietly when the reader of the output has gone, as in `fastio ls | head`. Only `verify` then has an exit code
    to report.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())  # Python writes what is still buffered there when it ends
    os.close(nowhere)
    ctx.exit(1 if ctx.invoked_subcommand == "verify" else 0)


@click.group(
    name="fastio",
    cls=_Commands,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="fastio", message="fastio %(version)s")
def cli() -> None:
    """
    Pack training data into one open container, check it, read it fast, get the files back; find out what limits a
    training.

    \b
    Example:
      fastio pack ./pngs train.lmdb --labels labels.pkl
      fastio verify train.lmdb --decode
      fastio bench both train.py:loader_and_step
    """


def main() -> None:
    """
    Run the command line. SIGTERM, as a batch system sends it, is handled like Ctrl-C: no half-written file stays
    behind.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    if isinstance(sys.stdout, TextIOWrapper):
        # What the terminal cannot show is printed as Python escapes it.
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.getfilesystemencoding() != "utf-8":
        other = sys.getfilesystemencoding()
        sys.exit(
            f"error: this locale encodes file names as {other}, stores need UTF-8: set PYTHONUTF8=1 or LC_ALL=C.UTF-8"
        )
    cli()
