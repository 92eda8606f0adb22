"""Ranks that do not go through the same samples are found and named; ranks that do never wait."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest
import torch.distributed
from hypothesis import given
from hypothesis import strategies as st

from fastio.samplers.agreement import Agreement, Notes
from fastio.samplers.share import Share
from tests.conftest import encode, pictures, write_store
from tests.warm_python import WarmPython


class Rank:
    """One of three ranks in this process, which share a key-value store; its loaders are built and compared here."""

    def __init__(self, rank: int, store: torch.distributed.Store) -> None:
        self.share = Share(rank, 3, is_found=False)
        self.store = store
        self.notes = Notes()

    def build(self, **options: Any) -> Agreement:
        ask: Any = lambda: self.store  # noqa: E731 - torch's stores declare more types than they take
        return Agreement(self.share, "a.lmdb", lambda: options, notes=self.notes, ask=ask)


def three_ranks() -> list[Rank]:
    store = torch.distributed.HashStore()
    return [Rank(rank, store) for rank in range(3)]


@pytest.fixture
def ranks() -> list[Rank]:
    """Three ranks."""
    return three_ranks()


def test_both_values_are_named(ranks: list[Rank]) -> None:
    """The rank that differs from the first is told in one line."""
    odd, *others = (rank.build(seed=seed, store=5) for rank, seed in zip(ranks, (2, 1, 1), strict=True))
    for other in others:
        other.compare({"epoch": 0})

    message = r"^a.lmdb: rank 0 has seed=2, but rank 1 has seed=1: samples would come twice or never: [^\n]*$"
    with pytest.raises(ValueError, match=message):
        odd.compare({"epoch": 0})


def test_a_missing_option_is_named(ranks: list[Rank]) -> None:
    """Loaders of two kinds have different options."""
    first, second = ranks[0].build(shuffle=True), ranks[1].build(sampler="RandomSampler")
    first.compare({})

    with pytest.raises(ValueError, match="rank 1 has shuffle=None, sampler='RandomSampler', but rank 0 has shuffle=Tr"):
        second.compare({})


def test_another_beginning_is_named(ranks: list[Rank]) -> None:
    """A state that was loaded on one rank only."""
    first, second, _ = (rank.build() for rank in ranks)
    first.compare({"epoch": 3, "consumed": 640})

    with pytest.raises(ValueError, match="rank 1 has epoch=0, consumed=None, but rank 0 has epoch=3, consumed=640: "):
        second.compare({"epoch": 0, "consumed": None})


@given(orders=st.lists(st.permutations(range(4)), min_size=3, max_size=3), turns=st.permutations([0, 1, 2] * 4))
def test_loaders_may_be_iterated_in_any_order(orders: list[list[int]], turns: list[int]) -> None:
    """Each rank its own, and however fast the ranks are; two of the four are alike."""
    built = [[rank.build(store=number % 3) for number in range(4)] for rank in three_ranks()]
    for rank in turns:
        built[rank][orders[rank].pop()].compare({"epoch": 0})


@given(alone=st.tuples(st.integers(0, 2), st.integers(0, 2)), turns=st.permutations([0, 1, 2] * 6))
def test_a_rank_may_go_through_a_loader_alone(alone: tuple[int, int], turns: list[int]) -> None:
    """One that all have built; its next ones then have other numbers than on the other ranks."""
    work = []
    for number, rank in enumerate(three_ranks()):
        loaders = [rank.build(store=kind) for kind in range(4)]
        steps = [(loaders[kind], epoch) for kind in range(3) for epoch in range(2)]
        if alone[0] == number:
            steps.insert(2 * alone[1], (loaders[3], 0))
        work.append((loaders, iter(steps)))
    for number in turns:
        loader, epoch = next(work[number][1])
        loader.compare({"epoch": epoch})


def test_starts_of_a_loader_come_in_one_order(ranks: list[Rank]) -> None:
    """A rank that is behind, or that repeats an epoch, is no other rank; one that is an epoch ahead for good is."""
    first, second, third = (rank.build() for rank in ranks)
    for epoch in (0, 0, 1, 2):
        first.compare({"epoch": epoch})
    for epoch in (0, 1, 1, 2):
        second.compare({"epoch": epoch})

    with pytest.raises(ValueError, match=r"rank 2 has epoch=1, but rank 0 has epoch=0: .*has begun an epoch alone"):
        third.compare({"epoch": 1})


@pytest.mark.parametrize("turns", list(permutations(range(3))))
def test_a_difference_after_equal_loaders_is_found(ranks: list[Rank], turns: tuple[int, ...]) -> None:
    """Whoever comes first, also where the others build the same loader a second time."""
    for rank in ranks:
        rank.build(seed=0).compare({})
    loaders = [rank.build(seed=seed) for rank, seed in zip(ranks, (1, 0, 0), strict=True)]

    def compare_all() -> None:
        for turn in turns:
            loaders[turn].compare({})

    with pytest.raises(ValueError, match=r"rank \d has seed=[01], but rank \d has seed=[01]:"):
        compare_all()


def test_a_dropped_loader_is_forgotten(ranks: list[Rank]) -> None:
    """Nobody comes to it any more, so it is no reason for another order."""

    class Owner:
        def __init__(self, rank: Rank) -> None:
            self.agreement = Agreement(rank.share, "a", self.options, notes=rank.notes, ask=lambda: rank.store)  # type: ignore[arg-type,return-value]

        def options(self) -> dict[str, int]:
            return {"seed": 1}

    first, second, _ = ranks
    Owner(second)
    first.build(seed=1).compare({})

    with pytest.raises(ValueError, match="rank 1 has seed=2, but rank 0 has seed=1"):
        second.build(seed=2).compare({})


def test_objects_are_compared_by_kind(ranks: list[Rank]) -> None:
    """Where functions lie in memory is another address in each process."""
    for rank, address in zip(ranks, ("0x7f00", "0x8f00", "0x9f00"), strict=True):
        rank.build(transforms=f"Cut(<function f at {address}>)", by=object()).compare({})


def test_a_rank_that_keeps_the_store_may_end(ranks: list[Rank]) -> None:
    """The others go on without asking."""

    class Ended:
        def compare_set(self, *_: str) -> bytes:
            raise torch.distributed.DistNetworkError("connection was closed")

    loader = Agreement(ranks[0].share, "a.lmdb", dict, notes=Notes(), ask=Ended)  # type: ignore[arg-type]
    loader.compare({})

    assert not loader.is_open


def test_nobody_to_ask_without_a_process_group() -> None:
    """Ranks that were passed by hand, and a single one."""
    assert not Agreement(Share(1, 2, is_found=False), "a.lmdb", dict, notes=Notes()).is_open
    assert not Agreement(Share(0, 1, is_found=True), "a.lmdb", dict, notes=Notes()).is_open


# What each of three processes does: the loaders of each case, iterated; the errors of all cases are written down.
SCRIPT = """
import json, sys
from itertools import islice
import torch
from fastio import FastDataset, FastLoader, LengthBucketSampler

