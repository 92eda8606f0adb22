"""A stand-in for NVIDIA's driver, as its Python bindings show it."""

from __future__ import annotations

import types
from typing import Any


class FakeNvml(types.ModuleType):
    """A driver with one GPU that tells all but one of its PCIe rates; on request with counters and two MIG slices."""

    NVML_PCIE_UTIL_RX_BYTES, NVML_PCIE_UTIL_TX_BYTES, NVML_TEMPERATURE_GPU = 1, 0, 0
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_SM_OCCUPANCY = 2, 3
    NVML_GPM_METRIC_ANY_TENSOR_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL = 5, 10
    NVML_GPM_METRICS_GET_VERSION = 1

    class NVMLError(Exception):
        """What NVML raises."""

    def __init__(self, *, broken: bool = False, counters: bool = False, slices: int = 0) -> None:
        super().__init__("pynvml")
        self.broken = broken
        self.counters = counters
        self.slices = slices
        self.is_open = False
        self.samples = 0  # allocated and not given back

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError("Driver Not Loaded")
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"gpu {index}"

    def nvmlDeviceGetName(self, handle: str) -> bytes:
        return b"H200" if handle.startswith("gpu") else b"H200 MIG 1g.18gb"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        if handle.startswith("slice"):
            raise self.NVMLError("Not Supported")
        return types.SimpleNamespace(gpu=87)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return types.SimpleNamespace(used=1, total=2)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 40

    def nvmlDeviceGetPcieThroughput(self, handle: str, counter: int) -> int:
        if counter == 0:
            raise self.NVMLError("Not Supported")
        return 5

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        return [int(self.slices > 0)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        if index >= self.slices:
            raise self.NVMLError("Not Found")
        return f"slice {index}"

    def nvmlDeviceGetGpuInstanceId(self, handle: str) -> int:
        return 10 + int(handle.split()[1])

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> Any:
        return types.SimpleNamespace(isSupportedDevice=int(self.counters))

    def nvmlGpmSampleAlloc(self) -> Any:
        self.samples += 1
        return types.SimpleNamespace(of=None)

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self.samples -= 1

    def nvmlGpmSampleGet(self, handle: str, sample: Any) -> Any:
        sample.of = -1
        return sample

    def nvmlGpmMigSampleGet(self, handle: str, instance: int, sample: Any) -> Any:
        assert handle.startswith("gpu")
        sample.of = instance
        return sample

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        metrics = [types.SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(98)]
        return types.SimpleNamespace(version=0, numMetrics=0, sample1=None, sample2=None, metrics=metrics)

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:
        assert asked.sample1.of == asked.sample2.of
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value = 50.0 + metric.metricId + (0 if asked.sample2.of < 0 else asked.sample2.of)
        asked.metrics[3].nvmlReturn = 3  # not supported
        return asked
