"""Writes a store from text: one thread reads, others tokenise pieces ahead, one writer takes them in order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal

from fastio import _native
from fastio.converters.packing.pipeline import check_jobs, in_order, threads
from fastio.converters.packing.record import reasons
from fastio.converters.sources.documents import Limits, TextSource
from fastio.converters.sources.scan import shown
from fastio.converters.sources.source import Problem
from fastio.converters.text.encode import Encoded, Encoder
from fastio.converters.text.huggingface import in_our_threads
from fastio.errors import SourceError
from fastio.store import create_store, open_store

__all__ = ["BLANK_LINES", "TextReport", "pack_text"]

BLANK_LINES = "blank lines"  # by which the metadata counts them


@dataclass(slots=True)
class TextReport:
    """
    What a run of ``pack_text`` did. ``found`` documents are always the sum of ``packed`` and skipped ones and of
    ``blank_lines``, which are left out.

    There are more ``samples`` than ``packed`` documents if some were split. ``cut_tokens`` of ``cut_documents`` were
    left out by truncation. Of ``probed_documents`` that were decoded again, ``exact_documents`` gave the same text.
    """

    path: str
    format: str = ""
    found: int = 0
    packed: int = 0
    samples: int = 0
    skipped: list[Problem] = field(default_factory=list)
    blank_lines: int = 0
    tokens: int = 0
    text_bytes: int = 0
    payload_bytes: int = 0
    cut_documents: int = 0
    cut_tokens: int = 0
    split_documents: int = 0
    probed_documents: int = 0
    exact_documents: int = 0
    source_bytes: int = 0
    store_bytes: int = 0
    shards: int = 0
    seconds: float = 0.0

    def add(self, encoded: Encoded) -> None:
        """Count a piece."""
        self.found += encoded.documents + len(encoded.chunk.problems) + encoded.blank_lines
        self.blank_lines += encoded.blank_lines
        self.packed += encoded.documents
        self.samples += len(encoded.chunk.batch.keys)
        self.skipped += encoded.chunk.problems
        self.tokens += encoded.tokens
        self.text_bytes += encoded.text_bytes
        self.payload_bytes += sum(int(spans.sizes.sum()) for spans in encoded.chunk.batch.spans.values())
        self.cut_documents += encoded.cut_documents
        self.cut_tokens += encoded.cut_tokens
        self.split_documents += encoded.split_documents
        self.probed_documents += encoded.probed_documents
        self.exact_documents += encoded.exact_documents


def pack_text(
    source: TextSource,
    encoder: Encoder,
    out: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    shard_bytes: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> TextReport:
    """
    Pack all documents of ``source`` into the store ``out``; ``encoder`` turns them into samples.

    ``jobs`` threads tokenise (default: the CPUs this process may use, at most 16). The rest is as in
    ``fastio.converters.pack``: a bad document stops the run or is listed in the store, the result does not depend on
    ``jobs``, and the old content of the final name stays until the store is complete. ``progress(samples, bytes of
    the source read)`` is called for every piece.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error={on_error!r}: expected 'raise' or 'skip'")
    check_jobs(jobs)
    begun = time.perf_counter()
    report = TextReport(os.fspath(out), found=len(source.problems), skipped=list(source.problems))
    if on_error == "raise" and report.skipped:
        raise _stop(source, report.skipped[0], of=len(report.skipped))
    jobs = threads(jobs)
    with (
        in_our_threads(),
        create_store(out, encoder.schema, overwrite=overwrite, shard_bytes=shard_bytes) as writer,
        closing(_native.ThreadPool(jobs)) as pool,
        closing(in_order(encoder, source.read(Limits(), pool), jobs=jobs)) as pieces,
    ):
        for encoded in pieces:
            if encoded.chunk.problems and on_error == "raise":
                raise _stop(source, encoded.chunk.problems[0], of=1)
            if encoded.chunk.batch.keys:
                writer.append(encoded.chunk.batch)
            report.add(encoded)
            if progress is not None:
                progress(len(encoded.chunk.batch.keys), encoded.read_bytes)
        if not report.packed:
            raise _nothing_left(source, report.skipped)
        writer.close(_metadata(source, encoder, report))
        with open_store(out) as store:  # an error here has the writer's note that the store is complete
            report.format, report.shards, report.store_bytes = store.format, len(store.shard_paths), store.size_bytes
    report.source_bytes = source.disk_bytes
    report.seconds = time.perf_counter() - begun
    return report


def _metadata(source: TextSource, encoder: Encoder, report: TextReport) -> dict[str, Any]:
    """What the store says of its source, its tokenizer and what was left out."""
    ledger = [{"key": problem.key, "problem": problem.problem} for problem in report.skipped]
    counts = {"found": report.found, "packed": report.packed, "skipped": reasons(report.skipped)}
    said: dict[str, Any] = {**source.metadata, "skipped": ledger}
    said["document_counts"] = {**counts, "left_out": {BLANK_LINES: report.blank_lines} if report.blank_lines else {}}
    if "tokens" not in encoder.schema:
        return said
    cut = {"documents": report.cut_documents, "tokens": report.cut_tokens}
    probed = {"documents": report.probed_documents, "exact": report.exact_documents}
    tokenized = {"documents": report.packed, "cut": cut, "split": report.split_documents, "decoded": probed}
    options = {**encoder.sequences.to_json(), **tokenized}
    return {**said, "tokenizer": {**encoder.to_json(), "options": options}}


def _stop(source: TextSource, problem: Problem, *, of: int) -> SourceError:
    more = f" (the first of {of} problems)" if of > 1 else ""
    return SourceError(
        f"{shown(source.path)}: {problem.key} {problem.problem}{more}; correct it, or skip such documents "
        "with --on-error skip"
    )


def _nothing_left(source: TextSource, skipped: list[Problem]) -> SourceError:
    if not skipped:
        return SourceError(f"{shown(source.path)}: nothing to pack, there is no text in it")
    first = skipped[0]
    return SourceError(
        f"{shown(source.path)}: nothing left to pack, all {len(skipped)} documents have problems; "
        f"the first: {first.key} {first.problem}"
    )
