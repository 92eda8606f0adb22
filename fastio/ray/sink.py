"""Sink: writes a Dataset of Ray Data as a set of shards, which exists once the driver has received all of them."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from fastio.converters.pictures.counts import lossy_mask_lines
from fastio.converters.sources.options import source_record
from fastio.converters.write.encoder import KeyRule, Misfit, SampleForm
from fastio.converters.write.fields import Fields, FieldsAsked
from fastio.converters.write.writer import Writer, WriteReport, checked_metadata
from fastio.errors import FastioError, SchemaError, StoreError, StoreNotFound
from fastio.integrations.packages import imported
from fastio.ray.packing import remove_partials
from fastio.store import FORMATS, SampleBatch, SampleWriter
from fastio.store.address import target_format
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.formats.format import Format
from fastio.store.index.seal import find_seal
from fastio.store.index.sealed import bytes_from
from fastio.store.kinds.scan import Problem
from fastio.store.sets.names import SET_SUFFIX, set_path
from fastio.store.sets.seal import SealedShards, seal_set
from fastio.store.sets.set_object import SetMember, SetObject, read_set
from fastio.store.store_folder import StoreFolder
from fastio.store.write.destination import ShardDestination
from fastio.store.write.locks import claimed
from fastio.store.write.target import Target, remove_replaced
from fastio.types.schema import Schema
from fastio.types.units import counted

__all__ = [
    "Sink",
]


_data = imported("ray.data", extra="ray", needed_by="fastio.ray")


_SHARD_BYTES = 1 << 30


class Sink(_data.Datasink):  # type: ignore[misc,name-defined]
    """
    Writes the rows of a Ray ``Dataset`` as samples into a new set of shards::

        ds = ray.data.read_parquet("s3://bucket/raw")
        sink = fastio.ray.Sink("s3://bucket/train-%06d.tar", {"image": "image", "label": "label"}, key="path")
        ds.write_datasink(sink)
        print(sink.report)

    ``fields`` gives the type of each field by the name of its column, as for ``fastio.Writer``; other columns are left
    out. Types that are None are inferred by each task from its first 64 rows or 4 MiB, and must come out alike in all
    of them: name them for a long run. ``key`` is the column with a sample's key (which the store then leaves out,
    unless ``fields`` names it), or a function of the row, a dict; by default, samples are called by task and row. Keys
    must be unique. ``shard_bytes`` bounds a shard (default: 1 GiB); a task writes at least one shard if it has rows, so
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
        options = Remote(storage_options=dict(storage_options or {}))
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

        with ShardDestination(self._target.folder(), shard_bytes=self._rules.shard_bytes) as destination:
            writer = TaskWriter(self._rules, self._target, ctx.task_idx, destination)
            try:
                for block in blocks:
                    rows: Iterable[Mapping[str, Any]] = BlockAccessor.for_block(block).iter_rows(public_row_format=True)
                    for row in rows:
                        writer.write_row(row)
                result = writer.finish()
                destination.wait()
            except FastioError as exc:
                writer.give_up()
                raise exc.with_traceback(None) from None  # Ray shows the user every frame of every cause
            except BaseException:
                writer.give_up()
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


# TaskWriter: what a task makes of its rows: samples, shards, and an account of both.


@dataclass(frozen=True, slots=True)
class RowRules:
    """How rows become samples and shards: the same for every task of a write."""

    path: str  # as the user named it
    fields: Fields
    key: KeyRule
    on_error: Literal["raise", "skip"]
    shard_bytes: int
    metadata: Mapping[str, Any]  # the user's
    jump: bool


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A finished shard: its name in the folder of the set, and its samples."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task has written, as it reaches the driver."""

    task: int
    rows: int  # that the task was given: those packed and those skipped
    schema: Schema | None  # None: no row could be packed
    shards: tuple[WrittenShard, ...]
    skipped: tuple[Problem, ...]
    payload_bytes: int
    made_pngs: int
    lossy_masks: Mapping[str, Mapping[str, Any]]

    @property
    def packed(self) -> int:
        """Samples in the shards."""
        return sum(shard.count for shard in self.shards)


