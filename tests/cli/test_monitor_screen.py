"""The live screen of `fastio monitor`, drawn into terminals of several sizes."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from rich.screen import Screen

from fastio.cli.monitor import MonitorScreen
from fastio.measure.machine.gpus import GpuSample
from fastio.measure.machine.monitor import ProcessSample, Sample

GPU = GpuSample(0, None, "NVIDIA H200", 97.0, 60.0, None, None, None, 70 * 10**9, 140 * 10**9, 61, None, None)
SLICE = GpuSample(1, 3, "H200 MIG", None, 50.0, None, None, None, None, None, None, None, None)
PROCESS = ProcessSample(4242, 5, 100.0, 42 * 10**8, 118e6, 0.0)
SAMPLE = Sample(
    0.0, 61.0, (25.0, 75.0), 10**10, 4 * 10**10, 24e7, 1e6, 3e6, 4e5, 0.4, PROCESS, (GPU, SLICE), "NVML", None
)


def drawn(
    *samples: Sample, width: int = 100, height: int = 24, encoding: str = "utf-8", problem: str = ""
) -> list[str]:
    """The lines of a terminal."""
    screen = MonitorScreen("process 4242", [problem] if problem else [])
    for sample in samples:
        screen.add(sample)
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, height=height, force_terminal=True, color_system=None)
    console.print(Screen(screen), end="")
    file.seek(0)
    return file.read().splitlines()


def row(lines: list[str], label: str) -> str:
    """The row that begins with a label, its spaces squeezed and its bar left out."""
    line = next(line for line in lines if line.startswith(f"{label} "))
    return " ".join(line.translate(dict.fromkeys(map(ord, "━╸╺"))).split())


def test_what_is_seen_at_a_glance() -> None:
    """Bars with their figures, one row each."""
    lines = drawn(SAMPLE)

    assert "fastio monitor process 4242 0:01:01" == row(lines, "fastio")
    assert "CPU 50.0% of 2 CPUs" == row(lines, "CPU")
    assert "CPU 1 75.0%" == row(lines, "CPU 1")
    assert "GPU 0 97.0% SM 60%, 70.0 GB of 140.0 GB, 61 C, NVID…" == row(lines, "GPU 0")
    assert "GPU 1 slice 3 50.0% SM 50%, H200 MIG" == row(lines, "GPU 1")
    assert "memory 25.0% 10.0 GB of 40.0 GB" == row(lines, "memory")
    assert "watched 50.0% of all CPUs, 4.2 GB in 5 processes" == row(lines, "watched")
    assert "disk read 240.0 MB/s at most 240.0 MB/s" == row(lines, "disk read")
    assert "Ctrl-C ends; this monitor itself: 0.4% of a CPU" == row(lines, "Ctrl-C")


def test_a_bar_is_as_long_as_its_figure() -> None:
    """Three quarters of a bar that is busy, one quarter of one that is not."""
    busy, idle = (next(line for line in drawn(SAMPLE) if line.startswith(f"CPU {number}")) for number in (1, 0))

    assert busy.count("━") == pytest.approx(3 * idle.count("━"), abs=2)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 40), (40, 12), (200, 60), (10, 3)])
@pytest.mark.parametrize(("cpus", "gpus"), [(1, 0), (16, 2), (256, 8), (64, 72)])
def test_any_machine_fits_into_any_terminal(width: int, height: int, cpus: int, gpus: int) -> None:
    """No line is too long, and there are no more of them than rows."""
    percents = tuple(100.0 * number / cpus for number in range(cpus))
    sample = replace(SAMPLE, cpu_percents=percents, gpus=tuple(replace(GPU, index=number) for number in range(gpus)))
    lines = drawn(sample, width=width, height=height, problem="x" * 300)

    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_of_many_cpus_the_busiest_is_shown() -> None:
    """With how many of them are busy."""
    sample = replace(SAMPLE, cpu_percents=tuple(100.0 * (number % 2) for number in range(128)))

    assert "busiest CPU 100.0% 64 above 90%" == row(drawn(sample), "busiest CPU")


def test_the_highest_rate_is_kept() -> None:
    """What a disk has given stays readable when it gives less."""
    samples = [replace(SAMPLE, disk_read_bytes_per_s=1e6 * rate) for rate in (0.0, 100.0, 50.0)]

    assert "disk read 50.0 MB/s at most 100.0 MB/s" == row(drawn(*samples), "disk read")


def test_a_terminal_without_unicode() -> None:
    """Bars have a form in ASCII."""
    assert "\n".join(drawn(SAMPLE, encoding="ascii", width=140)).isascii()


def test_a_problem_is_shown() -> None:
    """What a tracker reports takes the second line; control characters in it stay harmless."""
    assert "runs\\x1b failed: disk full" == drawn(SAMPLE, problem="runs\x1b failed: disk full")[1].strip()


def test_before_the_first_sample() -> None:
    """The screen says that it waits for one."""
    assert "the first sample is on its way" == drawn()[0].strip()
