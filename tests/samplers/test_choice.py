"""What shuffle=True is: a full shuffle where memory holds the store or classes would mix badly, lanes otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio.samplers.batches import OrderSampler
from fastio.samplers.choice import WELL_MIXED, Choice, Classes, batch_mixing, choose
from fastio.samplers.memory import PageCache
from fastio.samplers.order import MOST_HELD, Division, block_order, full_order

MB = 1_000_000


def sampler(
    count: int, size: int, labels: NDArray[Any] | None, *, memory: int, batch_size: int = 128, world_size: int = 1
) -> OrderSampler:
    """A sampler over samples of one size."""
    return OrderSampler(
        Division(count, batch_size, world_size),
        rank=0,
        shuffle=True,
        seed=0,
        sizes=lambda: np.full(count, size, np.int64),
        labels=lambda: labels,
        memory=lambda: PageCache(memory),
    )


def test_a_store_in_memory_is_shuffled_fully() -> None:
    """However it is sorted, a store that memory holds comes in the order of shuffle='full'."""
    order = sampler(10_000, 2300, np.arange(10_000) // 1000, memory=23 * MB)
    report = order.report()

    assert report is not None
    assert (report.kind, report.reason, report.mixing) == ("full", "memory", 1.0)
    assert full_order(10_000, seed=0, epoch=3).tolist() == order.plan(3).indices.tolist()
    assert str(report) == "shuffle=True: a full shuffle (23.0 MB fit into memory, 23.0 MB)"


def test_80_000_sorted_pictures_in_32_megabytes() -> None:
    """184 MB of ten sorted classes: all ten in a batch and hardly a drift, where blocks gave six and 0.2."""
    labels = np.arange(80_000) // 8000
    order = sampler(80_000, 2300, labels, memory=32 * MB)
    report, indices, classes = order.report(), order.plan(1).indices, Classes.of(labels)
    blocks = block_order(np.full(80_000, 2300), seed=0, epoch=1)

    assert report is not None
    assert (report.kind, report.reason) == ("lanes", "well mixed")
    assert report.read_ratio == pytest.approx(1)
    assert report.reads < 80_000 / 20
    assert np.mean([len(np.unique(labels[batch])) for batch in np.split(indices, 625)]) > 9.9
    assert classes.drift(indices) < 0.04
    assert np.mean([len(np.unique(labels[batch])) for batch in np.split(blocks, 625)]) < 7
    assert classes.drift(blocks) > 0.15
    assert "64 lanes of 125.0 kB blocks" in str(report)


def test_batches_of_single_ranks_are_judged_too() -> None:
    """With batch normalisation a rank sees its own batches only: large ones take more lanes."""
    labels = np.arange(200_000) // 200
    small = sampler(200_000, 105_000, labels, memory=8 << 30, batch_size=32, world_size=8).report()
    large = sampler(200_000, 105_000, labels, memory=8 << 30, batch_size=256, world_size=8).report()

    assert small is not None
    assert large is not None
    assert small.lanes < large.lanes
    for report in (small, large):
        assert report.kind == "lanes"
        assert report.mixing is not None
        assert report.mixing > WELL_MIXED
        assert report.read_ratio < 1.1


@pytest.mark.parametrize(("batch_size", "world_size"), [(32, 8), (33, 8), (37, 8), (48, 3), (100, 7), (256, 64)])
def test_lanes_divide_steps(batch_size: int, world_size: int) -> None:
    """Whatever the batch, every step takes equally many samples of every lane, so that each block has one reader."""
    report = sampler(200_000, 105_000, None, memory=8 << 30, batch_size=batch_size, world_size=world_size).report()

    assert report is not None
    assert report.kind == "lanes"
    assert batch_size * world_size % report.lanes == 0
    assert report.read_ratio < 1.1


def test_what_no_lanes_mix_is_shuffled_fully() -> None:
    """Where memory has no room for as many lanes as the classes need, reads are random, and that is said."""
    report = sampler(80_000, 2300, np.arange(80_000) // 8, memory=8 * MB, batch_size=512).report()

    assert report is not None
    assert (report.kind, report.reason, report.reads, report.mixing) == ("full", "badly mixed", 80_000, 1.0)
    assert "because blocks mix these labels badly" in str(report)
    assert "pack with --shuffle SEED" in str(report)


def test_a_memory_for_a_few_samples() -> None:
    """Blocks of less than two samples would read no less often than a full shuffle."""
    report = sampler(20_000, 50_000, np.arange(20_000) // 10, memory=10 * MB).report()

    assert report is not None
    assert (report.kind, report.reason) == ("full", "little memory")


def test_samples_smaller_than_their_plan() -> None:
    """Very many tiny rows are shuffled fully: lanes would hold more of each, in every rank. Far ones come in lanes."""
    count = MOST_HELD + 1
    division = Division(count, 128, 8)
    order = sampler(count, 3, None, memory=8 * MB, world_size=8)
    report = order.report()
    assert report is not None
    assert (report.kind, report.reason, order.is_keyed) == ("full", "small samples", True)
    assert "because a plan of blocks would take more memory than the samples" in str(report)
    for total, memory, held in (
        (25 * count, PageCache(8 * MB), division),
        (3 * count, PageCache(8 * MB, whole_bytes=1), division),
        (3 * MOST_HELD, PageCache(8 * MB), Division(MOST_HELD, 128, 8)),
    ):
        assert choose(total, lambda: None, held, seed=0, memory=memory).kind == "lanes"


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (None, "no labels"),
        (np.linspace(0, 90, 80_000), "well mixed"),
        (np.eye(10)[np.arange(80_000) // 8000], "well mixed"),
        (np.zeros(80_000, np.int64), "well mixed"),
    ],
    ids=["none", "floating", "one-hot rows", "one class"],
)
def test_labels_of_other_kinds(labels: NDArray[Any] | None, reason: str) -> None:
    """Without labels lanes are taken unjudged; numbers and rows are judged as classes."""
    report = sampler(80_000, 2300, labels, memory=32 * MB).report()

    assert report is not None
    assert (report.kind, report.reason) == ("lanes", reason)


@settings(max_examples=60)
@given(
    count=st.integers(0, 400),
    size=st.integers(0, 1 << 20),
    memory=st.integers(0, 1 << 27),
    batch_size=st.integers(1, 70),
    world_size=st.sampled_from([1, 2, 3, 8]),
    classes=st.integers(1, 50),
)
def test_any_store_gets_an_order(
    count: int, size: int, memory: int, batch_size: int, world_size: int, classes: int
) -> None:
    """Whatever the sizes: each sample once, as well mixed as promised, and the same from the state."""
    labels = np.sort(np.arange(count) % classes)
    mine = sampler(count, size, labels, memory=memory, batch_size=batch_size, world_size=world_size)
    configuration, report = mine.configuration(), mine.report()
    resumed = sampler(count, size, labels, memory=0, batch_size=batch_size, world_size=world_size)
    resumed.adopt(configuration["order"])

    assert report is not None
    assert report.mixing is None or report.mixing >= WELL_MIXED
    assert mine.plan(2).indices.tolist() == resumed.plan(2).indices.tolist()
    assert configuration == resumed.configuration()
    if world_size == 1:
        assert list(range(count)) == sorted(mine.plan(2).indices.tolist())


def test_ranks_that_agree_late_plan_again() -> None:
    """Before torch.distributed begins, the memory is a guess: once all ranks know one number, that is taken."""
    known = [PageCache(1 << 40, is_final=False), PageCache(1 << 40, is_final=False), PageCache(32 * MB)]
    labels = np.arange(80_000) // 8000
    order = OrderSampler(
        Division(80_000, 128, 2),
        rank=0,
        shuffle=True,
        seed=0,
        sizes=lambda: np.full(80_000, 2300, np.int64),
        labels=lambda: labels,
        memory=lambda: known.pop(0) if len(known) > 1 else known[0],
    )

    assert order.configuration()["order"] == {"kind": "full"}
    assert order.configuration()["order"]["kind"] == "lanes"


@pytest.mark.parametrize(
    "said",
    [
        None,
        "full",
        {},
        {"kind": "best"},
        {"kind": "lanes"},
        {"kind": "lanes", "lanes": 4, "rounds": 3, "window": 0},
        {"kind": "lanes", "lanes": 4, "rounds": 1 << 60, "window": 2},
        {"kind": "lanes", "lanes": 0, "rounds": 1, "window": 2},
        {"kind": "lanes", "lanes": 4.0, "rounds": 1, "window": 2},
    ],
)
def test_a_damaged_order_is_refused(said: object) -> None:
    """A state's order that cannot be is one line, not an endless plan."""
    with pytest.raises(ValueError, match="in the state"):
        Choice.from_json(said, samples=100)


