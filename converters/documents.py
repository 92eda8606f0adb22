"""Checks texts and JSON documents, as they are stored, for being UTF-8 and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastio import _native
from fastio.converters.listed import Indices, Read, Values
from fastio.converters.record_problem import UnfitError
from fastio.converters.record_values import value_encoder
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = ["document_problems", "is_document", "read_documents"]


def is_document(field: Field) -> bool:
    """Return whether the values of a payload field are texts or JSON."""
    return not field.is_column and (field.traits.is_text or field.traits.is_json)


def document_problems(spans: Spans, field: Field) -> dict[int, str]:
    """Return what is wrong with texts or JSON documents, by position, in words that follow the field's name."""
    check = value_encoder(field)
    problems: dict[int, str] = {}
    for position, value in enumerate(spans.views()):
        try:
            check(value.tobytes())
        except UnfitError as exc:
            problems[position] = str(exc)
    return problems


def read_documents(read: Read, fields: Sequence[Field]) -> Read:
    """Make a ``Read`` that also checks the documents of these fields; wrong ones are problems of their samples."""
    documents = [field for field in fields if is_document(field)]
    if not documents:
        return read

    def begin(indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        wait = read(indices, pool)
        return lambda: _checked(wait(), documents)

    return begin


def _checked(values: Values, fields: Sequence[Field]) -> Values:
    problems = dict(values.problems)
    for field in fields:
        for i, text in document_problems(values.spans[field.name], field).items():
            problems.setdefault(i, f"has a field {field.name!r} that {text}")
    return Values(values.spans, problems, values.columns)
