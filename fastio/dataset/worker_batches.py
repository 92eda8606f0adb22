"""Batches that default_collate makes in a DataLoader's workers, in memory that earlier batches have left."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.multiprocessing import get_sharing_strategy
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from fastio.machine.system import counts_openings, is_opened_once, open_again, shared_file

__all__ = ["for_default_collate"]

_SMALLEST = 1 << 16  # bytes of a batch; of smaller ones, the kernel clears a few pages only
_MOST_FREE = 8


def for_default_collate(samples: list[Any]) -> list[Any]:
    """
    Return a worker's samples in the form of which torch's ``default_collate`` makes the same batch in less time.

    It stacks the tensors of a batch in fresh shared memory, which the kernel clears page by page; that takes longer
    than the copy. So a sample's tensor becomes a ``Row``, and torch's table of functions that collate a type
    ("Extend default_collate" in its documentation) has one for it, which stacks in the memory of an earlier batch.
    The kernel is asked whether any process has that batch still, so batches may be kept, in any process, for as long
    as anybody likes. They leave the worker as all shared tensors do, and are the same to whoever gets them.

    Samples stay as they are if torch's function for tensors was replaced, if tensors are not shared by descriptors
    (``torch.multiprocessing.set_sharing_strategy``), and where the kernel does not tell.
    """
    is_torchs_own = default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn
    are_descriptors = get_sharing_strategy() == "file_descriptor"  # type: ignore[no-untyped-call]
    if not (is_torchs_own and are_descriptors and counts_openings()):
        return samples
    default_collate_fn_map.setdefault(Row, _collate_rows)
    return [_with_rows(sample) for sample in samples]


class Row(torch.Tensor):
    """A sample's tensor. Its class is for ``default_collate``: results, copies and pickles are of ``torch.Tensor``."""

    # As torch.nn.Parameter has it.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def plain(self) -> torch.Tensor:
        """The same memory as a ``torch.Tensor``."""
        return self.as_subclass(torch.Tensor)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.plain().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.plain().__deepcopy__(memo)  # type: ignore[no-untyped-call]

    def __repr__(self) -> str:  # type: ignore[override]
        return repr(self.plain())


def _with_rows(value: Any) -> Any:
    """Return a sample with Rows for the tensors in plain tuples, dicts and lists."""
    kind = type(value)
    if kind is torch.Tensor:
        return value.as_subclass(Row) if _is_simple(value) else value
    if kind is tuple:
        return tuple(map(_with_rows, value))
    if kind is dict:
        return {name: _with_rows(each) for name, each in value.items()}
    if kind is list and value and type(value[0]) is torch.Tensor:  # not the numbers of a long list
        return list(map(_with_rows, value))
    return value


def _is_simple(tensor: torch.Tensor) -> bool:
    """Whether a tensor is numbers in memory and nothing else: attributes of the user's, say, would be lost."""
    has_more = tensor.requires_grad or tensor.is_nested or tensor.is_quantized or tensor.__dict__
    return not has_more and tensor.layout is torch.strided and tensor.device.type == "cpu"


def _collate_rows(batch: Sequence[Any], *, collate_fn_map: Mapping[Any, Any]) -> Any:
    """What ``collate_tensor_fn`` of torch makes."""
    collate_tensors = collate_fn_map[torch.Tensor]
    first = batch[0]
    size = len(batch) * first.nbytes
    are_alike = all(type(row) is Row and row.shape == first.shape and row.dtype == first.dtype for row in batch)
    if are_alike and size >= _SMALLEST and collate_tensors is collate_tensor_fn:
        loan = _rooms(os.getpid()).lend(size)
        if loan is not None:
            shape = (len(batch), *first.shape)
            torch.stack(tuple(batch), out=_tensor(loan.own, first.dtype, shape))
            return _tensor(loan.lent, first.dtype, shape)
    return collate_tensors([row.plain() if type(row) is Row else row for row in batch], collate_fn_map=collate_fn_map)


def _tensor(memory: torch.UntypedStorage, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(0, dtype=dtype).set_(memory, 0, shape)  # type: ignore[call-overload,no-any-return]


def _mapped(descriptor: int, size: int) -> torch.UntypedStorage:
    """Map a file as torch maps what it gets from another process, so that it sends it on without a copy."""
    return torch.UntypedStorage._new_shared_fd_cpu(descriptor, size)  # type: ignore[attr-defined,no-any-return]


class _Loan(NamedTuple):
    """One batch's memory, mapped twice: where the worker writes it, and as it is sent away."""

    own: torch.UntypedStorage
    lent: torch.UntypedStorage


class _Room:
    """Shared memory for batches, one at a time. This process keeps it mapped: pages are cleared and mapped once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._descriptor = shared_file(size)
        weakref.finalize(self, os.close, self._descriptor)
        self._own = _mapped(self._descriptor, size)

    @property
    def is_free(self) -> bool:
        """Whether no process has the batch any more: a mapping, a descriptor, or one on its way."""
        return is_opened_once(self._descriptor)

    def lend(self, size: int) -> _Loan:
        """Return its first bytes. They are lent until the last copy of the descriptor and of the mapping is gone."""
        descriptor = open_again(self._descriptor)
        try:
            return _Loan(self._own, _mapped(descriptor, size))
        finally:
            os.close(descriptor)


class _Rooms:
    """The rooms of a process: as many as it has batches under way at a time, and at most a few free ones."""

    def __init__(self) -> None:
        self._rooms: list[_Room] = []
        self._lock = threading.Lock()

    def lend(self, size: int) -> _Loan | None:
        """Return memory of this size, of a free room unless it is more than twice as large; None if there is none."""
        with self._lock:
            free = [room for room in self._rooms if room.is_free]
            for room in free[_MOST_FREE:]:
                self._rooms.remove(room)
            fitting = [room for room in free[:_MOST_FREE] if size <= room.size <= 2 * size]
            try:
                room = fitting[0] if fitting else _Room(size)
                loan = room.lend(size)
            except (OSError, RuntimeError):  # no descriptor or no memory: torch finds some, or says so
                return None
            if not fitting:
                self._rooms.append(room)
            return loan


@cache
def _rooms(process: int) -> _Rooms:
    """The rooms of a process; a copy that was made by fork must not write to those of its parent."""
    del process
    return _Rooms()
