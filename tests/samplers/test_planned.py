"""Buckets and packs whose epoch goes on under another division: what is left comes exactly once, on any ranks."""

from __future__ import annotations

import json
from itertools import chain, islice, zip_longest
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio.samplers.batches import Batches, ElasticSampler
from fastio.samplers.bucket import BucketRule, LengthBucketSampler
from fastio.samplers.order import Uneven
from fastio.samplers.pack import Packing, PackRule, PackSampler
from fastio.samplers.planned import Draws, PlannedSampler
from fastio.samplers.shape_bucket import ShapeBucketSampler
from tests.samplers.elastic_cases import CASES, Rules, whole_epoch
from tests.samplers.elastic_grid import counted
from tests.samplers.histories import Leg, grid, run
from tests.samplers.test_bucket import batches_of, padding

lengths_of = st.lists(st.integers(0, 50), max_size=90).map(lambda values: np.array(values, np.int64))
uneven = st.sampled_from(get_args(Uneven))
buckets = st.fixed_dictionaries(
    {
        "window": st.integers(1, 90),
        "world_size": st.integers(1, 5),
        "uneven": uneven,
        "drop_last": st.booleans(),
        "pad_to_multiple": st.sampled_from([1, 8]),
    }
)
bucket_rules = st.one_of(
    st.tuples(buckets, st.fixed_dictionaries({"batch_size": st.integers(1, 9)})),
    st.tuples(buckets, st.fixed_dictionaries({"max_tokens": st.integers(56, 400)})),
).map(lambda parts: parts[0] | parts[1])
pack_rules = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(50, 200),
        "rows": st.sampled_from([None, 1, 2, 3]),
        "packing": st.sampled_from(get_args(Packing)),
        "window": st.integers(1, 90),
        "world_size": st.integers(1, 5),
        "uneven": uneven,
    }
)


def divisions(rules: st.SearchStrategy[dict[str, Any]]) -> Any:
    """A run and three resumes: rules, and the share of the steps left that each takes; the last takes all."""
    return st.lists(st.tuples(rules, st.floats(0, 1)), min_size=4, max_size=4)


class OfLengths(ShapeBucketSampler):
    """Pictures of one width, whose height is a length."""

    def __init__(self, lengths: NDArray[np.int64], **options: Any) -> None:
        sizes = np.stack([lengths, np.full(len(lengths), 20)], axis=1)
        super().__init__(sizes, shapes=SHAPES, **options)


SHAPES = [(5, 10), (10, 10), (20, 10), (40, 10)]
shape_rules = st.tuples(
    st.fixed_dictionaries({"world_size": st.integers(1, 5), "uneven": uneven, "drop_last": st.booleans()}),
    st.one_of(
        st.fixed_dictionaries({"batch_size": st.integers(1, 9)}),
        st.fixed_dictionaries({"pixels_per_batch": st.integers(400, 2000)}),
    ),
).map(lambda parts: parts[0] | parts[1])

samplers = st.one_of(
    st.tuples(st.just(OfLengths), divisions(shape_rules)),
    st.tuples(st.just(LengthBucketSampler), divisions(bucket_rules)),
    st.tuples(st.just(PackSampler), divisions(pack_rules)),
)


def new_of(planned: Batches, batches: int) -> NDArray[np.int64]:
    """The samples of the first batches of a rank, without those that the plan declares repeated."""
    end = int(planned.cuts[batches])
    return np.delete(planned.indices[:end], [place for place in padding_of(planned) if place < end])


def padding_of(planned: Batches) -> list[int]:
    """The positions of a rank's samples that the plan declares repeated."""
    return planned.padding_within(len(planned.indices)).tolist()


