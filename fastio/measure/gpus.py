"""What NVIDIA's driver says of its GPUs, through NVML; nothing, with the reason, where there are none."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["GpuSample", "GpuSource", "Gpus", "SmSource"]

GpuSource = Literal["NVML"]
SmSource = Literal["DCGM", "NVML GPM"]


@dataclass(frozen=True, slots=True)
class GpuSample:
    """
    One GPU now, or one MIG slice of it (``mig_index``, else None); None for what nobody tells of it.

    ``utilization_percent`` is NVML's: the part of the time in which at least one kernel ran, however few of the
    multiprocessors it used. A GPU at 100 % may be mostly idle: ``sm_active_percent`` is the mean part of the
    multiprocessors with at least one warp, ``sm_occupancy_percent`` the part of their warp slots that were taken,
    ``tensor_active_percent`` and ``dram_active_percent`` the part of the time in which Tensor cores and memory worked.
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


class Gpus:
    """All GPUs that NVML shows; ``source`` says where the figures come from, or why there are none."""

    def __init__(self) -> None:
        self.gpu_source: GpuSource | None = None
        self.sm_source: SmSource | None = None
        self._nvml: Any = None
        self._handles: list[Any] = []
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
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        self.source = "GPU figures from NVML, where utilisation is the time with any kernel running"

    def sample(self) -> tuple[GpuSample, ...]:
        """All of them, in order."""
        return tuple(self._sampled(index, handle) for index, handle in enumerate(self._handles))

    def close(self) -> None:
        """Let go of the driver; twice does no harm."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
        self._nvml, self._handles = None, []

    def _sampled(self, index: int, handle: Any) -> GpuSample:
        nvml = self._nvml
        name = nvml.nvmlDeviceGetName(handle)
        rates = self._asked("nvmlDeviceGetUtilizationRates", handle)
        memory = self._asked("nvmlDeviceGetMemoryInfo", handle)
        received, sent = (
            self._asked("nvmlDeviceGetPcieThroughput", handle, counter)  # kB/s
            for counter in (nvml.NVML_PCIE_UTIL_RX_BYTES, nvml.NVML_PCIE_UTIL_TX_BYTES)
        )
        return GpuSample(
            index=index,
            mig_index=None,
            name=name if isinstance(name, str) else name.decode(),
            utilization_percent=None if rates is None else float(rates.gpu),
            sm_active_percent=None,
            sm_occupancy_percent=None,
            tensor_active_percent=None,
            dram_active_percent=None,
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            temperature_c=self._asked("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
            pcie_received_bytes_per_s=None if received is None else received * 1000.0,
            pcie_sent_bytes_per_s=None if sent is None else sent * 1000.0,
        )

    def _asked(self, function: str, *arguments: Any) -> Any:
        """The driver's answer, or None where this GPU (a MIG slice, an old one) does not give it."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError:
            return None
