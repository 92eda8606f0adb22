"""Label files: .pkl, .csv, .tsv, .json and .jsonl to one mapping of file names to numbers.

    .pkl    {name: label}, name as str or bytes; read as data, nothing in it is run
    .csv    name and label by header (filename, file, image, path ... / label, class, target ...), or just the two
    .tsv    the same, tabs between
    .json   {name: label}, or a list of {"filename": name, "label": label} or of [name, label]
    .jsonl  one such record a line

A label is a whole number, the name of a class (which becomes its position in the sorted list of names), a fraction,
or a list of numbers. A file has labels of one kind. Columns that are neither used nor ignored are refused.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastio.converters.label_columns import LabelOptions
from fastio.converters.label_rows import LABEL_SUFFIXES, read_statements
from fastio.converters.label_values import NumberedLabels, Row, number_labels, plain_label
from fastio.errors import SourceError

__all__ = ["LABEL_SUFFIXES", "LabelFile", "LabelOptions", "Labels", "look_like_captions", "read_labels"]

_MANY = 20  # samples from which nearly as many classes are doubted
_SENTENCE_WORDS = 3  # from which a label is more likely a caption than a name


@dataclass(frozen=True, slots=True)
class LabelFile:
    """A label file to read, and how."""

    path: str
    options: LabelOptions = field(default_factory=LabelOptions)


@dataclass(frozen=True, slots=True)
class Labels:
    """
    What a label file says.

    ``by_name`` maps each file name to its number or numbers, ``classes`` are the names of the numbers, None if the
    file has its own numbers. ``contradictions`` are names with two different labels, each with a sentence; they are
    not in ``by_name``. ``filtered`` are names that the user's filters leave out. ``titles`` are those of a table's
    label columns.
    """

    path: str
    numbered: NumberedLabels
    contradictions: Mapping[str, str]
    filtered: frozenset[str] = frozenset()
    titles: tuple[str, ...] = ()

    @property
    def by_name(self) -> Mapping[str, Any]:
        """The label of each file name: an int, a float or a tuple of them."""
        return self.numbered.by_name

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the numbers, if the labels were names."""
        return self.numbered.classes


def read_labels(
    path: str | os.PathLike[str], options: LabelOptions | None = None, *, files: Container[str] = frozenset()
) -> Labels:
    """
    Read a label file by its suffix. Raises SourceError that names the file, the position and what was expected.

    ``files`` are the names of the files to be labelled: they tell a header from a first row.
    """
    path = os.fspath(path)
    options = options or LabelOptions()
    if Path(path).suffix.lower() not in LABEL_SUFFIXES:
        raise SourceError(f"{path}: not a label file by its suffix; expected one of {', '.join(LABEL_SUFFIXES)}")
    try:
        data = Path(path).read_bytes()
    except OSError as exc:
        raise SourceError(f"{path}: labels cannot be read: {exc.strerror or exc}") from exc
    try:
        stated = read_statements(path, data, options, files)
        labels, contradictions = _collect(stated.rows)
        numbered = number_labels(labels) if labels else NumberedLabels({})
        if numbered.classes is not None and not options.many_classes:
            _refuse_captions(numbered)
    except SourceError as exc:
        raise SourceError(f"{path}: {exc}") from exc
    if not numbered.by_name and not contradictions:
        left = f" that pass the filters; all {len(stated.filtered):,} rows have other values" if stated.filtered else ""
        raise SourceError(f"{path}: holds no labels{left}")
    filtered = frozenset(stated.filtered).difference(labels, contradictions)
    return Labels(path, numbered, contradictions, filtered, stated.titles)


def _collect(rows: list[Row]) -> tuple[dict[str, Any], dict[str, str]]:
    """Rows to a mapping; a name that comes again with another label is a contradiction."""
    labels: dict[str, Any] = {name: label for name, label, _ in rows if type(name) is str and name}
    if len(labels) == len(rows):
        return labels, {}  # the usual file: every name is a string, and comes once
    labels = {}
    places: dict[str, str] = {}
    contradictions: dict[str, str] = {}
    for name, label, where in rows:
        key = _file_name(name, where)
        known = labels.setdefault(key, label)
        if known is not label and plain_label(key, known) != plain_label(key, label):
            first, second = places.get(key, ""), where
            both = f" ({first} and {second})" if first and second else ""
            contradictions[key] = f"has two contradicting labels, {known!r} and {label!r}{both}"
        if where:
            places.setdefault(key, where)
    for key in contradictions:
        del labels[key]
    return labels, contradictions


def _file_name(name: object, where: str) -> str:
    at = f"{where}: " if where else ""
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    if not isinstance(name, str):
        raise SourceError(f"{at}file name is {name!r:.60}, expected a string")
    if not name:
        raise SourceError(f"{at}file name is empty")
    return name


def look_like_captions(classes: Sequence[str], count: int) -> bool:
    """Return whether more than three quarters of ``count`` samples would be a class of their own."""
    sentences = sum(len(name.split()) >= _SENTENCE_WORDS for name in classes)
    if 4 * len(classes) <= 3 * count or len(classes) < 2:
        return False
    return count >= _MANY or 2 * sentences > len(classes)


def _refuse_captions(labels: NumberedLabels) -> None:
    classes, count = labels.classes or (), len(labels.by_name)
    if look_like_captions(classes, count):
        raise SourceError(
            f"{count:,} samples have {len(classes):,} different labels, e.g. {classes[0]!r:.60}: captions or "
            "names rather than classes? Drop --labels to pack the pictures alone, or add --many-classes if "
            "each is a class"
        )
