"""What a command says when it fails: one line, after the user's own traceback where the user's code has failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from fastio.errors import FastioError

__all__ = ["Failed", "Interrupted", "failed", "noted", "notes", "usage"]


class Failed(click.ClickException):
    """A failure in one line on stderr; ``text`` comes before it as it is."""

    def __init__(self, message: str, *, text: str = "") -> None:
        super().__init__(" ".join(message.split("\n")))
        self.text = text

    def show(self, file: object = None) -> None:
        """Print it."""
        del file
        click.echo(f"{self.text}error: {self.message}", err=True)


class Interrupted(Failed):
    """Ctrl-C."""

    exit_code = 130  # what a shell makes of SIGINT


class _Usage(Failed):
    """A command line that cannot be."""

    exit_code = 2


def failed(error: Exception) -> Failed | None:
    """The failure that this error is; None where it is a mistake of ours, whose traceback is to be seen."""
    if isinstance(error, FastioError):
        return Failed("; ".join([_sentence(error), *notes(error)]))
    from fastio.measure.loop.user_code import said_by, user_traceback

    text = user_traceback(error)
    if text is not None:
        return Failed("; ".join([f"your code failed: {said_by(error)}", *notes(error)]), text=text)
    if isinstance(error, OSError):
        return Failed("; ".join([f"{error.filename or 'system'}: {error.strerror or error}", *notes(error)]))
    return None


def notes(error: BaseException) -> list[str]:
    """What was added to an error on its way here: what is true now and its message does not say."""
    return list(dict.fromkeys(getattr(error, "__notes__", [])))


@contextmanager
def noted() -> Iterator[list[str]]:
    """A list of what is true by now; whatever error or interrupt ends the block gets it as notes."""
    facts: list[str] = []
    try:
        yield facts
    except BaseException as exc:
        for fact in facts:
            exc.add_note(fact)
        raise


def usage(error: click.UsageError) -> click.ClickException:
    """What is wrong with the command line, and where to read how it is; `fastio bench` alone gets its help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    command = "fastio" if error.ctx is None else error.ctx.command_path
    return _Usage(f"{error.format_message().rstrip('.')}; see '{command} --help'")


def _sentence(error: FastioError) -> str:
    """What the error says; out of a DataLoader worker it comes as the last line of a traceback in its own text."""
    text = str(error).rstrip()
    if text.startswith("Caught ") and "Original Traceback" in text:
        return text.rpartition("\n")[2].partition(": ")[2]
    return text