@settings(deadline=None)
@given(samplers, lengths_of, st.integers(0, 3), st.booleans(), st.integers(0, 2**64 - 1))
def test_three_resumes(
    runs: tuple[type[PlannedSampler], Any], lengths: NDArray[np.int64], epoch: int, shuffle: bool, seed: int
) -> None:
    """
    Each sample comes once, but for those declared; ranks get equally many batches, and only a declared one repeats.
    """
    kind, stages = runs
    consumed, counts, dropped = None, np.zeros(len(lengths), np.int64), 0
    for number, (rule, portion) in enumerate(stages):
        ranks: list[Any] = [
            kind(lengths, rank=rank, shuffle=shuffle, seed=seed, **rule) for rank in range(rule["world_size"])
        ]
        plans = [sampler.plan(epoch, sampler.checked(epoch, consumed)) for sampler in ranks]
        assert len({len(planned) for planned in plans}) == 1
        assert {sampler.count(epoch, consumed) for sampler in ranks} == {len(plans[0])}
        assert {(planned.repeated, planned.dropped) for planned in plans} == {(plans[0].repeated, plans[0].dropped)}
        assert sum(len(padding_of(planned)) for planned in plans) == plans[0].repeated
        steps = len(plans[0]) if number == len(stages) - 1 else round(portion * len(plans[0]))
        for planned in plans:
            np.add.at(counts, new_of(planned, steps), 1)
        if steps == len(plans[0]) and counts.sum() + plans[0].dropped == len(lengths):
            dropped = plans[0].dropped
        states = [json.dumps(sampler.advanced(epoch, consumed, steps)) for sampler in ranks]
        assert len(set(states)) == 1
        consumed = json.loads(states[0])

    assert counts.max(initial=0) <= 1
    assert (counts == 0).sum() == dropped


@settings(deadline=None)
@given(samplers, lengths_of, st.floats(0, 1), st.floats(0, 1))
def test_the_same_division_goes_on(
    runs: tuple[type[PlannedSampler], Any], lengths: NDArray[np.int64], first: float, second: float
) -> None:
    """Stopped twice under one division, also after another one, batches are those of a run without the stops."""
    kind, (before, (rule, _), *_) = runs
    for rank in range(rule["world_size"]):
        earlier: Any = kind(lengths, rank=0, **before[0])
        sampler: Any = kind(lengths, rank=rank, **rule)
        for start in (None, earlier.advanced(2, None, round(first * earlier.count(2) / 2))):
            whole = sampler.plan(2, start)
            steps = round(first * len(whole))
            history = sampler.advanced(2, start, steps)
            rest = sampler.plan(2, history)
            more = round(second * len(rest))
            again = sampler.plan(2, sampler.advanced(2, history, more))
            assert batches_of(whole)[steps:] == batches_of(rest)
            assert batches_of(rest)[more:] == batches_of(again)
            if len(again):
                assert whole.dropped == again.dropped
                assert whole.repeated >= again.repeated  # short steps of shapes come anywhere
                gone = len(whole.indices) - len(again.indices)
                assert [place - gone for place in padding_of(whole) if place >= gone] == padding_of(again)


# One order of an epoch, whatever ranks go on with it: of buckets with equal options, also of other sizes, and of rows.

sizes_of_buckets = st.one_of(
    st.fixed_dictionaries({"batch_size": st.integers(1, 9)}),
    st.fixed_dictionaries({"max_tokens": st.integers(56, 400)}),
)
sizes_of_batches = st.fixed_dictionaries({"rows": st.sampled_from([None, 1, 2, 3])})
worlds = st.integers(1, 7)


def in_turn(kind: type[PlannedSampler], steps: list[tuple[list[int], ...]]) -> list[int]:
    """The order that ranks shared: buckets are dealt sample by sample, rows batch by batch."""
    if kind is PackSampler:
        return [index for step in steps for batch in step for index in batch]
    return [index for step in steps for turn in zip_longest(*step) for index in turn if index is not None]


def steps_of(plans: list[Batches]) -> list[tuple[list[int], ...]]:
    """The batches of all ranks, step by step."""
    return list(zip(*map(batches_of, plans), strict=True))


