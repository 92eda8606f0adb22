"""Whose samples an object hands out: found when it is built, and refused where that has changed since."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler, Ranks
from fastio.samplers import share as by_node
from fastio.samplers.batches import OrderSampler
from fastio.samplers.lanes import LaneOrder, Lanes
from fastio.samplers.order import Division
from fastio.samplers.share import Share, slices_by_node
from tests.conftest import encode, pictures, write_store
from tests.warm_python import WarmPython


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Six pictures of one size."""
    return write_store(tmp_path / "a.lmdb", [encode(each) for each in pictures(6)])


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """A function that begins a process group, of which this process is rank 0 of 1."""
    distributed = torch.distributed
    yield lambda: distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "meeting"), 1), rank=0, world_size=1
    )
    if distributed.is_initialized():
        distributed.destroy_process_group()


def test_what_is_passed_is_not_found() -> None:
    """Only what nobody named can have become wrong."""
    assert Share(1, 2, is_found=False) == Share.of(1, 2)
    assert Share(0, 1, is_found=True) == Share.of(None, None)


MAKERS: dict[str, Callable[..., Any]] = {
    "FastLoader": lambda dataset, **ranks: FastLoader(dataset, 2, threads=1, **ranks),
    "LengthBucketSampler": lambda dataset, **ranks: LengthBucketSampler(dataset.lengths, batch_size=2, **ranks),
    "PackSampler": lambda dataset, **ranks: PackSampler(dataset.lengths, max_tokens=1 << 20, **ranks),
    "iterable()": lambda dataset, **ranks: dataset.iterable(**ranks),
}


