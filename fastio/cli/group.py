"""Groups of commands, each imported when it is asked for; how a command starts, and how one says what went wrong."""

from __future__ import annotations

import atexit
import gc
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from copy import copy
from importlib import import_module
from typing import Any

import click

from fastio.cli.screen import printable
from fastio.errors import FastioError

__all__ = [
    "Failed",
    "Group",
    "Interrupted",
    "LazyCommands",
    "Sections",
    "failed",
    "noted",
    "notes",
    "start_lean",
    "usage",
]


class LazyCommands(MutableMapping[str, click.Command]):
    """
    Commands by name. Each is imported when it is first asked for, from its module in ``homes``, where it has its name,
    with _ for each -.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._commands: dict[str, str | click.Command] = dict(homes)

    def __getitem__(self, name: str) -> click.Command:
        command = self._commands[name]
        if isinstance(command, str):
            command = self._commands[name] = getattr(import_module(command), name.replace("-", "_"))
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


_SOURCE = {"--layout": "--source-kind"}
_COLUMNS = {
    **_SOURCE,
    "--ignore-columns": "--without",
    "--text-field": "--text-column",
    "--label-field": "--label-column",
}
# By command, the words of options that were called otherwise before 0.2.0, and what to type instead. They work for one
# release.
FORMER: Mapping[str, Mapping[str, str]] = {
    "pack": {
        **_COLUMNS,
        "--split-text": "--document",
        "--split-long": "--too-long split",
        "--truncation": "--too-long truncate",
    },
    "info": _COLUMNS,
    "verify": _SOURCE,
    "repair": _SOURCE,
    "plan": {"--batch": "--batch-size"},
    "grid": {"--repeats": "--rounds"},
    "profile": {"--with-flops": "--record-shapes"},
}
# Options that are gone since 0.2.0, each of which had a value, and what to use instead. They are passed over, for one
# release.
GONE: Mapping[str, Mapping[str, str]] = {
    "plan": {
        "--cache": "compare what a node asks for with the size of its cache",
        "--rate": "`fastio bench train` measures on one node how long a training waits",
        "--disk": "`fastio bench disk` measures the rate at which a node can read what it asks for",
    },
}
# What a former option said besides: columns of labels are for tables, too. What the user says goes before it.
_IMPLIED = {"--label-field": ("--text-column", "text")}
_IMPLIED_HERE = "fastio.implied"  # in a context: implied options that the user did not type, and the words that did


def present_words(command: str, words: Sequence[str]) -> list[str]:
    """
    Return the words of a command line with former options as they are called now, without those that are gone; a line
    on stderr names each.

    What follows ``--`` is a command line of the user's.

    >>> present_words("plan", ["s.lmdb", "--batch=8", "--", "--batch"])
    ['s.lmdb', '--batch-size=8', '--', '--batch']
    """
    former, gone, present = FORMER.get(command, {}), GONE.get(command, {}), list[str]()
    left = iter(words)
    for word in left:
        if word == "--":
            return [*present, word, *left]
        option, equals, value = word.partition("=")
        if option in gone:
            click.echo(f"warning: {option} is gone and does nothing: {gone[option]}", err=True)
            if not equals:
                next(left, None)
            continue
        now = former.get(option)
        if now is None:
            present.append(word)
            continue
        implied = _IMPLIED.get(option, ())
        beside = f" beside {implied[0]}" if implied else ""
        click.echo(f"warning: {option} is now {now}{beside}; the former name will go with the next release", err=True)
        present = [*implied, *present, *f"{now}{equals}{value}".split(" ", len(now.split()) - 1)]
    return present


class Group(click.Group):
    """
    Lists commands in the order in which people need them, not by name; options may have their former names.

    ``of_paths`` is the command that takes a path typed where a command is expected: it is named in the error.
    """

    def __init__(self, *args: Any, of_paths: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._of_paths = of_paths

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the command, and its words as they are called now."""
        if self._of_paths and self.get_command(ctx, args[0]) is None and os.path.lexists(args[0]):
            ctx.fail(f"{args[0]} is a path, not a command: {ctx.command_path} {self._of_paths} {args[0]}")
        name, command, words = super().resolve_command(ctx, args)
        if name is not None:
            typed = {word.partition("=")[0] for word in words}
            former = FORMER.get(name, {})
            typed |= {former[word] for word in typed & former.keys()}
            said = {_IMPLIED[word][0]: word for word in typed & _IMPLIED.keys() & former.keys()}
            ctx.meta[_IMPLIED_HERE] = {option: word for option, word in said.items() if option not in typed}
            words = present_words(name, words)
        return name, command, words

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error about an option that a former word implied names the word that was typed."""
        try:
            return super().invoke(ctx)
        except click.UsageError as exc:
            message = exc.message
            for option, word in ctx.meta.get(_IMPLIED_HERE, {}).items():
                message = message.replace(option, word)
            if message == exc.message:
                raise
            raise click.UsageError(message, exc.ctx) from exc

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of registration."""
        del ctx
        return list(self.commands)