@pytest.mark.parametrize(
    ("kind", "sizes", "options"),
    [
        (LengthBucketSampler, sizes_of_buckets, {}),
        (LengthBucketSampler, sizes_of_buckets, {"window": 30}),
        (PackSampler, sizes_of_batches, {"max_tokens": 60, "window": 40}),
        (PackSampler, sizes_of_batches, {"max_tokens": 60, "packing": "longest_first"}),
    ],
)
@settings(deadline=None)
@given(st.data(), lengths_of, st.integers(0, 3), st.booleans())
def test_all_go_on_in_one_order(
    kind: Any,
    sizes: Any,
    options: dict[str, Any],
    data: st.DataObject,
    lengths: NDArray[np.int64],
    epoch: int,
    shuffle: bool,
) -> None:
    """Ranks join, leave and change their batches: the steps are those of the first ranks' order."""

    def ranks_of(world_size: int, size: dict[str, int]) -> list[Any]:
        return [
            kind(lengths, rank=rank, world_size=world_size, shuffle=shuffle, **size, **options)
            for rank in range(world_size)
        ]

    starts = data.draw(st.lists(st.tuples(worlds, sizes, st.integers(0, 9)), min_size=1, max_size=5))
    consumed, at, order = None, 0, list[int]()
    for number, (world_size, size, steps) in enumerate(starts):
        ranks = ranks_of(world_size, size)
        plans = [sampler.plan(epoch, ranks[0].checked(epoch, consumed)) for sampler in ranks]
        every = steps_of(plans)
        order = order if consumed else in_turn(kind, every)
        steps = len(every) if number == len(starts) - 1 else min(steps, len(every))
        for step in every[: min(steps, len(every) - 1)]:
            samples = [index for batch in step for index in batch]
            assert sorted(order[at : at + len(samples)]) == sorted(samples)
            at += len(samples)
        if steps == len(every):
            came = {index for step in every[-1:] for batch in step for index in batch}
            assert set(order[at:]) == came
            assert plans[0].repeated < world_size
            break
        consumed = json.loads(json.dumps(ranks[0].advanced(epoch, consumed, steps)))
        assert at == (consumed or [{"samples": 0}])[-1]["samples"]
        assert len(consumed or []) <= 1

    assert at + len(came) == len(lengths)


@settings(deadline=None)
@given(st.data(), lengths_of, st.integers(0, 3), st.booleans(), st.booleans())
def test_shapes_go_on_in_one_order_each(
    data: st.DataObject, lengths: NDArray[np.int64], epoch: int, shuffle: bool, has_step_size: bool
) -> None:
    """Steps have one shape, and take its pictures in the first ranks' order; a step comes when its first one would."""

    def ranks_of(rule: dict[str, Any]) -> list[Any]:
        more = {"step_size": 1200 if "pixels_per_batch" in rule else 3} if has_step_size else {}
        return [OfLengths(lengths, rank=rank, shuffle=shuffle, **rule, **more) for rank in range(rule["world_size"])]

    starts = [
        ({**rule, "drop_last": False, "uneven": "pad"}, steps)
        for rule, steps in data.draw(st.lists(st.tuples(shape_rules, st.integers(0, 9)), min_size=1, max_size=4))
    ]
    order = list(dict.fromkeys(in_turn(OfLengths, steps_of([each.plan(epoch) for each in ranks_of(starts[0][0])]))))
    buckets = OfLengths(lengths, batch_size=1).buckets
    queues = {shape: [index for index in order if shape == buckets[index]] for shape in range(len(SHAPES))}
    consumed = None
    for number, (rule, steps) in enumerate(starts):
        ranks = ranks_of(rule)
        plans = [sampler.plan(epoch, ranks[0].checked(epoch, consumed)) for sampler in ranks]
        steps = len(plans[0]) if number == len(starts) - 1 else min(steps, len(plans[0]))
        begins = []
        for step in steps_of(plans)[:steps]:
            came = list(dict.fromkeys(in_turn(OfLengths, [step])))
            queue = queues[int(buckets[came[0]])]
            assert came == queue[: len(came)]
            del queue[: len(came)]
            begins.append(order.index(came[0]))
        assert consumed or has_step_size or begins == sorted(begins)
        consumed = json.loads(json.dumps(ranks[0].advanced(epoch, consumed, steps)))
        assert len(consumed or []) <= 1
        if steps == len(plans[0]):
            break

    assert not any(queues.values())