first, second, out, rank = *sys.argv[1:4], int(sys.argv[4])
torch.set_num_threads(1)
torch.distributed.init_process_group(
    "gloo", store=torch.distributed.FileStore(out + "/meeting", 3), rank=rank, world_size=3
)
OPTIONS = {"shuffle": "full", "threads": 1}
errors = {}


def case(name, *loaders, steps=9, before=lambda loader: None):
    try:
        for loader in loaders:
            before(loader)
            for _ in islice(loader, steps):
                pass
    except ValueError as exc:
        errors[name] = str(exc)
    torch.distributed.barrier()


def build(path=first, size=4, **options):
    return FastLoader(path, size, **{**OPTIONS, **options})


odd = rank == 1
case("equal", build(), build(second), build(shuffle=False), FastDataset(first).iterable(), steps=40)
case("other seed", build(seed=7 if odd else 5))
case("other store", build(second if odd else first, seed=8))
case("other batch size", build(size=5 if odd else 4, seed=9))
case("other order", build(shuffle=False if odd else "full", seed=10))
case("other indices", build(indices=range(1, 30) if odd else range(29)))
case("other sampler", build(shuffle=False, sampler=torch.randperm(40).tolist() if odd else list(range(40))))
case("state on one rank", build(), before=lambda loader: odd and loader.skip_to((2, 12, 0)))
case("shorter than two batches", build(size=12, seed=3 if odd else 4))
loaders = build(seed=20), build(second, seed=21)
case("iterated in another order", *(loaders[::-1] if odd else loaders))
train, val = build(seed=22), build(second, shuffle=False)
if odd:
    next(iter(train)), next(iter(val)), next(iter(build(second, seed=23)))
case("looked at alone", train, val, train, val, before=lambda loader: loader is train and loader.set_epoch(0))
train = build(seed=24)
if odd:
    next(iter(train))
case("an epoch begun alone", train)
sampler = LengthBucketSampler(range(1, 41), batch_size=4, seed=3 if odd else 2)
case("other sampler's seed", torch.utils.data.DataLoader(range(40), batch_sampler=sampler))
case("other bucket", FastLoader(first, batch_sampler=LengthBucketSampler(range(1, 41), batch_size=5 if odd else 4)))
case("other store in order", FastDataset(second if odd else first).iterable(), steps=40)
case("ranks by hand", build(rank=0, world_size=2, seed=rank))
case("alone", build(rank=0, world_size=1, seed=rank))
with open(out + f"/{rank}.json", "w") as file:
    json.dump(errors, file)
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory, warm_torch: WarmPython) -> dict[str, list[str]]:
    """The errors of three real processes by case."""
    folder = tmp_path_factory.mktemp("agreement")
    paths = [write_store(folder / f"{n}.lmdb", [encode(part) for part in pictures(40, seed=n)]) for n in range(2)]
    done = warm_torch.run_ranks(SCRIPT, *map(str, paths), str(folder), count=3, cwd=folder)
    assert done.returncode == 0, done.stderr
    by_case: dict[str, list[str]] = {}
    for rank in range(3):
        for case, message in json.loads((folder / f"{rank}.json").read_text()).items():
            by_case.setdefault(case, []).append(message)
    return by_case


@pytest.mark.timeout(300)
def test_real_ranks_that_differ_are_found(errors: dict[str, list[str]]) -> None:
    """On at least one rank, with both values; and no others."""
    expected = {
        "other seed": {"seed=7", "seed=5"},
        "other store": {"store="},
        "other batch size": {"batch_size=5", "batch_size=4"},
        "other order": {"shuffle=False", "shuffle='full'"},
        "other indices": {"indices_crc32="},
        "other sampler": {"order_crc32="},
        "state on one rank": {"epoch=2, consumed=12", "epoch=0, consumed=None"},
        "shorter than two batches": {"seed=3", "seed=4"},
        "other sampler's seed": {"seed=3", "seed=2"},
        "other bucket": {"batch_size=5", "batch_size=4"},
        "other store in order": {"store="},
        "an epoch begun alone": {"epoch=1", "epoch=0"},
    }

    assert set(expected) == set(errors)
    for case, parts in expected.items():
        for message in errors[case]:
            assert "rank 1 has " in message
            assert all(part in message for part in parts), message
