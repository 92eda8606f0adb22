"""Figures of NVIDIA GPUs through NVML, and how busy their multiprocessors are; without them, why there are none."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

__all__ = [
    "Dcgm",
    "Gpm",
    "GpuSample",
    "GpuSource",
    "Gpus",
    "Multiprocessors",
    "SmFigures",
    "SmSource",
    "find_dcgm",
]


GpuSource = Literal["NVML"]


@dataclass(frozen=True, slots=True)
class GpuSample:
    """
    One GPU now, or one of its MIG slices (``mig_index``, else None); unknown figures are None.

    ``utilization_percent`` is NVML's: the share of time in which at least one kernel ran, on however few
    multiprocessors. A GPU at 100 % may be mostly idle. ``sm_active_percent`` is the mean share of multiprocessors
    with at least one warp, ``sm_occupancy_percent`` the share of their warp slots in use, ``tensor_active_percent``
    and ``dram_active_percent`` the share of time in which Tensor cores and memory worked.
    """

    index: int
    mig_index: int | None
    name: str
    utilization_percent: float | None
    sm_active_percent: float | None
    sm_occupancy_percent: float | None
    tensor_active_percent: float | None
    dram_active_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_c: int | None
    pcie_received_bytes_per_s: float | None
    pcie_sent_bytes_per_s: float | None

    @property
    def activity_percent(self) -> float | None:
        """How busy it is; of a MIG slice, only the multiprocessors are known."""
        return self.sm_active_percent if self.utilization_percent is None else self.utilization_percent


@dataclass(frozen=True, slots=True)
class _Unit:
    """A GPU, or one of its slices; ``whole`` is the handle of the GPU in both cases."""

    index: int
    handle: Any
    whole: Any
    mig_index: int | None = None
    gpu_instance: int | None = None


class Gpus:
    """
    All GPUs that NVML shows, each followed by its MIG slices.

    ``source`` says in words where the figures come from, or why there are none.
    """

    def __init__(self) -> None:
        self.gpu_source: GpuSource | None = None
        self._nvml: Any = None
        self._multiprocessors: Multiprocessors | None = None
        self._units: list[_Unit] = []
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            self.source = "no GPU figures: nvidia-ml-py is not installed (pip install 'fastio[monitor]')"
            return
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as exc:
            self.source = f"no GPU figures: NVML says {exc}"
            return
        self._nvml = nvml
        self.gpu_source = "NVML"
        wholes = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        for index, whole in enumerate(wholes):
            self._units += [_Unit(index, whole, whole), *self._slices(index, whole)]
        self._multiprocessors = self._chosen()
        self.source = (
            "GPU figures from NVML, where utilisation is the time with any kernel running; "
            + _SM_IN_WORDS[self.sm_source]
        )

    @property
    def sm_source(self) -> SmSource | None:
        """The source of the multiprocessors' figures."""
        return None if self._multiprocessors is None else self._multiprocessors.source

    def sample(self) -> tuple[GpuSample, ...]:
        """Sample all of them, in order."""
        return tuple(self._sampled(unit) for unit in self._units)

    def close(self) -> None:
        """Release the driver; calling it twice is harmless."""
        if self._multiprocessors is not None:
            self._multiprocessors.close()
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
        self._nvml, self._multiprocessors, self._units = None, None, []

    def _slices(self, index: int, whole: Any) -> list[_Unit]:
        """Return the MIG slices of a GPU."""
        mode = self._asked("nvmlDeviceGetMigMode", whole)
        if mode is None or mode[0] != self._nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        slices = []
        for number in range(self._asked("nvmlDeviceGetMaxMigDeviceCount", whole) or 0):
            handle = self._asked("nvmlDeviceGetMigDeviceHandleByIndex", whole, number)
            if handle is not None:  # not every position has a slice
                instance = self._asked("nvmlDeviceGetGpuInstanceId", handle)
                slices.append(_Unit(index, handle, whole, mig_index=number, gpu_instance=instance))
        return slices

    def _chosen(self) -> Multiprocessors | None:
        """Choose DCGM if it runs. It knows only whole GPUs, so slices are left to the driver if that can tell."""
        has_slices = any(unit.mig_index is not None for unit in self._units)
        has_counters = any(Gpm.is_supported(self._nvml, unit.whole) for unit in self._units)
        if has_slices and has_counters:
            return Gpm(self._nvml)
        return find_dcgm() or (Gpm(self._nvml) if has_counters else None)

    def _sampled(self, unit: _Unit) -> GpuSample:
        nvml, handle = self._nvml, unit.handle
        name = nvml.nvmlDeviceGetName(handle)
        rates = self._asked("nvmlDeviceGetUtilizationRates", handle)
        memory = self._asked("nvmlDeviceGetMemoryInfo", handle)
        received, sent = (
            self._asked("nvmlDeviceGetPcieThroughput", handle, counter)  # kB/s
            for counter in (nvml.NVML_PCIE_UTIL_RX_BYTES, nvml.NVML_PCIE_UTIL_TX_BYTES)
        )
        sm = SmFigures()
        if self._multiprocessors is not None:
            sm = self._multiprocessors.sample(unit.index, unit.whole, unit.gpu_instance)
        return GpuSample(
            index=unit.index,
            mig_index=unit.mig_index,
            name=name if isinstance(name, str) else name.decode(),
            utilization_percent=None if rates is None else float(rates.gpu),
            sm_active_percent=sm.active,
            sm_occupancy_percent=sm.occupancy,
            tensor_active_percent=sm.tensor,
            dram_active_percent=sm.dram,
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            temperature_c=self._asked("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
            pcie_received_bytes_per_s=None if received is None else received * 1000.0,
            pcie_sent_bytes_per_s=None if sent is None else sent * 1000.0,
        )

    def _asked(self, function: str, *arguments: Any) -> Any:
        """Return the driver's answer, or None if this GPU (a MIG slice, an old one) gives none."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError:
            return None


_SM_IN_WORDS: dict[SmSource | None, str] = {
    "DCGM": "multiprocessors from DCGM",
    "NVML GPM": "multiprocessors from the driver's GPM counters",
    None: "multiprocessors unknown (needs DCGM, or a GPU since Hopper)",
}


# Measures how busy a GPU's multiprocessors are: by NVIDIA's DCGM, or by the driver's counters since Hopper.

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