def test_steps_of_shapes_depend_on_their_size_only() -> None:
    """Ranks that go on with steps as large, or half as large, go through the same steps, or their halves."""
    lengths = np.random.default_rng(2).integers(0, 50, 200)
    begun = OfLengths(lengths, rank=0, world_size=4, batch_size=2).advanced(1, None, 5)

    def steps_left(world_size: int, batch_size: int) -> list[list[int]]:
        ranks = [OfLengths(lengths, rank=r, world_size=world_size, batch_size=batch_size) for r in range(world_size)]
        return [in_turn(OfLengths, [step]) for step in steps_of([sampler.plan(1, begun) for sampler in ranks])]

    alone, same, halves = steps_left(1, 8), steps_left(2, 4), steps_left(2, 2)
    full = [half for step in alone if len(step) == 8 for half in (step[:4], step[4:])]

    assert [sorted({*step}) for step in same] == [sorted(step) for step in alone]
    assert full == [step for step in halves if step in full]


@pytest.mark.parametrize("uneven", ["pad", "drop"])
def test_states_of_shapes_that_counted_steps_go_on(uneven: Uneven) -> None:
    """Before samples of each shape, states counted planned steps, or their samples with those that are left out."""
    rule: dict[str, Any] = {"world_size": 3, "batch_size": 3, "uneven": uneven}
    before = OfLengths(np.arange(43), rank=0, **rule)
    counts, plan, samples = np.bincount(before.buckets), before.plan(1), 0
    assert [14, 15, 14] == counts.tolist()
    for steps, batch in enumerate(batches_of(plan), 1):
        samples += 9 if len(batch) == 3 else int(counts[before.buckets[batch[0]]]) % 9
        (entry,) = before.advanced(1, None, steps) or []
        for old in ({"steps": steps}, {"samples": samples}):
            history = before.checked(1, [before.division_options() | old])
            for ranks in (rule, {"world_size": 2, "batch_size": 5}):
                for rank in range(ranks["world_size"]):
                    sampler = OfLengths(np.arange(43), rank=rank, **ranks)
                    assert batches_of(sampler.plan(1, [entry])) == batches_of(sampler.plan(1, history))
            assert batches_of(plan)[steps:] == batches_of(before.plan(1, history))
    with pytest.raises(ValueError, match=r"samples=\[0, 16, 0, 0\]: expected 0 to \[14, 15, 14, 0\] in the state"):
        before.checked(1, [before.division_options() | {"samples": [0, 16, 0, 0]}])
    for damaged in ([0, 0, 0, 0], [1, 2], [1, -1, 0, 0], [1, 2.0, 0, 0], []):
        with pytest.raises(ValueError, match="samples"):
            before.checked(1, [before.division_options() | {"samples": damaged}])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (LengthBucketSampler, {"batch_size": 4, "step_size": 12}),
        (LengthBucketSampler, {"max_tokens": 90, "step_size": 300}),
        (PackSampler, {"max_tokens": 60, "step_size": 5}),
    ],
)
def test_a_step_size_gives_all_ranks_one_order(kind: Any, options: dict[str, int]) -> None:
    """From the start: a rank alone, or several, also with batches of another size where there is one."""
    lengths = np.random.default_rng(1).integers(1, 50, 200)
    orders = []
    for world_size, more in ((1, {}), (3, {}), (7, {"rows": 2} if kind is PackSampler else {})):
        ranks = [kind(lengths, rank=rank, world_size=world_size, **options, **more) for rank in range(world_size)]
        orders.append([sorted(chain(*step)) for step in steps_of([sampler.plan(1) for sampler in ranks])[:-1]])
        assert ranks[0].division_options()["step_size"] == options["step_size"]
    alone = kind(lengths, rank=0, world_size=1, **options).plan(1).indices.tolist()
    for steps in orders:
        at = 0
        for step in steps:
            assert sorted(alone[at : at + len(step)]) == step
            at += len(step)
    with pytest.raises(ValueError, match="step_size=0"):
        kind(lengths, **{**options, "step_size": 0})


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_states_of_version_2_go_on_in_their_order(world_size: int) -> None:
    """They counted steps of the ranks and batches with which the epoch began."""
    lengths = np.arange(1, 41)
    cases: list[tuple[Any, dict[str, int]]] = [
        (LengthBucketSampler, {"batch_size": 3}),
        (PackSampler, {"max_tokens": 50, "rows": 2}),
    ]
    for kind, options in cases:
        old = [kind(lengths, rank=rank, world_size=2, **options) for rank in range(2)]
        state = {**old[0].state_dict(), "version": 2, "consumed": [{**old[0].division_options(), "steps": 2}]}
        left = in_turn(kind, steps_of([sampler.plan(0) for sampler in old])[2:])
        ranks = [kind(lengths, rank=rank, world_size=world_size, **options) for rank in range(world_size)]
        for sampler in ranks:
            sampler.load_state_dict(state)
        steps = list(zip(*map(list, ranks), strict=True))
        first = in_turn(kind, steps[:1])
        assert sorted(left[: len(first)]) == sorted(first)
        assert set(left) == set(in_turn(kind, steps))


