"""``fastio info`` of what is not a store: a source that can be packed, text, or a format of another library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.failures import Failed
from fastio.cli.screen import counted, number, printable, problem_table, size, table
from fastio.cli.source_kind import is_text

if TYPE_CHECKING:
    from fastio.converters.text import Documents

__all__ = ["describe_path", "print_source"]

_SHOWN = 5  # problems, classes


def describe_path(path: str) -> dict[str, Any]:
    """
    Describe what is under ``path`` and say what to type to pack it.

    Raises SourceError if that is nothing, empty, or could be meant in two ways.
    """
    from fastio.converters import SOURCES, open_source
    from fastio.converters.describe_source import describe_source, field_places, pack_command
    from fastio.store.other_libraries import library_of
    from fastio.errors import SourceError

    what = library_of(path)
    if what:
        return {"path": path, "is": "other", "what": what}
    if not is_text(path, "auto"):
        source = open_source(path)
        return describe_source(source, SOURCES[source.kind].what)
    try:
        return _text(path)
    except SourceError as reason:  # a table without text, perhaps
        try:
            source = open_source(path)
        except SourceError:
            raise reason from None
    options = [word for name, where in field_places(source.metadata).items() for word in ("--field", f"{name}={where}")]
    return {**describe_source(source, SOURCES[source.kind].what), "command": pack_command(path, *options)}


def _text(path: str) -> dict[str, Any]:
    from fastio.converters.describe_source import pack_command
    from fastio.converters.text import Limits, open_text

    source = open_text(path)
    origin = source.metadata["source"]
    first = next(iter(source.read(Limits())), None)
    sizes = [] if first is None else first.sizes.tolist()
    return {
        "path": path,
        "is": "text",
        "kind": source.kind,
        "what": "token ids" if source.is_ids else "text",
        "text_field": origin.get("text_field"),
        "files": source.files_opened,
        "size_bytes": source.size_bytes,
        "disk_bytes": source.disk_bytes,
        "classes": source.metadata.get("classes"),
        "first_samples": len(sizes),
        "first_bytes": {"min": min(sizes), "max": max(sizes)} if sizes else {},
        "urls": 0 if first is None or source.is_ids else _urls(first),
        "problems": len(source.problems),
        "problems_shown": [
            {"key": problem.key, "problem": problem.problem}
            for problem in [*source.problems, *(() if first is None else first.problems)][:_SHOWN]
        ],
        "command": pack_command(path),
    }


def _urls(first: Documents) -> int:
    """How many documents are addresses on the web."""
    starts = [bytes(first.data[start : start + 8]) for start in first.starts.tolist()]
    return sum(data.startswith((b"http://", b"https://")) for data in starts)


def print_source(report: dict[str, Any], *, as_json: bool) -> None:
    """Print a description that ``describe_path`` returned."""
    if as_json:
        click.echo(json.dumps(report, indent=2))
    elif report["is"] == "other":
        raise Failed(f"{printable(report['path'])}: is {report['what']}")
    elif report["is"] == "text":
        _print_text(report)
    else:
        _print_source(report)


def _print_text(report: dict[str, Any]) -> None:
    where = f" in the column {printable(report['text_field'])!r}" if report["text_field"] else ""
    click.echo(
        f"{printable(report['path'])}: {report['what']}{where} ({report['kind']}), {size(report['size_bytes'])} in "
        f"{counted(report['files'], 'file')}"
    )
    if report["urls"]:
        click.echo("its lines are addresses: to load what they lead to, use img2dataset, and pack what it writes")
    if report["first_samples"]:
        lengths = _range([report["first_bytes"]["min"], report["first_bytes"]["max"]])
        unit = "bytes of ids" if report["what"] == "token ids" else "bytes"
        click.echo(f"its first {counted(report['first_samples'], 'document')}: {lengths} {unit} each")
    _print_problems(report)
    click.echo(f"pack it: {printable(report['command'])}")


def _print_problems(report: dict[str, Any]) -> None:
    if report["problems_shown"]:
        problem_table([(shown["key"], shown["problem"]) for shown in report["problems_shown"]])


def _print_source(report: dict[str, Any]) -> None:
    click.echo(
        f"{printable(report['path'])}: {report['what']} ({report['kind']}), not packed; "
        f"{counted(report['samples'], 'sample')}, {size(report['size_bytes'])} in {counted(report['files'], 'file')}"
    )
    left = {"problem": report["problems"], "file or row left out": report["left_out"]}
    plurals = {"file or row left out": "files or rows left out"}
    notes = [counted(count, noun, plurals.get(noun, "")) for noun, count in left.items() if count]
    if notes:
        click.echo(", ".join(notes))
    click.echo()
    table(
        ("field", "from", "type", f"in the first {counted(report['first_samples'], 'sample')}"),
        [(row["name"], printable(row["from"] or ""), row["type"], _values(row)) for row in report["fields"]],
    )
    if report["classes"]:
        names = ", ".join(map(printable, report["classes"][:_SHOWN]))
        more = ", ..." if len(report["classes"]) > _SHOWN else ""
        click.echo(f"{counted(len(report['classes']), 'class', 'classes')}: {names}{more}")
    _print_problems(report)
    command = printable(report["command"])
    click.echo(f"\npack it: {command}")
    choices = [f"--field {row['name']}={printable(row['from'])}" for row in report["fields"] if row["from"]]
    if len(choices) > 1:
        click.echo(f"or some of it: {command} {choices[0]} --field ...")


def _values(field: dict[str, Any]) -> str:
    """The first values of a field, in words."""
    first = field["first"]
    if not first:
        return ""
    if "kinds" in first:
        sizes = " x ".join(_range(first[name]) for name in ("heights", "widths"))
        return f"{', '.join(first['kinds'])} of {sizes} (height x width)"
    if "lengths" in first:
        return f"{_range(first['lengths'])} rows"
    if "bytes" in first:
        return f"{_range([first['bytes']['min'], first['bytes']['max']])} bytes"
    return f"{first['min']} to {first['max']}"


def _range(pair: list[int]) -> str:
    return number(pair[0]) if pair[0] == pair[1] else f"{number(pair[0])} to {number(pair[1])}"
