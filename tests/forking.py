"""Forked children of a test: one that runs a function, or the ranks of one node as torchrun starts them."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

__all__ = ["INTERRUPTED", "answer_of_fork", "fork", "in_fork", "kill", "start_ranks", "status_of", "wait_for_ranks"]

INTERRUPTED = 130  # the status of a child that KeyboardInterrupt ended, as a shell has it


def fork(work: Callable[[], object]) -> int:
    """
    Start a child that runs ``work`` and ends, and return its process id.

    Its exit status is 0, 1 after an exception, whose traceback it prints, or INTERRUPTED. It ends as the children of
    multiprocessing do: nothing is run that this process wants to run at its own exit.
    """
    sys.stdout.flush()  # or the child would write it once more
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # of threads beside a fork, from Python 3.12 on
        process = os.fork()
    if process:
        return process
    status = 1
    try:
        work()
        status = 0
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def status_of(process: int) -> int:
    """Wait for a child, and return its exit status; negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def in_fork(work: Callable[[], object]) -> int:
    """Run ``work`` in a child, and return its exit status; negative for a signal."""
    return status_of(fork(work))


def answer_of_fork(work: Callable[[], Any]) -> Any:
    """Run ``work`` in a child, which must not fail, and return its result as JSON gives it back."""
    reading, writing = os.pipe()

    def answer() -> None:
        with os.fdopen(writing, "w") as pipe:
            json.dump(work(), pipe)

    process = fork(answer)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    assert status_of(process) == 0
    return json.loads(text)


def start_ranks(work: Callable[[int], object], count: int) -> list[int]:
    """Start ``count`` children that call ``work(rank)`` with the variables of torchrun, and return their ids."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    return [fork(partial(_be_rank, work, rank, job)) for rank in range(count)]


def _be_rank(work: Callable[[int], object], rank: int, job: dict[str, object]) -> None:
    os.environ.update({name: str(value) for name, value in {**job, "RANK": rank, "LOCAL_RANK": rank}.items()})
    work(rank)


def wait_for_ranks(processes: Sequence[int]) -> list[int]:
    """
    Wait for all children, and return their exit statuses.

    Once one of them fails, the others are killed: they might wait for it for ever.
    """
    statuses: dict[int, int] = {}
    while len(statuses) < len(processes):
        process, status = os.wait()
        if process not in processes:
            continue
        statuses[process] = os.waitstatus_to_exitcode(status)
        if statuses[process]:
            kill([other for other in processes if other not in statuses])
    return [statuses[process] for process in processes]


def kill(processes: Sequence[int]) -> None:
    """Kill children (SIGKILL), some of which may have ended."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
