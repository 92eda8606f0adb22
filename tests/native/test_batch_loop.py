"""BatchLoop: which batches are under way and handed out, what is counted, and where a run ends."""

from __future__ import annotations

import copy
import ctypes
import gc
import os
import pickle
import signal
import weakref
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch._C import _from_dlpack

from fastio import _native
from fastio.types.spans import Spans


def finished(number: int, *, samples: int = 2, errors: tuple[str, ...] = ()) -> Any:
    """What a pending batch has to return; its number is its proof."""
    counts = {"nbytes": 10 * number, "tokens": 3, "slots": 4, "on_device": 1, "proof": number}
    return SimpleNamespace(batch=f"batch {number}", samples=samples, errors=errors, **counts)


class Pending:
    """A batch that Python makes."""

    def __init__(self, number: int, events: list[str], *, samples: int = 2, errors: tuple[str, ...] = ()) -> None:
        self._number, self._events, self._samples, self._errors = number, events, samples, errors
        events.append(f"begin {number}")

    def result(self) -> Any:
        self._events.append(f"finish {self._number}")
        return finished(self._number, samples=self._samples, errors=self._errors)

    def cancel(self) -> None:
        self._events.append(f"cancel {self._number}")


def loop_of(submitted: Iterator[Any], events: list[Any], *, depth: int = 2, batch: int = 0) -> Any:
    """A loop whose notes and bad batches are events."""
    return _native.BatchLoop(
        submitted,
        depth,
        counts=_native.BatchCounts(),
        cursor=SimpleNamespace(batch=batch),
        note=lambda proof: events.append(f"note {proof}"),
        settle=lambda finished, number: events.append(f"settle {number}"),
    )


def test_depth_batches_are_under_way_behind_each() -> None:
    """Batches come in order, each once `depth` more have begun; what is left is cancelled."""
    events: list[str] = []
    loop = loop_of((Pending(number, events) for number in range(5)), events)

    assert next(loop.run(1)) == "batch 0"
    assert events == ["begin 0", "begin 1", "begin 2", "finish 0", "note 0"]
    del events[:]
    loop.cancel()
    assert events == ["cancel 1", "cancel 2"]


def test_runs_end_and_go_on() -> None:
    """A run ends after its limit, when somebody watches, and when it is stopped; the epoch ends once."""
    events: list[str] = []
    loop = loop_of((Pending(number, events) for number in range(6)), events)
    watched = iter([False, True])

    assert list(loop.run(2)) == ["batch 0", "batch 1"]
    assert list(loop.run(9, lambda: next(watched))) == ["batch 2"]
    assert (loop.number, loop.is_done) == (3, False)
    assert list(loop.run(9)) == ["batch 3", "batch 4", "batch 5"]
    assert loop.is_done
    loop.stop()
    assert list(loop.run(9)) == []


def test_batches_are_counted() -> None:
    """The counters and the cursor move with each batch; the first wait of an iteration is no stall."""
    cursor, counts = SimpleNamespace(batch=7), _native.BatchCounts()
    pending = (Pending(number, []) for number in range(3))
    noted: list[Any] = []
    loop = _native.BatchLoop(pending, 1, counts=counts, cursor=cursor, note=noted.append, settle=noted.append)

    for number, _ in enumerate(loop.run(9), 1):
        assert (cursor.batch, counts.batches, counts.samples) == (7 + number, number, 2 * number)
    assert (counts.batch_bytes, counts.tokens, counts.slots, counts.decoded_on_device) == (20, 9, 12, 3)
    assert (sum(counts.waits), noted) == (2, [0, 1, 2])
    assert counts.loading_s >= counts.first_batch_s > 0
    for other in (copy.deepcopy(counts), pickle.loads(pickle.dumps(counts))):
        assert (other.batches, other.waits, other.loading_s) == (3, counts.waits, counts.loading_s)


def test_a_batch_without_samples_is_left_out() -> None:
    """Batches with bad samples are settled before they come; those without any are not handed out, but counted."""
    events: list[str] = []
    made = [Pending(0, events), Pending(1, events, samples=0), Pending(2, events, errors=("bad",))]
    loop = loop_of(iter(made), events)

    assert list(loop.run(9)) == ["batch 0", "batch 2"]
    assert [event for event in events if event.startswith("settle")] == ["settle 1", "settle 2"]
    assert loop.number == 3


def test_errors_reach_whoever_asks() -> None:
    """What begins or finishes a batch may raise."""

    def failing() -> Iterator[Any]:
        yield Pending(0, [])
        raise KeyError("begin")

    with pytest.raises(KeyError, match="begin"):
        next(loop_of(failing(), []).run(1))


