"""What ``fastio info`` prints about a store of many fields: a line for each, a sample, and how to read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from fastio.cli.screen import printable, table
from fastio.types.units import number, size

__all__ = ["print_example", "print_fields"]


def print_fields(report: Mapping[str, Any]) -> None:
    """Print the fields with types and sizes, and the names of classes."""
    columns = report["columns"]
    rows = []
    for name, words in report["types"].items():
        payload = report["fields"].get(name)
        if payload is None:
            is_class = name == "label" and report["classes"] is not None
            values = f"{number(len(report['classes']))} classes" if is_class else _column_words(columns[name])
            rows.append((name, words, "", "", printable(values)))
            continue
        sizes = payload["size_bytes"]
        median, total = ("", "") if sizes is None else (number(sizes["median"]), size(sizes["total"]))
        rows.append((name, words, median, total, _payload_words(payload)))
    table(("field", "type", "bytes a sample", "in all", "values"), rows, right=(2, 3))
    for name, classes in report["field_classes"].items():
        click.echo(f"classes of {name}: {printable(', '.join(map(str, classes)))}")


def print_example(report: Mapping[str, Any]) -> None:
    """Print the first sample, and Python that reads the store."""
    if report["example"] is not None:
        click.echo(f"\nthe first sample, {printable(report['example']['key'])}:\n")
        for name, words in report["example"]["values"].items():
            click.echo(f"    {name}: {printable(words)}")
    click.echo("\nwith fastio:\n")
    click.echo("    " + report["read_with_fastio"].rstrip().replace("\n", "\n    "))


def _payload_words(field: Mapping[str, Any]) -> str:
    """
    Return what a field's values are like.

    >>> _payload_words({"unit": "rows", "length": {"min": 0, "max": 4}})
    '0 to 4 rows'
    """
    if "kinds" in field:
        kinds = ", ".join(f"{number(count)} {kind}" for kind, count in field["kinds"].items())
        sides = [f"{side} {_range(field[side])}" for side in ("height", "width") if field[side]]
        return "; ".join([kinds, *([", ".join(sides)] if sides else [])])
    return f"{_range(field['length'])} {field['unit']}" if field.get("length") else ""


def _column_words(column: Mapping[str, Any] | None) -> str:
    """
    Return what the values of a column are like.

    >>> _column_words({"distinct": 7, "texts": ["a", "b"]}), _column_words({"true": 3, "of": 4})
    ('7 different, such as a, b', '3 of 4 are true')
    """
    if column is None:
        return ""
    if "true" in column:
        return f"{number(column['true'])} of {number(column['of'])} are true"
    if "distinct" in column:
        such_as = "" if column["distinct"] == len(column["texts"]) else "such as "
        return f"{number(column['distinct'])} different, {such_as}{', '.join(column['texts'])}"
    if column["min"] is None:
        return "none is finite"
    others = f", {number(column['not_finite'])} not finite" if column["not_finite"] else ""
    return f"{column['min']:.6g} to {column['max']:.6g}, mean {column['mean']:.6g}{others}"


def _range(numbers: Mapping[str, float]) -> str:
    low, high = number(numbers["min"]), number(numbers["max"])
    return low if low == high else f"{low} to {high}"
