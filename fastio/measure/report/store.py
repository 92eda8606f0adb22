"""The page of ``info``: what a store holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.converters.sources.record import recorded_kind
from fastio.measure.report.page import Bar, Bars, Code, Page, Part, PictureGrid, Prose, ReferenceLine, Section, Table
from fastio.types.units import counted, number, size

__all__ = ["LEDGERS", "store_page"]

LEDGERS = {
    "skipped": "skipped",
    "left_out": "fields left out of samples that were packed",
    "skipped_before": "skipped earlier, when the source of this store was packed",
    "left_aside": "other files left out",
    "misnamed": "packed unchanged, though their format is not the one of their names",
    "blank_lines": "files with blank lines, which were left out",
    "cut": "files or documents of which the ends were cut",
}
_BARS = 20  # classes shown as bars; more of them make a table
_CLASSES_SHOWN = 20
_PARTS_SHOWN = 5


def store_page(report: Mapping[str, Any], *, epoch: str, pictures: PictureGrid | None) -> Page:
    """
    Build the page from the form that ``fastio info --json`` prints, what an epoch costs in words, and sample pictures.
    """
    sections = [] if pictures is None else [Section("Samples", [pictures])]
    sections.append(Section("An epoch", _epoch(report, epoch)))
    sections.append(Section("Where it comes from", _origin(report)))
    if "types" in report:
        sections.append(Section("Fields", _fields(report)))
    else:
        sections.append(Section("Fields", [_schema(report)]))
        sections += [Section(f"Field {name}", _field(field)) for name, field in report["fields"].items()]
    if report["tokenizer"] is not None:
        sections.append(Section("Tokens", [Prose(line) for line in _tokenizer(report["tokenizer"], report["chat"])]))
    if report["classes"] is not None:
        sections.append(Section("Classes", _classes(report["classes"])))
    if report["labels"] is not None:
        sections.append(Section("Labels", [_labels(report["labels"])]))
    if report.get("example") is not None:
        rows = list(report["example"]["values"].items())
        sections.append(Section(f"The first sample, {report['example']['key']}", [Table((), rows)]))
    if report.get("read_with_fastio"):
        sections.append(Section("With fastio", [Code(report["read_with_fastio"].rstrip())]))
    if report["read_without_fastio"]:
        sections.append(Section("Without fastio", [Code(report["read_without_fastio"].rstrip())]))
    figures = [
        ("samples", number(report["samples"])),
        ("size", size(report["size_bytes"])),
        ("format", report["format"]),
        ("shards", number(report["shards"])),
        *([("classes", number(len(report["classes"])))] if report["classes"] else []),
        ("skipped", number(report["skipped"])),
    ]
    if "where" in report:
        figures.append((report["where"]["expression"], counted(report["where"]["samples"], "sample")))
    return Page("A store of training data", report["path"], sections, figures=figures)


def _epoch(report: Mapping[str, Any], epoch: str) -> list[Part]:
    """Return what reading the store once costs, and how it is shuffled."""
    parts: list[Part] = [Prose(epoch)]
    if report["receipt"] is not None:
        parts.append(Prose(f"receipt of an epoch that gives each sample once: {report['receipt']}"))
    shuffle = report["shuffle"]
    if shuffle is None:
        return parts
    parts.append(Prose(shuffle["text"]))
    if shuffle["mixing"] is not None:
        bar = Bar("shuffle=True", shuffle["mixing"], f"{shuffle['mixing']:.2f}", "training")
        caption = "Distinct classes in a batch of 256, as a share of those in a full shuffle"
        parts.append(Bars(caption, [bar], ReferenceLine("a full shuffle", 1.0, "1")))
    return parts


def _origin(report: Mapping[str, Any]) -> list[Part]:
    """Return what was packed, when and how, what came of its documents, and what was left out."""
    source = report["source"] or {}
    overhead = f"{number(report['overhead_bytes_per_sample'] or 0)} B a sample on top"
    reason = f" ({report['overhead_reason']})" if report["overhead_reason"] else ""
    parts: list[Part] = [Prose(f"samples take {size(report['payload_bytes'])}; {overhead}{reason}")]
    if source:
        labels = f", labels from {source['labels']}" if source.get("labels") else ""
        skipped = f"{number(report['skipped'])} skipped" + (" (--skipped lists them)" if report["skipped"] else "")
        parts.append(Prose(f"packed from {source.get('name')} ({recorded_kind(source)}){labels}; {skipped}"))
    documents = report["document_counts"]
    if documents:
        counts = [f"{number(documents[name])} {name}" for name in ("found", "packed")]
        for name, title in (("skipped", "skipped"), ("left_out", "left out")):
            if documents[name]:
                counts.append(f"{number(sum(documents[name].values()))} {title}: {_by_reason(documents[name])}")
        parts.append(Prose(f"documents: {'; '.join(counts)}"))
    if len(report["folders"]) > 1:
        shards = (f"{counted(count, 'shard')} in {folder}" for folder, count in report["folders"].items())
        parts.append(Prose(", ".join(shards)))
    if report["merged"]:
        parts.append(_merged(report["merged"]))
    parts += [Prose(line) for line in report["packing"]]
    if not source and report["ledger"]:
        left = ", ".join(f"{number(len(entries))} {LEDGERS[name]}" for name, entries in report["ledger"].items())
        parts.append(Prose(f"besides the samples: {left} (--skipped lists them)"))
    if source:
        record = [(name, str(value)) for name, value in source.items() if value is not None]
        parts.append(Table((), record, caption="The record of the source", folded=True, shown=0))
    for name, entries in report["ledger"].items():
        lines = [(str(entry["key"]), str(entry["problem"])) for entry in entries]
        caption = f"{number(len(lines))} {LEDGERS[name]}"
        parts.append(Table(("sample", "problem"), lines, caption=caption, folded=True, shown=0))
    return parts


def _by_reason(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} ({number(count)})" for reason, count in counts.items())


def _merged(merged: list[dict[str, Any]]) -> Prose:
    named = [f"{part['set']} ({counted(part['samples'], 'sample')})" for part in merged[:_PARTS_SHOWN]]
    more = f" and {number(len(merged) - _PARTS_SHOWN)} more" if len(merged) > _PARTS_SHOWN else ""
    return Prose(f"merged from {', '.join(named)}{more}")


def _schema(report: Mapping[str, Any]) -> Table:
    rows = [
        (
            field["name"],
            field["codec"],
            field["dtype"],
            "x".join("?" if side is None else str(side) for side in field["shape"]) or "scalar",
        )
        for field in report["schema"]["fields"]
    ]
    return Table(("field", "codec", "dtype", "shape"), rows)


def _fields(report: Mapping[str, Any]) -> list[Part]:
    """Return the many fields of a store with types and sizes, and the names of classes."""
    columns = report["columns"]
    rows = []
    for name, words in report["types"].items():
        payload = report["fields"].get(name)
        if payload is None:
            is_class = name == "label" and report["classes"] is not None
            values = f"{number(len(report['classes']))} classes" if is_class else _column_words(columns[name])
            rows.append((name, words, "", "", values))
            continue
        sizes = payload["size_bytes"]
        median, total = ("", "") if sizes is None else (number(sizes["median"]), size(sizes["total"]))
        rows.append((name, words, median, total, _payload_words(payload)))
    parts: list[Part] = [Table(("field", "type", "bytes a sample", "in all", "values"), rows, (2, 3))]
    for name, classes in report["field_classes"].items():
        parts.append(Prose(f"classes of {name}: {', '.join(map(str, classes))}"))
    return parts


def _payload_words(field: Mapping[str, Any]) -> str:
    """
    Return what a field's values are like.

    >>> _payload_words({"unit": "rows", "length": {"min": 0, "max": 4}})
    '0 to 4 rows'
    >>> _payload_words({"elements": {"min": 0, "max": 3}, "unit": "tokens", "length": {"min": 1, "max": 9}})
    '0 to 3 a sample: 1 to 9 tokens'
    >>> _payload_words({"axes": [{"min": 16, "max": 16}, {"min": 32, "max": 48}]})
    '16 x 32 to 48'
    """
    if field.get("elements"):
        words = _payload_words({name: value for name, value in field.items() if name != "elements"})
        return f"{_range(field['elements'])} a sample{f': {words}' if words else ''}"
    if "axes" in field:
        return " x ".join(map(_range, field["axes"]))
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


def _field(field: Mapping[str, Any]) -> list[Part]:
    """Return the sizes of a field's values, how they spread, and of which kinds its pictures are."""
    unit = field.get("unit")
    measured = (
        ("bytes", field["size_bytes"]),
        (unit, field.get("length") if unit != "bytes" else None),
        ("height", field.get("height")),
        ("width", field.get("width")),
    )
    rows = [
        (str(name or ""), *(number(numbers[statistic]) for statistic in ("min", "median", "mean", "max")))
        for name, numbers in measured
        if numbers
    ]
    parts: list[Part] = [Table(("", "min", "median", "mean", "max"), rows, range(1, 5))]
    if field.get("histogram"):
        parts.append(_lengths(field["histogram"], str(unit)))
    if "kinds" in field:
        kinds = ", ".join(f"{number(count)} {kind}" for kind, count in field["kinds"].items())
        channels = ", ".join(f"{number(count)} with {c}" for c, count in field["channels"].items())
        line = f"kinds: {kinds} (of {number(field['kinds_of'])} examined); channels: {channels or 'unknown'}"
        parts.append(Prose(line))
    return parts


