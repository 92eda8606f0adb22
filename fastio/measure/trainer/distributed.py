"""Training on several ranks: the process group of torchrun or SLURM, and results collected from all ranks."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

from fastio.errors import FastioError
from fastio.loader.device.lane import lane_to
from fastio.machine import rank_and_world

__all__ = [
    "every_rank",
    "local_device",
    "mean_over_ranks",
    "process_group",
    "rendezvous",
]


_TIMEOUT = timedelta(minutes=5)  # the longest wait for other ranks
_KEY = "fastio/trainer"  # of what ranks tell each other; its numbers are those of the calls of every_rank
_calls = itertools.count()
_PORT = 29500  # the port that torchrun uses
_Each = TypeVar("_Each")


def local_device(name: str | None, *, environ: Mapping[str, str] = os.environ) -> torch.device:
    """
    Return the device that the user named, or a GPU if there is one.

    "cuda" is the GPU of this process on its node, by LOCAL_RANK or SLURM_LOCALID, if it sees several. Raises
    FastioError if there is no such device.
    """
    chosen = name or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen == "cuda" and torch.cuda.is_available():
        return torch.device("cuda", _place_on_node(environ) % torch.cuda.device_count())
    try:
        return lane_to(chosen).device
    except ValueError as exc:
        raise FastioError(f"--device {chosen}: {exc}") from exc


def _place_on_node(environ: Mapping[str, str]) -> int:
    name = "LOCAL_RANK" if "LOCAL_RANK" in environ else "SLURM_LOCALID"
    number = environ.get(name, "0")
    if not number.isdecimal():
        raise FastioError(
            f"environment {name}={number!r}: expected a whole number: correct it, or pass --device cuda:N"
        )
    return int(number)


@contextmanager
def process_group(device: torch.device, *, timeout: timedelta = _TIMEOUT) -> Iterator[tuple[int, int]]:
    """
    Yield rank and world size, in a torch.distributed process group if the environment names more than one rank.

    Uses NCCL for a CUDA device, otherwise gloo; a group that the program has started is used as it is. Raises
    FastioError if the others do not arrive within ``timeout``, or if a later wait for one of them fails.
    """
    try:
        rank, world_size = rank_and_world()
    except ValueError as exc:
        raise FastioError(str(exc)) from exc
    if world_size == 1 or distributed.is_initialized():
        yield rank, world_size
        return
    address = rendezvous(os.environ)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=f"tcp://{address}",
            rank=rank,
            world_size=world_size,
            timeout=timeout,
        )
    except (RuntimeError, ValueError) as exc:
        raise FastioError(
            f"rank {rank} of {world_size}: cannot meet the others at {address} ({_first_line(exc)}): start all "
            "of them with torchrun or srun, or set MASTER_ADDR and MASTER_PORT"
        ) from exc
    try:
        yield rank, world_size
    except RuntimeError as exc:
        if not (isinstance(exc, distributed.DistError) or "gloo" in str(exc)):  # gloo has no exception of its own
            raise
        raise FastioError(
            f"rank {rank} of {world_size}: another rank has ended or does not answer ({_first_line(exc)}): see "
            "its own message"
        ) from exc
    finally:
        distributed.destroy_process_group()


def rendezvous(environ: Mapping[str, str]) -> str:
    """
    Return where ranks meet, host:port: MASTER_ADDR and MASTER_PORT, else the first node of srun's step or job, else
    this one.

    SLURM jobs that share a node get different ports. The first node of a list like "r[1-2]n[07,9],login" is what
    precedes the first comma, with the first number of each bracket.

    >>> rendezvous({"SLURM_JOB_NODELIST": "gpu[007-010,12],login", "SLURM_JOB_ID": "41"})
    'gpu007:29541'
    """
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or "localhost"
    first = re.sub(r"\[(\w+)[^\]]*\]", r"\1", nodes).partition(",")[0]
    job = environ.get("SLURM_JOB_ID", "0")
    port = environ.get("MASTER_PORT") or _PORT + (int(job) % 1000 if job.isdecimal() else 0)
    return f"{environ.get('MASTER_ADDR') or first}:{port}"


def mean_over_ranks(values: list[float]) -> list[float]:
    """Return the mean of each value over all ranks; unchanged with a single rank."""
    return [math.fsum(column) / len(column) for column in zip(*every_rank(values), strict=True)]


def every_rank(value: _Each) -> list[_Each]:
    """
    Return the value of each rank, in order; it must be picklable. Every rank must call this equally often.

    Values pass through the group's key-value store. A gloo thread drops the tensors of a collective operation after
    the operation has ended, and needs the interpreter for tensors made in Python: at the end of a program, CPython
    before 3.14 kills that thread inside C++ code, which aborts the process. A barrier has no tensors; after the
    first, all values are there, and after the second, all have read them: rank 0, which holds them, may end.
    """
    if not distributed.is_initialized():
        return [value]
    store: Any = distributed.distributed_c10d._get_default_store()
    call = next(_calls)
    store.set(f"{_KEY}/{call}/{distributed.get_rank()}", pickle.dumps(value))
    distributed.barrier()
    ranks = range(distributed.get_world_size())
    values = [pickle.loads(store.get(f"{_KEY}/{call}/{rank}")) for rank in ranks]  # noqa: S301 - from our own ranks
    distributed.barrier()
    return values


def _first_line(error: BaseException) -> str:
    """Return the first sentence of torch's message, without the position in its sources."""
    return re.split(r"\n|\. ", re.sub(r"^\[[^\]]*\] ", "", str(error).strip()))[0]
