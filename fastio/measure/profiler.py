"""Records a few steps of a training with torch.profiler, in traces of a bounded size."""

from __future__ import annotations

import gzip
import shutil
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from fastio.machine import rank_and_world
from fastio.measure.kineto_lines import without_kineto_lines
from fastio.measure.trace_size import shorten_trace
from fastio.measure.training import Schedule

__all__ = ["Recording", "TraceRecorder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What torch.profiler notes beside times; each makes traces longer and training slower. Flops need shapes."""

    record_shapes: bool = False
    profile_memory: bool = True
    with_stack: bool = False
    with_flops: bool = False


class TraceRecorder:
    """
    Writes a trace for each cycle of the schedule; ``traces`` are their paths.

    Under several ranks each writes its own, named by its rank. A trace above ``max_bytes`` (before compression) loses
    its last steps; ``steps_cut`` says of how many steps the traces lack.
    """

    def __init__(
        self, plan: Schedule, out: Path, recording: Recording | None = None, *, max_bytes: int = 256 << 20
    ) -> None:
        self.plan = plan
        self.traces: list[Path] = []
        self.steps_cut = 0
        self._out = out
        self._max_bytes = max_bytes
        self._quiet = warnings.catch_warnings()
        noted = asdict(recording or Recording())
        noted["record_shapes"] |= noted["with_flops"]
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(
            activities=activities,
            schedule=schedule(wait=plan.wait, warmup=plan.warmup, active=plan.active, repeat=plan.repeat),
            on_trace_ready=self._write,
            **noted,
        )

    def step(self, done: int) -> bool:
        """A step of the training is done."""
        with without_kineto_lines():
            self._profiler.step()
        return done >= self.plan.steps

    def __enter__(self) -> Self:
        self._quiet.__enter__()
        # Each cycle is written when it ends, so nothing that torch clears is missed.
        warnings.filterwarnings("ignore", ".*Profiler clears events", UserWarning)
        with without_kineto_lines():
            self._profiler.__enter__()  # type: ignore[no-untyped-call] # torch has no annotation there
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with without_kineto_lines():
            self._profiler.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._quiet.__exit__(kind, error, trace)

    def _write(self, profiler: Any) -> None:
        path = _numbered(self._out, len(self.traces) + 1 if self.plan.repeat > 1 else None)
        plain = path.with_name(path.name.removesuffix(".gz") + ".part.json")
        try:
            profiler.export_chrome_trace(str(plain))
            self.steps_cut += shorten_trace(plain, max_bytes=self._max_bytes)
            if path.suffix == ".gz":
                with plain.open("rb") as source, gzip.open(path, "wb", compresslevel=6) as target:
                    shutil.copyfileobj(source, target)
            else:
                plain.replace(path)
        finally:
            plain.unlink(missing_ok=True)
        self.traces.append(path)


def _numbered(path: Path, cycle: int | None) -> Path:
    """With the rank, where there are several, and the cycle before the suffix."""
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    rank, world_size = rank_and_world()
    said = f"-rank{rank}" if world_size > 1 else ""
    return path.with_name(f"{stem}{said}{'' if cycle is None else f'-{cycle}'}{path.name[len(stem) :]}")
