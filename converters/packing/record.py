"""What became of the samples while they were packed: for the caller, for the store, and why nothing is packed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastio.converters.pictures.counts import JpegCounts, LossyMasks, noted_jpegs
from fastio.converters.pictures.raw import Raw
from fastio.converters.pictures.transcode import Transcode
from fastio.converters.sources.places import Places, entries, joined_places
from fastio.converters.sources.source import (
    Chunk,
    DocumentCounts,
    Source,
    Stage,
    StreamedSource,
    TextCounts,
    is_streamed,
)
from fastio.errors import SourceError
from fastio.store.kinds.names import plain_name
from fastio.store.kinds.scan import Problem, shown
from fastio.types.schema import POINTS

__all__ = [
    "PackRecord",
    "PackReport",
    "check_pictures",
    "chunk_bytes",
    "found_of",
    "join_records",
    "metadata_of",
    "miscounted",
    "nothing_left",
    "progress_bytes",
    "reasons",
    "sorted_problems",
    "source_metadata",
    "stop_at",
]


_BLANK_LINES = "blank lines"  # by which the metadata counts them
_PLACES = {"blank_lines": _BLANK_LINES, "cut": "cut after --max-length tokens"}

_Counts = TypeVar("_Counts", TextCounts, DocumentCounts)


@dataclass(frozen=True, slots=True)
class PackReport:
    """
    What is packed now, and what this run did for it. ``found`` is always the sum of ``packed``, skipped and left out.
    Of text, these are documents: ``documents`` says what became of them, and how many samples they are; ``blank_lines``
    and ``cut`` name by file the lines that are left out, and the documents that lost their ends (``places_of``).

    With ``part=``, all numbers are those of the part's shards, and ``missing`` says which numbers of the whole set are
    still to be packed, here or by other parts; the set exists as soon as none is.
    """

    path: str
    format: str
    found: int
    packed: int
    skipped: Sequence[Problem]
    left_out: Sequence[Problem]  # files that are no samples, and what the user's filters leave out
    payload_bytes: int  # the samples' bytes that went into the store
    source_bytes: int  # the same samples' bytes in the source
    packing: Mapping[str, Any]  # what was done to the pictures, as the store records it; empty: nothing
    source_disk_bytes: int  # what the files take on disk, in blocks
    store_bytes: int
    shards: int
    files_opened: int
    seconds: float
    kept_shards: int = 0  # of these shards, those that were whole already
    kept_samples: int = 0
    missing: Sequence[int] = ()
    left_out_columns: Sequence[str] = ()  # of the source, of which no field was made
    documents: DocumentCounts | None = None
    blank_lines: Places = field(default_factory=dict)
    cut: Places = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """How many samples the store has."""
        return self.packed if self.documents is None else self.documents.samples

    @property
    def overhead_bytes(self) -> float:
        """Bytes per sample that the store takes beyond the sample itself."""
        return (self.store_bytes - self.payload_bytes) / max(self.samples, 1)


def reasons(problems: Iterable[Problem]) -> dict[str, int]:
    """
    Return how many problems there are of each kind, the most frequent first.

    A kind is the beginning of a sentence, with N for numbers.

    >>> reasons([Problem("a", "has 12 tokens, more than 8"), Problem("b", "has 1,024 tokens, more than 8")])
    {'has N tokens': 2}
    """
    kinds = (
        re.split(r"[,:;(]", re.sub(r"(?<![\w.-])\d(?:[\d,.]*\d)?", "N", each.problem))[0].strip() for each in problems
    )
    return dict(Counter(kinds).most_common())


# PackRecord: what became of the samples of one file while it was packed; and the records of many files as one.


@dataclass(slots=True)
class PackRecord:
    """What was packed into one file, a store or a shard of a set, and what was not."""

    lossy_masks: LossyMasks
    stage: Stage | None = None
    skipped: list[Problem] = field(default_factory=list)  # found while reading
    misnamed: list[Problem] = field(default_factory=list)
    samples: int = 0
    payload_bytes: int = 0
    texts: TextCounts | None = None
    documents: DocumentCounts | None = None
    blank_lines: list[Places] = field(default_factory=list)
    cut: list[Places] = field(default_factory=list)
    jpegs: JpegCounts = field(default_factory=JpegCounts)

    def add(self, chunk: Chunk) -> None:
        """Count a chunk whose samples were written."""
        self.skipped += chunk.problems
        if chunk.misnamed:
            bad = {problem.key for problem in chunk.problems}
            self.misnamed += [problem for problem in chunk.misnamed if problem.key not in bad]
        self.texts = _sum(self.texts, chunk.texts)
        self.documents = _sum(self.documents, chunk.documents)
        self.blank_lines += [chunk.blank_lines] if chunk.blank_lines else []
        self.cut += [chunk.cut] if chunk.cut else []
        if chunk.batch.keys:
            self.lossy_masks.count(chunk.batch)
            schema = self.lossy_masks.schema
            self.jpegs.count(chunk.batch, schema if self.stage is None else self.stage.schema(schema))
            self.samples += len(chunk.batch.keys)
            self.payload_bytes += chunk_bytes(chunk)

    def to_json(self) -> dict[str, Any]:
        """Return a plain structure; ``join_records`` takes those of all files of a set."""
        record: dict[str, Any] = {"samples": self.samples, "payload_bytes": self.payload_bytes}
        if self.stage is not None:
            record["packing"] = self.stage.record
        if self.texts is not None:
            record["texts"] = list(self.texts)
        if self.documents is not None:
            record["documents"] = self.documents.recorded
        for name, places in (("blank_lines", self.blank_lines), ("cut", self.cut)):
            if places:
                record[name] = joined_places(places)
        if self.misnamed:
            record["misnamed"] = ledger(self.misnamed)
        return {**record, **self.jpegs.metadata, **self.lossy_masks.metadata, "skipped": self._ledger}

    @property
    def _ledger(self) -> list[dict[str, str]]:
        if self.documents is None:
            return ledger(self.skipped)
        return [{"key": problem.key, "problem": problem.problem} for problem in self.skipped]  # in their order


def chunk_bytes(chunk: Chunk) -> int:
    """Return the bytes of the values of a chunk."""
    every = [*chunk.batch.spans.values(), *(lists.spans for lists in chunk.batch.lists.values())]
    return sum(int(spans.sizes.sum()) for spans in every)


def progress_bytes(chunk: Chunk) -> int:
    """Return the bytes that a chunk counts for, of all that the source has: of text, those of its files."""
    return chunk_bytes(chunk) if chunk.documents is None else chunk.documents.read_bytes


def found_of(
    source: Source | StreamedSource,
    packed: int,
    skipped: Sequence[Problem],
    documents: DocumentCounts | None,
    left_out: Sequence[Problem] | None = None,
) -> int:
    """Return how many samples, or documents of text, were found for so many that were packed."""
    if documents is not None:
        return documents.documents + len(skipped) + documents.blank_lines
    return packed + len(skipped) + len(source.left_out if left_out is None else left_out)


def join_records(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the records of several files, in order, as that of one file that holds the samples of all."""
    joined: dict[str, Any] = {"samples": 0, "payload_bytes": 0, "packing": None, "misnamed": [], "skipped": []}
    texts: TextCounts | None = None
    documents: DocumentCounts | None = None
    masks: dict[str, dict[str, Any]] = {}
    jpegs = Counter[str]()
    places: dict[str, list[Places]] = {name: [] for name in _PLACES}
    for record in records:
        joined["samples"] += record["samples"]
        joined["payload_bytes"] += record["payload_bytes"]
        joined["misnamed"] += record.get("misnamed", ())
        joined["skipped"] += record["skipped"]
        if "packing" in record:
            joined["packing"] = _joined_packing(joined["packing"], record["packing"])
        if "texts" in record:
            texts = _sum(texts, TextCounts(*record["texts"]))
        if "documents" in record:
            documents = _sum(documents, DocumentCounts(*record["documents"]))
        for name, lossy in record.get("lossy_masks", {}).items():
            known = masks.setdefault(name, {"jpegs": 0, "masks": 0, "first": lossy["first"]})
            known["jpegs"] += lossy["jpegs"]
        jpegs.update(record.get("jpegs", {}))
        for name in _PLACES & record.keys():
            places[name].append(record[name])
    for known in masks.values():
        known["masks"] = joined["samples"]
    if documents is None:
        for name in ("misnamed", "skipped"):
            joined[name].sort(key=lambda entry: entry["key"])
    return {
        **joined,
        **{name: joined_places(parts) for name, parts in places.items()},
        "lossy_masks": masks,
        "jpegs": noted_jpegs(jpegs),
        "texts": texts,
        "documents": documents,
    }