def _lengths(histogram: list[dict[str, int]], unit: str) -> Bars:
    """Return a bar for every doubling of the length."""
    total = sum(bar["samples"] for bar in histogram)
    bars = [
        Bar(
            number(bar["from"]) if bar["from"] == bar["to"] else f"{number(bar['from'])} to {number(bar['to'])}",
            bar["samples"],
            f"{number(bar['samples'])} ({bar['samples'] / total:.1%})",
            "training",
        )
        for bar in histogram
    ]
    return Bars(f"How many samples have how many {unit}", bars)


def _tokenizer(tokenizer: Mapping[str, Any], chat: Mapping[str, Any] | None) -> list[str]:
    """Return the tokenizer's name, its vocabulary and special tokens, and how documents or chats became sequences."""
    from fastio.converters.text.decode import probe_words

    options = tokenizer.get("options") or {}
    special = ", ".join(f"{role} {value}" for role, value in tokenizer["special"].items() if value is not None)
    ids = "unknown vocabulary" if tokenizer["vocab_size"] is None else f"{number(tokenizer['vocab_size'])} ids"
    name = "ready ids" if tokenizer["name"] is None else f"tokenizer {tokenizer['name']}"
    about = (
        f"{name}: {ids}"
        + (f" ({special})" if special else "")
        + (", its JSON is in the store" if tokenizer["json"] else "")
    )
    added = " and ".join(role for role in ("bos", "eos") if options.get(role))
    rules = [f"{added} added" if added else "no bos, no eos"]
    if tokenizer["name"] is None:  # what ready ids are made of, nobody has seen
        eos = tokenizer["special"].get("eos")
        rules = [] if eos is None else [f"documents end with {eos}"]
    if chat is not None:
        counted_ids = "" if "loss_tokens" not in chat else f", {counted(chat['loss_tokens'], 'token')}"
        rules = [f"chats by the template {chat['name']}; in the loss: {chat['loss']}{counted_ids}"]
    if options.get("max_length"):
        over = {"refuse": "longer ones refused", "truncate": "longer ones truncated", "split": "longer ones split"}
        rules.append(f"at most {number(options['max_length'])} tokens, {over[options['over']]}")
    if options.get("over") == "concat":
        rules.append("one stream of ids, for TokenStream")
    elif options.get("split"):
        rules.append(f"{counted(options['split'], 'document')} split into several samples")
    if (options.get("cut") or {}).get("documents"):
        cut = options["cut"]
        rules.append(f"{counted(cut['tokens'], 'token')} CUT from {counted(cut['documents'], 'document')}")
    decoded = options.get("decoded") or {}
    if decoded.get("documents"):
        probed = decoded["documents"]
        rules.append(f"when packed, {probe_words(decoded['exact'], probed, options.get('documents', probed))}")
    return [about, "; ".join(rules)] if rules else [about]


