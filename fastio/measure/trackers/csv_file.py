"""CSV: figures as rows of a table, for spreadsheets and pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from fastio.errors import FastioError
from fastio.machine import rank_and_world
from fastio.measure.trackers.figures import Figures, append_whole

__all__ = ["CSV"]

_FIRST = ["time_s", "step"]


class CSV:
    """
    Appends one row per write: ``time_s`` (since 1970), ``step``, then one column per figure, its unit in the name.

    An existing table of figures is continued; cells stay empty where a row has no such figure. In a job of several
    ranks, each writes a file of its own, such as ``steps.rank3.csv``. Raises FastioError if the file cannot be
    written or is another table.
    """

    def __init__(self, path: str | Path) -> None:
        rank, ranks = rank_and_world()
        self._path = Path(path)
        if ranks > 1:
            self._path = self._path.with_suffix(f".rank{rank}{self._path.suffix}")
        self._columns: list[str] = []
        if self._path.exists() and not self._path.is_file():
            raise FastioError(f"{self._path}: is not a file; choose another place")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a+b", buffering=0)
            self._continue()
        except OSError as exc:
            raise FastioError(f"{self._path}: cannot be written ({exc.strerror}); choose another place") from exc

    def write(self, figures: Figures) -> None:
        """Append a row. A figure of a new name adds a column: the table is then written anew."""
        values = {"time_s": round(figures.time_s, 3), "step": figures.step, **figures.curves()}
        new = [name for name in values if name not in self._columns]
        if new:
            self._widen(new)
        append_whole(self._file, _as_csv([[values.get(name, "") for name in self._columns]]))

    def close(self) -> None:
        """Close the file. Calling it twice is harmless."""
        self._file.close()

    def __str__(self) -> str:
        return str(self._path)

    def _continue(self) -> None:
        """Read the titles of an existing table, and drop the row at its end that a killed process left unfinished."""
        self._file.seek(0)
        table = self._file.read()
        whole = table[: table.rfind(b"\n") + 1]
        self._columns = next(csv.reader([whole.decode(errors="replace").partition("\n")[0]]), [])
        if table and self._columns[:2] != _FIRST:
            self._file.close()
            raise FastioError(
                f"{self._path}: is no table of figures (expected columns {','.join(_FIRST)},...); choose another name"
            )
        if len(whole) < len(table):
            self._file.truncate(len(whole))

    def _widen(self, new: Sequence[str]) -> None:
        """Write the table with more columns beside the old one, then take its place."""
        self._file.seek(0)
        rows = list(csv.reader(io.StringIO(self._file.read().decode(), newline="")))[1:]
        columns = [*self._columns, *new]
        beside = self._path.with_name(f".{self._path.name}.partial")
        try:
            with beside.open("wb") as file:
                file.write(_as_csv([columns, *([*row, *[""] * (len(columns) - len(row))] for row in rows)]))
            beside.replace(self._path)
        finally:
            beside.unlink(missing_ok=True)
        self._file.close()
        self._file = self._path.open("a+b", buffering=0)
        self._columns = columns


def _as_csv(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