def test_the_rest_is_bucketed_anew_with_another_window() -> None:
    """Which pads less where steps are no part of the buckets: the sampler that asks for it begins another order."""
    lengths = np.random.default_rng(0).integers(1, 200, 4000)
    begun = LengthBucketSampler(lengths, batch_size=40)
    consumed = begun.advanced(0, None, 20)
    same, anew = (LengthBucketSampler(lengths, batch_size=30, window=window) for window in (None, 3200))

    assert 1 == len(same.advanced(0, consumed, 1) or [])
    assert 2 == len(anew.advanced(0, consumed, 1) or [])
    assert sorted(same.plan(0, consumed).indices) == sorted(anew.plan(0, consumed).indices)
    assert padding(lengths, anew.plan(0, consumed)) < 0.05 < padding(lengths, same.plan(0, consumed))


@pytest.mark.parametrize("world_size", [2, 4, 7])
@pytest.mark.parametrize("rows", [None, 2])
def test_the_last_step_of_packs_repeats_nothing(world_size: int, rows: int | None) -> None:
    """Its rows go to the ranks as they are, or in parts, while there are samples for all."""
    step = world_size * (rows or 1) * 4
    for count in range(1, 60):
        left = -(-count // 4) % (world_size * (rows or 1)) and count % step
        lengths = np.full(count, 10)
        plans = [
            PackSampler(lengths, max_tokens=40, rows=rows, rank=rank, world_size=world_size).plan(0)
            for rank in range(world_size)
        ]
        assert plans[0].repeated == (max(0, world_size - left) if left else 0)
        assert len({len(plan) for plan in plans}) == 1
        assert all((np.diff(plan.cuts) > 0).all() for plan in plans)


@settings(max_examples=50, deadline=None)
@given(samplers, lengths_of, st.integers(0, 20))
def test_own_states(runs: tuple[type[PlannedSampler], Any], lengths: NDArray[np.int64], steps: int) -> None:
    """As torch's batch_sampler: what was handed out does not come again, and all else does; one state serves all."""
    kind, ((rule, _), (other, _), *_) = runs
    first = [kind(lengths, rank=rank, **{**rule, "uneven": "drop"}) for rank in range(rule["world_size"])]
    steps = min(steps, len(first[0]))
    handed = {index for sampler in first for batch in islice(iter(sampler), steps) for index in batch}
    states = [json.dumps(sampler.state_dict()) for sampler in first]
    assert len(set(states)) == 1
    options = {**other, "uneven": "pad", **({"drop_last": False} if "drop_last" in other else {})}
    resumed = [kind(lengths, rank=rank, **options) for rank in range(other["world_size"])]
    for sampler in resumed:
        sampler.load_state_dict(json.loads(states[0]))
        assert sampler.state_dict() == json.loads(states[0])
    left = {index for sampler in resumed for batch in sampler for index in batch}

    assert not handed & left
    assert len(lengths) == len(handed) + len(left)


rules_of_both = st.one_of(
    bucket_rules.map(lambda rule: BucketRule(**{"batch_size": None, "max_tokens": None} | rule)),
    pack_rules.map(lambda rule: PackRule(**rule)),
)


def test_a_part_that_fits_into_one_row_is_packed_as_if_it_were_all() -> None:
    """Lengths of samples that are not among the part change nothing, not even the order within the row."""
    rule = PackRule(max_tokens=50, window=1, world_size=1, uneven="pad", packing="mixed")
    lengths, chosen = np.array([0, 1, 0, 1], np.int32), np.array([2, 3])
    alone = rule.order(lengths[chosen], None, Draws(3, None))

    assert chosen[alone.order].tolist() == rule.order(lengths, chosen, Draws(3, None)).order.tolist()


@settings(deadline=None)
@given(rules_of_both, lengths_of, st.data(), st.one_of(st.none(), st.integers(0, 9)), st.floats(0, 1))
def test_a_part_is_divided_as_if_it_were_all(
    rule: Any, lengths: NDArray[np.int64], data: st.DataObject, epoch: int | None, portion: float
) -> None:
    """Given some samples, a rule makes the steps of their lengths alone; what steps leave are the others, ascending."""
    is_chosen = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    chosen, all_lengths = np.flatnonzero(is_chosen), lengths.astype(np.int32)
    draws = Draws(3, epoch)
    part = rule.order(all_lengths, chosen, draws)
    alone = rule.order(all_lengths[chosen], None, draws)
    assert part.order.tolist() == chosen[alone.order].tolist()
    assert part.ends.tolist() == alone.ends.tolist()

    ends = part.steps(rule, 0)
    ranks = [part.batches(rule, rank, ends) for rank in range(rule.world_size)]
    steps = int(portion * (len(ends) - 2)) if len(ends) > 1 else 0
    taken = {index for planned in ranks for batch in batches_of(planned)[:steps] for index in batch}
    left = part.left(int(ends[steps])).tolist()
    assert [index for index in chosen.tolist() if index not in taken] == left


def test_samplers_are_elastic() -> None:
    """Both can be continued by a loader with other ranks."""
    assert isinstance(LengthBucketSampler([1], batch_size=1), ElasticSampler)
    assert isinstance(PackSampler([1], max_tokens=1), ElasticSampler)


def test_what_is_left_is_kept_over_versions() -> None:
    """Golden values: a saved history must leave the same samples for ever."""
    lengths = [3, 9, 4, 4, 8, 1, 7, 2, 5, 6]
    bucket = LengthBucketSampler(lengths, batch_size=3, window=6, seed=1)
    pack = PackSampler(lengths, max_tokens=12, packing="longest_first", window=6, seed=1)
    bucketed = LengthBucketSampler(lengths, batch_size=2, window=6, seed=1, rank=0, world_size=2)
    packed = PackSampler(lengths, max_tokens=9, packing="longest_first", window=6, seed=1, rank=0, world_size=2)

    assert batches_of(bucket.plan(2, bucketed.advanced(2, None, 1))) == [[1, 4, 8], [3, 7, 5]]
    assert batches_of(pack.plan(2, packed.advanced(2, None, 1))) == [[9, 8, 5], [4, 3], [1, 0]]


def test_packs_of_a_state_of_0_1_0_were_packed_longest_first() -> None:
    """A state that names no packing and no rows leaves what the packs of its time left."""
    lengths = [3, 9, 4, 4, 8, 1, 7, 2, 5, 6]
    before = PackSampler(lengths, max_tokens=12, packing="longest_first", window=6, seed=1)
    batches = iter(before)
    handed = next(batches)
    state = before.state_dict()
    assert state["consumed"] == [
        {"max_tokens": 12, "window": 6, "world_size": 1, "uneven": "pad", "samples": len(handed)}
    ]
    before_version_3 = {"max_tokens": 12, "window": 6, "world_size": 1, "uneven": "pad", "steps": 1}
    state |= {"version": 2, "consumed": [before_version_3]}
    for packing in get_args(Packing):
        resumed = PackSampler(lengths, max_tokens=12, packing=packing, window=6, seed=1)
        resumed.load_state_dict(state)
        left = list(resumed)
        assert sorted([*handed, *(index for batch in left for index in batch)]) == list(range(10))
    same = PackSampler(lengths, max_tokens=12, packing="longest_first", window=6, seed=1)
    same.load_state_dict(state)
    assert list(batches) == list(same)


def test_states_of_version_1_go_on() -> None:
    """A state that counts the batches of one rank leaves what it left, and can be continued in other batches."""
    lengths = [3, 9, 4, 4, 8, 1, 7, 2, 5, 6]
    state = {
        "version": 1,
        "epoch": 2,
        "batch": 2,
        "sampler": "LengthBucketSampler",
        "samples": 10,
        "lengths_crc32": LengthBucketSampler(lengths, batch_size=1).configuration()["lengths_crc32"],
        "seed": 1,
        "world_size": 1,
        "batch_size": 2,
        "max_tokens": None,
        "window": 6,
        "shuffle": True,
        "drop_last": False,
        "pad_to_multiple": 1,
        "uneven": "pad",
    }
    sampler = LengthBucketSampler(lengths, batch_size=2, window=6, seed=1)
    sampler.load_state_dict(state)
    assert list(sampler) == [[6, 9], [8, 3], [0, 5]]
    ranks = [LengthBucketSampler(lengths, batch_size=1, seed=1, rank=rank, world_size=3) for rank in range(3)]
    for other in ranks:
        other.load_state_dict(state)
    assert [0, 3, 5, 6, 8, 9] == sorted(sample for other in ranks for batch in other for sample in batch)
    sampler.load_state_dict({**state, "batch": 0})
    assert len(list(sampler)) == 5
    with pytest.raises(ValueError, match="lacks window"):
        sampler.load_state_dict({name: value for name, value in state.items() if name != "window"})
    with pytest.raises(ValueError, match="steps=7: expected 1 to 5"):
        sampler.load_state_dict({**state, "batch": 7})


def test_a_state_of_version_1_of_packs() -> None:
    """A pack's state too; an epoch that had ended has nothing left."""
    sampler = PackSampler([5, 5, 5, 5, 3], max_tokens=10, window=8, seed=2)
    state = {**sampler.state_dict(), **sampler.division_options(), "version": 1, "batch": 0}
    every = batches_of(sampler.plan(0))
    for batch in range(len(every) + 1):
        sampler.load_state_dict({**state, "batch": batch})
        assert every[batch:] == list(sampler)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 6}, "steps=6: expected 1 to 5"),
        ({"steps": 0}, "steps=0"),
        ({"steps": 1.0}, "steps=1.0"),
        ({"steps": None}, "steps=None"),
        ({"samples": 11}, "samples=11: expected 1 to 10"),
        ({"samples": 0}, "samples=0"),
        ({"samples": "4"}, "samples='4'"),
        ({"batch_size": None}, "expected exactly one of the two"),
        ({"batch_size": "2"}, "batch_size='2'"),
        ({"window": 0}, "window=0"),
        ({"world_size": -1}, "world_size=-1"),
        ({"uneven": "skip"}, "uneven='skip'"),
        ({"batch": 2}, "unexpected keyword argument 'batch'"),
        ({"batch_size": None, "max_tokens": 8}, "sample 1 alone has 9 tokens"),
    ],
)
def test_damaged_histories_are_refused(change: dict[str, Any], words: str) -> None:
    """A damaged history does not become a silent start from the beginning, nor another rest."""
    sampler = LengthBucketSampler([3, 9, 4, 4, 8, 1, 7, 2, 5, 6], batch_size=2)
    entry = {**sampler.division_options(), "steps": 1}
    sampler.load_state_dict({**sampler.state_dict(), "consumed": [entry]})

    with pytest.raises(ValueError, match=words):
        sampler.load_state_dict({**sampler.state_dict(), "consumed": [{**entry, **change}]})


