"""`fastio monitor` with a command, with a process, alone."""

from __future__ import annotations

import csv
import importlib
import json
import os
import pty
import re
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.measure.machine.gpus import GpuSample
from fastio.measure.machine.monitor import Sample

SHORT = ("--interval", "0.05")
GPU = GpuSample(1, 0, "H200 MIG 1g.18gb", None, 52.0, None, None, None, 3 * 10**9, None, None, None, None)
monitor = importlib.import_module("fastio.cli.monitor")  # its command has the module's name


def run(*args: object, code: int = 0) -> str:
    """What a command prints; its exit code is as expected."""
    result = CliRunner().invoke(cli, ["monitor", *map(str, args)])
    assert code == result.exit_code, result.output
    return result.output


def test_a_command_is_watched_to_its_end(tmp_path: Path) -> None:
    """Its exit code is ours, every sample is in the log, mean and maximum are printed."""
    log = tmp_path / "log.jsonl"
    script = f"import pathlib\nwhile b'\\n' not in pathlib.Path({str(log)!r}).read_bytes(): pass\nraise SystemExit(4)"
    output = run(*SHORT, "--out", log, "--", sys.executable, "-c", script, code=4)
    lines = [json.loads(line) for line in log.read_text().splitlines()]

    assert "maximum" in output
    assert "process, CPU (100%: one core)" in output
    assert all(line["process"]["processes"] >= 1 for line in lines)
    assert lines


def test_a_signal_is_told_as_a_shell_tells_it() -> None:
    """A command that SIGKILL ended gives 137."""
    run(*SHORT, "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)", code=137)


def test_json_lines() -> None:
    """One object a sample, for the time that was asked for."""
    lines = run(*SHORT, "--seconds", "0.12", "--json").splitlines()

    assert len(lines) >= 1
    assert all("cpu_percents" in json.loads(line) for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--pid", 1, "--", "true"), 2, "not both"),
        (("--", "a-command-that-is-not-there"), 127, "cannot be started"),
        (("--pid", 2**30), 1, "no such process"),
        (("--out", "nowhere/log", "--", "true"), 1, "nowhere/log: cannot be written (No such file or directory)"),
        (("--metrics-host", "0.0.0.0"), 2, "--metrics-host needs a port: add --metrics-port N"),
        (("--seconds", "0.1", "--out", "/dev/full"), 1, "/dev/full: cannot be written (No space left on device)"),
    ],
)
def test_what_cannot_be_watched(arguments: tuple[object, ...], code: int, message: str) -> None:
    """One line says why."""
    assert message in run(*arguments, code=code)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--out", "{}/nowhere/log"), "nowhere/log: cannot be written"),
        (("--csv", "{}/labels.csv"), "labels.csv: is no table of figures"),
        (("--metrics-port", "{port}"), "port {port} of 127.0.0.1: cannot be served (Address already in use)"),
    ],
)
def test_no_command_is_started_without_a_place_for_figures(
    option: tuple[str, str], message: str, tmp_path: Path
) -> None:
    """The mistake is told, in one line, before the training has begun."""
    (tmp_path / "labels.csv").write_text("name,label\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        output = run(option[0], option[1].format(tmp_path, port=port), "--", "touch", tmp_path / "begun", code=1)

    assert not (tmp_path / "begun").exists()
    assert output.startswith("error: ")
    assert message.format(port=port) in output
    assert 1 == len(output.splitlines())


def test_figures_go_to_trackers(tmp_path: Path) -> None:
    """A row per sample, with the watched process; the address of the metrics is told."""
    script = f"import pathlib\nwhile pathlib.Path({str(tmp_path / 'log')!r}).read_text().count('\\n') < 2: pass"
    trackers = ("--csv", tmp_path / "machine.csv", "--metrics-port", "0")
    output = run(*SHORT, "--out", tmp_path / "log", *trackers, "--", sys.executable, "-c", script)
    samples = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    with (tmp_path / "machine.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert [str(number + 1) for number in range(len(samples))] == [row["step"] for row in rows]
    assert [sample["memory_used_bytes"] for sample in samples] == [int(row["memory_used_bytes"]) for row in rows]
    assert all(float(row["process_memory_bytes"]) > 0 for row in rows[:2])  # it has ended by a later one
    assert "figures: http://127.0.0.1:" in output


def test_without_a_terminal_a_line_per_sample() -> None:
    """What a pipe or a log gets while it runs; the table follows at the end."""
    lines = run(*SHORT, "--seconds", "0.1").splitlines()

    assert re.match(r"\d\d:\d\d:\d\d  CPU \d+%; memory .+ of .+; disk read .+/s, written .+/s; network in ", lines[0])
    assert any("maximum" in line for line in lines[1:])


def test_many_cpus_are_not_listed() -> None:
    """A machine of a hundred has the busiest one and how many are busy; the log has all."""
    percents = tuple([95.0, 99.0] + [1.0] * 98)
    few, many = (
        Sample(
            time_s=0.0,
            seconds=1.0,
            cpu_percents=percents[:count],
            memory_used_bytes=1,
            memory_total_bytes=2,
            disk_read_bytes_per_s=0.0,
            disk_written_bytes_per_s=0.0,
            network_received_bytes_per_s=0.0,
            network_sent_bytes_per_s=0.0,
            own_cpu_percent=0.1,
            process=None,
            gpus=(GPU,),
            gpu_source="NVML",
            sm_source="DCGM",
        )
        for count in (3, 100)
    )

    assert {"CPU 0", "CPU 1", "CPU 2"} <= set(monitor._figures(few))
    assert monitor._figures(many)["busiest CPU"][0] == 99.0
    assert monitor._figures(many)["CPUs above 90%"][0] == 2
    assert "CPU 0" not in monitor._figures(many)


def test_figures_of_a_slice() -> None:
    """Those that are known, under the slice's name, in percent and bytes."""
    sample = Sample(0.0, 1.0, (1.0,), 1, 2, 0.0, 0.0, 0.0, 0.0, 0.1, None, (GPU,), "NVML", "NVML GPM")
    shown = {name: show(value) for name, (value, show) in monitor._figures(sample).items() if "GPU" in name}

    assert shown == {"GPU 1 slice 0 SM active": "52.0%", "GPU 1 slice 0 memory": "3.0 GB"}


def test_a_terminal_has_a_screen_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are drawn on the other screen of the terminal; the summary stays on the first one."""
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    parts: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # EIO: the other end was closed
            while data := os.read(ours, 65_536):
                parts.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        cli.main(["monitor", *SHORT, "--seconds", "0.1"], standalone_mode=False)
    reader.join()
    os.close(ours)
    screen, _, after = b"".join(parts).decode().partition("\x1b[?1049l")

    assert "\x1b[?1049h" in screen
    assert "Ctrl-C ends" in screen
    assert "maximum" not in screen
    assert "maximum" in after
