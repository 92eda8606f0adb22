"""The receipt of an epoch: equal to the store's number exactly when each sample came once, with verified bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils.data import Subset

from fastio import DevicePrefetcher, FastDataset, FastLoader, LengthBucketSampler, Mixture, PackSampler
from fastio.loader.producer.native import NativeProducer
from fastio.samplers.batches import Batches, OrderSampler
from fastio.samplers.pack import Packing
from fastio.transforms import Normalize, RandomCrop
from fastio.types.schema import RAW, TOKENS, Field
from tests.conftest import SUFFIXES, encode, pictures, write_store
from tests.dataset.many_fields import make_samples, write_fields
from tests.numbered import COUNT, loader_of, write_numbers

PHOTOS = 13


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index, of 4 bytes."""
    return write_numbers(tmp_path_factory.mktemp("numbered") / "a.h5")


@pytest.fixture(scope="module", params=SUFFIXES)
def photos(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with labels, in each format."""
    path = tmp_path_factory.mktemp("photos") / f"a.{request.param}"
    return write_store(path, [encode(pixels) for pixels in pictures(PHOTOS)], np.arange(PHOTOS) % 3)


def number_of_store(loader: FastLoader) -> int:
    number = loader.base.store.receipt(list(loader.base.readers))
    assert number is not None
    return number


def exhaust(batches: Any) -> None:
    for _ in batches:
        pass


def as_arrays(picture: Any) -> NDArray[Any]:
    """A transform of the user's, which puts samples on the plain path."""
    return np.array(picture)


class Doubled(FastDataset):
    """Samples of a subclass, which fastio does not know."""

    def __getitem__(self, index: int) -> Any:
        picture, label = super().__getitem__(index)
        return np.asarray(picture) * 2, label


PATHS: dict[str, Callable[[Path], FastLoader]] = {
    "native": lambda path: FastLoader(path, 4, shuffle=True),
    "transforms": lambda path: FastLoader(path, 4, shuffle="full", transforms=[RandomCrop(4)], threads=2),
    "plain": lambda path: FastLoader(FastDataset(path, transform=as_arrays), 4, shuffle=True),
    "fields": lambda path: FastLoader(FastDataset(path, fields=("image", "label")), 4, shuffle=True),
    "cache": lambda path: FastLoader(path, 4, shuffle=True, cache="ram"),
    "on the device": lambda path: FastLoader(path, 4, shuffle=True, device="cpu", transforms=[Normalize([0.5], [0.5])]),
    "kept there": lambda path: FastLoader(path, 4, shuffle=True, device="cpu", cache="device"),
    "listed": lambda path: FastLoader(path, batch_sampler=[[3, 4], [0, 1, 2], list(range(5, PHOTOS))]),
}


@pytest.mark.parametrize("kind", PATHS)
def test_an_epoch_equals_the_store(photos: Path, kind: str) -> None:
    """Whatever makes the batches, an epoch of all samples has the store's own number."""
    with PATHS[kind](photos) as loader:
        for _ in range(2):
            exhaust(loader)
            receipt = loader.receipt()

            assert receipt.is_exact
            assert number_of_store(loader) == receipt.number == receipt.expected
            assert (PHOTOS, PHOTOS, 0, 0) == (
                receipt.samples,
                receipt.expected_samples,
                receipt.repeated,
                receipt.skipped,
            )
            assert f"13 of 13 samples once, bytes verified: {receipt.number:016x} equals the store's" == str(receipt)


TOKEN_LOADERS: dict[str, Callable[[FastDataset], FastLoader]] = {
    "pad": lambda dataset: FastLoader(dataset, 4, shuffle=True),
    "pack": lambda dataset: FastLoader(dataset, 4, collate="pack"),
    "buckets": lambda dataset: FastLoader(dataset, batch_sampler=LengthBucketSampler(dataset.lengths, batch_size=4)),
    "bins": lambda dataset: FastLoader(
        dataset, batch_sampler=PackSampler(dataset.lengths, max_tokens=40), collate="pack"
    ),
}


@pytest.mark.parametrize("kind", TOKEN_LOADERS)
def test_an_epoch_of_tokens_equals_the_store(tmp_path: Path, kind: str) -> None:
    """The many batches of one native job are counted one by one."""
    values = [np.arange(3 + i, dtype="<u2").tobytes() for i in range(30)]
    path = write_store(tmp_path / "t.lmdb", values, field=Field("tokens", TOKENS, "<u2", (None,)))
    with FastDataset(path) as dataset, TOKEN_LOADERS[kind](dataset) as loader:
        exhaust(loader)
        receipt = loader.receipt()

        assert (30, number_of_store(loader)) == (receipt.samples, receipt.number)


@pytest.mark.parametrize("packing", ["mixed", "longest_first"])
def test_a_receipt_of_packs_that_0_1_0_began_goes_on(numbered: FastDataset, packing: Packing) -> None:
    """Positions in a state of 0.1.0 name neither rows nor packing; the parts of its receipt end there."""
    lengths = 1 + np.arange(COUNT) % 7

    def packs(how: Packing) -> FastLoader:
        return FastLoader(numbered, batch_sampler=PackSampler(lengths, max_tokens=12, packing=how), threads=1)

    with packs("longest_first") as before, packs(packing) as resumed:
        _ = next(iter(before))
        state = json.loads(json.dumps(before.state_dict()))
        place = [{"max_tokens": 12, "window": 65536, "world_size": 1, "uneven": "pad", "steps": 1}]
        state["consumed"] = state["receipt"][0]["stop"] = place
        resumed.load_state_dict(state)
        exhaust(resumed)

        assert resumed.receipt().is_exact


def test_an_epoch_of_many_fields_equals_the_store(tmp_path: Path) -> None:
    """Each payload field that is read counts by its name; the numbers of fields add up."""
    black = np.zeros((8, 8, 3), np.uint8)
    path = write_fields(tmp_path / "s.lmdb", [{**sample, "image": black} for sample in make_samples()])
    with FastDataset(path) as whole, FastLoader(FastDataset(path, fields=("image", "caption")), 4) as loader:
        exhaust(loader)
        receipt, store = loader.receipt(), whole.store
        parts = [store.receipt([name]) for name in ("image", "caption")]

        assert None not in parts
        assert receipt.is_exact
        assert sum(part or 0 for part in parts) % 2**64 == receipt.number
        assert store.receipt() != receipt.number
        assert store.receipt(["image"]) != store.receipt(["caption"])


@given(steps=st.integers(0, 6), prefetch_batches=st.integers(1, 4), drops=st.booleans())
def test_only_what_the_consumer_took_counts(
    numbered: FastDataset, steps: int, prefetch_batches: int, drops: bool
) -> None:
    """Batches decoded ahead are not in the sum; an epoch that is left early is not exact."""
    options = {"prefetch_batches": prefetch_batches, "drop_last": drops}
    with loader_of(numbered, **options) as loader:
        batches = islice(loader, steps)
        given_ = [number for values, _ in batches for number in values.tolist()]
        receipt = loader.receipt()

    assert len(given_) == receipt.samples
    assert receipt.is_exact == (len(given_) == (20 if drops else COUNT))
    assert receipt.dropped == (3 if drops else 0)


def test_what_is_copied_ahead_does_not_count(photos: Path) -> None:
    """With a device, a batch counts when it is handed over, not when it is sent."""
    with FastLoader(photos, 4, device="cpu") as loader:
        batches = iter(loader)
        for step in range(1, 4):
            next(batches)
            assert 4 * step == loader.receipt().samples
        assert not loader.receipt().has_ended
        exhaust(batches)
        assert loader.receipt().is_exact


def test_a_batch_counts_when_it_arrives(numbered: FastDataset) -> None:
    """Three batches have been sent, and the consumer has had one: states and receipts are of that one."""
    with loader_of(numbered) as loader:
        batches, place, arrive = loader.ahead()
        places = [place() for _ in islice(batches, 3)]
        assert 0 == loader.receipt().samples
        arrive(places[0])

        assert 4 == loader.receipt().samples == loader.state_dict()["consumed"]
        arrive(places[2])
        assert 12 == loader.receipt().samples == loader.state_dict()["consumed"]


@pytest.mark.parametrize("batching", ["random", "stratified", "per_source"])
def test_a_mixture_equals_what_the_epoch_should_give(numbered: FastDataset, tmp_path: Path, batching: Any) -> None:
    """Members count by their shares, over epochs, and over ranks after a restart."""
    other = write_numbers(tmp_path / "b.h5")
    mixture = Mixture({"a": numbered, "b": other}, weights={"a": 2, "b": 1}, batching=batching)
    with FastLoader(mixture, 4, samples_per_epoch=36, shuffle=True, threads=1) as loader:
        for _ in range(2):
            exhaust(loader)
            assert loader.receipt().is_exact
            assert 36 == loader.receipt().samples
            assert not loader.receipt().is_whole_store
        exhaust(islice(loader, 2))
        state = loader.state_dict()
        loader.load_state_dict(state)
        exhaust(loader)
        assert loader.receipt().is_exact


def test_a_resumed_epoch_equals_the_store(numbered: FastDataset) -> None:
    """The state carries the sum so far, through JSON; batches of another size go on, and the whole is exact."""
    with loader_of(numbered) as loader:
        exhaust(islice(loader, 2))
        state = json.loads(json.dumps(loader.state_dict()))
    with loader_of(numbered, batch_size=5) as second:
        second.load_state_dict(state)
        assert 8 == second.receipt().samples
        exhaust(islice(second, 1))
        state = json.loads(json.dumps(second.state_dict()))
    with loader_of(numbered, batch_size=3) as third:
        third.load_state_dict(state)
        exhaust(third)
        receipt = third.receipt()

    assert receipt.is_exact
    assert COUNT == receipt.samples
    assert [(None, 8), (8, 13), (13, "end")] == [(part.start, part.stop) for part in receipt.parts]


def test_batches_after_a_checkpoint_come_again(numbered: FastDataset) -> None:
    """What was given after the checkpoint that is loaded does not count: the resumed loader gives it again."""
    with loader_of(numbered) as loader:
        batches = iter(loader)
        exhaust(islice(batches, 2))
        state = loader.state_dict()
        exhaust(islice(batches, 2))
        loader.load_state_dict(state)
        exhaust(loader)

        assert loader.receipt().is_exact
        assert COUNT == loader.receipt().samples


def test_a_state_without_its_receipt_is_named(numbered: FastDataset) -> None:
    """A state of an earlier version resumes; the receipt says what it does not have, and is not exact."""
    with loader_of(numbered) as loader:
        exhaust(islice(loader, 2))
        state = loader.state_dict()
        del state["receipt"]
        loader.load_state_dict(state)
        exhaust(loader)
        receipt = loader.receipt()

    assert not receipt.is_complete
    assert not receipt.is_exact
    assert "the epoch's beginning, up to sample 8" in str(receipt)


class Faulty(OrderSampler):
    """A sampler with a defect: ``change`` is done to the indices of each plan."""

    change: Callable[[NDArray[np.int64]], NDArray[np.int64]]

    def plan(self, epoch: int, consumed: int | None = None) -> Batches:
        planned = super().plan(epoch, consumed)
        indices = self.change(planned.indices)
        return replace(planned, order=indices, cuts=np.minimum(planned.cuts, len(indices)), windows=None)


DEFECTS = {
    "lost": lambda indices: indices[:-1],
    "doubled": lambda indices: np.append(indices[:-1], indices[0]),
    "another one twice": lambda indices: np.where(indices == 5, 6, indices),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defective_sampler_is_found(numbered: FastDataset, defect: str) -> None:
    """The receipt sums over what was given, and compares with what should have been."""
    with loader_of(numbered) as loader:
        order = loader._selection.plan.order
        assert order is not None
        order.__class__ = type("Defective", (Faulty,), {"change": staticmethod(DEFECTS[defect])})
        exhaust(loader)
        receipt = loader.receipt()

        assert receipt.has_ended
        assert number_of_store(loader) == receipt.expected != receipt.number
        assert not receipt.is_exact
        assert "differs from the store's" in str(receipt)


def test_a_wrong_look_up_is_found(numbered: FastDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples that take each other's bytes, whose checksums are right, are not what they should be."""
    store = numbered.store
    plain = store.spans

    def swapped(field: str, indices: NDArray[np.int64], **options: Any) -> Any:
        return plain(field, np.where(indices == 3, 4, np.where(indices == 4, 3, indices)), **options)

    with loader_of(numbered) as loader:
        monkeypatch.setattr(store, "spans", swapped)
        exhaust(loader)
        monkeypatch.undo()
        receipt = loader.receipt()

    assert COUNT == receipt.samples
    assert not receipt.is_exact


@pytest.mark.parametrize("on_error", ["skip", "zero"])
@pytest.mark.parametrize("transform", [None, torch.as_tensor])
def test_a_flipped_byte_is_found(tmp_path: Path, on_error: Any, transform: Any) -> None:
    """A bad sample does not count, whether it is left out or made zero."""
    values = [np.full(4, i, np.int32).tobytes() for i in range(COUNT)]
    path = write_store(tmp_path / "a.lmdb", values, np.arange(COUNT), field=Field("x", RAW, "<i4", (4,)))
    content = bytearray(path.read_bytes())
    content[content.index(values[7])] ^= 1
    path.write_bytes(content)
    with FastLoader(FastDataset(path, transform=transform), 4, on_error=on_error) as loader:
        exhaust(loader)
        receipt = loader.receipt()

    assert [7] == [error.index for error in loader.skipped]
    assert (COUNT - 1, 1) == (receipt.samples, receipt.skipped)
    assert receipt.is_verified
    assert not receipt.is_exact
    assert "22 of 23 samples, 1 skipped, bytes verified" in str(receipt)


@pytest.mark.parametrize("taken", [1, 5, COUNT])
def test_batches_behind_a_flipped_byte_count_once(tmp_path: Path, taken: int) -> None:
    """Behind a bad sample Python makes the batches that native code had looked up: no sample counts twice."""
    values = [np.full(4, i, np.int32).tobytes() for i in range(COUNT)]
    path = write_store(tmp_path / "a.lmdb", values, field=Field("x", RAW, "<i4", (4,)))
    (data,) = path.rglob("*.mdb") if path.is_dir() else (path,)
    content = bytearray(data.read_bytes())
    content[content.index(values[2])] ^= 1
    data.write_bytes(content)
    receipts = []
    for transform in (None, torch.as_tensor):
        with FastLoader(FastDataset(path, transform=transform), 1, on_error="zero") as loader:
            batches = iter(loader)
            exhaust(islice(batches, taken))
            exhaust(batches if taken == COUNT else ())
            receipts.append(loader.receipt())

    assert receipts[1] == receipts[0]
    assert (taken - (taken > 2), 0) == (receipts[0].samples, receipts[0].repeated)


def test_unverified_bytes_never_equal(photos: Path) -> None:
    """With verify=False each sample may have come once, but the number is not the store's, and the text says so."""
    with FastLoader(photos, 4, verify=False) as loader:
        exhaust(loader)
        receipt = loader.receipt()

        assert number_of_store(loader) == receipt.expected != receipt.number
        assert not receipt.is_verified
        assert not receipt.is_exact
        assert "13 of 13 samples once, bytes not compared (verify=False)" == str(receipt)


def test_a_cache_of_unverified_bytes_never_equals(photos: Path) -> None:
    """A cache in memory counts as verified only if it was when it was filled."""
    with FastLoader(photos, 4, verify=False, cache="ram") as loader:
        exhaust(loader)

        assert not loader.receipt().is_verified


def test_samples_of_a_subclass_are_not_verified(photos: Path) -> None:
    """What a subclass reads is its own affair."""
    with FastLoader(Doubled(photos), 4) as loader:
        exhaust(loader)

        assert not loader.receipt().is_exact
        assert "13 of 13 samples once, bytes not compared (samples are made by Doubled)" == str(loader.receipt())


SELECTIONS: dict[str, Callable[[FastDataset], FastLoader]] = {
    "indices": lambda dataset: loader_of(dataset, indices=[3, 3, 20, 1]),
    "subset": lambda dataset: FastLoader(Subset(dataset, [9, 2, 2, 4]), 3, shuffle=True),
    "weights": lambda dataset: loader_of(dataset, shuffle=False, weights=np.arange(COUNT), samples_per_epoch=40),
    "sampler": lambda dataset: FastLoader(dataset, 4, sampler=torch.utils.data.RandomSampler(dataset)),
    "batch_sampler": lambda dataset: FastLoader(dataset, batch_sampler=[[1, 2], [2, 7, 2]]),
}


@pytest.mark.parametrize("kind", SELECTIONS)
def test_a_part_equals_what_the_epoch_should_give(numbered: FastDataset, kind: str) -> None:
    """Samples count as often as they should come."""
    with SELECTIONS[kind](numbered) as loader:
        for _ in range(2):
            exhaust(loader)
            receipt = loader.receipt()
            assert receipt.is_exact
            assert receipt.is_whole_store == (kind == "sampler")


def test_padding_is_told_apart(numbered: FastDataset) -> None:
    """What ranks repeat is counted beside the sum; the parts of all ranks add up to the store's number."""
    receipts = []
    for rank in range(3):
        with loader_of(numbered, rank=rank, world_size=3) as loader:
            exhaust(loader)
            receipts.append(loader.receipt())

    assert [8, 8, 7] == [receipt.samples for receipt in receipts]
    assert [0, 0, 1] == [receipt.repeated for receipt in receipts]
    assert receipts[0].expected == sum(receipt.number for receipt in receipts) % 2**64
    assert not any(receipt.is_complete for receipt in receipts)


def test_the_latest_iteration_counts(numbered: FastDataset) -> None:
    """Before its first batch, an iteration changes nothing."""
    with loader_of(numbered) as loader:
        assert 0 == loader.receipt().samples
        exhaust(loader)
        batches: Iterator[Any] = iter(loader)
        assert (0, COUNT) == (loader.receipt().epoch, loader.receipt().samples)
        next(batches)
        assert (1, 4) == (loader.receipt().epoch, loader.receipt().samples)


def test_a_batch_that_gets_lost_is_found(numbered: FastDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that gives a batch twice, and another one never, is found: batches bring their own proof."""
    submit = NativeProducer.submit

    def stuttering(producer: NativeProducer, batches: Batches, *, epoch: int) -> Iterator[Any]:
        pending = list(submit(producer, batches, epoch=epoch))
        yield from (pending[number] for number in (0, 1, 1, 3, 4, 5))

    monkeypatch.setattr(NativeProducer, "submit", stuttering)
    monkeypatch.setattr(NativeProducer, "_group", lambda *values, **options: None)
    with loader_of(numbered) as loader:
        exhaust(loader)

        assert COUNT == loader.receipt().samples
        assert not loader.receipt().is_exact


@pytest.mark.parametrize(
    ("options", "words", "distinct", "times"),
    [
        ({}, f"{COUNT} of {COUNT} samples once, ", COUNT, [1, 1]),
        ({"indices": [3, 1, 4]}, "3 of 3 samples once, ", 3, [1, 1]),
        ({"indices": [0, 1, 2] * 2}, "6 of 6 samples: 3 different ones, each twice, ", 3, [2, 2]),
        ({"indices": [0, 1] * 5}, "10 of 10 samples: 2 different ones, each 5 times, ", 2, [5, 5]),
        ({"sampler": [7, 7, 7, 2]}, "4 of 4 samples: 2 different ones, each 1 to 3 times, ", 2, [1, 3]),
    ],
)
def test_a_receipt_says_how_often(
    numbered: FastDataset, options: dict[str, Any], words: str, distinct: int, times: list[int]
) -> None:
    """Samples that are listed more than once are not said to have come once."""
    with loader_of(numbered, shuffle=False, **options) as loader:
        exhaust(islice(loader, 1))
        assert loader.receipt(own=True).times == tuple(times)
        loader.set_epoch(0)
        exhaust(loader)
        receipt = loader.receipt()

    assert str(receipt).startswith(words)
    assert receipt.is_exact
    values = json.loads(json.dumps(receipt.to_json()))
    assert [distinct, times] == [values["distinct"], values["times"]]


def test_receipts_are_plain_values(numbered: FastDataset) -> None:
    """A receipt goes into a log as JSON."""
    with loader_of(numbered) as loader:
        exhaust(loader)
        values = json.loads(json.dumps(loader.receipt().to_json()))

        assert values["is_exact"]
        assert values["number"] == values["expected"] == f"{number_of_store(loader):016x}"


def test_a_prefetcher_passes_the_receipt_on(photos: Path) -> None:
    """What the prefetcher has copied ahead does not count there either."""
    with FastLoader(photos, 4) as loader:
        prefetcher = DevicePrefetcher(loader, "cpu")
        batches = iter(prefetcher)
        next(batches)
        assert 4 == prefetcher.receipt().samples
        exhaust(batches)
        assert prefetcher.receipt().is_exact
