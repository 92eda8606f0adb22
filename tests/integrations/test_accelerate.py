"""FastLoader under a real Accelerator: shared out once, not twice, and accelerate knows where an epoch ends."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator, ParallelismConfig, skip_first_batches
from accelerate.data_loader import prepare_data_loader
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, LengthBucketSampler
from fastio.integrations.accelerate import PreparedLoader, prepare_loader
from fastio.integrations.factory import LoaderFactory
from tests.integrations.conftest import COUNT


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    """One process on the CPU; what accelerate keeps for the whole process is forgotten afterwards."""
    yield Accelerator(cpu=True)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    PartialState._reset_state()


def factory(store: Path, **options: Any) -> LoaderFactory:
    """Batches of 4, the last of 3."""
    return partial(FastLoader, store, 4, **{"shuffle": "full", "threads": 1, **options})


def taken(batches: Any) -> list[list[int]]:
    """The indices of each batch."""
    return [labels.tolist() for _, labels in batches]


def test_epochs_are_those_of_the_loader(store: Path, accelerator: Accelerator) -> None:
    """Each epoch has every sample once, in FastLoader's own order; set_epoch names one."""
    loader = prepare_loader(accelerator, factory(store))
    with FastLoader(store, 4, shuffle="full") as plain:
        expected = [taken(plain) for _ in range(3)]

    assert expected == [taken(loader), taken(loader), taken(loader)]
    loader.set_epoch(1)
    assert expected[1:] == [taken(loader), taken(loader)]
    assert len(loader) == 6
    assert len(loader.dataset) == COUNT


def test_prepare_lets_it_pass(store: Path, accelerator: Accelerator) -> None:
    """``prepare`` neither shares it out nor wraps it, a FastLoader alone neither."""
    loader = prepare_loader(accelerator, factory(store))
    model = torch.nn.Linear(1, 1)
    _, same = accelerator.prepare(model, loader)
    assert same is loader
    assert accelerator._dataloaders == [loader]
    assert list(range(COUNT)) == sorted(chain(*taken(same)))
    with FastLoader(store, 4) as alone:
        assert accelerator.prepare(alone) is alone


def test_the_end_of_an_epoch_ends_an_accumulation(store: Path, accelerator: Accelerator) -> None:
    """Of 6 batches, 4 accumulated: steps behind the 4th and behind the last."""
    accelerator.gradient_accumulation_steps = 4
    loader = prepare_loader(accelerator, factory(store))
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    for _ in range(2):
        steps = []
        for number, _ in enumerate(loader):
            with accelerator.accumulate(model):
                if accelerator.sync_gradients:
                    steps.append(number)
        assert [3, 5] == steps
    assert not accelerator.gradient_state.in_dataloader


def test_a_loop_left_early_leaves_nothing_behind(store: Path, accelerator: Accelerator) -> None:
    """accelerate does not take the loop for running any more; the next one is the next epoch."""
    loader = prepare_loader(accelerator, factory(store))
    for _ in loader:
        assert accelerator.gradient_state.in_dataloader
        break
    assert not accelerator.gradient_state.in_dataloader
    with FastLoader(store, 4, shuffle="full") as plain:
        plain.set_epoch(1)
        assert taken(plain) == taken(loader)


@pytest.mark.parametrize("had", [0, 1, 5, 6])
def test_save_state_keeps_the_position(store: Path, accelerator: Accelerator, tmp_path: Path, had: int) -> None:
    """After load_state the next loop has what the saved one had not had."""
    loader = prepare_loader(accelerator, factory(store))
    taken(loader)
    batches = iter(loader)
    for _ in range(had):
        next(batches)
    accelerator.save_state(tmp_path)
    rest, following = taken(batches), taken(loader)
    other = prepare_loader(accelerator, factory(store))
    accelerator._dataloaders = [other]
    accelerator.load_state(tmp_path)

    assert [rest, following] == [taken(other), taken(other)]


def test_a_state_of_another_loader_is_refused(store: Path, accelerator: Accelerator, tmp_path: Path) -> None:
    """Its position would mean other samples."""
    loader = prepare_loader(accelerator, factory(store))
    next(iter(loader))
    accelerator.save_state(tmp_path)
    accelerator._dataloaders = [prepare_loader(accelerator, factory(store, seed=1))]
    with pytest.raises(ValueError, match="seed is 0 in the state and 1 here"):
        accelerator.load_state(tmp_path)


