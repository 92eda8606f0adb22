"""``fastio pack`` for text: packs documents as tokens or UTF-8."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import click

from fastio.cli.epoch_line import epoch_facts, epoch_line
from fastio.cli.group import noted
from fastio.cli.pack_options import TABLE_OPTIONS, TEXT_OPTIONS, TextArguments, option_of
from fastio.cli.screen import by_reason, meter, printable, problem_table
from fastio.cli.source_kind import is_text
from fastio.types.units import counted, number, size

if TYPE_CHECKING:
    from fastio.converters.text import Encoder, TextReport, TextSource
    from fastio.store.files.remote_options import Remote

__all__ = ["no_text", "packs_text", "split_of"]


_Command = Callable[..., Any]
_STREAMED = (
    "text is read as one stream, which has no shards before all of it is read: pack its files one by one and join the "
    "sets with fastio merge, or pack a Parquet table as fields (--field text=COLUMN:text, or :tokens with --tokenizer)"
)
_SHARED = (
    "ignore_columns",
    "kind",
    "jobs",
    "on_error",
    "shard_size",
    "overwrite",
)  # options shared by text and pictures


def packs_text(command: _Command) -> _Command:
    """Add the options for text to ``fastio pack``, and let it pack SRC if that is text; if not, ``command`` does."""

    @wraps(command)
    def packing(src: str, out: str, *, split: str | None, **options: Any) -> None:
        _check_remote(out, options["remote"])
        if split is not None:
            src, options["filters"] = split_of(src, split, options["filters"])
        text = TextArguments(**{name: options.pop(name) for name in TextArguments.__slots__})
        if not is_text(
            src, options["kind"], fields=_of_tables(options), about_text=bool(text.given) and not options["fields"]
        ):
            if text.given and not options["fields"]:
                raise click.UsageError(f"{text.given[0]} is for text, but {no_text(src)}")
            command(src, out, tokens=text.tokens() if text.given else None, **options)
            return
        options.pop("remote")  # text is streamed to this machine, see create_store
        for name in ("resume", "append", "part"):
            if options.pop(name):
                raise click.UsageError(f"--{name}: {_STREAMED}")
        others = [
            name
            for name, value in options.items()
            if name not in _SHARED and value is not None and value is not False and value != ()
        ]
        if others:
            raise click.UsageError(f"{option_of(others[0])} is for pictures and tables; {src} is packed as text")
        _pack(text, src, out, **{name: options[name] for name in _SHARED})

    for option in reversed(TEXT_OPTIONS):
        packing = option(packing)
    return packing


def _check_remote(out: str, remote: Remote) -> None:
    """Raise UsageError for options of URLs that nothing would use."""
    from fastio.store.files.local import check_address, is_local
    from fastio.store.files.remote_options import DEFAULT

    check_address(out)
    if is_local(out) and remote != DEFAULT:
        given = ", ".join(remote.shown())
        raise click.UsageError(
            f"{out}: is on this machine, and nothing is packed from URLs: options of URLs ({given}) have no use here: "
            "drop them"
        )


def _of_tables(options: Mapping[str, Any]) -> list[str]:
    """The options given that ask for columns or files of a table."""
    return [name for name in TABLE_OPTIONS if options[name]]


def split_of(src: str, split: str, filters: tuple[tuple[str, str], ...]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the folder of a part of a dataset, or the table and what takes the rows of that part."""
    from fastio.converters.sources.folders import split_folder
    from fastio.converters.sources.tables.rows import has_split_column

    if has_split_column(src, split):
        return src, (*filters, ("split", split))
    return split_folder(src, split), filters


def no_text(src: str) -> str:
    """Why SRC takes no options about text."""
    from fastio.converters.sources.registry import names_store

    if names_store(src):
        return f"{src} is a packed store, whose samples stay as they are; unpack it first: fastio unpack {src} FOLDER"
    return f"{src} does not look like text; if it is, name its --source-kind"


