"""``fastio info``: what a store holds, and how to read it without fastio."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.epoch_line import epoch_facts, epoch_line
from fastio.cli.group import Sections
from fastio.cli.info_source import SourceAsked, describe_path, print_source
from fastio.cli.options import REMOTE_NAMES, remote_options
from fastio.cli.pack_options import SourceArguments, source_options
from fastio.cli.result import html_option, wants_html, write_html
from fastio.cli.screen import by_reason, columns, printable, problem_table, table
from fastio.cli.source_kind import source_kind_option
from fastio.types.units import counted, number, size

if TYPE_CHECKING:
    from PIL.Image import Image

    from fastio.measure.report.page import Page, PictureGrid
    from fastio.store import SampleStore
    from fastio.store.files.remote_options import Remote

__all__ = [
    "info",
    "sample_pictures",
]


_CLASSES_SHOWN = 20
_PARTS_SHOWN = 5
_SECTIONS = {
    "Options": ("as_json", "only_skipped", "build", "html"),
    "Of a PATH that is not packed yet": (
        "source_kind",
        "split",
        *SourceArguments.__slots__,
        "text_field",
        "label_field",
    ),
    "PATH behind a URL": REMOTE_NAMES,
}
_LEDGERS = {
    "skipped": "skipped",
    "left_out": "fields left out of samples that were packed",
    "skipped_before": "skipped earlier, when the source of this store was packed",
    "left_aside": "other files left out",
    "misnamed": "packed unchanged, though their format is not the one of their names",
}


@click.command(cls=Sections, sections=_SECTIONS)
@click.argument("path", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--skipped", "only_skipped", is_flag=True, help="List what packing left out, and why.")
@click.option("--build", is_flag=True, help="Show how the native core was built; takes no PATH.")
@source_kind_option("What a PATH that is not packed yet is, as for fastio pack.", with_text=True)
@click.option("--split", metavar="NAME", help="Describe only the part NAME of PATH: train, val, ...")
@click.option("--text-field", metavar="NAME", help="Column with the text, or with token ids.  [default: text]")
@click.option("--label-field", metavar="NAME", help="Column with the labels of text.")
@source_options
@remote_options
@html_option
def info(  # noqa: PLR0913 - an option each
    path: str | None,
    *,
    as_json: bool,
    only_skipped: bool,
    build: bool,
    kind: str,
    split: str | None,
    text_field: str | None,
    label_field: str | None,
    arguments: SourceArguments,
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
    asked = SourceAsked(path, kind, split, text_field, label_field, arguments)
    opened = None if asked.words() else _opened(path, remote)
    if opened is None:
        if only_skipped or wants_html():
            raise click.UsageError(f"{path} is not packed yet: --skipped and --html are for stores")
        print_source(describe_path(asked), as_json=as_json)
        return
    from fastio.converters.inspect.describe import describe

    with opened as store:
        described = {**describe(store), "epoch": epoch_facts(store)}
        write_html(lambda: _page(described, store))
    if as_json:
        click.echo(json.dumps(described["ledger"] if only_skipped else described, indent=2))
    elif only_skipped:
        _print_ledger(described)
    else:
        _print(described)


def _opened(path: str, remote: Remote) -> SampleStore | None:
    """Open a store; None if ``path`` is none and not named like one, or if it is a source of another kind."""
    from fastio.errors import StoreCorrupt, StoreError
    from fastio.store import open_store
    from fastio.store.files.local import is_local
    from fastio.store.sets.names import SET_SUFFIX

    try:
        return open_store(path, remote=remote)
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
    from fastio.converters import SOURCES, SourcePath
    from fastio.converters.sources.registry import STORE, names_store

    others = [source for source in SOURCES.values() if source is not STORE and not source.needs_fields]
    return not names_store(path) or any(source.signs(SourcePath(path)) for source in others)


def _page(described: dict[str, Any], store: SampleStore) -> Page:
    from fastio.measure.report.store import store_page

    return store_page(described, sample_pictures(store))


def _print(report: dict[str, Any]) -> None:
    shards = f" in {report['shards']} shards" if report["shards"] > 1 else ""
    click.echo(
        f"{printable(report['path'])}: {report['format']}, {counted(report['samples'], 'sample')}, "
        f"{size(report['size_bytes'])}{shards}"
    )
    click.echo(
        f"samples take {size(report['payload_bytes'])}; {number(report['overhead_bytes_per_sample'] or 0)} B a sample "
        f"on top ({report['overhead_reason']})"
    )
    click.echo(epoch_line(report["epoch"], report["size_bytes"]))
    if report["receipt"] is not None:
        click.echo(f"receipt of an epoch that gives each sample once: {report['receipt']}")
    source = report["source"] or {}
    if source:
        from fastio.converters.sources.source import recorded_kind

        labels = f", labels from {printable(str(source['labels']))}" if source.get("labels") else ""
        click.echo(
            f"packed from {printable(str(source.get('name')))} ({recorded_kind(source)}){labels}; "
            f"{number(report['skipped'])} skipped" + (" (--skipped lists them)" if report["skipped"] else "")
        )
    _print_documents(report["document_counts"] or {})
    _print_parts(report)
    for line in report["packing"]:
        click.echo(printable(line))
    if report["shuffle"] is not None:
        click.echo(report["shuffle"]["text"])
    if not source and report["ledger"]:
        left = ", ".join(f"{number(len(entries))} {_LEDGERS[name]}" for name, entries in report["ledger"].items())
        click.echo(f"besides the samples: {left} (--skipped lists them)")
    click.echo()
    if "types" in report:
        print_fields(report)
    else:
        _print_each_field(report)
    if report["tokenizer"] is not None:
        click.echo()
        print_tokenizer(report["tokenizer"])
    if report["classes"] is not None:
        click.echo()
        _print_classes(report["classes"])
    if report["labels"] is not None:
        click.echo()
        _print_labels(report["labels"])
    if "types" in report:
        print_example(report)
    if report["read_without_fastio"]:
        click.echo("\nwithout fastio:\n")
        click.echo("    " + report["read_without_fastio"].rstrip().replace("\n", "\n    "))


def _print_documents(documents: dict[str, Any]) -> None:
    """Print what became of the documents of a text, by reason; nothing for other stores."""
    if not documents:
        return
    parts = [f"{number(documents[name])} {name}" for name in ("found", "packed")]
    for name, title in (("skipped", "skipped"), ("left_out", "left out")):
        if documents[name]:
            parts.append(f"{number(sum(documents[name].values()))} {title}: {by_reason(documents[name])}")
    click.echo(f"documents: {'; '.join(parts)}")


def _print_parts(report: dict[str, Any]) -> None:
    """Print which sets, or packs, follow each other in this set, and in which folders its shards lie."""
    if len(report["folders"]) > 1:
        shards = (f"{counted(count, 'shard')} in {folder}" for folder, count in report["folders"].items())
        click.echo(printable(", ".join(shards)))
    parts = report["merged"]
    if not parts:
        return
    named = [f"{part['set']} ({counted(part['samples'], 'sample')})" for part in parts[:_PARTS_SHOWN]]
    more = f" and {number(len(parts) - _PARTS_SHOWN)} more" if len(parts) > _PARTS_SHOWN else ""
    click.echo(printable(f"merged from {', '.join(named)}{more}"))


def _print_each_field(report: dict[str, Any]) -> None:
    """Print the schema, and the sizes of each payload field."""
    table(
        ("field", "codec", "dtype", "shape"),
        [
            (f["name"], f["codec"], f["dtype"], "x".join("?" if s is None else str(s) for s in f["shape"]) or "scalar")
            for f in report["schema"]["fields"]
        ],
    )
    for name, field in report["fields"].items():
        click.echo()
        _print_field(name, field)
        if field.get("histogram"):
            click.echo()
            print_lengths(field["histogram"], field["unit"])


def _print_ledger(report: dict[str, Any]) -> None:
    """Print everything that was left out, grouped by when that happened."""
    for name, entries in report["ledger"].items():
        click.echo(f"{number(len(entries))} {_LEDGERS[name]}:")
        problem_table([(entry["key"], entry["problem"]) for entry in entries])
    if not report["ledger"]:
        click.echo(f"{printable(report['path'])}: nothing was skipped")


def _print_field(name: str, field: dict[str, Any]) -> None:
    rows = [
        (title, *(number(numbers[statistic]) for statistic in ("min", "median", "mean", "max")))
        for title, numbers in (
            ("bytes", field["size_bytes"]),
            (field.get("unit") or "", field.get("length") if field.get("unit") != "bytes" else None),
            ("height", field.get("height")),
            ("width", field.get("width")),
        )
        if numbers
    ]
    table((name, "min", "median", "mean", "max"), rows, right=(1, 2, 3, 4))
    if "kinds" in field:
        kinds = ", ".join(f"{number(count)} {kind}" for kind, count in field["kinds"].items())
        channels = ", ".join(f"{number(count)} with {c}" for c, count in field["channels"].items())
        click.echo(f"kinds: {kinds} (of {number(field['kinds_of'])} examined); channels: {channels or 'unknown'}")


def _print_labels(labels: dict[str, Any]) -> None:
    """Print labels that are numbers, not classes."""
    rows = [
        (column["title"] or f"label {i}", *(f"{column[name]:.6g}" for name in ("min", "mean", "max")))
        for i, column in enumerate(labels["numbers"][:_CLASSES_SHOWN])
    ]
    table((labels["dtype"], "min", "mean", "max"), rows, right=(1, 2, 3))
    if len(labels["numbers"]) > _CLASSES_SHOWN:
        click.echo(f"... {number(len(labels['numbers']))} numbers a sample; --json has all of them")


def _print_classes(classes: list[dict[str, Any]]) -> None:
    rows = [(str(c["label"]), c["name"] or "", number(c["samples"])) for c in classes[:_CLASSES_SHOWN]]
    table(("label", "class", "samples"), rows, right=(0, 2))
    if len(classes) > _CLASSES_SHOWN:
        click.echo(f"... {number(len(classes))} classes; --json has all of them")


# What ``fastio info`` prints about a store of many fields: a line for each, a sample, and how to read it.


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


# What ``fastio info`` prints about text: the lengths of the samples and the tokenizer behind them.

_BAR = 50  # characters in the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉"


def print_lengths(histogram: Sequence[dict[str, Any]], unit: str) -> None:
    """Print a bar for every doubling of the length."""
    length = max(8, min(_BAR, columns() - 40))
    most = max(bin_["samples"] for bin_ in histogram)
    total = sum(bin_["samples"] for bin_ in histogram)
    rows = []
    for bin_ in histogram:
        low, high, count = bin_["from"], bin_["to"], bin_["samples"]
        span = number(low) if low == high else f"{number(low)} to {number(high)}"
        rows.append((span, number(count), f"{100 * count / total:.1f} %", _bar(count / most, length)))
    table((unit, "samples", "share", ""), rows, right=(0, 1, 2))


def _bar(share: float, length: int) -> str:
    """
    Return a bar of whole and partial blocks; a share above 0 is always visible.

    >>> _bar(0.05, 50), _bar(0, 50)
    ('██▌', '')
    """
    eighths = max(round(share * length * 8), int(share > 0))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def print_tokenizer(tokenizer: dict[str, Any]) -> None:
    """Print the tokenizer's name, its vocabulary and special tokens, and how documents became sequences."""
    from fastio.converters.text.decode import probe_words

    options = tokenizer.get("options") or {}
    special = ", ".join(f"{role} {value}" for role, value in tokenizer["special"].items() if value is not None)
    size = "unknown vocabulary" if tokenizer["vocab_size"] is None else f"{number(tokenizer['vocab_size'])} ids"
    name = "ready ids" if tokenizer["name"] is None else f"tokenizer {printable(str(tokenizer['name']))}"
    click.echo(
        f"{name}: {size}"
        + (f" ({special})" if special else "")
        + (", its JSON is in the store" if tokenizer["json"] else "")
    )
    added = " and ".join(role for role in ("bos", "eos") if options.get(role))
    rules = [f"{added} added" if added else "no bos, no eos"]
    if options.get("max_length"):
        over = {"refuse": "longer ones refused", "truncate": "longer ones truncated", "split": "longer ones split"}
        rules.append(f"at most {number(options['max_length'])} tokens, {over[options['over']]}")
    if options.get("split"):
        rules.append(f"{counted(options['split'], 'document')} split into several samples")
    if (options.get("cut") or {}).get("documents"):
        cut = options["cut"]
        rules.append(f"{counted(cut['tokens'], 'token')} CUT from {counted(cut['documents'], 'document')}")
    decoded = options.get("decoded") or {}
    if decoded.get("documents"):
        probed = decoded["documents"]
        rules.append(f"when packed, {probe_words(decoded['exact'], probed, options.get('documents', probed))}")
    click.echo("; ".join(rules))


# Sample pictures of a store with their labels, for a report.

_SIZE = 128


def sample_pictures(store: SampleStore, *, count: int = 36) -> PictureGrid | None:
    """
    Return up to ``count`` pictures, spread evenly over the store, with their labels and keys; None if it has none.

    A picture that is damaged comes as the reason instead.
    """
    from fastio.converters.inspect.contact_sheet import shown_samples
    from fastio.measure.report.page import Picture, PictureGrid

    if len(store) == 0 or store.schema.picture is None:
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