def test_the_choice_is_a_function_of_its_arguments() -> None:
    """Two ranks that know the same choose the same."""
    total, labels = 80_000 * 2300, np.arange(80_000) // 8000
    chosen = [
        choose(total, lambda: labels, Division(80_000, 16, 8), seed=3, memory=PageCache(32 * MB)) for _ in range(2)
    ]

    assert chosen[0] == chosen[1]


# How well an order mixes classes, compared with what was counted.

PHOTO = 110_000  # bytes


def test_blocks_of_a_sorted_store_are_not_well_mixed() -> None:
    """Photos in class order: a window of the block shuffle holds a few classes only."""
    labels = np.arange(20_000) // 20
    order = block_order(np.full(20_000, PHOTO), seed=0, epoch=0)

    assert batch_mixing(labels, order[: 78 * 256].reshape(78, 256)) < WELL_MIXED / 5


@given(labels=st.lists(st.integers(-3, 40), min_size=1, max_size=300), size=st.integers(1, 400))
def test_what_a_full_shuffle_is_expected_to_have(labels: list[int], size: int) -> None:
    """The mean over many full shuffles is what the formula expects."""
    count, array = len(labels), np.array(labels)
    size = min(size, count)
    orders = [full_order(count, seed=seed, epoch=0)[: count // size * size] for seed in range(40)]
    scores = [batch_mixing(array, order.reshape(-1, size)) for order in orders]

    assert np.mean(scores) == pytest.approx(1, abs=0.1)


def test_unequal_classes() -> None:
    """A class of one sample among a thousand of another: a batch of half of them has it half the time."""
    labels = np.arange(1000) == 7
    scores = [batch_mixing(labels, full_order(1000, seed=seed, epoch=0).reshape(2, 500)) for seed in range(5)]

    assert scores == pytest.approx([1.0] * 5)  # one of the two batches has two classes, the other one: 1.5, as expected


@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "u8", "S4"])
def test_labels_of_any_kind(dtype: str) -> None:
    """Classes are counted, whatever numbers or names they have."""
    top = 0 if dtype == "S4" else {"i1": -128, "u1": 0, "i8": -(1 << 62), "u8": (1 << 64) - 300}[dtype]
    labels = np.array([top + value for value in range(250)]).astype(dtype)

    assert batch_mixing(labels, np.arange(250).reshape(5, 50)) == pytest.approx(1)
    assert batch_mixing(labels, np.zeros((5, 50), np.int64)) == pytest.approx(1 / 50)


