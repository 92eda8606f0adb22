"""Measures how busy a GPU's multiprocessors are: by NVIDIA's DCGM, or by the driver's counters since Hopper."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

__all__ = ["Dcgm", "Gpm", "Multiprocessors", "SmFigures", "SmSource", "find_dcgm"]

SmSource = Literal["DCGM", "NVML GPM"]

# DCGM's profiling fields, from 0 to 1: SM active, SM occupancy, tensor pipe active, DRAM active.
_FIELDS = "1002,1003,1004,1005"
_EVERY_MS = 1000
_LINE = re.compile(r"GPU\s+(\d+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*\Z")
_WAIT_S = 5


@dataclass(frozen=True, slots=True)
class SmFigures:
    """Percentages, None if unknown: see ``GpuSample``."""

    active: float | None = None
    occupancy: float | None = None
    tensor: float | None = None
    dram: float | None = None


class Multiprocessors(Protocol):
    """A source of these figures."""

    source: SmSource

    def sample(self, index: int, handle: Any, gpu_instance: int | None) -> SmFigures:
        """Return the latest figures of a GPU or one of its MIG slices; ``handle`` is NVML's of the whole GPU."""

    def close(self) -> None:
        """Stop the source; calling it twice is harmless."""


def find_dcgm() -> Dcgm | None:
    """Return DCGM as the source; None if it is not installed or its host engine does not run."""
    program = shutil.which("dcgmi")
    if program is None:
        return None
    try:
        asked = subprocess.run(  # noqa: S603 - the program was looked up
            [program, "discovery", "-l"], capture_output=True, timeout=_WAIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Dcgm(program) if asked.returncode == 0 else None


class Dcgm:
    """``dcgmi dmon`` as a process, which prints a line per GPU every second; whole GPUs only."""

    source: SmSource = "DCGM"

    def __init__(self, program: str) -> None:
        self._figures: dict[int, SmFigures] = {}
        self._rest = b""
        self._process = subprocess.Popen(  # noqa: S603 - the program was looked up
            [program, "dmon", "-e", _FIELDS, "-d", str(_EVERY_MS)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self._descriptor = self._process.stdout.fileno()
        os.set_blocking(self._descriptor, False)

    def sample(self, index: int, handle: Any, gpu_instance: int | None) -> SmFigures:
        """Return what was printed last."""
        self._read()
        return SmFigures() if gpu_instance is not None else self._figures.get(index, SmFigures())

    def close(self) -> None:
        """Stop the process."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self._descriptor, 1 << 16):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            match = _LINE.match(line.decode(errors="replace"))
            if match is not None:
                self._figures[int(match[1])] = SmFigures(*(_percent(word) for word in match.groups()[1:]))


def _percent(word: str) -> float | None:
    try:
        return 100 * float(word)
    except ValueError:  # N/A
        return None


class Gpm:
    """The driver's GPM counters through NVML: of each GPU and MIG slice, between its last two samples."""

    source: SmSource = "NVML GPM"

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._last: dict[tuple[int, int | None], Any] = {}

    @staticmethod
    def is_supported(nvml: Any, handle: Any) -> bool:
        """Return whether this GPU and its driver have the counters."""
        try:
            return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        except (AttributeError, nvml.NVMLError):  # older bindings, older drivers
            return False

    def sample(self, index: int, handle: Any, gpu_instance: int | None) -> SmFigures:
        """Return the figures since the last sample; all None at the first one."""
        nvml, unit = self._nvml, (index, gpu_instance)
        try:
            now = nvml.nvmlGpmSampleAlloc()
            if gpu_instance is None:
                nvml.nvmlGpmSampleGet(handle, now)
            else:
                nvml.nvmlGpmMigSampleGet(handle, gpu_instance, now)
            last, self._last[unit] = self._last.get(unit), now
            return SmFigures() if last is None else self._between(last, now)
        except nvml.NVMLError:  # a slice that was removed meanwhile
            return SmFigures()

    def close(self) -> None:
        """Free the samples."""
        for sample in self._last.values():
            self._nvml.nvmlGpmSampleFree(sample)
        self._last = {}

    def _between(self, last: Any, now: Any) -> SmFigures:
        nvml = self._nvml
        wanted = (
            nvml.NVML_GPM_METRIC_SM_UTIL,
            nvml.NVML_GPM_METRIC_SM_OCCUPANCY,
            nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
            nvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
        )
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(wanted)
        asked.sample1, asked.sample2 = last, now
        for metric, number in zip(asked.metrics, wanted, strict=False):
            metric.metricId = number
        try:
            metrics = nvml.nvmlGpmMetricsGet(asked).metrics
        finally:
            nvml.nvmlGpmSampleFree(last)
        return SmFigures(*(float(metrics[i].value) if metrics[i].nvmlReturn == 0 else None for i in range(len(wanted))))