def _classes(classes: list[dict[str, Any]]) -> list[Part]:
    rows = [(str(row["label"]), row["name"] or "", number(row["samples"])) for row in classes]
    titles = ("label", "class", "samples")
    if len(classes) <= _BARS:
        bars = [Bar(_class(row), row["samples"], number(row["samples"]), "training") for row in classes]
        return [Bars("Samples of each class", bars, tabled=True), Table(titles, rows, (0, 2))]
    counts = sorted(row["samples"] for row in classes)
    spread = counted(counts[0], "sample")
    if counts[0] < counts[-1]:
        spread = f"{number(counts[0])} to {counted(counts[-1], 'sample')}"
    return [Prose(f"{spread} per class"), Table(titles, rows, (0, 2), "All classes", folded=True, shown=_CLASSES_SHOWN)]


def _labels(labels: Mapping[str, Any]) -> Table:
    """Return labels that are numbers, not classes."""
    rows = [
        (str(column["title"] or f"label {i}"), *(f"{column[name]:.6g}" for name in ("min", "mean", "max")))
        for i, column in enumerate(labels["numbers"])
    ]
    return Table((labels["dtype"], "min", "mean", "max"), rows, range(1, 4), shown=_CLASSES_SHOWN)


def _class(row: Mapping[str, Any]) -> str:
    return str(row["name"] or f"label {row['label']}")
