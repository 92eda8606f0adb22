"""Sink: writes a Dataset of Ray Data as a set of shards, which exists once the driver has received all of them."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal

from fastio.converters.lossy_masks import lossy_mask_lines
from fastio.converters.write.fields import Fields, FieldsAsked
from fastio.converters.write.report import WriteReport
from fastio.converters.write.sample_form import KeyRule
from fastio.converters.write.store_metadata import checked_metadata
from fastio.errors import FastioError, SchemaError, StoreError
from fastio.integrations.packages import imported
from fastio.ray.row_writer import RowRules, RowWriter, TaskResult, set_metadata
from fastio.ray.sink_target import SinkTarget
from fastio.store.files.remote_options import RemoteOptions
from fastio.types.schema import Schema

_data = imported("ray.data", extra="ray", needed_by="fastio.ray")

__all__ = ["Sink"]

_SHARD_BYTES = 1 << 30


class Sink(_data.Datasink):  # type: ignore[misc,name-defined]
    """
    Writes the rows of a Ray ``Dataset`` as samples into a new set of shards::

        ds = ray.data.read_parquet("s3://bucket/raw")
        sink = fastio.ray.Sink("s3://bucket/train-%06d.tar", {"image": "image", "label": "label"}, key="path")
        ds.write_datasink(sink)
        print(sink.report)

    ``fields`` gives the type of each field by the name of its column, as for ``fastio.Writer``; other columns are left
    out. Types that are None are inferred by each task from its first 64 rows, and must come out alike in all of them:
    name them for a long run. ``key`` is the column with a sample's key (which the store then leaves out, unless
    ``fields`` names it), or a function of the row, a dict; by default, samples are called by task and row. Keys must be
    unique. ``shard_bytes`` bounds a shard (default: 1 GiB); a task writes at least one shard if it has rows, so
    ``ds.repartition(n)`` decides how many there are. ``metadata``, ``on_error``, ``overwrite`` and ``jump``
    are those of ``fastio.Writer``. ``path`` must be one that all nodes see, or a URL with its ``storage_options``.

    Tasks write finished shards. The driver makes the set of those that it received, in the order of the tasks (which
    is that of the rows if ``DataContext.execution_options.preserve_order`` is set), and removes what failed attempts
    have left. If writing fails, no set appears and all shards of this run are removed; after a driver was killed,
    its shards remain and the next Sink names them.

    Raises StoreError if nothing can be written under the path, SchemaError for impossible fields. ``write_datasink``
    raises SampleError for a row that does not fit, StoreError if keys come twice or there is no sample at all.
    """

    def __init__(  # noqa: PLR0913 - an option of the class each
        self,
        path: str | os.PathLike[str],
        fields: FieldsAsked = None,
        *,
        key: KeyRule = None,
        shard_bytes: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        overwrite: bool = False,
        jump: bool = True,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error={on_error!r}: expected 'raise' or 'skip'")
        if shard_bytes is not None and shard_bytes < 1:
            raise ValueError(f"shard_bytes={shard_bytes}: expected at least 1")
        self._rules = RowRules(
            path=os.fspath(path),
            fields=Fields.of(fields),
            key=key,
            on_error=on_error,
            shard_bytes=shard_bytes or _SHARD_BYTES,
            metadata=checked_metadata(metadata),
            jump=jump,
        )
        options = RemoteOptions(storage_options=dict(storage_options or {}))
        self._target = SinkTarget.of(self._rules.path, overwrite=overwrite, options=options, run=_new_run())
        self._begun = time.time()
        self._report: WriteReport | None = None

    @property
    def report(self) -> WriteReport:
        """What was written. Raises StoreError before ``write_datasink`` has returned."""
        if self._report is None:
            raise StoreError(f"{self._rules.path}: is not complete: call Dataset.write_datasink first")
        return self._report

    def get_name(self) -> str:
        """Return how Ray names the tasks."""
        return "fastio"

    def on_write_start(self, *_schema: Any, **_later: Any) -> None:
        """Check on the driver that the set can be written. Raises StoreError."""
        errored = _data.DataContext.get_current().max_errored_blocks
        if errored:
            raise StoreError(
                f"{self._rules.path}: DataContext.max_errored_blocks is {errored}, which would leave out rows without "
                'naming them: set it to 0, and let Sink(on_error="skip") list rows that do not fit'
            )
        self._begun = time.time()
        self._target.check()

    def write(self, blocks: Iterable[Any], ctx: Any) -> TaskResult:
        """Write the rows of one task; called by Ray in a worker."""
        from ray.data.block import BlockAccessor

        with self._target.opened(shard_bytes=self._rules.shard_bytes) as shards:
            rows = RowWriter(self._rules, ctx.task_idx, partial(shards.begin, ctx.task_idx))
            try:
                for block in blocks:
                    dicts: Iterable[Mapping[str, Any]] = BlockAccessor.for_block(block).iter_rows(
                        public_row_format=True
                    )
                    for row in dicts:
                        rows.write(row)
                result = rows.finish()
                shards.wait()
            except FastioError as exc:
                rows.give_up(shards.remove)
                raise exc.with_traceback(None) from None  # Ray shows the user every frame of every cause
            except BaseException:
                rows.give_up(shards.remove)
                raise
        return result

    def on_write_complete(self, write_result: Any) -> None:
        """Make the set of what arrived; called by Ray on the driver."""
        results = sorted(write_result.write_returns, key=lambda result: result.task)
        self._check_complete(results, int(write_result.num_rows))
        skipped = [problem for result in results for problem in result.skipped]
        packed = sum(result.packed for result in results)
        if not packed:
            raise StoreError(f"{self._rules.path}: nothing was kept, {_nothing(skipped)}")
        schema = _common_schema(self._rules.path, results)
        masks = _joined_masks(results, packed)
        metadata = json.dumps(set_metadata(self._rules, skipped, masks), separators=(",", ":")).encode("ascii")
        members = self._target.seal([shard for result in results for shard in result.shards], metadata)
        self._report = WriteReport(
            path=self._rules.path,
            format=self._target.form.name,
            schema=schema,
            packed=packed,
            skipped=tuple(skipped),
            payload_bytes=sum(result.payload_bytes for result in results),
            store_bytes=sum(member.size for member in members),
            shards=len(members),
            made_pngs=sum(result.made_pngs for result in results),
            notes=lossy_mask_lines({"lossy_masks": masks}),
            seconds=time.time() - self._begun,
        )

    def on_write_failed(self, error: Exception) -> None:
        """Remove what this run has written; called by Ray on the driver."""
        try:
            self._target.remove_run()
        except StoreError as exc:
            error.add_note(str(exc))

    def _check_complete(self, results: list[TaskResult], rows: int) -> None:
        """Raise StoreError if the tasks' accounts do not add up to the rows that Ray has counted."""
        tasks = {result.task for result in results}
        counted = sum(result.rows for result in results)
        packed = sum(result.packed + len(result.skipped) for result in results)
        if len(tasks) != len(results) or counted != rows or packed != rows:
            raise StoreError(
                f"{self._rules.path}: Ray has counted {rows} rows, {len(results)} results of {len(tasks)} tasks "
                f"account for {packed} of {counted}: nothing was kept; please report this"
            )


