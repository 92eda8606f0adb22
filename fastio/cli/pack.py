"""``fastio pack``: packs a folder, text or another store into a store."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import click

from fastio.cli.epoch_line import epoch_facts, epoch_line, shard_bytes
from fastio.cli.group import Sections, noted
from fastio.cli.options import REMOTE_NAMES, max_pixels_option, remote_options
from fastio.cli.pack_options import (
    PictureArguments,
    TextArguments,
    part_line,
    part_option,
    picture_options,
    text_options,
)
from fastio.cli.screen import SIZE, WholeNumber, by_reason, meter, printable, problem_table
from fastio.cli.source_kind import no_text, source_kind_option, split_of, target_words
from fastio.errors import SourceError
from fastio.types.units import counted, number, per_second, size

if TYPE_CHECKING:
    from fastio.converters import PackReport, Part, Source
    from fastio.converters.sources.pictured_chats import PicturedChats
    from fastio.converters.sources.source import DocumentCounts
    from fastio.converters.text import ChatEncoder, Encoder, PreferenceEncoder, Sequences, TextSamples
    from fastio.store.files.remote_options import Remote
    from fastio.store.kinds.recognise import Recognised
    from fastio.types.schema import Field

__all__ = ["pack"]

# What most people use comes first.
_LABELS = ("label_column", "key_column", "filters", "ignore_columns", "no_header", "many_classes", "fields", "root")
_IDS = ("dtype", "eos_id")
_PICTURES = ("jump", "restart", "short_side", "max_side", "resize", "quality", "subsampling", "raw", "max_pixels")
_SECTIONS = {
    "Options": ("labels", "split", "shuffle", "on_error", "overwrite", "jobs", "kind"),
    "Labels, tables and fields": _LABELS,
    "Pictures": _PICTURES,
    "Text": (*TextArguments.__slots__, *_IDS),
    "Sets of shards": ("shard_size", "resume", "part", "append", "new_classes"),
    "SRC, FILE or OUT behind a URL": REMOTE_NAMES,
}

# What counts in the loss of chats, and what says where it lies.
_RULES = {
    "assistant": "the assistant's turns, {}",
    "last": "the assistant's last turn, {}",
    "completion": "what follows the prompt",
    "all": "all tokens",
}
_TURNS_BY = {
    "generation": "by {% generation %} in the template",
    "prefixes": "found by rendering the turns before each",
}

_SIZE_CHANGE = 1.5  # changes of the pictures' sizes by less are no reason to speak of shards


@click.command(
    cls=Sections,
    sections=_SECTIONS,
    words={"targets": target_words},
)
@click.argument("src")
@click.argument("out")
@remote_options
@source_kind_option("What SRC is; auto decides by the names in it.", with_text=True)
@click.option("--split", metavar="NAME", help="Pack only the part NAME of SRC: train, val, ...")
@click.option(
    "--jobs", type=WholeNumber(min=1), metavar="N", help="Threads that read SRC.  [default: all available CPUs]"
)
@click.option(
    "--on-error",
    type=click.Choice(("raise", "skip")),
    default="raise",
    show_default=True,
    help="Stop at the first bad sample, or skip it and list it.",
)
@click.option(
    "--shard-size",
    type=SIZE,
    metavar="SIZE",
    help="Bytes per shard, for an OUT like train-%06d.tar: 500MB, 1GB; as SRC takes them, if pictures change their "
    "sizes.  [default: 1GiB]",
)
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@click.option("--append", is_flag=True, help="Add SRC to the set of shards OUT, as its next generation.")
@click.option("--new-classes", is_flag=True, help="Let --append add classes that the set OUT does not have yet.")
@click.option("--resume", is_flag=True, help="Pack only the shards that are missing or damaged.")
@part_option
@max_pixels_option
@text_options
@picture_options
def pack(  # noqa: PLR0913 - an option each
    src: str,
    out: str,
    *,
    kind: str,
    split: str | None,
    jobs: int | None,
    on_error: Literal["raise", "skip"],
    shard_size: int | None,
    overwrite: bool,
    append: bool,
    new_classes: bool,
    resume: bool,
    part: Part | None,
    pictures: PictureArguments,
    text: TextArguments,
    remote: Remote,
) -> None:
    """
    Pack files into one container. SRC is a folder of pictures (in classes, with labels, annotations or masks, in any of
    the usual layouts), a table, arrays, text, a container of another program, or a packed store: --source-kind lists
    all kinds, and fastio info SRC says which one it is. OUT is named like {targets}.

    Files are stored unchanged unless you ask for --restart, --short-side, --max-side, --resize or --raw. Text is
    stored as UTF-8, or as token ids with --tokenizer. A packed store keeps its keys, labels and metadata. OUT appears
    only when it is complete.

    \b
    Example:
      fastio pack ./pngs train.lmdb --labels labels.pkl
      fastio pack ./imagenet 'photos-%06d.tar' --shard-size 1GB --on-error skip
      fastio pack ./imagenet photos.lmdb --shuffle 0 --restart 8
      fastio pack train.lmdb train.h5
      fastio pack ./imagenet 'photos-%06d.tar' --resume
      fastio pack ./photos-of-may 'photos-%06d.tar' --append
      fastio pack ./imagenet 'photos-%06d.tar' --part auto        # in each task of a SLURM array
      fastio pack corpus.txt corpus.lmdb --document paragraph --tokenizer bpe.json --eos
      fastio pack sft.jsonl sft.h5 --tokenizer tokenizer.json --chat messages
      fastio pack ./corpus 'text-%06d.tar' --tokenizer bytes --shard-size 64MB --resume
    """
    from fastio.converters import pack as run
    from fastio.converters.packing.advice import advice, list_lines, packing_lines
    from fastio.converters.packing.packer import check_one_file
    from fastio.converters.pictures.jumps import jump_advice, jump_lines
    from fastio.converters.sources.source import is_streamed
    from fastio.store import FORMATS, check_target, open_store
    from fastio.store.write.atomic import COMPLETE

    if append and overwrite:
        raise click.UsageError("--append keeps what OUT has, --overwrite replaces it: give one of them")
    if new_classes and not append:
        raise click.UsageError("--new-classes is for sets that grow: add --append")
    _check_remote([src, pictures.of_source.labels, out], remote)
    # Checked before a source is scanned, which may take long.
    check_one_file(out, resume=resume, append=append, part=part)
    check_target(out, overwrite=overwrite or append or resume or part is not None, shard_bytes=shard_size)
    try:
        source = _opened(src, kind, split, pictures, text, remote)
    except SourceError as exc:
        message = _with_target(str(exc), out, append=append)
        raise (exc if message == str(exc) else SourceError(message)) from None
    click.echo(_text_line(source) if is_streamed(source) else _source_line(source), err=True)
    with noted() as facts:
        parts = 1 if part is None else part.count
        count = 0 if is_streamed(source) else (len(source) - len(source.problems)) // parts
        with meter(
            "packing", *((source.size_bytes, "bytes") if is_streamed(source) else (count, "samples"))
        ) as progress:
            report = run(
                source,
                out,
                pictures=pictures.chosen(),
                jobs=jobs,
                on_error=on_error,
                shard_bytes=shard_size,
                overwrite=overwrite,
                append=append,
                new_classes=new_classes,
                jump=pictures.jump,
                resume=resume,
                part=part,
                progress=progress,
                remote=remote,
            )
            if not report.missing:
                facts.append(f"{out}: {COMPLETE}")
        if report.skipped:
            problem_table([(problem.key, problem.problem) for problem in report.skipped])
        if part is not None:
            click.echo(part_line(report, part))
        if report.missing:
            return
        with open_store(out, remote=remote) as store:
            epoch = epoch_line(epoch_facts(store), shard_bytes(store))
            done, better = [*list_lines(store), *packing_lines(store.metadata)], []
            if not is_streamed(source):
                done = [*done, *jump_lines(store)]
                better = [*advice(store), *(() if pictures.jump is False else jump_advice(store))]
            overhead = FORMATS[store.format].overhead(store.schema)
        if part is not None:
            lines = []
        elif report.documents is not None and is_streamed(source):
            lines = _text_summary(report, report.documents, overhead, source.encoder.sequences)
        else:
            lines = [*_summary(report, overhead), *_shard_lines(report)]
        for line in (*lines, epoch, *map(printable, done), *better):
            click.echo(line)


def _opened(
    src: str, kind: str, split: str | None, pictures: PictureArguments, text: TextArguments, remote: Remote
) -> Source | TextSamples:
    """Open SRC as what it is: samples, or text."""
    split, filters = split_of(src, split, pictures.of_source.filters)
    of_source = replace(pictures.of_source, filters=filters)
    pictures = replace(pictures, of_source=of_source)
    if text.chat is not None:
        pictured = _pictured(of_source.recognised(src, kind, split, remote=remote), pictures, text)
        if pictured is not None:
            return pictured
    about_text = bool(text.given) and not of_source.fields
    found = of_source.recognised(src, kind, split, about_text=about_text and not text.is_of_ids, remote=remote)
    if not found.is_text and found.kind.takes_ids and text.is_of_ids:
        return pictures.source(found, None, remote, text.vocab_size)
    if about_text and text.is_of_ids:
        found = of_source.recognised(src, kind, split, about_text=True, remote=remote)
    if not found.is_text:
        if about_text:
            raise click.UsageError(f"{text.given[0]} is for text, but {no_text(src)}")
        return pictures.source(found, text.tokens() if text.given else None, remote)
    if pictures.given:
        given = pictures.given[0]
        what = "files of token ids" if given in ("--dtype", "--eos-id") else "pictures and tables"
        raise click.UsageError(f"{given} is for {what}; {src} is packed as text")
    return text.samples(found, kind, of_source)


def _pictured(found: Recognised, pictures: PictureArguments, text: TextArguments) -> PicturedChats | None:
    """SRC as chats with pictures; None if it is no table, or no column of pictures is to be packed."""
    if found.is_text or not (found.kind.takes_columns and found.kind.takes_lists):
        return None
    return text.pictured(found, pictures)


_NAMED = " (fastio info --skipped names them)"
_WORD = r"""(?:[^\s'"`]|'[^']*'|"[^"]*")+"""
_COMMAND = re.compile(rf"`(fastio pack {_WORD}) {_WORD}([^`]*)`")


def _with_target(message: str, out: str, *, append: bool) -> str:
    """Return the message with the user's OUT and ``--append`` in the command that it names, if that is a single one."""
    if message.count("`fastio pack ") != 1 or "--split" in message:
        return message  # each part of a dataset has an OUT of its own
    more = " --append" if append else ""
    return _COMMAND.sub(lambda found: f"`{found[1]} {shlex.quote(out)}{found[2]}{more}`", message)


def _check_remote(paths: Sequence[str | None], remote: Remote) -> None:
    """Raise UsageError for options of URLs that none of SRC, the label file and OUT would use."""
    from fastio.store.files.local import check_address, is_local
    from fastio.store.files.remote_options import DEFAULT

    given = [path for path in paths if path is not None]
    for path in given:
        check_address(path)
    if all(map(is_local, given)) and remote != DEFAULT:
        options = ", ".join(remote.shown())
        raise click.UsageError(
            f"{given[-1]}: is on this machine, and so is all else: options of URLs ({options}) have no use here: "
            "drop them"
        )


def _shard_lines(report: PackReport) -> list[str]:
    """Return a line where pictures that changed their sizes made shards of another size than asked for; or nothing."""
    change = max(report.payload_bytes, 1) / max(report.source_bytes, 1)
    if report.shards < 2 or 1 / _SIZE_CHANGE < change < _SIZE_CHANGE:
        return []
    mean = size(report.store_bytes / report.shards)
    times = f"{1 / change:.1f} times the --shard-size gives shards of about the size that was asked for"
    return [f"shards have about {mean}: they were planned by the sizes in SRC; {times}"]


def _source_line(source: Source) -> str:
    """Return one line that says how the source was understood; for chats, a second one on their template."""
    from fastio.converters import SOURCES

    kind, schema = SOURCES[source.kind], source.schema
    if len(schema.payload) == 1 and all(column.name == "label" for column in schema.columns):
        is_pictures = schema.payload[0].traits.is_picture
        what = kind.what if is_pictures else f"{kind.what}, {schema.payload[0]}"
    else:
        what = f"{kind.what}; {', '.join(map(_field_words, schema.fields))}"
    labels = _labels(source) if "label" in schema else f"no labels{_label_hint(source)}"
    samples = f"{counted(len(source) - len(source.problems), 'sample')}, {size(source.size_bytes)}"
    problems = f", {counted(len(source.problems), 'problem')}" if source.problems else ""
    line = f"{printable(source.path)}: {what}, {samples}, {labels}{problems}"
    chat = source.metadata.get("chat") if "chat" in source.metadata["source"] else None
    return line if chat is None else f"{line}\n{_chat_line(chat)}"


def _chat_line(chat: Mapping[str, Any]) -> str:
    """Return the template of chats, what counts in the loss, and the token that stands for a picture."""
    rule = _RULES[chat["loss"]].format(_TURNS_BY[chat["turns_by"]])
    line = f"chat template {printable(chat['name'])}; in the loss: {rule}"
    image = chat.get("image")
    if image is None:
        return line
    return f"{line}; a picture is {printable(image['token'])}: PackCollate(..., image_token={image['id']})"


def _text_line(samples: TextSamples) -> str:
    """Return how the text was understood and how it will be stored; a second line if its tokenizer could add more."""
    from fastio.converters.sources.chat_forms import PREFERENCES

    source, encoder = samples.source, samples.encoder
    origin = source.metadata["source"]
    if "split" in origin:
        what = f"one sample per {origin['split']}"
    elif "chat" in origin:
        kind = "preferences" if origin["form"] in PREFERENCES else "chats"
        what = f"{source.kind}, {kind} in {printable(origin['chat'])!r} ({origin['form']})"
    elif "text_field" in origin:
        what = f"{source.kind}, {'token ids' if source.is_ids else 'text'} in {printable(origin['text_field'])!r}"
    else:
        what = "text files"
    classes = source.metadata.get("classes")
    labels = counted(len(classes), "class", "classes") if classes else "no labels"
    if not source.has_labels and "text_field" in origin:
        labels += f" (--text-column {printable(origin['text_field'])} --label-column NAME takes them from a column)"
    files = counted(source.files_opened, "file")
    chat = encoder.record.get("chat")
    if chat is not None:
        opened = f"{printable(source.path)}: {what}, {size(source.size_bytes)} in {files}; {_stored(encoder)}"
        return f"{opened}\n{_chat_line(chat)}"
    line = f"{printable(source.path)}: {what}, {size(source.size_bytes)} in {files}, {labels}; {_stored(encoder)}"
    template = " ".join(getattr(encoder.tokenizer, "template", ()))
    if not template:
        return line
    return (
        f"{line}\nthe tokenizer's own template would add {printable(template)}, but fastio adds only what --bos and "
        "--eos ask for"
    )


def _stored(encoder: Encoder | ChatEncoder | PreferenceEncoder) -> str:
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


def _label_hint(source: Source) -> str:
    """Return which option could bring labels, in parentheses; nothing if nothing speaks for one."""
    from fastio.converters import SOURCES
    from fastio.converters.labels.columns import LABEL_TITLES

    kind = SOURCES[source.kind]
    if not kind.own_labels:
        return " (--labels names a file with them)"
    if not kind.takes_columns:  # the metadata of a store are whatever its writer wanted to keep
        return ""
    paths = [column["path"] for column in source.metadata.get("table", {}).get("columns", ())]
    title = next((path[0] for path in paths if len(path) == 1 and path[0].lower() in LABEL_TITLES), None)
    return "" if title is None else f" (--label-column {title} takes them from that column)"


def _field_words(field: Field) -> str:
    """A field's name and type, once if they are the same word."""
    from fastio.types.field_types import type_of

    type_ = "image" if field.traits.is_picture and not field.traits.is_mask else type_of(field)
    return field.name if field.name in (type_, "label") else f"{field.name} ({type_})"


def _labels(source: Source) -> str:
    """Return what the labels are, in words."""
    classes, label = source.metadata.get("classes"), source.schema["label"]
    if classes:
        return counted(len(classes), "class", "classes")
    if not label.shape:
        return "labels are numbers" if label.dtype == "<i8" else "labels are fractions, kept as float64"
    return f"labels are {label.shape[0]} numbers a sample, kept as {'int64' if label.dtype == '<i8' else 'float32'}"


def _summary(report: PackReport, overhead: str) -> list[str]:
    new = report.packed - report.kept_samples
    source_bytes = report.source_bytes * new / report.packed
    rate = f"{per_second(new / report.seconds)} samples/s, {size(source_bytes / report.seconds)}/s"
    shards = f" in {report.shards} shards" if report.shards > 1 else ""
    before, after = (number(total / report.packed) for total in (report.source_bytes, report.payload_bytes))
    rest = f", {number(len(report.skipped))} skipped (listed above and in the store)" if report.skipped else ""
    rest += f", {number(len(report.left_out))} left out" if report.left_out else ""
    found = f"{number(report.found)} found" if rest else counted(report.found, "sample")
    packed = f"packed {number(new)} of {found}{rest} in {report.seconds:.2f} s ({rate})"
    if report.kept_shards:
        packed += f"; {number(report.kept_samples)} were there, in {counted(report.kept_shards, 'whole shard')}"
    files = f"{size(report.source_disk_bytes)} on disk, {counted(report.files_opened, 'file')} opened"
    above = f"{number(report.overhead_bytes)} B a sample on top ({overhead})"
    return [
        packed,
        f"before: {size(report.source_bytes)}, {before} B a sample; {files}",
        f"after:  {size(report.store_bytes)}{shards}, {after} B a sample and {above}",
    ]


def _text_summary(report: PackReport, counts: DocumentCounts, overhead: str, rule: Sequences) -> list[str]:
    """Return what became of documents, and of the tokens in them."""
    from fastio.converters.packing.record import reasons
    from fastio.converters.text.decode import probe_words

    seconds, is_stream = max(report.seconds, 1e-9), rule.over == "concat"
    skipped = f", {number(len(report.skipped))} skipped (listed above and in the store)" if report.skipped else ""
    blank = f", {counted(counts.blank_lines, 'blank line')} left out{_NAMED}" if counts.blank_lines else ""
    documents = f"{number(report.packed)} of {counted(report.found, 'document')}"
    rate = f"{number(counts.tokens // seconds)} tokens/s" if counts.tokens else f"{size(counts.text_bytes / seconds)}/s"
    kept = f" ({rate})"
    if report.kept_shards:
        samples = counted(report.kept_samples, "sample")
        kept = f"; {samples} of these were there, in {counted(report.kept_shards, 'whole shard')}"
    lines = [f"packed {documents}{skipped}{blank} in {report.seconds:.2f} s{kept}"]
    if report.skipped:
        lines.append(f"skipped: {by_reason(reasons(report.skipped))}")
    if counts.tokens:
        per_token = f", {counts.text_bytes / counts.tokens:.2f} bytes of text per token" if counts.text_bytes else ""
        parts = "a stream" if is_stream else counted(counts.samples, "sample")
        lines.append(f"tokens: {number(counts.tokens)} in {parts}{per_token}")
    if counts.loss_tokens:
        share = 100 * counts.loss_tokens / counts.tokens
        lines.append(f"in the loss: {counted(counts.loss_tokens, 'token')} ({share:.1f} %)")
    if counts.exact_documents < counts.probed_documents:
        words = probe_words(counts.exact_documents, counts.probed_documents, report.packed)
        lines.append(f"this tokenizer changes text: {words}")
    if is_stream:
        lines.append(f"stream: TokenStream({printable(report.path)!r}).windows(1025) reads it")
    elif counts.split_documents:
        repeated = f", each with the last {counted(rule.overlap, 'token')} of the one before" if rule.overlap else ""
        documents = counted(counts.split_documents, "document")
        lines.append(f"split:  {documents} into several samples (key#0, key#1, ...){repeated}")
    if counts.cut_tokens:
        ends = counted(counts.cut_documents, "document")
        lines.append(f"CUT:    {counted(counts.cut_tokens, 'token')} at the ends of {ends}{_NAMED}")
    before = f"{size(report.source_disk_bytes)} on disk"
    if counts.text_bytes:
        before = f"{size(counts.text_bytes)} of text; {before}"
    shards = f" in {report.shards} shards" if report.shards > 1 else ""
    mean, above = number(report.payload_bytes / report.samples), number(report.overhead_bytes)
    after = f"{size(report.store_bytes)}{shards}, {mean} B a sample and {above} B on top ({overhead})"
    return [*lines, f"before: {before}", f"after:  {after}"]