def group_of(
    rows: Any, cuts: list[int], repairs: list[int], *, checksums: Any = None, owner: Any = None, proof: Any = "a group"
) -> Any:
    """Batches of rows of three bytes, repaired for ``owner``."""
    count = len(rows)
    spans = Spans.of(rows.reshape(-1), np.arange(count) * 3, np.full(count, 3), checksums=checksums)

    def repair(number: int) -> Any:
        repairs.append(number)
        return Pending(number, [owner]).result()

    pixels = _native.RowsOutput(
        _native.plain_rows(spans, verify=True, is_encoded=False),
        shapes=[(3,)],
        dtype=np.dtype(np.uint8),
        channels_last=False,
        rings=[_native.BufferRing(2)],
    )
    return _native.row_batches(
        [pixels, _native.ColumnOutput(np.arange(count), make=None, pinned=None)],
        np.array(cuts),
        container="list",
        names=(),
        pool=_native.ThreadPool(1),
        from_dlpack=_from_dlpack,
        made=_native.BatchCounts(),
        pictures=1,
        proof=proof,
        repair=repair,
    )


def test_a_group_is_noted_once_and_repaired() -> None:
    """Native batches come as tensors with labels; one with a bad sample is made by Python, and the group ends there."""
    rows = np.arange(18, dtype=np.uint8).reshape(6, 3)
    checksums = np.array([_native.crc32(row) for row in rows], np.uint32)
    checksums[3] += 1
    repairs: list[int] = []
    events: list[str] = []
    group = group_of(rows, [0, 2, 4, 5, 6], repairs, checksums=checksums)
    loop = loop_of(iter(group), events, depth=1)
    images, labels = next(loop.run(1))

    assert (images.tolist(), labels.tolist()) == (rows[:2].tolist(), [0, 1])
    assert next(loop.run(1)) == "batch 1"
    assert (repairs, events) == ([1], ["note a group"])
    assert [labels.tolist() for _, labels in loop.run(9)] == [[4]]  # it had begun before
    assert group.yielded == 3


def test_a_group_that_comes_too_often_is_refused() -> None:
    """A group stands for as many batches as it has."""
    group = group_of(np.zeros((2, 3), np.uint8), [0, 1, 2], [])
    loop = loop_of(iter([group] * 3), [], depth=1)

    assert len(list(loop.run(1))) == 1
    with pytest.raises(ValueError, match="more often than it has batches"):
        list(loop.run(9))


@pytest.mark.parametrize("cuts", [[0, 2, 1, 6], [1, 6], [0, 5]])
def test_cuts_that_are_none_are_refused(cuts: list[int]) -> None:
    """Cuts ascend from 0 to the number of samples."""
    with pytest.raises(ValueError, match="ascending numbers from 0 to 6"):
        group_of(np.zeros((6, 3), np.uint8), cuts, [])


def test_a_gradual_loop_begins_one_batch_first() -> None:
    """The first batch waits for no other; then two begin before each, until enough are under way."""
    events: list[str] = []
    pending = (Pending(number, events) for number in range(9))
    values: dict[str, Any] = {"counts": _native.BatchCounts(), "cursor": SimpleNamespace(batch=0)}
    loop = _native.BatchLoop(pending, 3, **values, note=str, settle=print, is_gradual=True)

    next(loop.run(1))
    assert events == ["begin 0", "finish 0"]
    next(loop.run(1))
    assert events[2:] == ["begin 1", "begin 2", "finish 1"]
    next(loop.run(1))
    assert events[5:] == ["begin 3", "begin 4", "finish 2"]


@pytest.mark.parametrize("kind", ["native", "python"])
def test_ctrl_c_while_a_batch_is_made_leaves_it_uncounted(kind: str) -> None:
    """Ctrl-C that comes while the loop waits is raised before the batch is counted: nobody has got it."""
    rows, proofs = np.zeros((1, 3), np.uint8), (0, signal.SIGINT)
    if kind == "native":
        submitted: list[Any] = [group_of(rows, [0, 1], [], proof=proof) for proof in proofs]
    else:
        submitted = [SimpleNamespace(result=partial(finished, proof), cancel=int) for proof in proofs]
    # Without Python's own kill(), which looks for the signal at once; signal 0 does nothing.
    kill = partial(ctypes.CDLL(None).kill, os.getpid())
    cursor, counts = SimpleNamespace(batch=7), _native.BatchCounts()
    loop = _native.BatchLoop(iter(submitted), 0, counts=counts, cursor=cursor, note=kill, settle=print)

    assert len(list(loop.run(1))) == 1
    with pytest.raises(KeyboardInterrupt):
        next(loop.run(1))
    assert (cursor.batch, counts.batches, loop.number) == (8, 1, 1)


class Trainer:
    """Keeps an iteration over batches that it makes itself."""

    def __init__(self, rows: Any) -> None:
        self.group = group_of(rows, [0, 1, 2, 3], [], owner=self)
        self.batches = loop_of(iter(self.group), [self], depth=1)
        next(self.batches.run(1))


def test_a_circle_through_a_loop_is_collected() -> None:
    """A loop that leads back to whoever keeps it is garbage with them, and so are its buffers."""
    trainer = weakref.ref(Trainer(np.zeros((3, 3), np.uint8)))
    gc.collect()

    assert trainer() is None