class TaskWriter(Writer):
    """
    The ``Writer`` of one task, whose samples go into shards of a set that the driver makes.

    Without a key rule, samples are named by task and row: ``000003-00000012``. Columns that the user has not named are
    left out.
    """

    _threads = 1  # Ray counts a task as one CPU

    def __init__(self, rules: RowRules, target: SinkTarget, task: int, destination: ShardDestination) -> None:
        self._rules = rules
        self._task = task
        self._shards_of = partial(TaskShards, target, task, destination, rules.shard_bytes, self._shard_metadata)
        self._shards: TaskShards | None = None
        self._listed = 0  # skipped samples that the metadata of an earlier shard lists
        self._form: SampleForm | None = None
        super().__init__(
            rules.path, rules.fields.named, metadata=rules.metadata, on_error=rules.on_error, jump=rules.jump
        )

    def write_row(self, row: Mapping[str, Any]) -> None:
        """Add one row. Raises what ``Writer.write`` raises."""
        names = self._fields.names
        key: Any = f"{self._task:06d}-{self._count:08d}"
        try:
            if self._form is None:
                self._form = SampleForm.of(row, names, self._rules.key)
            key = self._form.key_of(row, key)
            sample = self._form.mapping(row) if names is None else {name: row[name] for name in names if name in row}
        except Misfit as exc:
            self._count += 1
            self._ledger.refuse([(str(key), exc)])
            return
        self.write(sample, key=key)

    def finish(self) -> TaskResult:
        """Write what is left, and return what this task has done. Raises what ``Writer.flush`` raises."""
        self.flush()
        self.close()
        pieces = self._pieces
        return TaskResult(
            task=self._task,
            rows=self._count,
            schema=None if pieces is None or not pieces.packed else pieces.schema,
            shards=() if self._shards is None else tuple(self._shards.written),
            skipped=tuple(self._ledger.skipped),
            payload_bytes=0 if pieces is None else pieces.size_bytes,
            made_pngs=0 if pieces is None else pieces.made_pngs,
            lossy_masks={} if pieces is None else pieces.lossy_masks.metadata.get("lossy_masks", {}),
        )

    def give_up(self) -> None:
        """Remove all shards of this task, also after ``finish``."""
        self.abort()
        if self._shards is not None:
            self._shards.abort()

    def _check_target(self) -> None:
        """The driver has done that."""

    def _new_store(self, schema: Schema) -> SampleWriter:
        self._shards = self._shards_of(schema)
        return self._shards

    def _finish(self) -> None:
        """End the last shard; a task without samples has none."""
        if self._shards is not None:
            self._shards.close()
        self._state = "closed"

    def _shard_metadata(self) -> dict[str, Any]:
        """What a shard says of itself; of the skipped samples, those since the shard before."""
        first, self._listed = self._listed, len(self._ledger.skipped)
        return set_metadata(self._rules, self._ledger.skipped[first:], {})