@pytest.mark.parametrize("consumed", [4, "4", [3], {"steps": 1}, False])
def test_what_is_no_history_is_refused(consumed: Any) -> None:
    """A number, which other samplers count, means nothing here."""
    sampler = LengthBucketSampler([3, 9, 4], batch_size=2)
    with pytest.raises(ValueError, match="expected a list of divisions"):
        sampler.load_state_dict({**sampler.state_dict(), "consumed": consumed})


# An epoch continued by other ranks in batches of another size gives every sample once; the grid is elastic_grid.py.

shares = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
legs = st.builds(Leg, st.integers(1, 9), st.integers(1, 12), shares)
rules = st.builds(Rules, st.integers(0, 80), st.sampled_from(get_args(Uneven)), st.booleans())


@pytest.mark.parametrize("name", CASES)
def test_a_part_of_the_grid(name: str) -> None:
    """1,000 samples, 1 to 16 ranks, batches of 1, 8 or 33, stopped anywhere, three resumes in a row."""
    histories = [legs for number, legs in enumerate(grid(seed=0)) if number % 11999 == 0]
    counts = counted(name, histories)

    assert len(histories) == 4
    assert counts.is_clean, counts


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=20)
@given(rules=rules, history=st.lists(legs, min_size=1, max_size=4), epoch=st.integers(0, 3))
def test_every_sample_once(name: str, rules: Rules, history: list[Leg], epoch: int) -> None:
    """
    Whatever the counts and policies: nothing is missing but what is declared as dropped, and nothing comes twice but
    what is declared as padding.
    """
    expected = whole_epoch(name, rules, epoch)
    counts = run(CASES[name].of(rules), history, epoch, expected, even=CASES[name].even)

    assert counts.is_clean, counts


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=10)
@given(rules=rules, leg=legs, stops=st.lists(st.integers(0, 30), max_size=3), epoch=st.integers(0, 3))
def test_the_same_division_goes_on_as_if_never_stopped(
    name: str, rules: Rules, leg: Leg, stops: list[int], epoch: int
) -> None:
    """Batches, their random numbers and their padding are those of an epoch without an interruption."""
    build = CASES[name].of(rules)
    for rank in range(leg.world_size):
        sampler = build(leg, rank)
        whole, begun, consumed = sampler.plan(epoch), 0, None
        for stop in sorted(min(stop, len(whole)) for stop in stops):
            consumed = sampler.advanced(epoch, consumed, stop - begun) if stop > begun else consumed
            begun = stop
        rest = sampler.plan(epoch, consumed)

        expected: Any = whole.part(begun, len(whole))
        assert expected.cuts.tolist() == rest.cuts.tolist()
        assert expected.indices.tolist() == rest.indices.tolist()
        assert expected.ids.tolist() == rest.ids.tolist()
        left = len(rest.indices)
        assert whole.padding_within(left).tolist() == rest.padding_within(left).tolist()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_order])
def test_a_step_depends_on_its_size_only(name: str) -> None:
    """As long as no sample is repeated, W ranks with batches of B have the steps of one rank with batches of W * B."""
    build = CASES[name].of(Rules(samples=240))
    alone = build(Leg(1, 24), 0).plan(2, None)
    ranks = [build(Leg(4, 6), rank).plan(2, None) for rank in range(4)]

    for step, part in enumerate(alone.slices()):
        together = np.concatenate([plan.ids[plan.cuts[step] : plan.cuts[step + 1]] for plan in ranks])
        assert np.sort(alone.ids[part]).tolist() == np.sort(together).tolist()


@pytest.mark.parametrize("name", CASES)
def test_nothing_consumed_stays_nothing(name: str) -> None:
    """The state of an epoch that has not begun does not say that it has: ``set_epoch`` would warn of what is lost."""
    assert not CASES[name].of(Rules(samples=20))(Leg(2, 3), 0).checked(1, None)
