"""`fastio doctor` on scripts, functions and saved files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fastio.cli import cli

SCRIPT = """
import sys
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.ones(2)

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters())

def step(batch):
    model(batch).sum().backward()
    optimizer.step()

def pair():
    return DataLoader(Slow(), batch_size=2), step

def loader():
    return DataLoader(Slow(), batch_size=2)

def trains():
    for batch in DataLoader(Slow(), batch_size=2):
        step(batch)

def trains_and_returns():
    for _, batch in zip(range(5), loader()):
        step(batch)
    return loader()

if __name__ == "__main__":
    print("arguments", sys.argv[1:])
    for number, batch in enumerate(DataLoader(Slow(), batch_size=2)):
        step(batch)
        if number == int(sys.argv[1]):
            raise RuntimeError("out of luck")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the user's script."""
    (tmp_path / "user_doctor.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    return tmp_path


def run(*args: str, seconds: float = 0.4) -> Result:
    """The command's result, output and error apart."""
    return CliRunner().invoke(cli, ["doctor", "--seconds", str(seconds), "--profiled", "0", *args])


@pytest.mark.parametrize(
    "command",
    [
        ("--", "user_doctor.py", "900"),
        ("user_doctor.py:pair",),
        ("user_doctor.py:trains",),
        ("user_doctor.py:trains_and_returns",),
    ],
)
def test_a_training_is_examined(command: tuple[str, ...]) -> None:
    """Script, loader with step, function that trains: pattern, part, and JSON on stdout alone."""
    result = run("--json", *command)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)

    assert ("fastio.doctor/1", "io_bound", "slow_wait") == (said["format"], said["pattern"], said["part"])
    assert said["steps"][0]["gain"] > 2
    assert len(said["timeline"]["loading_s"]) > 0
    assert said["failure"] is None


def test_what_people_see(folder: Path) -> None:
    """The name, the figures, what to do with lines to paste; the same again from the saved JSON."""
    (folder / "saved.json").write_text(run("--json", "user_doctor.py:pair").stdout)
    result = run("--from", "saved.json")
    assert result.exit_code == 0, result.output

    for words in (
        "\nio_bound\n",
        "slow wait",
        "waiting for data",
        "What to do, by expected gain",
        "time.sleep(",
        "Not seen",
    ):
        assert words in result.stdout


def test_a_script_that_fails() -> None:
    """Its own traceback without our frames, its exit code, and what was seen until then."""
    result = run("--", "user_doctor.py", "4", seconds=60)

    assert result.exit_code == 1
    assert "RuntimeError: out of luck" in result.stderr
    assert 'user_doctor.py", line' in result.stderr
    assert result.stderr.endswith("\nthe training ended early; what was measured until then:\n\n")
    assert 1 == result.output.count("RuntimeError: out of luck")
    assert "fastio" not in result.stderr.partition("Traceback")[2].partition("RuntimeError")[0]
    assert "io_bound" in result.stdout


def test_a_script_that_fails_in_its_first_step() -> None:
    """It is said in which step and by what, and what was measured until then, instead of a missing verdict."""
    result = run("--", "user_doctor.py", "0", seconds=60)

    assert result.exit_code == 1
    assert "RuntimeError: out of luck" in result.stderr
    assert "The training ended early\nit ended in step 1: RuntimeError: out of luck; " in result.stdout
    assert "ended early" not in result.stderr
    assert "first batch of an epoch" in result.stdout
    assert "0 steps" not in result.stdout
    assert "No verdict" not in result.output


def test_a_script_that_fails_before_its_loop(folder: Path) -> None:
    """Nothing is said of steps that did not come."""
    (folder / "fails.py").write_text("raise KeyError('data')")
    result = run("--", "fails.py")

    assert result.exit_code == 1
    assert "The training ended early\nit ended before a loader gave it a batch: KeyError: 'data'" in result.stdout
    assert "ended early" not in result.stderr
    assert "Not seen" not in result.stdout


def test_a_script_that_exits(folder: Path) -> None:
    """Without a traceback, stderr says how it ended."""
    (folder / "exits.py").write_text("import sys\nsys.exit(3)")
    result = run("--", "exits.py")

    assert result.exit_code == 3
    assert result.stderr.endswith("the training ended early: sys.exit(3)\n\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a training"),
        (("--from", "a.json", "--", "user_doctor.py"), "give a training"),
        (("--", "nothing.py"), "no such script"),
        (("data.lmdb",), "no such script"),
        (("--", "user_doctor.py:pair", "3"), "only a script.py or -m MODULE takes arguments"),
        (
            ("user_doctor.py:nothing",),
            "has no function 'nothing'; expected one that trains, or returns a loader and step",
        ),
        (("user_doctor.py:train",), "has no function 'train' (did you mean 'trains'?); expected one that trains, or "),
        (
            ("user_doctor.py:loader",),
            "user_doctor.py:loader returned only a DataLoader; expected a function that trains",
        ),
        (("--from", "nothing.json"), "nothing.json"),
        (("--seconds", "0", "user_doctor.py:pair"), "--seconds"),
    ],
)
def test_what_cannot_be_examined(arguments: tuple[str, ...], message: str) -> None:
    """One line says why."""
    result = run(*arguments)

    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)


ENDS = """
import os, signal, sys
from user_doctor import *

for number, batch in enumerate(DataLoader(Slow(), batch_size=2)):
    step(batch)
    if number == 3:
        exec(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "the training's process is gone, and with it what"),
        ("os.abort()", -signal.SIGABRT, "Fatal Python error: Aborted"),
        (
            "sys.exit() if os.fork() == 0 else (os.wait(), os.kill(os.getpid(), signal.SIGTERM))",
            143,
            "the training ended early: terminated (SIGTERM)",
        ),
    ],
    ids=["killed", "abort", "SIGTERM, with a fork that ended"],
)
def test_how_a_training_ended(end: str, code: int, words: str, tmp_path: Path) -> None:
    """One line says how, also if its process could not, and nothing stays in the folder for temporary files."""
    (tmp_path / "ends.py").write_text(ENDS)
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-m", "fastio", "doctor", "--seconds", "60", "--", "ends.py", end]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}

    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    assert (code, 1) == (ended.returncode, ended.stderr.count(words)), ended.stderr
    assert (code != 143) == ("process is gone" in ended.stderr)
    assert [] == list((tmp_path / "temporary").glob("fastio-doctor-*"))
