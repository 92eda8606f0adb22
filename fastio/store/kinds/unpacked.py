"""``Unpacked``: what a path that is not packed is, as far as it does not tell itself."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fastio.types.options import explains_names

__all__ = ["AS_IT_IS", "Unpacked"]


# The options of ``fastio pack`` that are called otherwise here.
_SAID_ELSEWHERE = {
    "label_column": "it is label_columns, a list: label_columns=['species']",
    "field": "it is fields, a list: fields=['mask=masks/']",
    "filter": "it is filters, a list: filters=['split=train']",
    "source_kind": "it is kind: kind='imagefolder'",
    "no_header": "it is header: header=False",
}


@dataclass(frozen=True, slots=True, init=False)
class Unpacked:
    """
    What ``fastio pack`` would be told of files that are read where they lie::

        FastDataset("pngs", unpacked=Unpacked(labels="labels.csv", label_columns=["species"]))
        FastDataset("images", unpacked=Unpacked(fields=["mask=masks/"]))

    Each is the option of that name: ``labels`` (a label file), ``label_columns``, ``key_column``, ``filters``
    (``"split=train"`` or an expression), ``without`` (columns), ``header`` (False: the first line is a row),
    ``fields`` (``"NAME=WHERE:TYPE"``), ``root``, ``kind`` (of source) and ``split``. Paths are as ``open`` takes them.

    Raises TypeError for a single text where a list of them is expected.
    """

    labels: str | None
    fields: tuple[str, ...]
    root: str | None
    split: str | None
    kind: str
    label_columns: tuple[str, ...]
    key_column: str | None
    filters: tuple[str, ...]
    without: tuple[str, ...]
    header: bool

    @explains_names(_SAID_ELSEWHERE)
    def __init__(  # noqa: PLR0913 - an option each
        self,
        labels: str | os.PathLike[str] | None = None,
        *,
        fields: Sequence[str] = (),
        root: str | os.PathLike[str] | None = None,
        split: str | None = None,
        kind: str = "auto",
        label_columns: Sequence[str] = (),
        key_column: str | None = None,
        filters: Sequence[str] = (),
        without: Sequence[str] = (),
        header: bool = True,
    ) -> None:
        values = {
            "labels": None if labels is None else os.fspath(labels),
            "fields": _texts("fields", fields),
            "root": None if root is None else os.fspath(root),
            "split": split,
            "kind": kind,
            "label_columns": _texts("label_columns", label_columns),
            "key_column": key_column,
            "filters": _texts("filters", filters),
            "without": _texts("without", without),
            "header": bool(header),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def given(self) -> dict[str, Any]:
        """Return what differs from the defaults."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) != getattr(AS_IT_IS, each.name)
        }

    def words(self) -> list[str]:
        """
        Return the options of ``fastio pack`` that say the same.

        >>> Unpacked(fields=["mask=masks/"], split="train").words()
        ['--field', 'mask=masks/', '--split', 'train']
        """
        said = [] if self.header else ["--no-header"]
        for name, flag in _FLAGS.items():
            value = getattr(self, name)
            if value == getattr(AS_IT_IS, name):
                continue
            values = [value] if isinstance(value, str) else [",".join(value)] if name == "label_columns" else value
            said += [word for each in values for word in (flag, each)]
        return said

    def text(self, path: str) -> str:
        """
        Return a text that other options for ``path`` do not have, nor these once they mean other files; "" without any.

        A relative name means another file in another working directory, and a link may lead elsewhere by and by.
        """
        given = self.given()
        named = [] if self.labels is None else [self.labels]
        bases = [path, str(Path(os.path.realpath(path)).parent), "."]  # in which fields are looked for
        if self.root is not None:
            named.append(self.root)
            bases.append(self.root)
        for field in self.fields:
            where = field.partition("=")[2]
            forms = dict.fromkeys((where, where.rpartition(":")[0] or where))  # a type may stand behind it
            named += [str(Path(base, form)) for form in forms for base in bases]
        if named:
            given["means"] = [os.path.realpath(each) for each in named]
        return json.dumps(given, sort_keys=True) if given else ""


_FLAGS = {
    "labels": "--labels",
    "fields": "--field",
    "root": "--root",
    "split": "--split",
    "kind": "--source-kind",
    "label_columns": "--label-column",
    "key_column": "--key-column",
    "filters": "--filter",
    "without": "--without",
}


def _texts(name: str, values: Sequence[str]) -> tuple[str, ...]:
    if isinstance(values, str) or not all(isinstance(each, str) for each in values):
        raise TypeError(f"{name}={values!r}: expected a list of texts, such as [{str(values)!r}]")
    return tuple(values)


AS_IT_IS = Unpacked()