def metadata_of(source: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the metadata of a store: ``source`` is what ``source_metadata`` returned, ``record`` what ``join_records``
    did.
    """
    if record["documents"] is not None:
        return _metadata_of_text(source, record)
    problems = sorted([*source["skipped"], *record["skipped"]], key=lambda entry: entry["key"])
    listed = {name: record[name] for name in ("misnamed", "lossy_masks", "jpegs") if record[name]}
    packing = {} if record["packing"] is None else {"packing": record["packing"]}
    left_aside = {"left_aside": source["left_aside"]} if source["left_aside"] else {}
    metadata = dict(source["metadata"])
    if record["texts"] is not None:
        metadata["tokenizer"] = record["texts"].within(metadata["tokenizer"])
    listed |= _ledgers_of(record)
    return {**metadata, **packing, **left_aside, **listed, "skipped": problems}


def _ledgers_of(record: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    """Return the blank lines of text, and the documents that were cut, as ledgers of the store."""
    found = {name: entries(record[name], what) for name, what in _PLACES.items()}
    return {name: listed for name, listed in found.items() if listed}


def _metadata_of_text(source: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a store of text, whose documents are counted, and listed in the order of the source."""
    skipped, counts = [*source["skipped"], *record["skipped"]], record["documents"]
    kinds = reasons(Problem(entry["key"], entry["problem"]) for entry in skipped)
    found = counts.documents + len(skipped) + counts.blank_lines
    left_out = {_BLANK_LINES: counts.blank_lines} if counts.blank_lines else {}
    metadata = {name: value for name, value in source["metadata"].items() if name != "tokenizer"}
    metadata["skipped"] = skipped
    metadata["document_counts"] = {"found": found, "packed": counts.documents, "skipped": kinds, "left_out": left_out}
    if "chat" in metadata:
        metadata["chat"] = {**metadata["chat"], "loss_tokens": counts.loss_tokens}
    metadata |= _ledgers_of(record)
    if "tokenizer" not in source["metadata"]:
        return metadata
    tokenizer = source["metadata"]["tokenizer"]
    options = {
        **tokenizer["options"],
        "documents": counts.documents,
        "cut": {"documents": counts.cut_documents, "tokens": counts.cut_tokens},
        "split": counts.split_documents,
        "decoded": {"documents": counts.probed_documents, "exact": counts.exact_documents},
    }
    return {**metadata, "tokenizer": {**tokenizer, "options": options}}


def source_metadata(source: Source | StreamedSource) -> dict[str, Any]:
    """Return what a store keeps of its source; of a stream, it is known when all has been read."""
    return {
        "metadata": dict(source.metadata),
        "left_aside": ledger(source.left_out),
        "skipped": ledger(source.problems),
    }


def ledger(problems: Sequence[Problem]) -> list[dict[str, str]]:
    """Return problems as the metadata lists them, sorted by key."""
    return [{"key": problem.key, "problem": problem.problem} for problem in sorted_problems(problems)]


def sorted_problems(problems: Sequence[Problem]) -> list[Problem]:
    """Return problems sorted by key."""
    return sorted(problems, key=lambda problem: problem.key)


def _sum(first: _Counts | None, second: _Counts | None) -> _Counts | None:
    if first is None or second is None:
        return first or second
    return type(first)(*(one + other for one, other in zip(first, second, strict=True)))


def _joined_packing(first: Mapping[str, Any] | None, second: Mapping[str, Any]) -> dict[str, Any]:
    """What two files record of their pictures, as that of one: the same options, and the sums of all counts."""
    if first is None:
        return dict(second)
    joined = {**first, "source_bytes": first["source_bytes"] + second["source_bytes"]}
    joined["pictures"] = dict(first["pictures"])
    for name, count in second["pictures"].items():
        joined["pictures"][name] = joined["pictures"].get(name, 0) + count
    if "kept" in second:
        joined["kept"] = {**second["kept"], **first["kept"]}
        for name in first["kept"].keys() & second["kept"].keys():
            both = first["kept"][name]["samples"] + second["kept"][name]["samples"]
            joined["kept"][name] = {"samples": both, "first": first["kept"][name]["first"]}
    return joined


# Why a source is not packed, in words: the first bad sample, nothing left, samples that got lost.


def check_pictures(source: Source, pictures: Transcode | Raw) -> None:
    """
    SourceError where there is nothing that could be decoded or written anew (it would be on record as done), or where
    other fields hold positions in pictures whose size would change.
    """
    tied = [field for field in source.schema.payload if field.traits.is_mask or field.is_box or field.role == POINTS]
    if tied and _changes_sizes(pictures):
        raise SourceError(
            f"{shown(source.path)}: has {', '.join(map(str, tied))}, which would no longer fit pictures of other "
            "sizes: drop the options that change sizes (--short-side, --max-side, --resize), and resize while loading: "
            "transforms move masks, boxes and points along"
        )
    lists = [field for field in source.schema.lists if field.element.traits.is_picture]
    if lists:
        raise SourceError(
            f"{shown(source.path)}: has {', '.join(map(str, lists))}, whose pictures are packed as they are: drop the "
            "options that change pictures (--restart, --short-side, --max-side, --resize, --raw)"
        )
    if not any(field.traits.is_image for field in source.schema.payload):
        raise SourceError(
            f"{shown(source.path)}: holds no encoded pictures, but "
            f"{', '.join(map(str, source.schema.payload))}: drop the options that change pictures (--restart, "
            "--short-side, --max-side, --resize, --raw)"
        )


def _changes_sizes(pictures: Transcode | Raw) -> bool:
    return pictures.resize is not None or (isinstance(pictures, Transcode) and pictures.side is not None)


def stop_at(source: Source | StreamedSource, problem: Problem, *, of: int = 1) -> SourceError:
    """The error for the first of so many bad samples."""
    more = f" (the first of {of} problems)" if of > 1 else ""
    path = shown(source.path)
    name = path.rpartition("/")[2]
    where, sentence = f"{path}/{problem.key}", problem.problem
    what = "documents" if is_streamed(source) else "samples"
    row = re.search(rf" \({re.escape(name)}:(\d+)\)\Z", sentence)
    if row is not None:  # of a table, in which no file can be
        where, sentence = f"{path}:{row[1]}", sentence[: row.start()]
    elif problem.key.startswith(f"{plain_name(name)}:"):
        where = f"{path}{problem.key.removeprefix(plain_name(name))}"
    return SourceError(
        f"{where}: {sentence}{more}; correct it, or skip such {what} with --on-error skip{problem.way_out}"
    )


def miscounted(source: Source, *, expected: int, packed: int, skipped: int) -> SourceError:
    """The error for a source that yields other samples than it announced."""
    return SourceError(
        f"{shown(source.path)}: {expected} samples were found, but {packed} packed and {skipped} skipped; the source "
        "yielded other samples than it announced. Nothing was kept; please report this"
    )


def nothing_left(source: Source | StreamedSource, skipped: Sequence[Problem]) -> SourceError:
    """The error for a source without a sample that could be packed."""
    if not skipped:
        if is_streamed(source):
            return SourceError(f"{shown(source.path)}: nothing to pack, there is no text in it")
        left = f"; {len(source.left_out)} files are not samples, or are left out" if source.left_out else ""
        return SourceError(f"{shown(source.path)}: nothing to pack, the source has no samples{left}")
    first = sorted_problems(skipped)[0]
    return SourceError(
        f"{shown(source.path)}: nothing left to pack, all {len(skipped)} have problems; "
        f"the first: {first.key} {first.problem}"
    )
