"""``fastio info``: what a store holds, and how to read it without fastio; of anything else, what could be packed."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.epoch_line import epoch_facts, epoch_line, shard_bytes
from fastio.cli.group import Failed, Sections
from fastio.cli.options import BESIDE_NAMES, REMOTE_NAMES, beside_options, remote_options
from fastio.cli.result import html_option, print_page, wants_html, write_html
from fastio.cli.screen import printable, problem_table, table
from fastio.cli.source_kind import no_text, source_kind_option, split_of
from fastio.cli.source_options import OF_TEXT, SourceArguments, option_of, source_options
from fastio.errors import SourceError
from fastio.types.units import counted, number, size

if TYPE_CHECKING:
    from PIL.Image import Image

    from fastio.converters.text import Documents
    from fastio.measure.report.page import PictureGrid
    from fastio.store import SampleStore
    from fastio.store.beside.joined import Beside
    from fastio.store.files.remote_options import Remote
    from fastio.store.kinds.recognise import Recognised
    from fastio.store.kinds.registry import SourceKind

__all__ = [
    "info",
    "sample_pictures",
]


_SECTIONS = {
    "Options": ("as_json", "only_skipped", "expression", "build", "html"),
    "Of a PATH that is not packed yet": (
        "kind",
        "split",
        *SourceArguments.__slots__,
        "text_column",
    ),
    "Stores beside PATH": BESIDE_NAMES,
    "PATH behind a URL": REMOTE_NAMES,
}


@click.command(cls=Sections, sections=_SECTIONS)
@click.argument("path", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--skipped", "only_skipped", is_flag=True, help="List what packing left out, and why.")
@click.option("--where", "expression", metavar="EXPR", help='Count the samples for which EXPR is true: "width >= 400".')
@click.option("--build", is_flag=True, help="Show how the native core was built; takes no PATH.")
@source_kind_option("What a PATH that is not packed yet is, as for fastio pack.", with_text=True)
@click.option("--split", metavar="NAME", help="Describe only the part NAME of PATH: train, val, ...")
@click.option(
    "--text-column", metavar="NAME", help="Describe PATH as text alone: the column with the text, or with token ids."
)
@source_options
@beside_options
@remote_options
@html_option
def info(  # noqa: PLR0913 - an option each
    path: str | None,
    *,
    as_json: bool,
    only_skipped: bool,
    expression: str | None,
    build: bool,
    kind: str,
    split: str | None,
    text_column: str | None,
    arguments: SourceArguments,
    beside: Beside,
    remote: Remote,
) -> None:
    """
    Describe the store PATH, or a source that is not packed yet. Of a store it shows fields, classes, sizes, and how to
    read it without fastio; of a source what its samples would be, and the command that packs it. Options about labels,
    columns, fields and text are those of fastio pack.

    \b
    Example:
      fastio info train.lmdb
      fastio info train.lmdb --skipped
      fastio info train.lmdb --where "width >= 400 and label == 'dog'"
      fastio info train.parquet
      fastio info captions.jsonl --root ./photos
      fastio info train.lmdb --json | jq .samples
    """
    if build and wants_html():
        raise click.UsageError("--html needs a store: drop --build")
    if build:
        from fastio import _native

        build_info = _native.build_info()
        click.echo(
            json.dumps(build_info, indent=2) if as_json else "\n".join(f"{k}: {v}" for k, v in build_info.items())
        )
        return
    if path is None:
        raise click.UsageError("expected PATH or --build")
    asked = SourceAsked(path, kind, split, text_column, arguments)
    if beside.others:
        opened: SampleStore | None = beside.open(path, remote=remote)
    else:
        opened = None if asked.words() else _opened(path, remote)
    if opened is None:
        if only_skipped or expression is not None or wants_html():
            raise click.UsageError(f"{path} is not packed yet: --skipped, --where and --html are for stores")
        print_source(describe_path(asked), as_json=as_json)
        return
    from fastio.converters.inspect.describe import count_matching, describe
    from fastio.measure.report.store import store_page

    with opened as store:
        described = {**describe(store), "epoch": epoch_facts(store)}
        if expression is not None:
            described["where"] = {"expression": expression, "samples": count_matching(store, expression)}
        page = store_page(
            described,
            epoch=epoch_line(described["epoch"], shard_bytes(store)),
            pictures=sample_pictures(store) if wants_html() else None,
        )
    write_html(lambda: page)
    if as_json:
        click.echo(json.dumps(described["ledger"] if only_skipped else described, indent=2))
    elif only_skipped:
        _print_ledger(described)
    else:
        print_page(page)


def _opened(path: str, remote: Remote) -> SampleStore | None:
    """Open a store; None if ``path`` is none and not named like one, or if it is a source of another kind."""
    from fastio.errors import StoreCorrupt, StoreError
    from fastio.store.beside.joined import open_with_fields
    from fastio.store.files.local import is_local
    from fastio.store.formats import names_store
    from fastio.store.kinds.names import is_there
    from fastio.store.kinds.unknown import is_container_of_others
    from fastio.store.sets.names import SET_SUFFIX

    if is_local(path) and is_there(path) and (not names_store(path) or is_container_of_others(path)):
        return None
    try:
        return open_with_fields(path, remote=remote)
    except StoreCorrupt:  # it has a seal of fastio's
        raise
    except StoreError:
        if not is_local(path) or path.endswith(SET_SUFFIX):
            raise
        if not _may_be_source(path):
            raise
        return None


def _may_be_source(path: str) -> bool:
    """Return whether what is no store may be a source: it is not named like a store, or it is of a known kind."""
    from fastio.errors import SourceError
    from fastio.store.formats import names_store
    from fastio.store.kinds.recognise import recognise
    from fastio.store.kinds.registry import STORE

    try:
        return recognise(path, is_table=True).kind is not STORE
    except SourceError:  # which says more than that it is no store, unless it is named like one
        return not names_store(path)


def _print_ledger(report: dict[str, Any]) -> None:
    """Print everything that was left out, grouped by when that happened."""
    from fastio.measure.report.store import LEDGERS

    for name, entries in report["ledger"].items():
        click.echo(f"{number(len(entries))} {LEDGERS[name]}:")
        problem_table([(entry["key"], entry["problem"]) for entry in entries])
    if not report["ledger"]:
        click.echo(f"{printable(report['path'])}: nothing was skipped")


# Sample pictures of a store with their labels, for a report.

_SIZE = 128


def sample_pictures(store: SampleStore, *, count: int = 36) -> PictureGrid | None:
    """
    Return up to ``count`` pictures, spread evenly over the store, with their labels and keys; None if it has none.

    A picture that is damaged comes as the reason instead.
    """
    from fastio.converters.inspect.contact_sheet import main_picture, shown_samples
    from fastio.measure.report.page import Picture, PictureGrid

    if len(store) == 0 or main_picture(store) is None:
        return None
    samples = shown_samples(store, count=count, size=_SIZE)
    shown = [
        Picture(None, sample.picture, sample.key)
        if isinstance(sample.picture, str)
        else Picture(_jpeg(sample.picture), sample.label, sample.key)
        for sample in samples
    ]
    return PictureGrid(shown, _SIZE)


def _jpeg(picture: Image) -> bytes:
    coded = io.BytesIO()
    picture.save(coded, "JPEG", quality=90, subsampling=0)
    return coded.getvalue()


# What is not a store: a source that can be packed, text, or a format of another library.

_SHOWN = 5  # problems, classes


@dataclass(frozen=True, slots=True)
class SourceAsked:
    """A path that is not packed yet, and the options of ``fastio pack`` that say what it is."""

    path: str
    kind: str
    split: str | None
    text_column: str | None
    arguments: SourceArguments

    def words(self) -> list[str]:
        """Return the options given, as they are typed."""
        own = {"--source-kind": self.kind if self.kind != "auto" else None, "--split": self.split}
        text = {"--text-column": self.text_column}
        words = [word for option, value in {**own, **text}.items() if value for word in (option, value)]
        return [*words, *self.arguments.words()]


def describe_path(asked: SourceAsked) -> dict[str, Any]:
    """
    Describe what is under a path and say what to type to pack it.

    Raises SourceError if that is nothing, empty, or could be meant in two ways.
    """
    from fastio.store.foreign.other_libraries import library_of
    from fastio.store.kinds.recognise import recognise

    what = library_of(asked.path)
    if what:
        return {"path": asked.path, "is": "other", "what": what}
    split, filters = split_of(asked.path, asked.split, asked.arguments.filters)
    arguments = replace(asked.arguments, filters=filters)
    about_text = asked.text_column is not None and not arguments.fields
    found = arguments.recognised(asked.path, asked.kind, split, about_text=about_text)
    path = found.place.path
    if not found.is_text:
        if asked.text_column is not None:
            raise click.UsageError(f"--text-column is for text, but {no_text(path)}")
        return _source(asked, found, arguments, [])
    others = [name for name in arguments.of_tables if name not in OF_TEXT]
    if others:
        raise click.UsageError(f"{option_of(others[0])} is for pictures and tables; {path} is packed as text")
    try:
        return _text(asked, path)
    except SourceError:
        if about_text or not _is_table(found.kind):
            raise
        samples = recognise(path, kind=asked.kind, with_text=False)
    return _source(asked, samples, arguments, [], needs_fields=True)


def _is_table(kind: SourceKind) -> bool:
    """Whether what is packed as text is a table, whose columns could be packed as fields instead."""
    from fastio.converters import SOURCES

    return any(kind.name in source.text_kinds and not source.needs_fields for source in SOURCES.values())


def _source(
    asked: SourceAsked, found: Recognised, arguments: SourceArguments, options: list[str], *, needs_fields: bool = False
) -> dict[str, Any]:
    """Describe samples; with ``needs_fields``, the command asks for each field, as the path would be text otherwise."""
    from fastio.converters import SOURCES
    from fastio.converters.inspect.describe import describe_source, field_places
    from fastio.converters.sources.chat_forms import chat_column
    from fastio.converters.sources.columns import ColumnRefusedError
    from fastio.store.kinds.recognise import pack_command

    refused = list[str]()
    while True:
        try:
            source = arguments.open(found)
            break
        except ColumnRefusedError as exc:  # what else there is can be said all the same
            if exc.column in arguments.ignore_columns:
                raise
            refused.append(str(exc))
            arguments = arguments.leaving_out(exc.column)
            asked = replace(asked, arguments=asked.arguments.leaving_out(exc.column))
        except SourceError as exc:
            raise SourceError(refused[0]) if refused else exc from None
    report = {**describe_source(source, SOURCES[source.kind].what), "refused_columns": refused}
    if needs_fields:
        places = field_places(source.metadata).items()
        options = [word for name, where in places for word in ("--field", f"{name}={where}")]
    if report["problems_shown"]:
        options = [*options, "--on-error", "skip"]
    command = pack_command(asked.path, *asked.words(), *options) if report["first_samples"] else None
    chat = chat_column([row["from"] for row in report["fields"]]) if needs_fields else None
    if chat is None or command is None:
        return {**report, "command": command}
    of_chats = pack_command(asked.path, *asked.words(), "--tokenizer", "tokenizer.json", "--chat", chat)
    return {**report, "command": command, "command_for_chats": of_chats}


def _text(asked: SourceAsked, path: str) -> dict[str, Any]:
    from fastio.converters.text import Limits, TextOptions, open_text
    from fastio.converters.text.encode import checked
    from fastio.store.kinds.recognise import pack_command

    without = asked.arguments.ignore_columns
    options = TextOptions(text_field=asked.text_column, label_field=asked.arguments.label_of_text, without=without)
    source = open_text(path, kind=asked.kind, options=options)
    first = next(iter(source.read(Limits())), None)
    if first is not None and not source.is_ids:
        first = checked(first)
    origin = source.metadata["source"]
    sizes = [] if first is None else first.sizes.tolist()
    problems = [*source.problems, *(() if first is None else first.problems)]
    skip = ["--on-error", "skip"] if problems else []
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
        "problems_shown": [{"key": problem.key, "problem": problem.problem} for problem in problems[:_SHOWN]],
        "left_out_columns": origin.get("left_out") or [],
        "command": pack_command(asked.path, *asked.words(), *skip) if sizes else None,
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
    _print_left_out(report)
    if report["command"] is None:
        raise _nothing_good(report, "document")
    click.echo(f"pack it: {printable(report['command'])}")


def _nothing_good(report: dict[str, Any], noun: str) -> Failed:
    """What is said where no command would pack anything."""
    if not report["problems_shown"]:
        return Failed(f"{printable(report['path'])}: holds no {noun}: there is nothing to pack")
    return Failed(
        f"{printable(report['path'])}: none of the first {noun}s is good: correct them, or name another --source-kind"
    )


def _print_problems(report: dict[str, Any]) -> None:
    if report["problems_shown"]:
        problem_table([(shown["key"], shown["problem"]) for shown in report["problems_shown"]])


def _print_left_out(report: dict[str, Any]) -> None:
    from fastio.converters.packing.advice import left_out_columns

    line = left_out_columns({"kind": report["kind"], "left_out": report["left_out_columns"]})
    if line:
        how = " (--field NAME=COLUMN packs columns as fields)" if report["is"] == "text" else ""
        click.echo(printable(line) + how)


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
    for refusal in report["refused_columns"]:
        click.echo(printable(refusal))
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
    _print_left_out(report)
    if report["command"] is None:
        raise _nothing_good(report, "sample")
    command = printable(report["command"])
    if report["in_place"]:
        options = set(shlex.split(report["command"])[4:]) - {"--on-error", "skip"}
        told = ", with the options of the command below as unpacked=Unpacked(...)" if options else ""
        click.echo(f"\nit can be read where it lies: FastDataset and FastLoader take the path{told}")
    click.echo(f"\npack it: {command}" if not report["in_place"] else f"pack it: {command}")
    if "command_for_chats" in report:
        click.echo(f"or as token ids of chats: {printable(report['command_for_chats'])}")
    choices = [f"--field {row['name']}={printable(row['from'])}" for row in report["fields"] if row["from"]]
    keeps_others = report["kind"] in ("table", "metadata")  # whose other columns stay beside those asked for
    if len(choices) > 1 and "--field" not in command and not keeps_others:
        click.echo(f"or some of it: {command} {choices[0]} --field ...")


def _values(field: dict[str, Any]) -> str:
    """The first values of a field, in words."""
    first = field["first"]
    if not first:
        return ""
    if "elements" in first:
        words = _values({"first": {name: value for name, value in first.items() if name != "elements"}})
        return f"{_range(first['elements'])} a sample{f': {words}' if words else ''}"
    if "kinds" in first:
        sizes = " x ".join(_range(first[name]) for name in ("heights", "widths"))
        return f"{', '.join(first['kinds'])} of {sizes} (height x width)"
    if "axes" in first:
        return " x ".join(map(_range, first["axes"]))
    if "lengths" in first:
        return f"{_range(first['lengths'])} rows"
    if "bytes" in first:
        return f"{_range([first['bytes']['min'], first['bytes']['max']])} bytes"
    return f"{first['min']} to {first['max']}"


def _range(pair: list[int]) -> str:
    return number(pair[0]) if pair[0] == pair[1] else f"{number(pair[0])} to {number(pair[1])}"
