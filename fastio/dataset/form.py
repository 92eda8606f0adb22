"""Form: which fields a sample has, in which container; and transforms that are told which fields those are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, runtime_checkable

from fastio.errors import SchemaError
from fastio.store.protocol import SampleStore
from fastio.types.schema import Field, Schema

__all__ = [
    "LABEL",
    "BlankTransform",
    "FieldTransform",
    "Form",
    "has_many_fields",
]


LABEL = "label"


@dataclass(frozen=True, slots=True)
class Form:
    """
    The fields of a sample by ``names``, and how they are handed over.

    * "value": the value of the one field
    * "pair": a payload field without lists and the column "label", as ``(value, label)``
    * "tuple": the values in the order of ``names``
    * "dict": the values by name
    """

    names: tuple[str, ...]
    kind: Literal["value", "pair", "tuple", "dict"]

    @classmethod
    def of(cls, store: SampleStore, fields: str | Sequence[str] | None) -> Self:
        """
        Return the form of a store's samples.

        ``fields`` is one name for the value alone, or several for a tuple; a payload field and "label" are the pair.
        Without it, a store of one payload field and at most the column "label" has values or pairs, and any other a
        dict of all fields. Raises SchemaError for names that the store does not have.
        """
        if fields is None:
            return cls._of_all(store)
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        known = [field.name for field in store.schema.fields]
        unknown = [name for name in names if name not in known]
        if unknown or not names or len(set(names)) < len(names):
            wish = ", ".join(map(repr, unknown or names)) or "none"
            problem = "no such field" if unknown else "expected one name or more, each once"
            raise SchemaError(f"{store.path}: fields={fields!r}: {problem}: {wish}; the store has {', '.join(known)}")
        if isinstance(fields, str):
            return cls(names, "value")
        return cls(names, "pair" if _is_pair(store.schema, names) else "tuple")

    @classmethod
    def _of_all(cls, store: SampleStore) -> Self:
        schema = store.schema
        names = (*(field.name for field in schema.payload), *(field.name for field in schema.columns))
        if not schema.payload:
            raise SchemaError(f"{store.path}: no payload field among {list(names)}")
        if len(names) == 1:
            return cls(names, "value")
        return cls(names, "pair" if _is_pair(schema, names) else "dict")

    @property
    def is_joint(self) -> bool:
        """Whether a transform gets the whole sample, a tuple or dict, instead of its value."""
        return self.kind in ("tuple", "dict")

    def payload(self, schema: Schema) -> tuple[str, ...]:
        """Return the names of its payload fields, in order."""
        return tuple(name for name in self.names if not schema[name].is_column)

    def columns(self, schema: Schema) -> tuple[str, ...]:
        """Return the names of its columns, in order."""
        return tuple(name for name in self.names if schema[name].is_column)

    def assemble(self, values: Mapping[str, Any]) -> Any:
        """
        Return a sample, or a batch, made of the values by name. A dict also gets values of other names.

        >>> Form(("image", "label"), "pair").assemble({"label": 3, "image": "pixels"})
        ('pixels', 3)
        """
        if self.kind == "dict":
            return dict(values)
        chosen = tuple(values[name] for name in self.names)
        return chosen[0] if self.kind == "value" else chosen


def _is_pair(schema: Schema, names: Sequence[str]) -> bool:
    is_labelled = len(names) == 2 and names[1] == LABEL
    return is_labelled and schema[LABEL].is_column and not schema[names[0]].is_column and not schema[names[0]].is_list


def has_many_fields(store: SampleStore) -> bool:
    """Whether samples are dicts, of more fields than one payload and its labels, or hold lists."""
    has_payload = bool(store.schema.payload)
    return has_payload and (bool(store.schema.lists) or Form.of(store, None).kind == "dict")


# The protocol FieldTransform: a transform that treats the fields of a sample by what they are.


@runtime_checkable
class FieldTransform(Protocol):
    """A transform that is made for samples of certain fields, such as those of ``fastio.transforms``."""

    def for_fields(self, fields: Iterable[Field]) -> Callable[[Any], Any]:
        """Return a function of samples: dicts by field names, or tuples in the order of ``fields``."""
        ...


# The protocol BlankTransform: a transform that does something else with the blanks of bad samples.


@runtime_checkable
class BlankTransform(Protocol):
    """A transform with steps that are for samples, not for the zeros in place of bad ones."""

    def for_blanks(self) -> Callable[[Any], Any]:
        """Return the transform for zeros in the place of pictures."""
        ...
