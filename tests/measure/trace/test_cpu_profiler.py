"""Python's functions while a training runs: cProfile, py-spy and a stand-in for it, who may not look, GIL shares."""

from __future__ import annotations

import json
import pstats
import sys
import time
from pathlib import Path

import pytest
import torch.utils.data

import fastio
from fastio.errors import FastioError
from fastio.measure.trace import cpu_profiler
from fastio.measure.trace.cpu_profiler import (
    CprofileRecorder,
    Frame,
    GilShares,
    PySpyRecorder,
    ThreadProfile,
    function_times,
    loader_share,
    read_speedscope,
)
from fastio.measure.trace.training import Schedule

PLAN = Schedule(1, 1, 3)


def busy(seconds: float = 0.01) -> int:
    """Python code that holds the GIL for so long."""
    ends, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < ends:
        count += 1
    return count


def run(recorder: CprofileRecorder | PySpyRecorder, *, limit: int = 1000) -> int:
    """Steps of a training under the recorder, until it has enough; gives how many there were."""
    with recorder:
        for done in range(1, limit + 1):
            busy()
            if recorder.step(done):
                return done
    return limit


def test_cprofile_counts_the_active_steps(tmp_path: Path) -> None:
    """Calls of exactly these steps, in a file that pstats opens."""
    recorder = CprofileRecorder(PLAN, tmp_path / "p.pstats", seconds=0)

    assert 5 == run(recorder)
    seen = recorder.result()
    (found,) = [each for each in seen.functions if each.name == "busy"]
    assert (seen.tool, seen.steps, seen.gil, found.calls, found.file) == ("cprofile", 3, None, 3, __file__)
    assert 0 < found.self_s <= found.total_s <= seen.seconds
    assert [each.self_s for each in seen.functions] == sorted((each.self_s for each in seen.functions), reverse=True)
    assert pstats.Stats(str(tmp_path / "p.pstats")).total_calls >= 3  # type: ignore[attr-defined]


def test_more_steps_for_more_seconds(tmp_path: Path) -> None:
    """Steps go on until the time has passed; without a warm-up from the first one on."""
    recorder = CprofileRecorder(Schedule(0, 0, 1), tmp_path / "p.pstats", seconds=0.05)

    assert run(recorder) == recorder.result().steps > 1
    assert recorder.result().seconds >= 0.05


def test_a_training_that_ends_early(tmp_path: Path) -> None:
    """What was seen until then is there, and the profiler is off."""
    recorder = CprofileRecorder(PLAN, tmp_path / "p.pstats", seconds=60)

    assert 4 == run(recorder, limit=4)
    assert recorder.result().steps == 2
    assert sys.getprofile() is None


FAKE = """#!{python}
import json, pathlib, signal, sys, time
out = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
frames = [{{"name": "busy", "file": "{file}", "line": 1}}, {{"name": "n", "file": "{loader}", "line": 1}}]
samples = [[0]] if "--threads" in sys.argv else [[0], [1]]
def end(*_):
    profile = {{"name": "t", "samples": samples, "weights": [0.01] * len(samples)}}
    out.write_text(json.dumps({{"shared": {{"frames": frames}}, "profiles": [profile]}}))
    sys.exit(0)
signal.signal(signal.SIGINT, end)
print("py-spy> Sampling process 100 times a second. Press Control-C to exit.", flush=True)
time.sleep(60)
"""


