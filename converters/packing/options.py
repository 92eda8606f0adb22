"""How a source is packed, and which part of a plan this process packs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from fastio.machine.ranks import rank_and_world
from fastio.store.files.remote_options import DEFAULT, Remote

__all__ = [
    "PackOptions",
    "Part",
    "Progress",
]


Progress = Callable[[int, int], object]  # called with the samples and bytes of each piece written


@dataclass(frozen=True, slots=True)
class PackOptions:
    """The arguments of ``pack``, which explains them."""

    jobs: int | None = None
    on_error: Literal["raise", "skip"] = "raise"
    shard_bytes: int | None = None
    overwrite: bool = False
    resume: bool = False
    part: Part | None = None
    progress: Progress | None = None
    remote: Remote = DEFAULT
    append: bool = False
    new_classes: bool = False
    jump: bool | None = None  # None: as the shards that are there, else yes


# Part: which shards of a plan one process packs, as it was told or as its launcher says.

_EXPECTED = "expected i/n with i from 0 to n - 1, such as 0/4, or auto"


@dataclass(frozen=True, slots=True)
class Part:
    """
    Part ``index`` of ``count``, counted from 0: shards that follow each other, as many as the other parts have, or one
    more or less.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"part {self.index}/{self.count}: {_EXPECTED}")

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def numbers(self, shards: int) -> range:
        """
        Return the numbers of this part's shards, of so many.

        >>> [list(Part(index, 3).numbers(7)) for index in range(3)]
        [[0, 1], [2, 3], [4, 5, 6]]
        """
        return range(shards * self.index // self.count, shards * (self.index + 1) // self.count)

    @classmethod
    def parse(cls, text: str, environ: Mapping[str, str] = os.environ) -> Part:
        """Read ``i/n``, or find the part that ``auto`` stands for. Raises ValueError."""
        if text == "auto":
            return cls.of_launcher(environ)
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if match is None:
            raise ValueError(f"part {text!r}: {_EXPECTED}")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of_launcher(cls, environ: Mapping[str, str] = os.environ) -> Part:
        """
        Return this process's part: its task of a SLURM array, its pod of an indexed Kubernetes job (FASTIO_PARTS says
        of how many), its rank under torchrun or srun, or its rank within its task.

        Raises ValueError if none of them started this process, or if they do not say which part it is.
        """
        outer = _array_task(environ) or _pod(environ)
        rank, world_size = rank_and_world(environ=environ)
        if outer is None and world_size == 1 and not {"WORLD_SIZE", "SLURM_STEP_NUM_TASKS"} & environ.keys():
            raise ValueError(
                "--part auto: this process was started by no SLURM array (SLURM_ARRAY_TASK_ID), indexed job "
                "(JOB_COMPLETION_INDEX), torchrun (RANK) or srun (SLURM_PROCID): say --part i/n"
            )
        outer = outer or cls(0, 1)
        return cls(outer.index * world_size + rank, outer.count * world_size)


def _array_task(environ: Mapping[str, str]) -> Part | None:
    """The task of a SLURM array, whose ids are evenly spaced."""
    if "SLURM_ARRAY_TASK_ID" not in environ:
        return None
    names = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_COUNT")
    task, low, high, count = (_number(environ, name) for name in names)
    step = _number(environ, "SLURM_ARRAY_TASK_STEP") if "SLURM_ARRAY_TASK_STEP" in environ else 1
    if step < 1 or (high - low) // step + 1 != count or (task - low) % step or not low <= task <= high:
        raise ValueError(
            f"--part auto: task {task} of a SLURM array of {count} tasks from {low} to {high}: cannot tell which part "
            "that is, because the ids are not evenly spaced: use --array=0-N, or say --part i/n"
        )
    return Part((task - low) // step, count)


def _pod(environ: Mapping[str, str]) -> Part | None:
    """The pod of an indexed Kubernetes job."""
    if "JOB_COMPLETION_INDEX" not in environ:
        return None
    if "FASTIO_PARTS" not in environ:
        raise ValueError(
            "--part auto: JOB_COMPLETION_INDEX says which pod of an indexed job this is, but not of how many: set "
            "FASTIO_PARTS to the job's completions, or say --part i/n"
        )
    return Part(_number(environ, "JOB_COMPLETION_INDEX"), _number(environ, "FASTIO_PARTS"))


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError(f"--part auto: {name}={text!r}: expected a whole number: say --part i/n")
    return int(text)
