"""FieldChoice: a field that the user asks for by ``--field NAME=WHERE[:TYPE]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fastio.errors import SchemaError, SourceError
from fastio.types.field_types import field_of, type_of
from fastio.types.schema import Field

__all__ = ["FieldChoice", "field_rank", "parse_choice"]

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class FieldChoice:
    """
    A field of the samples and where the source has it.

    ``where`` is what the kind of source makes of it: a column (``objects.bbox`` goes into JSON), a folder, a member's
    extension, a feature. ``field`` is the field with its type, None if the user leaves the type to the source.
    """

    name: str
    where: str
    field: Field | None = None

    def __str__(self) -> str:
        """
        Return the words that ``parse_choice`` takes; stores keep these in the record of their source, as "fields".

        >>> str(parse_choice("boxes=objects.bbox:xywh"))
        'boxes=objects.bbox:xywh'
        """
        return f"{self.name}={self.where}" + ("" if self.field is None else f":{type_of(self.field)}")


def parse_choice(words: str) -> FieldChoice:
    """
    Parse ``NAME=WHERE`` or ``NAME=WHERE:TYPE``, with a type that ``field_of`` takes.

    >>> parse_choice("mask=masks/"), parse_choice("boxes=objects.bbox:xywh").field.role
    (FieldChoice(name='mask', where='masks/', field=None), 'xywh')

    Raises SourceError for anything else. A colon in WHERE is no problem unless a type follows it.
    """
    name, equals, where = words.partition("=")
    if not (equals and where) or not _NAME.match(name):
        raise SourceError(
            f"--field {words}: expected NAME=WHERE or NAME=WHERE:TYPE, as in mask=masks/ or boxes=objects.bbox:xywh; "
            "names are lower-case letters, digits and _"
        )
    before, colon, type_ = where.rpartition(":")
    if colon and before:
        try:
            return FieldChoice(name, before, field_of(name, type_))
        except SchemaError:
            if "/" not in type_ and "\\" not in type_:
                raise
    return FieldChoice(name, where)


def field_rank(field: Field) -> int:
    """Return where a field of a table comes among others: pictures, masks, other values, columns, the label last."""
    if field.traits.is_picture:
        return 1 if field.traits.is_mask else 0
    return 2 if not field.is_column else 3 if field.name != "label" else 4
