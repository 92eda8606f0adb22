"""What a command prints when it fails: one line, preceded by the user's traceback if the user's code failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from fastio.cli.screen import printable
from fastio.errors import FastioError

__all__ = ["Failed", "Interrupted", "failed", "noted", "notes", "usage"]


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


def usage(error: click.UsageError) -> click.ClickException:
    """Return what is wrong with the command line and where to read more; `fastio bench` alone prints its help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    command = "fastio" if error.ctx is None else error.ctx.command_path
    return _Usage(f"{error.format_message().rstrip('.')}; see '{command} --help'")


def _sentence(error: FastioError) -> str:
    """
    Return the error's message; from a DataLoader worker, it is the last line of the traceback in the error's text.
    """
    text = str(error).rstrip()
    if text.startswith("Caught ") and "Original Traceback" in text:
        return text.rpartition("\n")[2].partition(": ")[2]
    return text
