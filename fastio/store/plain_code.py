"""Python that reads samples of many fields without fastio: what the snippets of all formats share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fastio.types.schema import Field, Schema

__all__ = ["has_many_fields", "imports", "main_picture", "of_bytes", "readers"]


def has_many_fields(schema: Schema) -> bool:
    """Whether snippets leave a dict for each sample: of several payload fields, and of values that need parsing."""
    return (
        len(schema.payload) > 1
        or schema.is_per_sample
        or any(f.traits.is_json or f.traits.is_ragged for f in schema.payload)
    )


def main_picture(fields: Iterable[Field]) -> Field | None:
    """The picture that a sample's key names: the first that is not a mask, else the first; None without pictures."""
    pictures = [field for field in fields if field.traits.is_picture]
    return next((field for field in pictures if not field.traits.is_mask), pictures[0] if pictures else None)


def of_bytes(field: Field) -> str:
    """
    Return Python for a function that takes the stored bytes of a value. Pictures stay encoded.

    >>> of_bytes(Field("boxes", "ragged", "<f4", (None, 4), "xywh"))
    'lambda value: np.frombuffer(value, "<f4").reshape(-1, 4)'
    """
    traits = field.traits
    if traits.is_text:
        return "bytes.decode"
    if traits.is_json:
        return "json.loads"
    if not traits.is_plain:
        return "bytes"
    shape = ", ".join("-1" if size is None else str(size) for size in field.shape)
    return f'lambda value: np.frombuffer(value, "{field.dtype}").reshape({shape})'


def readers(schema: Schema, functions: Mapping[str, str]) -> list[str]:
    """Return the lines that define ``read``, a function for each payload field."""
    return ["read = {", *(f'    "{field.name}": {functions[field.name]},' for field in schema.payload), "}"]


def imports(lines: Iterable[str], *always: str) -> str:
    """Return the import that these lines need, of NumPy, json and io besides what is always imported."""
    text = "\n".join(lines)
    needed = [name for name in ("io", "json") if f"{name}." in text] + (["numpy as np"] if "np." in text else [])
    return f"import {', '.join(sorted([*needed, *always]))}"