class Sections(click.Command):
    """
    A command with many options: ``sections`` maps headings to the names of parameters, in the order in which help lists
    them. "Options" is the heading of those that no other section names; it comes first.

    Its help may have names in braces; ``words`` says what is shown in their place, and is asked when help is shown.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Collection[str]],
        words: Mapping[str, Callable[[], str]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self._sections = sections
        self._words = words or {}

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help with its words filled in."""
        filled = copy(self)
        for name, word in self._words.items():
            filled.help = (filled.help or "").replace(f"{{{name}}}", word())
        super(Sections, filled).format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        title_of = {name: title for title, names in self._sections.items() for name in names}
        lists: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *self._sections)}
        ranks = {name: rank for rank, name in enumerate(title_of)}
        for parameter in sorted(self.get_params(ctx), key=lambda option: ranks.get(str(option.name), len(ranks))):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                lists[title_of.get(str(parameter.name), "Options")].append(record)
        for title, records in lists.items():
            with formatter.section(title):
                formatter.write_dl(records)


# Starts and ends commands that run no code of the user's in less CPU time.


def start_lean() -> None:
    """
    Collect garbage less often and not at the end, and have NumPy start no threads for linear algebra.

    Call it before NumPy is imported. The objects that imports create stay, yet Python would walk through them again
    and again; and each thread of OpenBLAS spins for a while before it sleeps. On two busy cores of an Intel Xeon,
    importing NumPy took 93 instead of 119 ms of CPU without such threads. Commands on small stores now collect
    nothing: at every 20,000 objects it took 3 of the 157 ms of ``fastio info`` and 7 of the 202 of packing a small
    text. As it ends, Python walks through all objects once more, which took 24 of the 165 ms of ``fastio info``:
    frozen ones are left out.
    """
    gc.set_threshold(100_000, 20, 100)
    atexit.register(gc.freeze)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


# What a command prints when it fails: one line, preceded by the user's traceback if the user's code failed.


class Failed(click.ClickException):
    """A failure, printed as one line on stderr; ``text`` is printed before it unchanged."""

    def __init__(self, message: str, *, text: str = "") -> None:
        super().__init__(printable(" ".join(message.split("\n"))))
        self.text = text

    def show(self, file: object = None) -> None:
        """Print it."""
        del file
        click.echo(f"{self.text}error: {self.message}", err=True)


class Interrupted(Failed):
    """Ctrl-C."""

    exit_code = 130  # the exit code that a shell reports for SIGINT


class _Usage(Failed):
    """A command line that makes no sense."""

    exit_code = 2


def failed(error: Exception) -> Failed | None:
    """Return the failure for an error, or None if the error is a bug of fastio, whose traceback should be seen."""
    if isinstance(error, FastioError):
        return Failed("; ".join([_sentence(error), *notes(error)]))
    from fastio.measure.loop.user_code import error_line, user_traceback

    text = user_traceback(error)
    if text is not None:
        return Failed("; ".join([f"your code failed: {error_line(error)}", *notes(error)]), text=text)
    if isinstance(error, OSError):
        return Failed("; ".join([f"{error.filename or 'system'}: {error.strerror or error}", *notes(error)]))
    return None


def notes(error: BaseException) -> list[str]:
    """Return the notes added to an error on its way here: what holds now and the message does not say."""
    return list(dict.fromkeys(getattr(error, "__notes__", [])))


@contextmanager
def noted() -> Iterator[list[str]]:
    """Yield a list; if an error or interrupt ends the block, the list's lines become its notes."""
    facts: list[str] = []
    try:
        yield facts
    except BaseException as exc:
        for fact in facts:
            exc.add_note(fact)
        raise


def usage(error: click.UsageError, below: str = "fastio") -> click.ClickException:
    """
    Return what is wrong with the command line and where to read more; `fastio bench` alone prints its help.

    ``below`` is the command if the error names none, as for an option without its value.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    command = below if error.ctx is None else error.ctx.command_path
    if near := getattr(error, "possibilities", None):  # the best first
        return _Usage(f"{error.message.rstrip('.')}: did you mean '{near[0]}'? See '{command} --help'")
    message = re.sub(r":\n\t|,\n\t", lambda gap: f"{gap[0][0]} ", error.format_message())  # click's list of choices
    return _Usage(f"{message.rstrip('.')}; see '{command} --help'")


def _sentence(error: FastioError) -> str:
    """
    Return the error's message; from a DataLoader worker, it is the last line of the traceback in the error's text.
    """
    text = str(error).rstrip()
    if text.startswith("Caught ") and "Original Traceback" in text:
        return text.rpartition("\n")[2].partition(": ")[2]
    return text
