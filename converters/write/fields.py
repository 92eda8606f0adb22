"""Fields: what the user says of the fields of samples, and what the first samples say of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastio.converters.write.inference import infer_field
from fastio.errors import SchemaError
from fastio.types.field_types import FieldType, field_of
from fastio.types.schema import Field, Schema

__all__ = ["Fields", "FieldsAsked"]

# The type of each field by its name, None for those to be inferred; or their names alone; or None for whatever the
# first sample has.
FieldsAsked = Mapping[str, FieldType | None] | Sequence[str] | Schema | None


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of samples in order, each with its type, or None if that is to be inferred; None: not known yet."""

    named: Mapping[str, Field | None] | None

    @classmethod
    def of(cls, asked: FieldsAsked) -> Fields:
        """Read what the user says. Raises SchemaError for types that do not exist, and impossible names."""
        if asked is None:
            return cls(None)
        if isinstance(asked, Schema):
            return cls({field.name: field for field in asked.fields})
        if isinstance(asked, str):
            raise SchemaError(f"fields={asked!r}: expected names with types, as in fields={{{asked!r}: 'image'}}")
        names = list(asked) if isinstance(asked, Iterable) else [asked]
        if not all(isinstance(name, str) for name in names):
            raise SchemaError(
                f"fields={asked!r}: expected names with types, as in fields={{'image': 'image'}}, or names"
            )
        types = asked if isinstance(asked, Mapping) else dict.fromkeys(names)
        if not types or len(types) != len(names):
            raise SchemaError(f"fields={asked!r}: expected at least one field, and each once")
        return cls({name: None if type_ is None else field_of(name, type_) for name, type_ in types.items()})

    @property
    def names(self) -> list[str] | None:
        """The names in order, if they are known."""
        return None if self.named is None else list(self.named)

    @property
    def schema(self) -> Schema | None:
        """The schema if all types are known."""
        if self.named is None or None in self.named.values():
            return None
        return checked(Schema(tuple(field for field in self.named.values() if field is not None)))

    def inferred(self, samples: Sequence[Mapping[str, Any]]) -> Schema:
        """
        Return the schema of the first samples, see ``infer_field``.

        Without names, those of the first sample count. Samples that lack a field tell nothing about it.
        """
        named = self.named or dict.fromkeys(samples[0])
        fields = []
        for name, field in named.items():
            values = [sample[name] for sample in samples if name in sample]
            if field is None and not values:
                raise SchemaError(f"field {name!r}: none of the first {len(samples)} samples has it")
            fields.append(field or infer_field(name, values))
        return checked(Schema(tuple(fields)))


def checked(schema: Schema) -> Schema:
    """Return the schema. Raises SchemaError if all its fields are columns: a store keeps samples by their payload."""
    if not schema.payload:
        raise SchemaError(
            f"the fields {', '.join(field.name for field in schema.fields)} are all columns: at least one must be a "
            "picture, text, JSON, bytes or an array; ('float32', (4,)) is such an array"
        )
    return schema
