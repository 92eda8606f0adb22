"""Reads profiles in speedscope's format, as py-spy writes them: sampled stacks and the time of each."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fastio.errors import FastioError
from fastio.measure.trace.cpu_profile import FunctionTime

__all__ = ["Frame", "ThreadProfile", "function_times", "loader_share", "read_speedscope"]

_FASTIO = Path(__file__).parents[2]
# Code that makes batches: fastio's except what measures and prints, torch's, and the measured loop's call of any
# other.
_TORCH = "/torch/utils/data/"
_NO_LOADERS = (f"{_FASTIO / 'measure'}/", f"{_FASTIO / 'cli'}/")
_NEXT_BATCH = ("next_batch", str(_FASTIO / "measure" / "loop" / "batch.py"))


class Frame(NamedTuple):
    """One function on a stack."""

    name: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ThreadProfile:
    """The sampled stacks of one thread, outermost function first, and the seconds that each sample stands for."""

    name: str
    stacks: tuple[tuple[Frame, ...], ...]
    weights: tuple[float, ...]


def read_speedscope(path: Path) -> list[ThreadProfile]:
    """Read all threads of a file. Raises FastioError if it is not a speedscope file with times."""
    try:
        document = json.loads(path.read_bytes())
        frames = [
            Frame(frame["name"], frame.get("file") or "", frame.get("line") or 0)
            for frame in document["shared"]["frames"]
        ]
        return [
            ThreadProfile(
                name=profile["name"],
                stacks=tuple(tuple(frames[index] for index in stack) for stack in profile["samples"]),
                weights=tuple(map(float, profile["weights"])),
            )
            for profile in document["profiles"]
        ]
    except (ValueError, KeyError, TypeError, IndexError) as exc:
        raise FastioError(f"{path}: no profile in speedscope's format ({exc!r})") from exc


def function_times(profiles: Sequence[ThreadProfile]) -> tuple[FunctionTime, ...]:
    """Return own and total time of every function over all threads, longest own time first."""
    own: dict[Frame, float] = defaultdict(float)
    total: dict[Frame, float] = defaultdict(float)
    for profile in profiles:
        for stack, seconds in zip(profile.stacks, profile.weights, strict=True):
            for frame in set(stack):
                total[frame] += seconds
            if stack:
                own[stack[-1]] += seconds
    times = (FunctionTime(*frame, calls=None, self_s=own[frame], total_s=total[frame]) for frame in total)
    return tuple(sorted(times, key=lambda function: (-function.self_s, -function.total_s, function.name)))


def loader_share(profiles: Sequence[ThreadProfile]) -> float:
    """Return the share of time, 0 to 1, whose stacks pass through a loader; 0 without samples."""
    samples = [
        (seconds, any(_is_loader(frame) for frame in stack))
        for profile in profiles
        for stack, seconds in zip(profile.stacks, profile.weights, strict=True)
    ]
    total = sum(seconds for seconds, _ in samples)
    return sum(seconds for seconds, is_loader in samples if is_loader) / total if total else 0.0


def _is_loader(frame: Frame) -> bool:
    if (frame.name, frame.file) == _NEXT_BATCH:
        return True
    if frame.file.startswith(f"{_FASTIO}/"):
        return not frame.file.startswith(_NO_LOADERS)
    return _TORCH in frame.file
