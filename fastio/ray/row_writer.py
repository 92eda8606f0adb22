"""RowWriter: what one write task of Ray Data makes of its rows: samples, shards, and an account of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from fastio.converters.sources.options import source_record
from fastio.converters.write.encoder import KeyRule, Misfit, SampleEncoder, SampleForm, check_key
from fastio.converters.write.fields import Fields
from fastio.converters.write.pieces import Ledger, PieceWriter, Refused
from fastio.converters.write.writer import classes_of
from fastio.store import SampleBatch, SampleWriter
from fastio.store.kinds.scan import Problem
from fastio.types.schema import Schema

__all__ = [
    "RowRules",
    "RowWriter",
    "TaskResult",
    "WrittenShard",
    "set_metadata",
]


_FIRST_ROWS = 64  # held back until the types that nobody has named are inferred from them

BeginShard = Callable[[Schema, int], tuple[str, SampleWriter]]  # of a schema and a number within the task


@dataclass(frozen=True, slots=True)
class RowRules:
    """How rows become samples and shards: the same for every task of a write."""

    path: str  # as the user named it
    fields: Fields
    key: KeyRule
    on_error: Literal["raise", "skip"]
    shard_bytes: int
    metadata: Mapping[str, Any]  # the user's
    jump: bool = True


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


class RowWriter:
    """
    Writes the rows of task number ``task`` into shards, which ``begin`` creates.

    Without a key rule, samples are named by task and row: ``000003-00000012``. A row that does not fit raises
    SampleError or is listed, as ``rules`` say.
    """

    def __init__(self, rules: RowRules, task: int, begin: BeginShard) -> None:
        self._rules = rules
        self._task = task
        self._begin = begin
        self._rows = 0
        self._ledger = Ledger(rules.path, rules.on_error)
        self._listed = 0  # skipped samples that the metadata of an earlier shard lists
        self._form: SampleForm | None = None
        self._first: list[tuple[str, Mapping[str, Any]]] = []
        self._pieces: PieceWriter | None = None
        self._shards: RollingShards | None = None
        self._encoder: SampleEncoder | None = None
        if rules.fields.schema is not None:
            self._settle(rules.fields.schema)

    def write(self, row: Mapping[str, Any]) -> None:
        """Add one row."""
        key: Any = f"{self._task:06d}-{self._rows:08d}"
        self._rows += 1
        names = self._rules.fields.names
        try:
            if self._form is None:
                self._form = SampleForm.of(row, names, self._rules.key)
            key = self._form.key_of(row, key)
            check_key(key)
            sample = self._form.mapping(row) if names is None else {name: row[name] for name in names if name in row}
            if self._encoder is None:
                self._hold(key, sample)
                return
            self._encoder.add(key, sample)
        except Misfit as exc:
            self._ledger.refuse([(str(key), exc)])
            return
        if self._encoder.piece.is_full:
            self._flush()

    def finish(self) -> TaskResult:
        """Write what is left, and return what this task has done."""
        if self._first:
            self._infer()
        self._flush()
        if self._shards is not None:
            self._shards.close()
        pieces = self._pieces
        return TaskResult(
            task=self._task,
            rows=self._rows,
            schema=None if pieces is None or not pieces.packed else pieces.schema,
            shards=() if self._shards is None else tuple(self._shards.written),
            skipped=tuple(self._ledger.skipped),
            payload_bytes=0 if pieces is None else pieces.size_bytes,
            made_pngs=0 if pieces is None else pieces.made_pngs,
            lossy_masks={} if pieces is None else pieces.lossy_masks.metadata.get("lossy_masks", {}),
        )

    def give_up(self, remove: Callable[[Sequence[WrittenShard]], object]) -> None:
        """Abandon the shard that is not finished, and have the others removed."""
        if self._shards is not None:
            self._shards.abort()
            remove(self._shards.written)

    def _hold(self, key: str, sample: Mapping[str, Any]) -> None:
        self._first.append((key, sample))
        if len(self._first) >= _FIRST_ROWS:
            self._infer()

    def _infer(self) -> None:
        """Settle the schema by the rows that were held back, and take them."""
        held, self._first = self._first, []
        self._settle(self._rules.fields.inferred([sample for _, sample in held]))
        assert self._encoder is not None
        refused = list[tuple[str, Misfit]]()
        for key, sample in held:
            try:
                self._encoder.add(key, sample)
            except Misfit as exc:
                refused.append((key, exc))
        self._flush(refused)

    def _settle(self, schema: Schema) -> None:
        self._encoder = SampleEncoder(schema, classes=classes_of(self._rules.metadata, schema))
        self._shards = RollingShards(
            lambda piece: self._begin(schema, piece),
            shard_bytes=self._rules.shard_bytes,
            metadata_now=self._shard_metadata,
        )
        self._pieces = PieceWriter(schema, self._shards, self._ledger, jump=self._rules.jump, jobs=1)

    def _flush(self, refused: Refused = ()) -> None:
        if self._pieces is not None:
            assert self._encoder is not None
            self._pieces.write(self._encoder.take(), refused)

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


# RollingShards: a writer whose batches go into one shard after the other, each sealed alone.


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A finished shard: its name in the folder of the set, and its samples."""

    name: str
    count: int


class RollingShards:
    """
    Writes batches into shards of about ``shard_bytes``; see ``SampleWriter`` for the contract.

    A shard ends with the batch that fills it. ``begin(piece)`` returns the name and the writer of shard ``piece``, from
    0. ``close(metadata)`` ends the last shard; earlier ones have ``metadata`` of their own, see ``metadata_now``.
    """

    def __init__(
        self,
        begin: Callable[[int], tuple[str, SampleWriter]],
        *,
        shard_bytes: int,
        metadata_now: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.written: list[WrittenShard] = []
        self._begin = begin
        self._shard_bytes = shard_bytes
        self._metadata_now = metadata_now
        self._name = ""
        self._writer: SampleWriter | None = None
        self._count = self._size_bytes = 0

    def append(self, batch: SampleBatch) -> None:
        """See SampleWriter."""
        if self._writer is None:
            self._name, self._writer = self._begin(len(self.written))
        self._writer.append(batch)
        self._count += len(batch.keys)
        self._size_bytes += sum(int(spans.sizes.sum()) for spans in batch.spans.values())
        if self._size_bytes >= self._shard_bytes:
            self._end()

    def close(self, metadata: Mapping[str, Any] | None = None) -> None:
        """End the last shard; does nothing if there is none."""
        if self._writer is not None:
            self._end(metadata)

    def abort(self) -> None:
        """Give up the shard that is not finished; the others stay."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def _end(self, metadata: Mapping[str, Any] | None = None) -> None:
        writer, self._writer = self._writer, None
        assert writer is not None
        writer.close(self._metadata_now() if metadata is None else metadata)
        self.written.append(WrittenShard(self._name, self._count))
        self._count = self._size_bytes = 0