def test_rows_of_several_labels_are_classes() -> None:
    """Multi-label targets: equal rows are one class."""
    rows = np.array([[0, 1], [0, 1], [1, 0], [1, 1]], np.float32)

    assert len(Classes.of(rows).members) == 3
    assert batch_mixing(rows, np.array([[0, 1]])) < batch_mixing(rows, np.array([[0, 2]]))


def test_floating_labels_are_cut_into_classes() -> None:
    """Ages or prices are no classes: what is near in a sorted store counts as one."""
    ages = np.sort(np.random.default_rng(0).normal(size=6400))
    classes = Classes.of(ages)

    assert len(classes.members) == 64
    assert classes.members.tolist() == pytest.approx([100] * 64, abs=2)
    assert classes.mixing(np.arange(6400).reshape(-1, 100)) < 0.1


def test_drift_is_how_far_a_share_goes() -> None:
    """Two classes one after the other: the share of each goes from 0.5 to 0 and 1; mixed ones hardly drift."""
    classes = Classes.of(np.arange(3200) // 1600)

    assert classes.drift(np.arange(3200)) == 0.5
    assert classes.drift(np.arange(3200).reshape(2, 1600).T.reshape(-1)) == 0
    assert classes.drift(full_order(3200, seed=0, epoch=0)) < classes.allowed_drift < 0.3


@pytest.mark.parametrize("labels", [np.empty(0, np.int64), np.empty(0), np.empty((0, 3))])
def test_no_samples(labels: np.ndarray) -> None:  # type: ignore[type-arg]
    """An empty store has nothing to mix."""
    assert Classes.of(labels).drift(np.empty(0, np.int64)) == 0