def set_metadata(rules: RowRules, skipped: Sequence[Problem], lossy_masks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a shard or a set."""
    return {
        "classes": None,
        **rules.metadata,
        **({"lossy_masks": dict(lossy_masks)} if lossy_masks else {}),
        "source": source_record("ray", rules.path.rpartition("/")[2]),
        "skipped": [{"key": problem.key, "problem": problem.problem} for problem in skipped],
    }


class TaskShards:
    """
    The shards of one task, one after the other, each sealed alone; see ``SampleWriter`` for the contract.

    A shard ends with the batch that fills it. Names that an earlier attempt of the task has left stay as they are.
    ``abort`` removes finished shards, too, also after ``close``.
    """

    def __init__(
        self,
        target: SinkTarget,
        task: int,
        destination: ShardDestination,
        shard_bytes: int,
        metadata_now: Callable[[], Mapping[str, Any]],
        schema: Schema,
    ) -> None:
        self.written: list[WrittenShard] = []
        self._target = target
        self._task = task
        self._destination = destination
        self._shard_bytes = shard_bytes
        self._metadata_now = metadata_now
        self._schema = schema
        self._folder = target.folder()
        self._slot = 0  # the next number of this task that may be free
        self._name = ""
        self._writer: SampleWriter | None = None
        self._count = self._size_bytes = 0

    def append(self, batch: SampleBatch) -> None:
        """See SampleWriter."""
        if self._writer is None:
            self._name, number = self._free_name(), self._task + len(self.written) * _TASKS
            self._writer = self._destination.writer(self._name, self._schema, plan=self._target.run, number=number)
        self._writer.append(batch)
        self._count += len(batch.keys)
        self._size_bytes += sum(int(spans.sizes.sum()) for spans in batch.spans.values())
        if self._size_bytes >= self._shard_bytes:
            self.close()

    def close(self, metadata: Mapping[str, Any] | None = None) -> None:
        """End the shard that is under way, if there is one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close(self._metadata_now() if metadata is None else metadata)
            self.written.append(WrittenShard(self._name, self._count))
            self._count = self._size_bytes = 0

    def abort(self) -> None:
        """Remove all shards."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()
        self._destination.close()
        while self.written:
            self._folder.remove(self.written[-1].name)
            self.written.pop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def _free_name(self) -> str:
        while True:
            name = self._target.name(self._target.first + self._task + self._slot * _TASKS)
            self._slot += 1
            if self._folder.etag(name) is None:
                return name


# SinkTarget: where a Sink writes: names for the shards of its tasks, the set at the end, and what must go then.

_TASKS = 1_000_000  # numbers of tasks; shard j of task t is number t + j * _TASKS


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """
    The set that one run writes: what the driver checks, and what each task needs to name its shards.

    ``run`` stands in the seals of its shards as their plan. File numbers begin with ``first``: 0, or beyond those that
    are taken if a set is being replaced.
    """

    path: str
    format_name: str
    overwrite: bool
    options: Remote
    run: int
    first: int = 0
    generation: int = 1

    @classmethod
    def of(cls, path: str, *, overwrite: bool, options: Remote, run: int) -> Self:
        """Return the target of a new run. Raises StoreError if nothing can be written there."""
        form = target_format(path)
        everywhere = os.path.abspath(path) if is_local(path) else path  # noqa: PTH100 - workers have other folders
        target = cls(everywhere, form.name, overwrite, options, run)
        if not target.names.is_set:
            raise StoreError(f"{path}: Ray writes shards: name them like train-%06d{form.suffixes[0]}")
        with target._claimed():
            current = target.check()
        listed = () if current is None else current.members
        numbers = map(target.names.number_of, (*target._taken(), *(member.name for member in listed)))
        return replace(
            target,
            first=max((number for number in numbers if number is not None), default=-1) + 1,
            generation=1 if current is None else current.generation + 1,
        )

    @property
    def form(self) -> Format:
        """The format of the shards."""
        return FORMATS[self.format_name]

    @property
    def names(self) -> Target:
        """The names of the shards."""
        return Target(self.path, self.form, self.overwrite)

    def name(self, number: int) -> str:
        """Return the name of a shard in its folder."""
        return Path(self.names.shard(number)).name

    def check(self) -> SetObject | None:
        """Return the set that is there, which the new one will replace. Raises StoreError if it must not."""
        current = self._current()
        taken = self._taken()
        if self.overwrite:
            return current
        if current is not None:
            raise StoreError(f"{current.path}: exists; choose another name, or overwrite=True")
        if taken:
            raise StoreError(
                f"{self.path}: {counted(len(taken), 'shard')} without a set object, the first {taken[0]}: an earlier "
                "run was killed before it could make the set: remove them, or replace them with overwrite=True"
            )
        return None

    def seal(self, shards: Sequence[WrittenShard], metadata: bytes) -> Sequence[SetMember]:
        """Make the set of these shards, in this order, then remove what it replaces and what else this run left."""
        with self._claimed():
            return self._seal(shards, metadata)

    def _seal(self, shards: Sequence[WrittenShard], metadata: bytes) -> Sequence[SetMember]:
        folder = self.folder()
        before = self._current()
        opened = self._opened(folder, shards)
        sealed = seal_set(
            set_path(self.path),
            [shard.name for shard in shards],
            self.form,
            metadata=metadata,
            generation=self.generation,
            replace=self.generation > 1,
            options=self.options,
            opened=(opened, opened.members),
        )
        self.remove_run(keep=sealed.members)
        if self.overwrite:
            self._remove_replaced(folder, sealed, before)
        return sealed.members

    def remove_run(self, keep: Sequence[SetMember] = ()) -> None:
        """Remove what this run has written, but for the shards to keep. Raises StoreError that names what stays."""
        folder = self.folder()
        if is_local(self.path):
            remove_partials(self.names)
        for name in sorted(set(self._taken()) - {member.name for member in keep}):
            if self._run_of(folder, name) == self.run:
                folder.remove(name)

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """Raise StoreError if another process packs this set on a disk; until the block ends, nobody else does."""
        if is_local(self.path):
            replace(self.names, overwrite=True).check()
        with claimed(set_path(self.path)) if is_local(self.path) else nullcontext():
            yield

    def _opened(self, folder: StoreFolder, shards: Sequence[WrittenShard]) -> SealedShards:
        """Open the shards of this run. Raises StoreError if another file has the name of one."""
        opened = SealedShards.named(folder, (shard.name for shard in shards), self.form)
        for shard, member in zip(shards, opened.members, strict=True):
            if (member.plan, member.count) != (self.run, shard.count):
                raise StoreError(
                    f"{folder.full(shard.name)}: expected {shard.count} samples of this run, got {member.count} of "
                    f"{'this' if member.plan == self.run else 'another'} one: another program writes here too; write "
                    "again, to another name"
                )
        return opened

    def _remove_replaced(self, folder: StoreFolder, sealed: SetObject, before: SetObject | None) -> None:
        """Remove shards that the new set has replaced, unless another set of the folder may list them."""
        if is_local(self.path):
            remove_replaced(self.names, sealed.members)
            return
        sets = [name for name in folder.entries() if name.endswith(SET_SUFFIX)]
        for member in () if before is None or len(sets) > 1 else before.members:
            if self.names.number_of(member.name) is not None:
                folder.remove(member.name)

    def _run_of(self, folder: StoreFolder, name: str) -> int | None:
        """Return the run, or the plan, that a shard was sealed for; None if it is not a whole shard."""
        try:
            file = folder.open(name)
            try:
                return find_seal(file.path, file.size, partial(bytes_from, file), self.form.seal_at).plan
            finally:
                file.release()
        except StoreError:
            return None

    def _current(self) -> SetObject | None:
        try:
            return read_set(self.folder().open(Path(set_path(self.path)).name), with_index=False)
        except StoreNotFound:
            return None

    def _taken(self) -> list[str]:
        """Return the names in the folder that the pattern stands for, sorted."""
        return [name for name in self.folder().entries() if self.names.number_of(name) is not None]

    def folder(self) -> StoreFolder:
        """Return where the shards go."""
        return folder_of(self.path, self.options)[0]
