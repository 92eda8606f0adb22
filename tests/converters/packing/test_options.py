"""Which part a process packs: as it was told, or as its launcher says."""

from __future__ import annotations

import pytest

from fastio.converters import Part


def array(task, low=0, high=9, count=10, step=1):
    """The variables of a task of a SLURM array."""
    names = ("ID", "MIN", "MAX", "COUNT", "STEP")
    values = (task, low, high, count, step)
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in zip(names, values, strict=True)}


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        (array(3), Part(3, 10)),
        (array(7, 1, 10), Part(6, 10)),
        (array(6, 2, 10, 5, 2), Part(2, 5)),
        ({"RANK": "2", "WORLD_SIZE": "4"}, Part(2, 4)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3"}, Part(1, 3)),
        ({**array(1, 0, 1, 2), "RANK": "2", "WORLD_SIZE": "4"}, Part(6, 8)),
        ({**array(1, 0, 1, 2), "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, Part(1, 2)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Part(0, 1)),
        ({"JOB_COMPLETION_INDEX": "2", "FASTIO_PARTS": "5"}, Part(2, 5)),
    ],
    ids=str,
)
def test_a_launcher_says_which_part(environ, part):
    """SLURM arrays, torchrun, srun, ranks within tasks of arrays, and pods of indexed jobs."""
    assert part == Part.parse("auto", environ)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "was started by no SLURM array"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "was started by no SLURM array"),
        (array(3, 1, 7, 3), "ids are not evenly spaced"),
        ({"SLURM_ARRAY_TASK_ID": "3"}, "SLURM_ARRAY_TASK_MIN='': expected a whole number"),
        ({"JOB_COMPLETION_INDEX": "2"}, "set FASTIO_PARTS"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "rank 4 of 4"),
    ],
    ids=str,
)
def test_what_no_part_can_be_told_from(environ, message):
    """A wrong guess would leave shards unpacked or packed twice: it is an error that says what to type."""
    with pytest.raises(ValueError, match=message):
        Part.parse("auto", environ)


@pytest.mark.parametrize("text", ["", "3", "4/4", "-1/4", "1/0", "a/b", "1/2/3", "1 / 2"])
def test_a_part_is_two_numbers(text):
    """Parts count from 0."""
    with pytest.raises(ValueError, match="expected i/n with i from 0 to n - 1"):
        Part.parse(text)