@pytest.mark.parametrize("name", MAKERS)
def test_ranks_that_have_changed_are_refused(
    store: Path, begin: Callable[[], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Built before torch.distributed began, for other ranks: an error, where samples would come twice or be lost."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with FastDataset(store) as dataset:
        found, given = MAKERS[name](dataset), MAKERS[name](dataset, rank=1, world_size=2)
        assert len(list(found)) == len(list(given))
        begin()
        with pytest.raises(ValueError, match=rf"{name[:-2]}.* for rank 1 of 2, but this process is rank 0 of 1"):
            list(found)
        assert list(given)
        assert list(MAKERS[name](dataset))


def test_a_loader_learns_it_from_its_batch_sampler(
    store: Path, begin: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FastLoader takes its ranks from a sampler, and the sampler's error too."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with FastDataset(store) as dataset:
        sampler = LengthBucketSampler(dataset.lengths, batch_size=2)
        with FastLoader(dataset, batch_sampler=sampler) as loader:
            begin()
            with pytest.raises(ValueError, match="this LengthBucketSampler was built for rank 1 of 2"):
                list(loader)


def test_a_spawned_worker_believes_its_parent(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a process group of its own it takes the ranks that were found at home."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with FastDataset(store) as dataset:
        sent = pickle.dumps(dataset.iterable())
    monkeypatch.delenv("RANK")
    assert len(list(pickle.loads(sent))) == 3


# Ranks by DeviceMesh and replication: neighbours that share a model get the same samples, others share an epoch.


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of one."""
    meeting = tmp_path_factory.mktemp("group") / "meeting"
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.FileStore(str(meeting), 1), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


def mesh_of(*names: str) -> DeviceMesh:
    """A mesh of one process with dimensions of these names."""
    return init_device_mesh("cpu", (1,) * len(names), mesh_dim_names=names)


@pytest.mark.parametrize(
    "names", [("dp",), ("data", "tp"), ("anything",), ("pp", "dp_replicate", "dp_shard", "cp", "tp"), ("dp", "else")]
)
@pytest.mark.usefixtures("group")
def test_dimensions_of_data_are_known_by_name(names: tuple[str, ...]) -> None:
    """Those of torch, torchtitan, accelerate and Lightning; the only dimension of a mesh needs no name."""
    assert Share(0, 1, is_found=False, members=(0,)) == Share.of(None, None, mesh=mesh_of(*names))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("tp",), r"mesh=\(tp=1\) has only 'tp': which of them take different samples\? Name one 'dp', pass that one"),
        (("x", "y"), r"mesh=\(x=1, y=1\) has only 'x', 'y': which"),
        (None, r"mesh=\(1, 1\) has dimensions without names: which"),
    ],
)
@pytest.mark.usefixtures("group")
def test_a_mesh_without_data_is_refused(names: tuple[str, ...] | None, message: str) -> None:
    """Guessing would give each rank all samples, or tensor-parallel neighbours different ones."""
    mesh = mesh_of(*names) if names else init_device_mesh("cpu", (1, 1))
    with pytest.raises(ValueError, match=message):
        Share.of(None, None, mesh=mesh)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("mesh", ["dp", 2, [[0, 1]]])
def test_what_is_no_mesh_is_refused(mesh: Any) -> None:
    """The message names what is expected."""
    with pytest.raises(TypeError, match=r"^mesh=.*: expected a DeviceMesh, as torch.distributed.init_device_mesh"):
        Share.of(None, None, mesh=mesh)


def test_a_mesh_says_all() -> None:
    """Ranks beside it would contradict it sooner or later."""
    for others in ({"rank": 0, "world_size": 1}, {"rank": None, "world_size": None, "replication": 2}):
        with pytest.raises(ValueError, match="mesh= says which samples this process gets: drop rank="):
            Share.of(**others, mesh=mesh_of("dp"))  # type: ignore[arg-type]


def test_replication_divides_the_ranks() -> None:
    """Three processes in a row share a rank."""
    shares = [Share.of(process, 6, replication=3) for process in range(6)]

    assert [0, 0, 0, 1, 1, 1] == [share.rank for share in shares]
    assert {2} == {share.world_size for share in shares}
    assert [(process, 6) for process in range(6)] == [share.process for share in shares]


@pytest.mark.parametrize(
    ("replication", "message"),
    [
        (4, "replication=4: 6 processes cannot be divided into groups of 4"),
        (0, "replication=0: expected 1 or more"),
        (True, "replication=True: expected 1 or more"),
        (1.0, r"replication=1\.0: expected 1 or more"),
    ],
)
def test_replication_that_does_not_divide_is_refused(replication: Any, message: str) -> None:
    """Some process would be left over."""
    with pytest.raises(ValueError, match=message):
        Share.of(0, 6, replication=replication)


def test_another_rank_than_the_samplers_is_refused(tmp_path: Path) -> None:
    """A DistributedSampler for four, and a loader whose processes are two ranks."""
    store = write_store(tmp_path / "a.lmdb", [encode(part) for part in pictures(8)])
    sampler: Any = torch.utils.data.DistributedSampler(pictures(8), num_replicas=4, rank=1)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="rank=0, world_size=2: DistributedSampler draws for rank 1 of 4"):
        FastLoader(store, 2, sampler=sampler, rank=1, world_size=4, ranks=Ranks(replication=2))


# What each of four processes does: the indices of two epochs of each loader.
SCRIPT = """
import json, sys
import torch
from torch.distributed.device_mesh import init_device_mesh
from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler, Ranks

path, out, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
torch.distributed.init_process_group(
    "gloo", store=torch.distributed.FileStore(out + "/meeting", 4), rank=rank, world_size=4
)
dp_tp = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
tp_dp = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tp", "dp"))
hybrid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
part = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tp", "dp"))["dp"]
dataset = FastDataset(path)
result = {}


def epochs(name, loader):
    result[name] = [[ids for batch in loader.numbered() for ids in batch.indices.tolist()] for _ in range(2)]


options = {"shuffle": "full", "threads": 1}
epochs("dp_tp", FastLoader(dataset, 4, **options, ranks=Ranks(mesh=dp_tp)))
epochs("tp_dp", FastLoader(dataset, 4, **options, ranks=Ranks(mesh=tp_dp)))
epochs("hybrid", FastLoader(dataset, 4, **options, ranks=Ranks(mesh=hybrid)))
epochs("part", FastLoader(dataset, 4, **options, ranks=Ranks(mesh=part)))
epochs("replication", FastLoader(dataset, 4, **options, ranks=Ranks(replication=2)))
lengths = [16] * len(dataset)
for name, option in (("mesh", {"mesh": tp_dp}), ("replication", {"replication": 2})):
    bucket = LengthBucketSampler(lengths, batch_size=4, **option)
    epochs("bucket by " + name, FastLoader(dataset, batch_sampler=bucket, threads=1))
    bins = PackSampler(lengths, max_tokens=64, **option)
    result["pack by " + name] = [[index for batch in bins for index in batch] for _ in range(2)]
    result["iterable by " + name] = [[int(label) for _, label in dataset.iterable(**option)]] * 2
errors = {}
for name, option in (("mesh", {"mesh": dp_tp}), ("replication", {"replication": 4})):
    loader = FastLoader(dataset, 4, **options, **option)
    loader.set_epoch(rank % 2)
    try:
        list(loader)
    except ValueError as exc:
        errors[name] = str(exc)
    torch.distributed.barrier()
result["errors"] = errors
with open(out + f"/{rank}.json", "w") as file:
    json.dump(result, file)
torch.distributed.destroy_process_group()
"""
COUNT = 48


@pytest.fixture(scope="module")
def epochs(tmp_path_factory: pytest.TempPathFactory, warm_torch: WarmPython) -> list[dict[str, Any]]:
    """What four real processes were given, by loader."""
    folder = tmp_path_factory.mktemp("mesh")
    path = write_store(folder / "a.lmdb", [encode(part) for part in pictures(COUNT)], np.arange(COUNT))
    done = warm_torch.run_ranks(SCRIPT, str(path), str(folder), count=4, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("dp_tp", [(0, 1), (2, 3)]),
        ("tp_dp", [(0, 2), (1, 3)]),
        ("hybrid", [(0,), (1,), (2,), (3,)]),
        ("part", [(0, 2), (1, 3)]),
        ("replication", [(0, 1), (2, 3)]),
        *((f"{kind} by mesh", [(0, 2), (1, 3)]) for kind in ("bucket", "pack", "iterable")),
        *((f"{kind} by replication", [(0, 1), (2, 3)]) for kind in ("bucket", "pack", "iterable")),
    ],
)
def test_neighbours_get_the_same_and_others_share(
    epochs: list[dict[str, Any]], name: str, groups: list[tuple[int, ...]]
) -> None:
    """Tensor-parallel neighbours have equal batches; one of each share has, with the others, each sample once."""
    for epoch in range(2):
        for neighbours in groups:
            assert 1 == len({tuple(epochs[rank][name][epoch]) for rank in neighbours})
        together = chain.from_iterable(epochs[neighbours[0]][name][epoch] for neighbours in groups)
        assert list(range(COUNT)) == sorted(together)


@pytest.mark.timeout(300)
def test_neighbours_that_differ_are_found(epochs: list[dict[str, Any]]) -> None:
    """Those that share a model too, where all ranks read the same samples."""
    for name in ("mesh", "replication"):
        messages = [part["errors"][name] for part in epochs if name in part["errors"]]
        assert 2 == len(messages)
        for message in messages:
            assert "has epoch=0" in message
            assert "has epoch=1" in message


# Slices of a step by node: what they save, and that no sample comes twice or never.

CYCLIC = {
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_DISTRIBUTION": "cyclic",
}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks as one of four ranks, which share a key-value store."""
    store = torch.distributed.HashStore()
    module = SimpleNamespace(_get_default_store=lambda: store)
    monkeypatch.setitem(by_node.sys.modules, "torch.distributed.distributed_c10d", module)

    def asked(rank: int, environ: dict[str, str], share: Share | None = None) -> list[int] | None:
        monkeypatch.setattr(by_node, "process_group_ranks", lambda: (rank, 4))
        for name in CYCLIC:
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return slices_by_node(share or Share(rank, 4, is_found=True))

    return asked


def test_ranks_of_a_node_are_neighbours(ask: Any) -> None:
    """Ranks 0 and 2 are on one node, 1 and 3 on the other; whatever a later rank may be told, the first decides."""
    assert [0, 2, 1, 3] == ask(1, CYCLIC)
    assert [0, 2, 1, 3] == ask(0, {})


def test_the_first_rank_decides_for_its_own_slice_too(ask: Any) -> None:
    """Two ranks that saw different variables would take the same samples."""
    assert ask(0, {}) is None
    assert ask(1, CYCLIC) is None


@pytest.mark.parametrize(
    "share",
    [Share(1, 8, is_found=False), Share(0, 2, is_found=True, replication=2), Share(1, 4, False, members=(1, 3))],
)
def test_other_ranks_take_their_own(ask: Any, share: Share) -> None:
    """Those passed by hand, of a mesh, or that are shared."""
    assert ask(1, CYCLIC, share) is None


@pytest.mark.parametrize("consumed", [None, 37])
def test_each_sample_comes_once(consumed: int | None) -> None:
    """The ranks together have what they have without; the last step, with its repetitions, goes by rank."""

    def plans(slices: list[int] | None) -> list[Any]:
        planned = []
        for rank in range(4):
            sampler = OrderSampler(
                Division(1000, 7, 4), rank=rank, shuffle=True, seed=3, sizes=lambda: np.full(1000, 1 << 16)
            )
            sampler.adopt({"kind": "lanes", "lanes": 4, "rounds": 8, "window": 2})
            sampler.slices = slices
            planned.append(sampler.plan(1, consumed))
        return planned

    own, by_node = plans(None), plans([0, 2, 1, 3])
    full = len(own[0].indices) // 7 * 7

    assert [plan.indices[:full].tolist() for plan in by_node] == [own[n].indices[:full].tolist() for n in (0, 2, 1, 3)]
    assert [plan.indices[full:].tolist() for plan in by_node] == [plan.indices[full:].tolist() for plan in own]
    assert [plan.padding for plan in by_node] == [plan.padding for plan in own]


def test_a_node_reads_fewer_blocks() -> None:
    """128 ranks in 64 lanes on 16 nodes, tasks in turn: a block is read by 2.3 nodes, or by 1.2."""
    division, nodes = Division(50_000, 8, 128), np.arange(128) % 16
    order = LaneOrder(Lanes(64, 20), 50_000, seed=0, epoch=0)
    by_node = np.empty(128, np.int64)
    by_node[np.argsort(nodes, kind="stable")] = np.arange(128)
    shares, full = order.shares(division, range(128)), division.full_steps * division.batch_size

    def reads(slices: Any) -> float:
        taken = np.concatenate((shares[slices, :full], shares[:, full:]), axis=1)  # the last step goes by rank
        blocks = np.searchsorted(order.edges, order.order[taken], side="right")
        return sum(len(np.unique(blocks[nodes == node])) for node in range(16)) / (len(order.edges) - 1)

    assert 2.3 == pytest.approx(reads(np.arange(128)), abs=0.05)
    assert 1.2 == pytest.approx(reads(by_node), abs=0.05)
