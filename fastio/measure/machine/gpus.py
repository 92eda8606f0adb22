"""Reads figures of NVIDIA GPUs through NVML; without them, says why there are none."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

from fastio.measure.machine.multiprocessors import Gpm, Multiprocessors, SmFigures, SmSource, find_dcgm

__all__ = ["GpuSample", "GpuSource", "Gpus", "SmSource"]

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