def _new_run() -> int:
    """Return a number that stands for this run as the plan of its shards."""
    return secrets.randbits(63) + 1


def _nothing(skipped: list[Any]) -> str:
    if not skipped:
        return "the dataset has no rows"
    return f"all {len(skipped):,} samples have problems; the first: {skipped[0].key!r} {skipped[0].problem}"


def _common_schema(path: str, results: list[TaskResult]) -> Schema:
    known = [result for result in results if result.schema is not None]
    for result in known[1:]:
        if result.schema != known[0].schema:
            first, other = (", ".join(map(str, each.schema.fields)) for each in (known[0], result) if each.schema)
            raise SchemaError(
                f"{path}: task {known[0].task} inferred the fields {first}, task {result.task} {other}: give their "
                "types, as in fields={'image': 'image', ...}"
            )
    assert known[0].schema is not None
    return known[0].schema


def _joined_masks(results: list[TaskResult], masks: int) -> dict[str, dict[str, Any]]:
    """Return the masks that are JPEGs, by field, over all tasks."""
    joined: dict[str, dict[str, Any]] = {}
    for result in results:
        for name, counts in result.lossy_masks.items():
            total = joined.setdefault(name, {"jpegs": 0, "masks": masks, "first": counts["first"]})
            total["jpegs"] += counts["jpegs"]
    return joined