def test_a_finished_epoch_resumes_at_the_next(store: Path, accelerator: Accelerator) -> None:
    """After the loop nothing of the epoch is left."""
    loader = prepare_loader(accelerator, factory(store))
    taken(loader)
    state, following = loader.state_dict(), taken(loader)
    assert (1, None) == (state["epoch"], state["consumed"])
    loader.load_state_dict(state)
    assert following == taken(loader)


@pytest.mark.parametrize("skip", [0, 1, 5, 6])
def test_skipped_batches_are_not_read(store: Path, accelerator: Accelerator, skip: int) -> None:
    """``skip_first_batches`` gives exactly the rest, and the loader decodes no more than that."""
    loader = prepare_loader(accelerator, factory(store, prefetch_batches=1))
    expected = taken(loader)[skip:]
    before = loader.loader.stats.samples
    loader.set_epoch(0)

    assert expected == taken(skip_first_batches(loader, skip))
    assert sum(map(len, expected)) == loader.loader.stats.samples - before


def test_skipping_batches_of_a_bare_loader_is_refused(store: Path, accelerator: Accelerator) -> None:
    """accelerate would build a DataLoader without transforms around it."""
    with FastLoader(store, 4) as alone, pytest.raises(TypeError, match="use load_state_dict"):
        taken(skip_first_batches(alone, 1))


def test_metrics_leave_out_what_was_repeated(store: Path, accelerator: Accelerator) -> None:
    """Behind the last step, of two ranks with 4 samples each, 7 of 8 gathered ones are new."""
    for uneven, batch_size, expected in (("pad", 4, 7), ("repeat", 8, 7), ("drop", 4, 0)):
        loader = FastLoader(store, batch_size, rank=0, world_size=2, uneven=uneven, threads=1)
        prepared = PreparedLoader(loader, lambda batch: batch)
        remainders = [accelerator.gradient_state.remainder for _ in prepared]
        assert expected == remainders[-1]
        loader.close()


def prepared(store: Path, rank: int = 0, world_size: int = 1, *, batch_size: int = 4, **options: Any) -> PreparedLoader:
    """The loader of one rank, as ``prepare_loader`` makes it there."""
    loader = FastLoader(store, batch_size, rank=rank, world_size=world_size, shuffle="full", threads=1, **options)
    return PreparedLoader(loader, lambda batch: batch)


DIVISIONS = [(2, 4), (1, 4), (3, 2), (1, 3), (2, 1)]


