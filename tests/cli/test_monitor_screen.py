"""The live screen of `fastio monitor`, drawn into terminals of several sizes."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from fastio.cli.monitor_screen import MonitorScreen
from fastio.measure.machine.gpus import GpuSample
from fastio.measure.machine.monitor import ProcessSample, Sample

GPU = GpuSample(0, None, "NVIDIA H200", 97.0, 60.0, None, None, None, 70 * 10**9, 140 * 10**9, 61, None, None)
SLICE = GpuSample(1, 3, "H200 MIG", None, 50.0, None, None, None, None, None, None, None, None)
PROCESS = ProcessSample(4242, 5, 100.0, 42 * 10**8, 118e6, 0.0)
SAMPLE = Sample(
    0.0, 61.0, (25.0, 75.0), 10**10, 4 * 10**10, 24e7, 1e6, 3e6, 4e5, 0.4, PROCESS, (GPU, SLICE), "NVML", None
)


def drawn(*samples: Sample, width: int = 80, height: int = 24, encoding: str = "utf-8", problem: str = "") -> list[str]:
    """The lines of a terminal."""
    screen = MonitorScreen("process 4242", [problem] if problem else [])
    for sample in samples:
        screen.add(sample)
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, height=height, force_terminal=True, color_system=None)
    console.print(screen)
    file.seek(0)
    return file.read().splitlines()


def row(lines: list[str], label: str) -> str:
    """The row that begins with a label, its spaces squeezed."""
    return " ".join(next(line for line in lines if line.startswith(label)).split())


def test_what_is_seen_at_a_glance() -> None:
    """Bars with their figures, one row each, in a terminal of 80 by 24."""
    lines = drawn(SAMPLE)

    assert "fastio monitor process 4242 0:01:01" == row(lines, "fastio monitor")
    assert "CPU ████████████░░░░░░░░░░░░ 50.0 % of 2 CPUs" == row(lines, "CPU")
    assert "0 ██░░░░░ 25 1 █████░░ 75" == " ".join(lines[3].split())
    assert "GPU 0 ███████████████████████░ 97.0 % SM 60 %, 70.0 GB of 140.0 GB, 61 C" == row(lines, "GPU 0")
    assert "GPU 1.3 ████████████░░░░░░░░░░░░ 50.0 % SM 50 %" == row(lines, "GPU 1")
    assert "Memory ██████░░░░░░░░░░░░░░░░░░ 25.0 % 10.0 GB of 40.0 GB" == row(lines, "Memory")
    assert "Watched ████████████░░░░░░░░░░░░ 50.0 % of all CPUs, 4.2 GB in 5 processes" == row(lines, "Watched")
    assert "Disk █ 240.0 MB/s read at most 240.0 MB/s" == row(lines, "Disk")
    assert "Ctrl-C ends; this monitor itself: 0.4 % of a CPU; NVIDIA H200, H200 MIG" == lines[-1].strip()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 40), (40, 12), (200, 60), (10, 3)])
@pytest.mark.parametrize(("cpus", "gpus"), [(1, 0), (16, 2), (256, 8), (64, 72)])
def test_any_machine_fits_into_any_terminal(width: int, height: int, cpus: int, gpus: int) -> None:
    """No line is too long, and there are no more of them than rows."""
    percents = tuple(100.0 * number / cpus for number in range(cpus))
    sample = replace(SAMPLE, cpu_percents=percents, gpus=tuple(replace(GPU, index=number) for number in range(gpus)))
    lines = drawn(*[sample] * 100, width=width, height=height, problem="x" * 300)

    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_many_cpus_become_one_block_each() -> None:
    """Where bars have no room, the height of a block shows how busy a CPU is; GPUs without room are counted."""
    percents = tuple(100.0 * (number % 2) for number in range(128))
    lines = drawn(replace(SAMPLE, cpu_percents=percents, gpus=(GPU,) * 20))

    assert "▁█" * 32 == lines[3].strip()
    assert any("more GPUs; a taller terminal shows all" in line for line in lines)


def test_curves_have_the_latest_samples() -> None:
    """Rates are drawn up to the highest one shown; what can be used up is drawn up to 100 %."""
    samples = [replace(SAMPLE, disk_read_bytes_per_s=1e6 * rate, cpu_percents=(rate,)) for rate in (0.0, 50.0, 100.0)]
    lines = drawn(*samples, width=140)

    assert "▁▅█ 100.0 MB/s read at most 100.0 MB/s" == row(lines, "Disk").removeprefix("Disk ")
    assert row(lines, "CPU").endswith("▁▅█")


def test_a_terminal_without_unicode() -> None:
    """Bars and curves have a form in ASCII."""
    lines = drawn(SAMPLE, encoding="ascii")

    assert "\n".join(lines).isascii()
    assert "CPU ############............ 50.0 % of 2 CPUs" == row(lines, "CPU")


def test_a_problem_is_shown_below() -> None:
    """What a tracker reports takes the last line; control characters in it stay harmless."""
    assert "runs\\x1b failed: disk full" == drawn(SAMPLE, problem="runs\x1b failed: disk full")[-1].strip()


def test_before_the_first_sample() -> None:
    """The screen says that it waits for one."""
    assert ["the first sample is on its way"] == drawn()
