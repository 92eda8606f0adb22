"""Profiles of py-spy: times by function, the loader's part, files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch.utils.data

import fastio
from fastio.errors import FastioError
from fastio.measure.trace.speedscope import Frame, ThreadProfile, function_times, loader_share, read_speedscope

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
