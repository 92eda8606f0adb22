"""`fastio profile` on scripts, functions and recorded traces."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fastio.cli import cli

SCRIPT = """
import sys
import torch
batches = [torch.ones(4, 2)] * 3
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters())
other = torch.optim.SGD(model.parameters())
def step(batch):
    model(batch).sum().backward()
    optimizer.step()
    other.step()
def pair():
    return batches, step
def trains(epochs=9):
    for _ in range(epochs):
        for batch in batches:
            step(batch)
if __name__ == "__main__":
    print("arguments", sys.argv[1:])
    trains(int(sys.argv[1]))
    sys.exit(3)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the user's script."""
    (tmp_path / "user_profile.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    return tmp_path


def run(*args: str) -> Result:
    """The command's result, output and error apart."""
    return CliRunner().invoke(cli, ["profile", *args])


@pytest.mark.parametrize(
    "command",
    [
        ("--", "user_profile.py", "9"),
        ("--", sys.executable, "user_profile.py", "9"),
        ("user_profile.py:pair",),
        ("user_profile.py:trains",),
    ],
)
def test_a_training_is_recorded(command: tuple[str, ...], folder: Path) -> None:
    """Script, loader with step, function that trains: five steps, a trace, and JSON on stdout alone."""
    result = run("--json", *command)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    traces = said["traces"]

    assert said["format"] == "fastio.profile/1"
    assert [5] == [each["steps"] for each in traces] == [len(each["per_step"]) for each in traces]
    assert traces[0]["rows_us"]["CPU Exec"] > 0
    assert traces[0]["verdict"]["bound"] in ("compute_bound", "io_bound", "balanced")
    assert (folder / "trace.json.gz").exists()


def test_cycles_and_recorded_traces() -> None:
    """Two cycles make two traces, each of which can be read again."""
    assert run("--schedule", "1/1/2/2", "-o", "t.json", "user_profile.py:pair").exit_code == 0
    again = run("t-2.json")

    assert "Where the time of a step goes: t-2.json" in again.stdout
    assert "The mean of 2 steps" in again.stdout
    assert all(title in again.stdout for title in ("Communication", "CPU Exec", "Operators", "next: "))


def test_functions_of_python() -> None:
    """cProfile's table and file, the same for machines, without a trace."""
    arguments = ("--cpu", "cprofile", "--seconds", "0", "user_profile.py:pair")
    said = json.loads(run(*arguments, "--json").stdout)
    printed = run(*arguments, "--top", "100").stdout

    assert (said["cpu"]["tool"], said["cpu"]["steps"], said["traces"]) == ("cprofile", 5, [])
    assert any(each["name"] == "step" and each["calls"] == 5 for each in said["cpu"]["functions"])
    assert "user_profile.py" in printed
    assert "python -m pstats" in printed


def test_ranks_side_by_side() -> None:
    """Several traces have a table of the device's parts; shapes give a rate of operations."""
    assert "GFLOP/s" in run("--record-shapes", "--schedule", "0/1/1/2", "-o", "t.json", "user_profile.py:pair").stdout
    printed = run("t-1.json", "t-2.json").stdout

    assert printed.count("The mean of 1 step") == 2
    assert "non-compute" in printed.partition("\nRanks\n")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--", "user_profile.py", "1"), "ended after 3 steps, but the schedule needs 7"),
        (("--schedule", "1/1", "user_profile.py:pair"), "expected WAIT/WARMUP"),
        (("--schedule", "1/1/0", "user_profile.py:pair"), "expected WAIT/WARMUP"),
        (("--", "nothing.py"), "no such script"),
        (("--out", "nowhere/t.json", "user_profile.py:pair"), "nowhere/t.json: the folder nowhere does not exist"),
        (("--", "/elsewhere/python3", "user_profile.py"), "fastio runs in"),
        (("data.lmdb",), "no such script"),
        (("-o", "trace.txt", "user_profile.py:pair"), "choose a name"),
        (("--", "user_profile.py:pair", "3"), "only a script.py or -m MODULE takes arguments"),
        (("--cpu", "cprofile", "--", "user_profile.py", "1"), "ended after 3 steps"),
        (("nothing.json",), "nothing.json"),
    ],
)
def test_what_cannot_be_profiled(arguments: tuple[str, ...], message: str) -> None:
    """One line says why."""
    result = run(*arguments)

    assert result.exit_code != 0
    assert message in result.output
    assert isinstance(result.exception, SystemExit)
