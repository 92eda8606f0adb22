"""Reads traces of torch.profiler: where the time of a step goes, memory at each moment, floating point operations."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import FastioError
from fastio.measure.loop.verdict import StepShares

__all__ = [
    "LOADER_PREFIX",
    "ROWS",
    "STEP_PREFIX",
    "OperatorTime",
    "StepBreakdown",
    "StepRow",
    "memory_curves",
    "read_trace",
]


# torch's DataLoader marks its __next__ with this name, and so does FastLoader.
LOADER_PREFIX = "enumerate(DataLoader)#"
STEP_PREFIX = "ProfilerStep#"

# If several things happen at the same moment, it belongs to the first of these.
_PRIORITY = ("Communication", "Kernel", "Memcpy", "Memset", "Runtime", "DataLoader", "CPU Exec")
# In the courses' order.
ROWS = ("Kernel", "Memcpy", "Memset", "Communication", "Runtime", "DataLoader", "CPU Exec", "Other")
_DEVICE = ("Communication", "Kernel", "Memcpy", "Memset")

_CATEGORIES = {
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
    "cuda_runtime": "Runtime",
    "cuda_driver": "Runtime",
    "cpu_op": "CPU Exec",
}
# Parts of the names of kernels that use Tensor cores: types and shapes of their matrix instructions (Volta's 884,
# Turing's 1688, Ampere's 16816 and 16832), the instructions themselves, CUTLASS's name for them.
_TENSOR_CORES = (
    "h884",
    "s884",
    "d884",
    "h1688",
    "s1688",
    "i8816",
    "16816",
    "16832",
    "hmma",
    "imma",
    "gmma",
    "tensorop",
)

Ranges = NDArray[np.float64]  # (n, 2): start and stop in microseconds


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """
    All calls of one operator or kernel in the profiled steps; kernels have no callees.

    ``flops`` are the multiplications and additions of a matrix product or a convolution; None for other operators,
    and if shapes were not recorded.
    """

    name: str
    calls: int
    self_us: float
    total_us: float
    flops: int | None


@dataclass(frozen=True, slots=True)
class StepRow:
    """
    One profiled step: ``number`` as in its mark, ``start_us`` from the start of the first one, ``rows_us`` as in
    ``ROWS``.

    ``device_busy_us`` is the time with a kernel, a copy or a memset on the device; None without a device.
    """

    number: int
    start_us: float
    total_us: float
    rows_us: dict[str, float]
    device_busy_us: float | None


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """
    One trace: ``steps`` profiled steps that took ``total_us`` together.

    ``rows_us`` are microseconds by the names in ``ROWS`` and add up to ``total_us``: each moment belongs to one row.
    ``idle_us``, ``compute_us`` and ``non_compute_us`` (copies, memsets, communication alone) are the device's, None
    without one. In ``sync_us`` the host was in a synchronising call; in ``host_us`` it worked. ``tensor_core_share``
    is the share of kernel time in kernels whose names tell that they use Tensor cores. ``memory`` is empty if the
    trace was recorded without ``profile_memory``.
    """

    path: str
    rank: int
    steps: int
    total_us: float
    rows_us: dict[str, float]
    idle_us: float | None
    compute_us: float | None
    non_compute_us: float | None
    sync_us: float
    host_us: float
    tensor_core_share: float | None
    operators: tuple[OperatorTime, ...]
    kernels: tuple[OperatorTime, ...]
    per_step: tuple[StepRow, ...]
    memory: tuple[MemoryCurve, ...]

    @property
    def shares(self) -> StepShares:
        """The parts of a step that ``verdict`` needs."""
        device = None if self.idle_us is None else 1 - self.idle_us / self.total_us
        return StepShares(
            loading=self.rows_us["DataLoader"] / self.total_us,
            device=device,
            cpu=self.host_us / self.total_us,
            sync=None if device is None else self.sync_us / self.total_us,
        )


def read_trace(path: str | Path) -> StepBreakdown:
    """
    Read a Chrome trace (``.json`` or ``.json.gz``) that torch.profiler exported, with steps marked by
    ``prof.step()``.

    Counts the time from the start of the first marked step to the end of the last; what the device did outside is
    left out. Raises FastioError if the file is not such a trace.
    """
    events, document = _events(Path(path))
    steps = [event for event in events if event["name"].startswith(STEP_PREFIX) and _is_host(event)]
    if not steps:
        raise FastioError(f"{path}: no step is marked in this trace: call prof.step() after each step when recording")
    window = min(_start(step) for step in steps), max(_start(step) + float(step["dur"]) for step in steps)
    inside = [
        event for event in events if _start(event) < window[1] and _start(event) + float(event["dur"]) > window[0]
    ]
    ranges = _by_row(inside, window)
    total = window[1] - window[0]
    kernels = _summed(_Call(event, self_us=float(event["dur"])) for event in inside if event.get("cat") == "kernel")
    has_device = any(len(ranges[name]) for name in _DEVICE)
    busy = _length(*(ranges[name] for name in _DEVICE))
    compute = _length(ranges["Kernel"])
    sync = _clipped((event for event in inside if _is_sync(event)), window)
    waits = (sync, ranges["DataLoader"])
    host = _length(ranges["CPU Exec"], ranges["Runtime"], *waits) - _length(*waits)
    return StepBreakdown(
        path=str(path),
        rank=int(document.get("distributedInfo", {}).get("rank", 0)),
        steps=len({step["name"] for step in steps}),
        total_us=total,
        rows_us=_rows(ranges, total),
        idle_us=total - busy if has_device else None,
        compute_us=compute if has_device else None,
        non_compute_us=busy - compute if has_device else None,
        sync_us=_length(sync),
        host_us=host,
        tensor_core_share=_tensor_core_share(kernels),
        operators=_summed(_called(event for event in inside if event.get("cat") == "cpu_op")),
        kernels=kernels,
        per_step=tuple(_step_row(step, ranges, window[0], has_device=has_device) for step in sorted(steps, key=_start)),
        memory=memory_curves(document["traceEvents"], window[0]),
    )


def _step_row(step: Mapping[str, Any], ranges: Mapping[str, Ranges], origin: float, *, has_device: bool) -> StepRow:
    window = _start(step), _start(step) + float(step["dur"])
    inside = {name: part.clip(*window) for name, part in ranges.items()}
    return StepRow(
        number=int(step["name"].removeprefix(STEP_PREFIX)),
        start_us=window[0] - origin,
        total_us=window[1] - window[0],
        rows_us=_rows(inside, window[1] - window[0]),
        device_busy_us=_length(*(inside[name] for name in _DEVICE)) if has_device else None,
    )


def _events(path: Path) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """Return the complete events of the trace, and the whole trace."""
    data = path.read_bytes()
    try:
        document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        return [event for event in document["traceEvents"] if event.get("ph") == "X" and "dur" in event], document
    except (gzip.BadGzipFile, EOFError, ValueError, KeyError, TypeError) as exc:
        raise FastioError(f"{path}: not a trace of torch.profiler ({exc!r}); expected .json or .json.gz") from exc


def _start(event: Mapping[str, Any]) -> float:
    return float(event["ts"])


def _is_host(event: Mapping[str, Any]) -> bool:
    """Return whether this is a host event; marks appear a second time on the device's own lines."""
    return event.get("cat") == "user_annotation"


