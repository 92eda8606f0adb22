"""Training on several ranks: two real processes over gloo, and what the environment says of ranks and nodes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

import fastio
from fastio.errors import FastioError
from fastio.measure.trainer.distributed import every_rank, local_device, mean_over_ranks, process_group, rendezvous
from tests.conftest import encode, pictures, write_store
from tests.warm_python import WarmPython

ROOT = Path(fastio.__file__).parents[1]
SECONDS = 250  # after which two processes that wait for one another are killed
# Trains an epoch on one rank, and writes what it has seen: the sums of samples, losses, weights at the end.
SCRIPT = """
import json, os, sys
from pathlib import Path
import torch
from fastio.measure.loop.data import DataOptions
from fastio.measure.trainer.run import MODELS, open_training, train
from fastio.measure.trainer.step import StepOptions, TrainStep
from fastio.measure.trainer.distributed import process_group

store, out, number = sys.argv[1:]
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
    del os.environ[name]
os.environ |= {"SLURM_PROCID": number, "SLURM_STEP_NUM_TASKS": "2"}
torch.set_num_threads(1)
settings, seen = StepOptions(), []
with process_group(settings.device) as (rank, world_size):
    with open_training(store, MODELS["cifar10cnn"], DataOptions(batch_size=4), settings=settings) as (data, workload):
        step = TrainStep(workload, settings)

        def noted(batch):
            seen.append(batch[0].double().sum(dim=(1, 2, 3)).tolist())
            return step(batch)

        noted.options = settings
        result = train(data, noted, len(data.loader))
said = {
    "world_size": world_size,
    "samples": seen,
    "losses": result.losses,
    "weights": [float(part.double().sum()) for part in step.network.parameters()],
}
Path(out, f"{rank}.json").write_text(json.dumps(said))
"""
# Rank 1 leaves the group once both have met, rank 0 goes on, and says in one line what it makes of that.
ENDING = """
import sys, torch
from fastio.errors import FastioError
from fastio.measure.trainer.distributed import mean_over_ranks, process_group

try:
    with process_group(torch.device("cpu")) as (rank, _):
        mean_over_ranks([1.0])
        if rank == 0:
            mean_over_ranks([1.0])
except FastioError as exc:
    sys.exit(str(exc))
"""
# Ends right after both have told each other something, and its main thread gives the interpreter to no other thread
# that waits for it: what torch's threads do then, they do while Python ends.
LEAVING = """
import sys, torch
from fastio.measure.trainer.distributed import every_rank, mean_over_ranks, process_group

sys.setswitchinterval(1000)
with process_group(torch.device("cpu")) as (rank, _):
    kept = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    for _ in range(20):
        assert [0, 1] == every_rank(rank)
        assert [0.5, 7.0] == mean_over_ranks([float(rank), 7.0])
"""


# Rank 1 takes its time over each value, while rank 0, which holds them all, has nothing left to do.
SLOW = """
import pickle, time, torch
from types import SimpleNamespace
from fastio.measure.trainer import distributed

with distributed.process_group(torch.device("cpu")) as (rank, _):
    if rank == 1:
        loads = lambda data: time.sleep(1) or pickle.loads(data)
        distributed.pickle = SimpleNamespace(dumps=pickle.dumps, loads=loads)
    assert [0, 1] == distributed.every_rank(rank)