@pytest.mark.parametrize("before", DIVISIONS)
@pytest.mark.parametrize("after", DIVISIONS)
def test_other_processes_and_batch_sizes_continue(
    store: Path, accelerator: Accelerator, before: tuple[int, int], after: tuple[int, int]
) -> None:
    """
    Each sample comes once, but for what the last step repeats, and ``gather_for_metrics`` knows how many that are.

    The end of the epoch is announced with the last batch of what is left.
    """
    (old_ranks, old_size), (ranks, size) = before, after
    state: Any = None
    first: list[int] = []
    for rank in range(old_ranks):
        loader = prepared(store, rank, old_ranks, batch_size=old_size)
        first += chain(*taken(islice(loader, 2)))
        state = loader.state_dict() if rank == 0 else state
        loader.close()
    steps: list[list[int]] = []
    for rank in range(ranks):
        loader = prepared(store, rank, ranks, batch_size=size)
        loader.load_state_dict(state)
        left = loader.loader.remaining
        ends = []
        for number, (_, labels) in enumerate(loader):
            ends.append(accelerator.gradient_state.end_of_dataloader)
            steps += [[]] if rank == 0 else []
            steps[number] += labels.tolist()
            remainder = accelerator.gradient_state.remainder
        assert [False] * (left - 1) + [True] == ends
        assert len(loader) == -(-COUNT // (ranks * size))
        loader.close()
    if remainder:
        steps[-1] = steps[-1][:remainder]

    assert list(range(COUNT)) == sorted([*first, *chain(*steps)])


def test_a_state_that_counts_batches_continues_on_other_processes(store: Path, accelerator: Accelerator) -> None:
    """As fastio saved it before states counted samples (version 2): two ranks had two batches of 4 each."""
    had: set[int] = set()
    for rank in range(2):
        loader = prepared(store, rank, 2)
        had |= set(chain(*taken(islice(loader, 2))))
        state = loader.state_dict()
        loader.close()
    old = {**state, **state["division"], "version": 2, "batch": 2}
    del old["division"], old["consumed"]
    for ranks, size in DIVISIONS:
        seen: list[int] = []
        for rank in range(ranks):
            other = prepared(store, rank, ranks, batch_size=size)
            other.load_state_dict(old)
            assert state["consumed"] == other.state_dict()["consumed"] == len(had)
            seen += chain(*taken(other))
            other.close()
        assert set(range(COUNT)) - had <= set(seen)
        assert len(seen) < COUNT - len(had) + ranks


def test_skipping_after_a_loaded_position_is_refused(store: Path, accelerator: Accelerator) -> None:
    """It would skip batches that have not been trained on; of no batch it is harmless."""
    loader = prepared(store)
    running = iter(loader)
    next(running)
    state, rest = loader.state_dict(), taken(running)
    for skipped in (1, 5, 9):
        loader.load_state_dict(state)
        with pytest.raises(ValueError, match=r"continues the epoch behind the batches .* iterate the loader itself"):
            taken(skip_first_batches(loader, skipped))
    loader.load_state_dict(state)
    assert rest == taken(skip_first_batches(loader, 0))
    loader.close()


def test_a_sampler_of_one_rank_is_shared_out_by_accelerate(store: Path, accelerator: Accelerator) -> None:
    """As the guide says of torch's DataLoader with a sampler of ours: accelerate gives each process its batches."""
    taken_by = []
    with FastDataset(store) as dataset:
        for rank in range(2):
            sampler = LengthBucketSampler(dataset.lengths, batch_size=4, rank=0, world_size=1)
            loader = DataLoader(dataset, batch_sampler=sampler)
            prepared = prepare_data_loader(loader, num_processes=2, process_index=rank, even_batches=False)
            taken_by.append(set(chain(*taken(prepared))))
    assert taken_by[0] | taken_by[1] == set(range(COUNT))
    assert not taken_by[0] & taken_by[1]


def test_a_factory_that_keeps_the_ranks_to_itself_is_refused(store: Path, accelerator: Accelerator) -> None:
    """Its samples would come on every process."""
    two = SimpleNamespace(process_index=1, num_processes=2, device=torch.device("cpu"))
    with pytest.raises(ValueError, match="for rank 0 of 1, but this process is rank 1 of 2"):
        prepare_loader(two, lambda **_: FastLoader(store, 4, rank=0, world_size=1))  # type: ignore[arg-type]


class Mesh:
    """What accelerate and fastio ask of a DeviceMesh, for one of its processes."""

    def __init__(self, sizes: dict[str, int], process: int) -> None:
        self.mesh_dim_names, self.shape = tuple(sizes), tuple(sizes.values())
        self._process = process

    def get_coordinate(self) -> tuple[int, ...]:
        return tuple(map(int, np.unravel_index(self._process, self.shape)))

    def __getitem__(self, name: str) -> Any:
        return SimpleNamespace(size=lambda: self.shape[self.mesh_dim_names.index(name)])


@pytest.mark.parametrize(
    "sizes",
    [
        {"dp_shard": 2, "tp": 2},
        {"dp_replicate": 2, "dp_shard": 2, "cp": 2},
        {"dp_shard": 2, "cp": 2, "tp": 2},
        {"tp": 4},
    ],
)
def test_processes_that_share_a_model_get_the_same(
    store: Path, accelerator: Accelerator, sizes: dict[str, int]
) -> None:
    """As accelerate divides a DataLoader among the processes of the same mesh."""
    config, processes = (
        ParallelismConfig(**{f"{name}_size": size for name, size in sizes.items()}),
        prod(sizes.values()),
    )
    plain = DataLoader(range(COUNT), batch_size=4)  # type: ignore[arg-type]
    for process in range(processes):
        mesh: Any = Mesh(sizes, process)
        one = SimpleNamespace(
            parallelism_config=config,
            torch_device_mesh=mesh,
            process_index=process,
            num_processes=processes,
            device=torch.device("cpu"),
            prepare_data_loader=lambda loader: loader,
        )
        loader = prepare_loader(one, factory(store, shuffle=False)).loader  # type: ignore[arg-type]
        theirs = prepare_data_loader(plain, None, processes, process, torch_device_mesh=mesh)
        groups = prod(size for name, size in sizes.items() if name.startswith("dp"))

        assert groups == loader.world_size
        assert next(iter(theirs)).tolist() == [4 * loader.rank + index for index in range(4)]


def test_sequence_parallelism_of_deepspeed_is_refused(store: Path) -> None:
    """It has groups of its own, and shares out batches within them."""
    one = SimpleNamespace(parallelism_config=ParallelismConfig(sp_size=2), process_index=1, num_processes=2)
    with pytest.raises(ValueError, match="sp_size=2: DeepSpeed shares out the batches"):
        prepare_loader(one, factory(store))  # type: ignore[arg-type]