def _is_sync(event: Mapping[str, Any]) -> bool:
    """Return whether the host waits in this call: a synchronisation, or a copy that returns only when it is done."""
    name = event["name"]
    is_runtime = _CATEGORIES.get(event.get("cat", "")) == "Runtime"
    return is_runtime and ("Synchronize" in name or name in ("cudaMemcpy", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"))


def _row_of(event: Mapping[str, Any]) -> str | None:
    row = _CATEGORIES.get(event.get("cat", ""))
    if row == "Kernel" and "nccl" in event["name"].lower():
        return "Communication"
    if row is None and _is_host(event) and event["name"].startswith(LOADER_PREFIX):
        return "DataLoader"
    return row


def _by_row(events: Iterable[Mapping[str, Any]], window: tuple[float, float]) -> dict[str, Ranges]:
    by_row = defaultdict(list)
    for event in events:
        by_row[_row_of(event)].append(event)
    return {name: _clipped(by_row[name], window) for name in _PRIORITY}


def _clipped(events: Iterable[Mapping[str, Any]], window: tuple[float, float]) -> Ranges:
    ranges = np.array([(_start(event), _start(event) + float(event["dur"])) for event in events]).reshape(-1, 2)
    return ranges.clip(*window)


def _rows(ranges: Mapping[str, Ranges], total: float) -> dict[str, float]:
    """Return what each row adds to those of higher priority; uncovered time is Other."""
    covered, lengths = 0.0, {}
    for number, name in enumerate(_PRIORITY, 1):
        length = _length(*(ranges[row] for row in _PRIORITY[:number]))
        lengths[name], covered = length - covered, length
    return {name: lengths.get(name, total - covered) for name in ROWS}


def _length(*parts: Ranges) -> float:
    """Return how long at least one of the ranges lasts."""
    ranges = np.concatenate(parts)
    if len(ranges) == 0:
        return 0.0
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ranges[:, 1])
    begins = np.maximum(ranges[1:, 0], reached[:-1])
    return float(reached[0] - ranges[0, 0] + np.maximum(ranges[1:, 1] - begins, 0).sum())


@dataclass(slots=True)
class _Call:
    """One call of an operator, with its callees on its thread."""

    event: Mapping[str, Any]
    caller: _Call | None = None
    called: int = 0
    self_us: float = 0.0

    @property
    def is_overload(self) -> bool:
        """Whether it is the only callee of an operator of the same name: two entries of one call."""
        return self.caller is not None and self.caller.called == 1 and self.caller.event["name"] == self.event["name"]


def _summed(calls: Iterable[_Call]) -> tuple[OperatorTime, ...]:
    """Sum calls by name, longest own time first; nested overloads count once in calls, times and operations."""
    by_name: dict[str, list[_Call]] = defaultdict(list)
    for call in calls:
        by_name[call.event["name"]].append(call)
    times = []
    for name, of_name in by_name.items():
        outer = [call.event for call in of_name if not call.is_overload]
        flops = [count for count in map(operator_flops, outer) if count is not None]
        total_us = sum(float(event["dur"]) for event in outer)
        self_us = sum(call.self_us for call in of_name)
        times.append(OperatorTime(name, len(outer), self_us, total_us, sum(flops) if flops else None))
    return tuple(sorted(times, key=lambda operator: -operator.self_us))


def _called(events: Iterable[Mapping[str, Any]]) -> list[_Call]:
    """Return the calls with their own time, without callees, for each thread."""
    made: list[_Call] = []
    by_thread = defaultdict(list)
    for event in events:
        by_thread[event["pid"], event["tid"]].append(event)
    for thread in by_thread.values():
        thread.sort(key=lambda event: (_start(event), -float(event["dur"])))
        callers: list[_Call] = []
        for event in thread:
            while callers and _start(event) >= _start(callers[-1].event) + float(callers[-1].event["dur"]):
                callers.pop()
            call = _Call(event, callers[-1] if callers else None, self_us=float(event["dur"]))
            if call.caller is not None:
                call.caller.called += 1
                call.caller.self_us -= float(event["dur"])
            callers.append(call)
            made.append(call)
    return made


def _tensor_core_share(kernels: Sequence[OperatorTime]) -> float | None:
    total = sum(kernel.total_us for kernel in kernels)
    if total == 0:
        return None
    on_cores = (kernel for kernel in kernels if any(part in kernel.name.lower() for part in _TENSOR_CORES))
    return sum(kernel.total_us for kernel in on_cores) / total


# Counts the floating point operations of matrix products and convolutions from the shapes in a trace.

Shape = Sequence[int]


def operator_flops(event: Mapping[str, Any]) -> int | None:
    """
    Return the multiplications and additions of one call of a matrix product or a convolution, forward or backward.

    Returns None for other operators, and if the trace has no shapes (recorded without ``record_shapes``). As in
    torch's own ``with_flops``, a multiplication with its addition counts as two.
    """
    arguments = event.get("args", {})
    count = _COUNTS.get(event["name"])
    if count is None or "Input Dims" not in arguments:
        return None
    return count(arguments["Input Dims"], arguments.get("Concrete Inputs", ()))


def _product(left: Shape, right: Shape) -> int:
    """Count (..., m, k) times (..., k, n)."""
    return 2 * math.prod(left) * right[-1]


def _of_mm(dims: Sequence[Shape], _: Sequence[str]) -> int:
    return _product(dims[0], dims[1])


def _of_addmm(dims: Sequence[Shape], _: Sequence[str]) -> int:
    return _product(dims[1], dims[2])


def _of_convolution(dims: Sequence[Shape], arguments: Sequence[str]) -> int:
    images, weights = dims[0], dims[1]  # (n, channels, ...), (channels out, channels in / groups, ...)
    stride, padding, dilation, is_transposed = (json.loads(word.lower()) for word in arguments[3:7])
    places = math.prod(images[2:])
    if not is_transposed:
        sizes = zip(images[2:], weights[2:], stride, padding, dilation, strict=True)
        places = math.prod(
            (size + 2 * pad - gap * (width - 1) - 1) // step + 1 for size, width, step, pad, gap in sizes
        )
    return 2 * images[0] * places * math.prod(weights)


def _of_convolution_backward(dims: Sequence[Shape], arguments: Sequence[str]) -> int:
    """Count the gradients of images and of weights, if they are asked for: each takes as much as the forward pass."""
    gradient, images, weights = dims[0], dims[1], dims[2]
    is_transposed = json.loads(arguments[7].lower())
    gradients = arguments[10].strip("[]").replace(" ", "").split(",")[:2].count("True")
    places = math.prod((images if is_transposed else gradient)[2:])
    return 2 * images[0] * places * math.prod(weights) * gradients


_COUNTS: dict[str, Callable[[Sequence[Shape], Sequence[str]], int]] = {
    "aten::mm": _of_mm,
    "aten::bmm": _of_mm,
    "aten::addmm": _of_addmm,
    "aten::baddbmm": _of_addmm,
    "aten::convolution": _of_convolution,
    "aten::convolution_backward": _of_convolution_backward,
}


# How much memory torch's allocators had allocated at each moment of a trace, by device.

_POINTS = 1000  # points of a curve: more cannot be seen
_CPU = 0
_DEVICES = {_CPU: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps"}  # c10::DeviceType


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """
    One device's memory in bytes; ``times_us`` count from the start of the first profiled step, and may be negative.

    Figures of a CUDA device cover torch's whole caching allocator. For the CPU, only what was allocated since
    recording began is known, and nothing is reserved (None). In long traces, each stretch of time keeps the moment
    with the most memory, so the peaks are exact.
    """

    device: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int | None
    times_us: list[float]
    allocated_bytes: list[int]
    reserved_bytes: list[int] | None


def memory_curves(events: Iterable[Mapping[str, Any]], start_us: float) -> tuple[MemoryCurve, ...]:
    """Return the curves of a trace's events by device; none if the trace was recorded without ``profile_memory``."""
    by_device: dict[tuple[int, int], list[tuple[float, int, int]]] = defaultdict(list)
    for event in events:
        arguments = event.get("args", {})
        if event.get("name") == "[memory]" and "Total Allocated" in arguments:
            device = int(arguments.get("Device Type", _CPU)), int(arguments.get("Device Id", -1))
            by_device[device].append(
                (float(event["ts"]) - start_us, arguments["Total Allocated"], arguments.get("Total Reserved", 0))
            )
    return tuple(_curve(device, sorted(points)) for device, points in sorted(by_device.items()))


def _curve(device: tuple[int, int], points: list[tuple[float, int, int]]) -> MemoryCurve:
    kind, index = device
    name = _DEVICES.get(kind, f"device type {kind}")
    times, allocated, reserved = (np.array(column) for column in zip(*points, strict=True))
    kept = _kept(allocated)
    return MemoryCurve(
        device=name if kind == _CPU else f"{name}:{max(index, 0)}",
        peak_allocated_bytes=int(allocated.max()),
        peak_reserved_bytes=None if kind == _CPU else int(reserved.max()),
        times_us=times[kept].tolist(),
        allocated_bytes=allocated[kept].tolist(),
        reserved_bytes=None if kind == _CPU else reserved[kept].tolist(),
    )


def _kept(allocated: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each of at most that many equal runs of entries, the entry with the largest value."""
    if len(allocated) <= _POINTS:
        return np.arange(len(allocated))
    edges = np.linspace(0, len(allocated), _POINTS + 1).astype(np.int64)
    return np.array([start + allocated[start:stop].argmax() for start, stop in pairwise(edges)])