"""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    """This one without another launcher's words, and the ranks' own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "TORCHELASTIC_"))}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Twenty pictures of ten classes."""
    values = [encode(pixels) for pixels in pictures(20, (32, 32, 3))]
    return write_store(tmp_path / "train.lmdb", values, np.arange(20, dtype=np.int64) % 10)


def test_two_ranks(store: Path, tmp_path: Path, warm_torch: WarmPython) -> None:
    """As srun starts them: each sample once an epoch over both, equal batches, losses, and weights to the bit."""
    done = warm_torch.run_ranks(SCRIPT, str(store), str(tmp_path), count=2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in "01")

    assert 2 == first["world_size"] == second["world_size"]
    assert [4, 4, 2] == [len(batch) for batch in first["samples"]] == [len(batch) for batch in second["samples"]]
    assert 20 == len({sample for each in (first, second) for batch in each["samples"] for sample in batch})
    assert first["losses"] == second["losses"]
    assert first["weights"] == second["weights"]


def test_torchrun(store: Path) -> None:
    """The command line under the launcher itself: rank 0 alone prints, for both."""
    arguments = ["bench", "train", "--model", "cifar10cnn", "--data", str(store), "--steps", "4", "--batch-size", "5"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*launcher, "-m", "fastio", *arguments, "--device", "cpu", "--json"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)

    assert [10, 10] == [each["samples"] for each in said["ranks"]]
    assert 4 == len(said["losses"])


@pytest.mark.parametrize("script", [LEAVING, SLOW], ids=["at once", "slowly"])
def test_leaving(script: str) -> None:
    """
    No thread of torch is killed in the middle of its work when the program ends (it would abort the process), and no
    rank ends while another one still reads what it holds.
    """
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [subprocess.Popen([sys.executable, "-c", script], env=environment(**meeting, RANK=rank)) for rank in "01"]
    try:
        assert [0, 0] == [each.wait(SECONDS) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
            each.wait()


def test_a_rank_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting ends, with one line that says for whom."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(FastioError, match=r"rank 1 of 2: cannot meet the others at 127\.0\.0\.1"),
        process_group(torch.device("cpu"), timeout=timedelta(seconds=1)),
    ):
        pass


def test_a_rank_that_ends() -> None:
    """The others are told so in one line, and do not wait."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", ENDING], env=environment(**meeting, RANK=rank), stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    try:
        said = [each.communicate(timeout=SECONDS)[1].strip() for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    assert [1, 0] == [each.returncode for each in ranks]
    assert said[0].startswith("rank 0 of 2: another rank has ended or does not answer (")
    assert "by peer" in said[0]
    assert "\n" not in said[0]


def test_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process group, and everything brought together is one's own."""
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    with process_group(torch.device("cpu")) as ranks:
        assert (0, 1) == ranks
        assert not torch.distributed.is_initialized()
    assert ["mine"] == every_rank("mine")
    assert [1.5] == mean_over_ranks([1.5])


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "localhost:29500"),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "7", "SLURM_JOB_NODELIST": "b[1-2]"}, "a:7"),
        ({"SLURM_JOB_NODELIST": "gpu7", "SLURM_JOB_ID": "123456"}, "gpu7:29956"),
        ({"SLURM_JOB_NODELIST": "n[03-05,9],m1", "SLURM_JOB_ID": "1000"}, "n03:29500"),
        ({"SLURM_JOB_NODELIST": "a-b-1,c"}, "a-b-1:29500"),
        ({"SLURM_JOB_NODELIST": "r[1-2]n[07,9]-ib,c"}, "r1n07-ib:29500"),
        ({"SLURM_JOB_NODELIST": "a[1-4]", "SLURM_STEP_NODELIST": "a[3-4]"}, "a3:29500"),
        ({"SLURM_JOB_NODELIST": "", "SLURM_JOB_ID": "x", "MASTER_ADDR": ""}, "localhost:29500"),
    ],
)
def test_where_ranks_meet(environ: dict[str, str], expected: str) -> None:
    """The launcher's word first, then the first node of the job."""
    assert expected == rendezvous(environ)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "a", "WORLD_SIZE": "2"}, "RANK='a', WORLD_SIZE='2': expected whole numbers"),
        ({"RANK": "5", "WORLD_SIZE": "2"}, "expected 0 <= rank < world_size, got rank 5 of 2"),
    ],
)
def test_ranks_that_are_none(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], message: str) -> None:
    """A launcher's words that make no sense end a command in one line."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FastioError, match=re.escape(message)), process_group(torch.device("cpu")):
        pass


def test_a_place_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """LOCAL_RANK that is no number is named."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(FastioError, match="LOCAL_RANK='x': expected a whole number"):
        local_device("cuda", environ={"LOCAL_RANK": "x"})


def test_the_gpu_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its place on the node, unless it sees its own alone."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    seen = [local_device(name, environ={"LOCAL_RANK": "2"}) for name in ("cuda", None, "cpu")]

    assert [torch.device("cuda", 2), torch.device("cuda", 2), torch.device("cpu")] == seen
    assert torch.device("cuda", 3) == local_device("cuda", environ={"SLURM_LOCALID": "7"})
    assert torch.device("cuda", 0) == local_device("cuda", environ={})