def stand_in(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the place of py-spy."""
    program = folder / "py-spy"
    loader = Path(cpu_profiler.__file__).parents[2] / "loader" / "fast_loader.py"
    program.write_text(script.format(python=sys.executable, file=__file__, loader=loader))
    program.chmod(0o755)
    monkeypatch.setattr(cpu_profiler, "_py_spy", lambda: str(program))


def test_py_spy_looks_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First at all threads, then at who holds the GIL; the loader's part is told apart, nothing else is left behind."""
    stand_in(tmp_path, FAKE, monkeypatch)
    recorder = PySpyRecorder(PLAN, tmp_path / "p.json", seconds=0.1)
    run(recorder)
    seen = recorder.result()

    assert ["busy"] == [each.name for each in seen.functions]
    assert seen.gil is not None
    assert seen.gil.loader == pytest.approx(seen.gil.training)
    assert 1.0 == pytest.approx(seen.gil.loader + seen.gil.training + seen.gil.free)
    assert {"p.json", "py-spy"} == {path.name for path in tmp_path.iterdir()}


def test_py_spy_that_is_left_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that ends in the first half has functions and no GIL."""
    stand_in(tmp_path, FAKE, monkeypatch)
    recorder = PySpyRecorder(PLAN, tmp_path / "p.json", seconds=60)
    run(recorder, limit=5)

    assert recorder.result().gil is None
    assert recorder.result().steps == 3


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("Permission Denied: Try running again with elevated permissions", "ptrace"),
        ("Error: something else", "Error: something else"),
        ("", "without a message"),
    ],
)
def test_py_spy_that_may_not_look(said: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says why."""
    stand_in(tmp_path, f"#!/bin/sh\necho '{said}'\nexit 1\n", monkeypatch)
    with pytest.raises(FastioError, match=message):
        run(PySpyRecorder(Schedule(0, 0, 1), tmp_path / "p.json", seconds=1))


def test_py_spy_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra that brings it is named."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FastioError, match=r"fastio\[profile\]"):
        PySpyRecorder(PLAN, tmp_path / "p.json", seconds=1)


def test_shares_of_the_gil(tmp_path: Path) -> None:
    """Looks that found nobody are free time; more looks than there was time for do not make it negative."""
    path = tmp_path / "gil.json"
    path.write_text(json.dumps({"shared": {"frames": []}, "profiles": []}))
    assert GilShares(0.0, 0.0, 1.0) == cpu_profiler._gil_shares(path, 2.0)

    said = {"shared": {"frames": [{"name": "a"}]}, "profiles": [{"name": "t", "samples": [[0]], "weights": [3.0]}]}
    path.write_text(json.dumps(said))
    assert GilShares(0.0, 1.0, 0.0) == cpu_profiler._gil_shares(path, 2.0)


def test_the_real_py_spy(tmp_path: Path) -> None:
    """It sees the function that is busy all the time, and that it holds the GIL."""
    try:
        recorder = PySpyRecorder(Schedule(0, 0, 1), tmp_path / "p.json", seconds=1)
        run(recorder)
    except FastioError as exc:
        pytest.skip(f"py-spy cannot be used here: {exc}")
    seen = recorder.result()

    assert "busy" in [each.name for each in seen.functions]
    assert read_speedscope(tmp_path / "p.json")
    assert seen.gil is not None
    assert seen.gil.loader == 0


# Profiles of py-spy: times by function, the loader's part, files that are none.

MAIN = Frame("main", "/u/train.py", 1)
STEP = Frame("step", "/u/train.py", 5)
NEXT = Frame("__next__", f"{Path(torch.utils.data.__file__).parent}/dataloader.py", 700)
GETITEM = Frame("__getitem__", "/u/train.py", 9)
OURS = Frame("__iter__", f"{Path(fastio.__file__).parent}/loader/fast_loader.py", 200)
RUN = Frame("run_training", f"{Path(fastio.__file__).parent}/measure/trace/training.py", 70)
NEXT_BATCH = Frame("next_batch", f"{Path(fastio.__file__).parent}/measure/loop/batch.py", 40)


def test_a_file_is_read(tmp_path: Path) -> None:
    """Frames by their numbers, what is missing of them is nothing."""
    said = {
        "shared": {"frames": [{"name": "a", "file": "/x.py", "line": 3}, {"name": "b"}]},
        "profiles": [{"name": "Thread 1", "samples": [[0, 1], [0]], "weights": [0.5, 0.25]}],
    }
    (tmp_path / "p.json").write_text(json.dumps(said))
    (thread,) = read_speedscope(tmp_path / "p.json")

    assert thread.stacks == ((Frame("a", "/x.py", 3), Frame("b", "", 0)), (Frame("a", "/x.py", 3),))
    assert (thread.name, thread.weights) == ("Thread 1", (0.5, 0.25))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"shared": {"frames": []}, "profiles": [{"samples": [[3]]}]}'])
def test_what_is_no_profile(text: str, tmp_path: Path) -> None:
    """Any other file is an error that names it."""
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FastioError, match=r"x\.json: no profile"):
        read_speedscope(tmp_path / "x.json")


def test_times_of_functions() -> None:
    """Own time where a function is innermost, total once a stack however deep it recurses; threads add up."""
    threads = [
        ThreadProfile("a", ((MAIN, STEP, STEP), (MAIN,)), (2.0, 1.0)),
        ThreadProfile("b", ((STEP,), ()), (0.5, 9.0)),
    ]
    found = {each.name: each for each in function_times(threads)}

    assert (found["step"].self_s, found["step"].total_s, found["step"].calls) == (2.5, 2.5, None)
    assert (found["main"].self_s, found["main"].total_s) == (1.0, 3.0)
    assert ["step", "main"] == [each.name for each in function_times(threads)]


@pytest.mark.parametrize(
    ("stack", "is_loader"),
    [
        ((RUN, MAIN, STEP), False),
        ((MAIN, NEXT, GETITEM), True),
        ((MAIN, OURS), True),
        ((RUN, NEXT_BATCH, GETITEM), True),
    ],
)
def test_whose_stack_it_is(stack: tuple[Frame, ...], is_loader: bool) -> None:
    """Whatever a loader calls is the loader's; what measures is not."""
    assert float(is_loader) == loader_share([ThreadProfile("t", (stack,), (1.0,))])


def test_nothing_was_seen() -> None:
    """Without stacks there are no parts."""
    assert loader_share([]) == 0.0
    assert function_times([]) == ()
