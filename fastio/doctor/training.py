"""The user's training: a function that trains, and how it failed."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from fastio.errors import FastioError
from fastio.loader.fast_loader import FastLoader
from fastio.measure.loop.user_code import TRAINS, error_line, load_function, user_traceback

__all__ = ["Failure", "failure_of", "function_training"]

_INTERRUPTED, _TERMINATED = 130, 143  # the exit codes that a shell reports for SIGINT and SIGTERM


@dataclass(frozen=True, slots=True)
class Failure:
    """How a training failed: its last line, its traceback without fastio's frames, its exit code."""

    message: str
    text: str
    code: int


def function_training(
    name: str, watched: Callable[[Iterable[Any]], Iterable[Any]], has_begun: Callable[[], bool]
) -> Callable[[], None]:
    """
    Return the training ``module:function``, which trains, or returns a loader and ``step(batch)`` to be run for ever.

    ``watched`` returns what to iterate over in place of the loader. Raises FastioError if there is no such function;
    the training raises it if the function returns a loader alone, unless ``has_begun`` says that it iterated over one.
    """
    function = load_function(name, what=TRAINS)

    def train() -> None:
        made = function()
        if isinstance(made, tuple) and len(made) == 2 and hasattr(made[0], "__iter__") and callable(made[1]):
            _epochs(watched(made[0]), made[1])
        elif isinstance(made, (DataLoader, FastLoader)) and not has_begun():
            raise FastioError(f"{name} returned only a {type(made).__name__}; expected a function that {TRAINS}")

    return train


def _epochs(loader: Iterable[Any], step: Callable[[Any], object]) -> None:
    """Run the loop that the user would write; it ends with an empty epoch."""
    is_empty = False
    while not is_empty:
        is_empty = True
        for batch in loader:
            step(batch)
            is_empty = False


def failure_of(error: BaseException) -> Failure | None:
    """Return the failure of a training that raised this error; None if it ended on purpose by ``sys.exit(0)``."""
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return None
        code = error.code if isinstance(error.code, int) else 1
        if code == _TERMINATED:
            return Failure("terminated (SIGTERM)", "", code)
        call = f"sys.exit({error.code!r})"
        return Failure(call, "" if isinstance(error.code, int) else str(error.code), code)
    if isinstance(error, KeyboardInterrupt):
        return Failure("interrupted", "", _INTERRUPTED)
    text = user_traceback(error) or "".join(traceback.format_exception(error))
    return Failure(error_line(error), text, 1)
