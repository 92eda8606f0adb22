"""GPUs are what NVML says, MIG slices too; multiprocessors what DCGM or the driver's counters say, and who it was."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from fastio.measure.machine import gpus
from fastio.measure.machine.gpus import Dcgm, Gpus, SmFigures, find_dcgm
from tests.measure.machine.fake_nvml import FakeNvml


@pytest.fixture(autouse=True)
def no_dcgm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs on this machine."""
    monkeypatch.setattr(gpus, "find_dcgm", lambda: None)


def test_what_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """In our units; None for what it does not say; the source is named, and closing twice does no harm."""
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    reader = Gpus()
    (seen,) = reader.sample()

    assert (seen.name, seen.utilization_percent, seen.temperature_c) == ("H200", 87.0, 40)
    assert (seen.memory_used_bytes, seen.memory_total_bytes) == (1, 2)
    assert (seen.pcie_received_bytes_per_s, seen.pcie_sent_bytes_per_s) == (5000.0, None)
    assert (seen.mig_index, seen.sm_active_percent) == (None, None)
    assert (reader.gpu_source, reader.sm_source) == ("NVML", None)
    assert "multiprocessors unknown" in reader.source
    reader.close()
    reader.close()
    assert not nvml.is_open


def test_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver or no package: no figures, and the reason."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(broken=True))
    assert "Driver Not Loaded" in Gpus().source

    monkeypatch.setitem(sys.modules, "pynvml", None)
    reader = Gpus()
    assert "fastio[monitor]" in reader.source
    assert reader.sample() == ()
    assert (reader.gpu_source, reader.sm_source) == (None, None)


def test_the_drivers_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks; None at the first one and for a counter that is not there; every sample is given back."""
    nvml = FakeNvml(counters=True)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    reader = Gpus()
    (first,), (seen,), _ = reader.sample(), reader.sample(), reader.sample()

    assert first.sm_active_percent is None
    assert (seen.sm_active_percent, seen.sm_occupancy_percent, seen.tensor_active_percent) == (52.0, 53.0, 55.0)
    assert seen.dram_active_percent is None
    assert reader.sm_source == "NVML GPM"
    assert "GPM" in reader.source
    reader.close()
    assert nvml.samples == 0


def test_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each MIG slice follows its GPU, with its own memory and counters; the driver tells no utilisation of it."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(counters=True, slices=2))
    reader = Gpus()
    reader.sample()
    whole, first, second = reader.sample()
    reader.close()

    assert [(0, None), (0, 0), (0, 1)] == [(each.index, each.mig_index) for each in (whole, first, second)]
    assert (first.name, first.utilization_percent, first.memory_total_bytes) == ("H200 MIG 1g.18gb", None, 2)
    assert (whole.sm_active_percent, first.sm_active_percent, second.sm_active_percent) == (52.0, 62.0, 63.0)


def program(folder: Path, discovery: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dcgmi whose host engine runs, or not."""
    path = folder / "dcgmi"
    path.write_text(
        f"#!{sys.executable}\n"
        "import sys, time\n"
        f"if 'discovery' in sys.argv: sys.exit({discovery})\n"
        "assert sys.argv[1:] == ['dmon', '-e', '1002,1003,1004,1005', '-d', '1000']\n"
        "print('#Entity   SMACT  SMOCC  TENSO  DRAMA\\nID')\n"
        "print('GPU 1     0.500  0.250  N/A    0.125\\nGPU 0     0.875', end='', flush=True)\n"
        "time.sleep(60)\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_dcgm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Percent of whole GPUs from its lines; half a line is none; the program ends with us."""
    program(tmp_path, 0, monkeypatch)
    reader = find_dcgm()
    assert reader is not None
    ends = time.monotonic() + 60
    while reader.sample(1, None, None) == SmFigures() and time.monotonic() < ends:
        time.sleep(0.01)

    assert reader.sample(1, None, None) == SmFigures(50.0, 25.0, None, 12.5)
    assert reader.sample(0, None, None) == SmFigures()
    assert reader.sample(1, None, 3) == SmFigures()
    reader.close()
    reader.close()
    assert reader._process.returncode is not None


@pytest.mark.parametrize("is_there", [False, True])
def test_without_dcgm(is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed, or its host engine does not run: nothing."""
    program(tmp_path if is_there else tmp_path.parent, 1, monkeypatch)
    if not is_there:
        monkeypatch.setenv("PATH", str(tmp_path))

    assert find_dcgm() is None


def test_dcgm_goes_before_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both are there, unless there are slices, which it does not tell of."""
    program(tmp_path, 0, monkeypatch)
    monkeypatch.setattr(gpus, "find_dcgm", find_dcgm)
    for slices, source in ((0, "DCGM"), (2, "NVML GPM")):
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(counters=True, slices=slices))
        reader = Gpus()
        assert reader.sm_source == source
        assert isinstance(reader._multiprocessors, Dcgm) is (slices == 0)
        reader.close()
