"""PackRecord: what became of the samples of one file while it was packed; and the records of many files as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastio.converters.jpeg_counts import JpegCounts, joined_jpegs
from fastio.converters.lossy_masks import LossyMasks
from fastio.converters.source import Chunk, Problem, Source, Stage, TextCounts

__all__ = ["PackRecord", "chunk_bytes", "join_records", "ledger", "metadata_of", "sorted_problems", "source_metadata"]


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
    jpegs: JpegCounts = field(default_factory=JpegCounts)

    def add(self, chunk: Chunk) -> None:
        """Count a chunk whose samples were written."""
        self.skipped += chunk.problems
        if chunk.misnamed:
            bad = {problem.key for problem in chunk.problems}
            self.misnamed += [problem for problem in chunk.misnamed if problem.key not in bad]
        self.texts = _sum(self.texts, chunk.texts)
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
        if self.misnamed:
            record["misnamed"] = ledger(self.misnamed)
        return {**record, **self.jpegs.metadata, **self.lossy_masks.metadata, "skipped": ledger(self.skipped)}


def chunk_bytes(chunk: Chunk) -> int:
    """Return the bytes of the values of a chunk."""
    return sum(int(spans.sizes.sum()) for spans in chunk.batch.spans.values())


def join_records(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the records of several files, in order, as that of one file that holds the samples of all."""
    joined: dict[str, Any] = {"samples": 0, "payload_bytes": 0, "packing": None, "misnamed": [], "skipped": []}
    texts: TextCounts | None = None
    masks: dict[str, dict[str, Any]] = {}
    records = list(records)
    for record in records:
        joined["samples"] += record["samples"]
        joined["payload_bytes"] += record["payload_bytes"]
        joined["misnamed"] += record.get("misnamed", ())
        joined["skipped"] += record["skipped"]
        if "packing" in record:
            joined["packing"] = _joined_packing(joined["packing"], record["packing"])
        if "texts" in record:
            texts = _sum(texts, TextCounts(*record["texts"]))
        for name, lossy in record.get("lossy_masks", {}).items():
            known = masks.setdefault(name, {"jpegs": 0, "masks": 0, "first": lossy["first"]})
            known["jpegs"] += lossy["jpegs"]
    for known in masks.values():
        known["masks"] = joined["samples"]
    for name in ("misnamed", "skipped"):
        joined[name].sort(key=lambda entry: entry["key"])
    return {**joined, "lossy_masks": masks, "jpegs": joined_jpegs(records), "texts": texts}


def metadata_of(source: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the metadata of a store: ``source`` is what ``source_metadata`` returned, ``record`` what ``join_records``
    did.
    """
    problems = sorted([*source["skipped"], *record["skipped"]], key=lambda entry: entry["key"])
    listed = {name: record[name] for name in ("misnamed", "lossy_masks", "jpegs") if record[name]}
    packing = {} if record["packing"] is None else {"packing": record["packing"]}
    left_aside = {"left_aside": source["left_aside"]} if source["left_aside"] else {}
    metadata = dict(source["metadata"])
    if record["texts"] is not None:
        metadata["tokenizer"] = record["texts"].within(metadata["tokenizer"])
    return {**metadata, **packing, **left_aside, **listed, "skipped": problems}


def source_metadata(source: Source) -> dict[str, Any]:
    """Return what a store keeps of its source, known before anything is read."""
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


def _sum(first: TextCounts | None, second: TextCounts | None) -> TextCounts | None:
    if first is None or second is None:
        return first or second
    return TextCounts(*(one + other for one, other in zip(first, second, strict=True)))


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