def _pack(  # noqa: PLR0913 - an option each
    text: TextArguments,
    src: str,
    out: str,
    *,
    ignore_columns: tuple[str, ...],
    kind: str,
    jobs: int | None,
    on_error: Literal["raise", "skip"],
    shard_size: int | None,
    overwrite: bool,
) -> None:
    """Pack the documents of SRC and print what was done."""
    from fastio.converters.packing.advice import packing_lines
    from fastio.converters.text import HuggingFaceTokenizer, open_text
    from fastio.converters.text import pack_text as run
    from fastio.store import check_target, open_store
    from fastio.store.write.atomic import COMPLETE

    check_target(out, overwrite=overwrite, shard_bytes=shard_size)
    source = open_text(src, kind=kind, options=text.options(ignore_columns))
    encoder = text.encoder(source)
    click.echo(_source_line(source, encoder), err=True)
    if isinstance(encoder.tokenizer, HuggingFaceTokenizer) and encoder.tokenizer.template:
        names = " ".join(encoder.tokenizer.template)
        click.echo(
            f"the tokenizer's own template would add {printable(names)}, but fastio adds only what --bos and "
            "--eos ask for",
            err=True,
        )
    with noted() as facts:
        with meter("packing", source.size_bytes, unit="bytes") as progress:
            report = run(
                source,
                encoder,
                out,
                jobs=jobs,
                on_error=on_error,
                shard_bytes=shard_size,
                overwrite=overwrite,
                progress=progress,
            )
            facts.append(f"{out}: {COMPLETE}")
        if report.skipped:
            problem_table([(problem.key, problem.problem) for problem in report.skipped])
        with open_store(out) as store:
            epoch = epoch_line(epoch_facts(store), store.size_bytes)
            done = packing_lines(store.metadata)
        for line in (*_summary(report, encoder), epoch, *map(printable, done)):
            click.echo(line)


def _source_line(source: TextSource, encoder: Encoder) -> str:
    """Return one line that says how the source was understood and how it will be stored."""
    origin = source.metadata["source"]
    if "split" in origin:
        what = f"one sample per {origin['split']}"
    elif "text_field" in origin:
        what = f"{source.kind}, {'token ids' if source.is_ids else 'text'} in {printable(origin['text_field'])!r}"
    else:
        what = "text files"
    classes = source.metadata.get("classes")
    labels = counted(len(classes), "class", "classes") if classes else "no labels"
    if not source.has_labels and "text_field" in origin:
        labels += " (--label-field names the column with them)"
    files = counted(source.files_opened, "file")
    return f"{printable(source.path)}: {what}, {size(source.size_bytes)} in {files}, {labels}; {_stored(encoder)}"


def _stored(encoder: Encoder) -> str:
    field = encoder.schema.payload[0]
    if field.name == "text":
        return "stored as UTF-8 (--tokenizer bytes or FILE stores tokens)"
    tokenizer = encoder.to_json()
    bits = 16 if field.dtype == "<u2" else 32
    if tokenizer["name"] is None:
        advice = "; --vocab-size N may halve that" if bits == 32 else ""
        return f"ids unchanged, stored as uint{bits}{advice}"
    vocabulary = "" if tokenizer["vocab_size"] is None else f", {number(tokenizer['vocab_size'])} ids"
    return f"tokenizer {printable(str(tokenizer['name']))}{vocabulary}, stored as uint{bits}"


def _summary(report: TextReport, encoder: Encoder) -> list[str]:
    from fastio.converters.packing.record import reasons
    from fastio.converters.text.decode import probe_words
    from fastio.store import FORMATS

    seconds = max(report.seconds, 1e-9)
    skipped = f", {number(len(report.skipped))} skipped (listed above and in the store)" if report.skipped else ""
    blank = f", {counted(report.blank_lines, 'blank line')} left out" if report.blank_lines else ""
    of = counted(report.found, "document")
    lines = [f"packed {number(report.packed)} of {of}{skipped}{blank} in {report.seconds:.2f} s"]
    is_tokens = "tokens" in encoder.schema
    rate = f"{number(report.tokens // seconds)} tokens/s" if is_tokens else f"{size(report.text_bytes / seconds)}/s"
    lines[0] += f" ({rate})"
    if report.skipped:
        lines.append(f"skipped: {by_reason(reasons(report.skipped))}")
    if is_tokens:
        per_token = f", {report.text_bytes / report.tokens:.2f} bytes of text per token" if report.text_bytes else ""
        lines.append(f"tokens: {number(report.tokens)} in {counted(report.samples, 'sample')}{per_token}")
    if report.exact_documents < report.probed_documents:
        words = probe_words(report.exact_documents, report.probed_documents, report.packed)
        lines.append(f"this tokenizer changes text: {words}")
    if report.split_documents:
        lines.append(f"split:  {counted(report.split_documents, 'document')} into several samples (key#0, key#1, ...)")
    if report.cut_tokens:
        documents = counted(report.cut_documents, "document")
        lines.append(f"CUT:    {counted(report.cut_tokens, 'token')} at the ends of {documents}")
    before = f"{size(report.source_bytes)} on disk"
    if report.text_bytes:
        before = f"{size(report.text_bytes)} of text; {before}"
    overhead = (report.store_bytes - report.payload_bytes) / report.samples
    shards = f" in {report.shards} shards" if report.shards > 1 else ""
    lines.append(f"before: {before}")
    lines.append(
        f"after:  {size(report.store_bytes)}{shards}, {number(report.payload_bytes / report.samples)} B a sample and "
        f"{number(overhead)} B on top ({FORMATS[report.format].overhead(encoder.schema)})"
    )
    return lines
