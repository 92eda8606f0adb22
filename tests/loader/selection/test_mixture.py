"""FastLoader over a Mixture: weights, schedules, members of all kinds, states, and what is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Subset

from fastio import DevicePrefetcher, FastDataset, FastLoader, Mixture, SchemaError
from fastio.transforms import RandomCrop
from fastio.types.schema import RAW, Field
from tests.conftest import encode, pictures, write_store
from tests.dataset.many_fields import TYPES, make_samples, write_fields
from tests.dataset.test_fast_dataset import to_tensor
from tests.loader.producer.test_tokens import write_tokens

COUNTS = {"web": 23, "code": 7, "books": 60}


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FastDataset]:
    """Three stores of numbers: 1000 and up, 2000 and up, 3000 and up, also as labels."""
    folder, stores = tmp_path_factory.mktemp("mixture"), {}
    for number, (name, count) in enumerate(COUNTS.items(), start=1):
        labels = np.arange(count) + 1000 * number
        values = [label.astype(np.int32).tobytes() for label in labels]
        field = Field("number", RAW, "<i4", ())
        stores[name] = FastDataset(write_store(folder / f"{name}.lmdb", values, labels, field=field))
    return stores


def two(members: dict[str, FastDataset], **options: Any) -> Mixture:
    """web and code at 7 : 3."""
    return Mixture({name: members[name] for name in ("web", "code")}, {"web": 7, "code": 3}, **options)


def numbers(loader: Any) -> list[list[int]]:
    """The samples of each batch; their labels are their own."""
    pairs = [(values.tolist(), labels.tolist()) for values, labels in loader]
    assert all(values == labels for values, labels in pairs)
    return [values for values, _ in pairs]


def test_a_loader_of_a_mixture(members: dict[str, FastDataset]) -> None:
    """Stratified batches of ten at 7 : 3, an epoch of as many samples as there are, and a report of the members."""
    mixture = two(members, batching="stratified")
    with FastLoader(mixture, 10, shuffle=True, threads=1) as loader:
        assert (3, 30, mixture) == (len(loader), len(mixture), loader.dataset)
        batches = iter(loader)
        first = next(batches)[0]
        assert [7, 3] == [int((first // 1000 == member).sum()) for member in (1, 2)]
        assert {"web": 7, "code": 3} == {name: source.samples for name, source in loader.sources().items()}
        list(batches)
        second = numbers(loader)
        code = loader.sources()["code"]

    assert (18, 18 / 7, 9, 7) == (code.samples, code.epochs, code.samples_of_epoch, code.size)
    assert [7, 7, 7] == [sum(value < 2000 for value in batch) for batch in second]


def test_pictures_are_those_of_the_members(tmp_path: Path) -> None:
    """Pictures and labels come from the right store, whatever its format, Subset or ConcatDataset it is in."""
    paths = [
        write_store(tmp_path / f"{seed}.{suffix}", [encode(one) for one in pictures(9, seed=seed)], np.arange(9) + seed)
        for seed, suffix in ((100, "lmdb"), (200, "h5"), (300, "tar"))
    ]
    a, b, c = (FastDataset(path) for path in paths)
    by_label = {
        label: torch.from_numpy(np.array(picture)).permute(2, 0, 1)
        for picture, label in ConcatDataset([a, b, c])  # type: ignore[attr-defined]
    }
    parts = {"a": paths[0], "some": Subset(b, [7, 2, 2]), "both": ConcatDataset([c, a])}
    mixture = Mixture(parts, {"a": 1, "some": 1, "both": 2})
    with FastLoader(mixture, 8, shuffle=True, samples_per_epoch=64) as loader:
        for images, labels in loader:
            assert all(torch.equal(by_label[int(label)], image) for image, label in zip(images, labels, strict=True))
        counts = loader.sources()

    assert [16, 16, 32] == [source.samples for source in counts.values()]
    assert [9, 3, 18] == [source.size for source in counts.values()]


@settings(max_examples=25)
@given(
    batching=st.sampled_from(["random", "stratified", "per_source"]),
    shuffle=st.sampled_from([True, "full", False]),
    divisions=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(0, 4)), min_size=2, max_size=4),
    epoch=st.integers(0, 2),
)
def test_elastic_resume(
    members: dict[str, FastDataset], batching: Any, shuffle: Any, divisions: Any, epoch: int
) -> None:
    """Stopped and continued with other ranks and batches, a training has the samples of one that never stopped."""
    weights = {"web": 0.5, "code": 0.2, "books": 0.3}
    mixture = Mixture(members, weights, batching=batching).at(step=9, weights={**weights, "code": 0.7})
    options: dict[str, Any] = {"shuffle": shuffle, "threads": 1, "samples_per_epoch": 70}
    with FastLoader(mixture, 5, **options) as loader:
        loader.set_epoch(epoch)
        expected = sorted(value for batch in numbers(loader) for value in batch)
        state: Any = None
    with FastLoader(mixture, 5, **options) as loader:
        loader.set_epoch(epoch)
        state = json.loads(json.dumps(loader.state_dict()))
    had: list[int] = []
    for turn, (world_size, batch_size, steps) in enumerate(divisions):
        stop = None if turn == len(divisions) - 1 else steps
        states = []
        for rank in range(world_size):
            with FastLoader(mixture, batch_size, rank=rank, world_size=world_size, **options) as loader:
                loader.load_state_dict(state)
                loader.set_epoch(epoch)
                padding = loader._selection.sampler.plan(*loader.place[:2]).padding
                left = loader.remaining
                batches = numbers(islice(loader, stop))
                taken = [value for batch in batches for value in batch]
                had += taken[: len(taken) - padding] if len(batches) == left else taken
                states.append(loader.state_dict())
        for name in ("epoch", "consumed", "mixture", "order"):
            assert all(one[name] == states[0][name] for one in states)
        state = json.loads(json.dumps(states[0]))
        if state["epoch"] != epoch or stop is None:
            break

    assert expected == sorted(had)


@pytest.mark.parametrize("batching", ["random", "stratified", "per_source"])
def test_the_same_division_goes_on_exactly(members: dict[str, FastDataset], batching: Any) -> None:
    """With the same ranks and batches, a resumed epoch has the very batches that were left."""
    mixture = Mixture(members, {"web": 1, "code": 1, "books": 1}, batching=batching)
    for rank in range(2):
        options: dict[str, Any] = {"rank": rank, "world_size": 2, "shuffle": True, "threads": 1}
        with FastLoader(mixture, 4, **options) as loader:
            batches = iter(loader)
            list(islice(batches, 3))
            state = json.loads(json.dumps(loader.state_dict()))
            rest, after = numbers(batches), numbers(loader)
        with FastLoader(mixture, 4, **options) as resumed:
            resumed.load_state_dict(state)
            assert rest == numbers(resumed)
            assert after == numbers(resumed)


def test_the_schedule_is_kept_in_samples(members: dict[str, FastDataset]) -> None:
    """Weights that change at step 2 of batches of 10 change at sample 20 after a resume with batches of 4."""
    mixture = two(members, batching="stratified").at(step=2, weights={"web": 0, "code": 1})
    with FastLoader(mixture, 10, threads=1) as loader:
        state = loader.state_dict()
    with FastLoader(mixture, 4, threads=1) as resumed:
        resumed.load_state_dict(json.loads(json.dumps(state)))
        kinds = [value // 1000 for batch in numbers(resumed) for value in batch]

    assert (14, 6) == (kinds[:20].count(1), kinds[:20].count(2))
    assert [2] * 10 == kinds[20:]


def test_other_weights_from_the_next_epoch_on(members: dict[str, FastDataset]) -> None:
    """Weights that nobody planned: the members go on where they stand, none of their samples twice or missing."""
    mixture = two(members, batching="stratified")
    with FastLoader(mixture, 10, shuffle=True, threads=1) as loader:
        had = numbers(loader)
        changed = mixture.at(step=len(loader), weights={"web": 2, "code": 8})
    with FastLoader(changed, 10, shuffle=True, threads=1) as loader:
        loader.set_epoch(1)
        had += numbers(loader)
    code = [value for batch in had for value in batch if value >= 2000]

    assert [3] * 3 + [8] * 3 == [sum(value >= 2000 for value in batch) for batch in had]
    assert all(len(set(code[start : start + 7])) == 7 for start in range(0, 28, 7))


def test_another_mixture_is_refused(members: dict[str, FastDataset]) -> None:
    """A state names the mixture when it is loaded into another one."""
    with FastLoader(two(members), 4) as loader:
        state = loader.state_dict()
    others = [
        two(members, batching="stratified"),
        Mixture(two(members).members, {"web": 1, "code": 1}),
        two(members).at(step=100, weights={"web": 1, "code": 1}),
    ]
    for other in others:
        with FastLoader(other, 4) as loader, pytest.raises(ValueError, match="mixture is"):
            loader.load_state_dict(state)
    with FastLoader(members["web"], 4) as loader, pytest.raises(ValueError, match="store is"):
        loader.load_state_dict(state)


def test_a_state_with_or_without_a_mixture_is_another_loaders(members: dict[str, FastDataset]) -> None:
    """Between a plain loader and one of a mixture, the difference is named: neither state is damaged."""
    alone = Mixture({"web": members["web"]}, {"web": 1})
    for shuffle in (False, True):
        with (
            FastLoader(members["web"], 4, shuffle=shuffle) as plain,
            FastLoader(alone, 4, shuffle=shuffle) as mixed,
            FastLoader(two(members), 4, shuffle=shuffle) as both,
        ):
            loaders = (plain, mixed, both)
            for here, other in ((here, other) for here in loaders for other in loaders if here is not other):
                with pytest.raises(ValueError, match=r"belongs to another loader: .*mixture is") as refused:
                    here.load_state_dict(other.state_dict())
                assert "damaged" not in str(refused.value)


@pytest.mark.parametrize(
    "weights", [(7, 3), (0.7, 0.3), (70.0, 30), (Fraction(7, 10), Decimal("0.3")), (np.int32(7), 3)]
)
def test_weights_are_exact(members: dict[str, FastDataset], weights: Any) -> None:
    """Whatever they add up to and however they are written, 7 to 3 is 7 to 3."""
    mixture = Mixture(two(members).members, dict(zip(("web", "code"), weights, strict=True)))

    assert {0: {"web": Fraction(7, 10), "code": Fraction(3, 10)}} == mixture.schedule


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda a: Mixture([a], {"web": 1}), "members: expected a mapping of names to datasets or paths, got list"),
        (lambda a: Mixture({}, {}), "members: expected one dataset or path at least, got an empty mapping"),
        (lambda a: Mixture({"web": a}, [1]), "weights: expected a mapping of names to numbers, got list"),
        (lambda a: Mixture({"web": a}, {"wbe": 1}), "weights: no member 'wbe' among 'web'"),
        (lambda a: Mixture({"web": a, "code": a}, {"web": 1}), "weights: no weight for 'code': give it one, or 0"),
        (lambda a: Mixture({"web": a}, {"web": 0}), "weights: all 1 are 0"),
        (lambda a: Mixture({"web": a}, {"web": -1}), r"weights\['web'\]=-1: expected a finite number"),
        (lambda a: Mixture({"web": a}, {"web": True}), r"weights\['web'\]=True: expected a finite number"),
        (lambda a: Mixture({"web": a}, {"web": float("nan")}), r"weights\['web'\]=nan: expected a finite number"),
        (lambda a: Mixture({"web": a}, {"web": 1}, batching="mixed"), "batching='mixed': expected one of 'random'"),
        (lambda a: Mixture({"web": a}, {"web": 1}).at(step=0, weights={"web": 1}), "step=0: expected 1 or more"),
        (
            lambda a: Mixture({"web": a}, {"web": 1}).at(step=1, weights={"web": 1}).at(step=1, weights={"web": 1}),
            "step=1: has weights already",
        ),
        (lambda a: FastLoader(Mixture({"web": Subset(a, [])}, {"web": 1}), 4), "member 'web' has no samples"),
        (lambda a: FastLoader(Mixture({"web": a}, {"web": 1}), 4, indices=[0]), "indices: not for a Mixture"),
        (lambda a: FastLoader(Mixture({"web": a}, {"web": 1}), 4, weights=[1]), "weights: not for a Mixture"),
        (lambda a: FastLoader(Mixture({"web": a}, {"web": 1}), 4, weights=[1], shuffle=True), "weights: not for a M"),
        (lambda a: FastLoader(Mixture({"web": a}, {"web": 1}), 4, sampler=[0], weights=[1]), "sampler, weights: not f"),
        (lambda a: FastLoader(Mixture({"web": a}, {"web": 1}), 4, batch_sampler=[[0]]), "batch_sampler: not for a M"),
        (lambda a: FastLoader(Mixture({"web": a}, {"web": 1}), batch_sampler=[[0]]), "batch_sampler: not for a Mix"),
        (lambda a: FastLoader(Mixture({"web": a}, {"web": 1}), 4, samples_per_epoch=0), "samples_per_epoch=0: expe"),
        (lambda a: FastLoader(a, 4, samples_per_epoch=9), "samples_per_epoch=9: only for weights= or a Mixture"),
        (lambda a: FastLoader(Mixture({"web": [1, 2]}, {"web": 1}), 4), "expected a FastDataset or the path"),
    ],
)
def test_what_is_refused(members: dict[str, FastDataset], make: Any, message: str) -> None:
    """One line says what is wrong and what to do."""
    with pytest.raises((TypeError, ValueError), match=message):
        make(members["web"])


def test_a_mixture_is_not_for_torch(members: dict[str, FastDataset]) -> None:
    """torch's DataLoader cannot read it, and is told who can."""
    with pytest.raises(TypeError, match=r"pass it to fastio\.FastLoader instead of torch's DataLoader"):
        next(iter(DataLoader(two(members), 4)))


def test_members_of_other_fields_are_refused(members: dict[str, FastDataset], tmp_path: Path) -> None:
    """Samples that cannot be in one batch: both stores and the field are named."""
    photos = write_store(tmp_path / "photos.lmdb", [encode(one) for one in pictures(3)], np.arange(3))
    mixture = Mixture({"web": members["web"], "photos": photos}, {"web": 1, "photos": 1})
    with pytest.raises(SchemaError, match=r"photos\.lmdb.*'number'.*web\.lmdb"):
        FastLoader(mixture, 4)


def test_classes_of_other_names_are_refused(tmp_path: Path) -> None:
    """Number 0 is a bee in one store and a cat in the other: never one class."""
    values = [encode(one) for one in pictures(3)]
    names = {"a": ["bee", "cat"], "b": ["cat", "bee"]}
    paths = {
        name: write_store(tmp_path / f"{name}.lmdb", values, np.zeros(3, np.int64), metadata={"classes": classes})
        for name, classes in names.items()
    }
    with pytest.raises(SchemaError, match=r"label 0 is 'bee' in .*a\.lmdb but 'cat' in .*b\.lmdb"):
        FastLoader(Mixture(paths, {"a": 1, "b": 1}), 2)


def test_sources_of_a_plain_loader(members: dict[str, FastDataset]) -> None:
    """Only a mixture has members to report."""
    with FastLoader(members["web"], 4) as loader, pytest.raises(TypeError, match="is for loaders of a Mixture"):
        loader.sources()


# Mixtures of every kind of sample, with what a FastLoader does beside: caches, bad samples, devices.

HALF = {"a": 1, "b": 1}


def photos(folder: Path, *, shape: Any = ((8, 8, 3), (8, 8, 3))) -> dict[str, Path]:
    """Two stores of pictures: labels from 0 and from 100 on."""
    return {
        name: write_store(
            folder / f"{name}.lmdb", [encode(one) for one in pictures(12, size, seed=first)], np.arange(12) + first
        )
        for name, first, size in (("a", 0, shape[0]), ("b", 100, shape[1]))
    }


def labels_of(loader: Any) -> list[list[int]]:
    """The labels of each batch."""
    return [labels.tolist() for _, labels in loader]


def test_the_plain_path_gives_the_same(tmp_path: Path) -> None:
    """Datasets with a transform of their own: the batches of native threads, to the bit."""
    paths = photos(tmp_path)
    options: dict[str, Any] = {"batch_size": 5, "shuffle": True, "threads": 1, "samples_per_epoch": 40}
    with (
        FastLoader(Mixture(paths, HALF), **options) as native,
        FastLoader(
            Mixture({name: FastDataset(path, to_tensor) for name, path in paths.items()}, HALF), **options
        ) as plain,
    ):
        for one, other in zip(native, plain, strict=True):
            assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("cache", ["ram", "device"])
def test_caches(tmp_path: Path, cache: Any) -> None:
    """Cached samples come in the same order, from memory with the same random crops, repeated ones included."""
    parts = {"a": photos(tmp_path)["a"], "b": Subset(FastDataset(tmp_path / "b.lmdb"), [3, 1])}
    options: dict[str, Any] = {"batch_size": 6, "shuffle": True, "samples_per_epoch": 30, "device": "cpu"}
    options["transforms"] = [RandomCrop(6)] if cache == "ram" else None
    with (
        FastLoader(Mixture(parts, HALF), **options) as plain,
        FastLoader(Mixture(parts, HALF), cache=cache, **options) as cached,
    ):
        for one, other in zip(plain, cached, strict=True):
            assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def test_repeated_samples_get_other_crops(tmp_path: Path) -> None:
    """The one sample of a small member comes ten times in an epoch, not with ten equal crops."""
    parts = {"a": photos(tmp_path)["a"], "b": Subset(FastDataset(tmp_path / "b.lmdb"), [3])}
    with FastLoader(Mixture(parts, HALF), 20, shuffle=True, transforms=[RandomCrop(5)], samples_per_epoch=20) as loader:
        images, labels = next(iter(loader))
    crops = {image.numpy().tobytes() for image in images[labels == 103]}

    assert 10 == int((labels == 103).sum())
    assert 4 < len(crops)


@pytest.mark.parametrize("on_error", ["skip", "zero"])
def test_bad_samples(tmp_path: Path, on_error: Any) -> None:
    """A damaged picture is skipped or zeroed, and named with its own store; the members' counts are of what was due."""
    paths = photos(tmp_path)
    values = [encode(one) for one in pictures(12)]
    values[4] = values[4][:100]
    paths["b"] = write_store(tmp_path / "bad.lmdb", values, np.arange(12) + 100)
    with FastLoader(Mixture(paths, HALF), 8, on_error=on_error) as loader:
        labels = [label for batch in labels_of(loader) for label in batch]
        (error,) = loader.skipped
        counts = loader.sources()

    assert (104 in labels) == (on_error == "zero")
    assert "bad.lmdb" in str(error)
    assert error.key == "a/0004.png"
    assert [12, 12] == [source.samples for source in counts.values()]


def test_steps_of_one_member_may_have_sizes_of_their_own(tmp_path: Path) -> None:
    """Pictures of 8 and of 16 pixels, each batch of one size."""
    mixture = Mixture(photos(tmp_path, shape=((8, 8, 3), (16, 16, 3))), HALF, batching="per_source")
    with FastLoader(mixture, 5, shuffle=True) as loader:
        sizes = {(tuple(images.shape[2:]), int(labels[0]) // 100) for images, labels in loader}

    assert {((8, 8), 0), ((16, 16), 1)} == sizes


def test_tokens_padded_and_packed(tmp_path: Path) -> None:
    """Texts of two stores in one batch, by their own ids; another tokenizer is refused."""
    texts = {name: [[first + number] * (1 + number) for number in range(9)] for name, first in (("a", 100), ("b", 200))}
    paths = {name: write_tokens(tmp_path / f"{name}.h5", samples) for name, samples in texts.items()}
    expected = sorted(tuple(sample) for samples in texts.values() for sample in samples)
    with FastLoader(Mixture(paths, HALF), 6, shuffle=True) as loader:
        rows = [
            tuple(ids[mask.bool()].tolist())
            for batch in loader
            for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
        ]
    with FastLoader(Mixture(paths, HALF), 6, shuffle=True, collate="pack") as loader:
        tokens = sum(int((batch["input_ids"] > 50).sum()) for batch in loader)
    other = write_tokens(tmp_path / "other.h5", texts["b"], other="words")

    assert expected == sorted(rows)
    assert sum(map(len, expected)) == tokens
    with pytest.raises(SchemaError, match=r"other\.h5: was packed with another tokenizer than .*a\.h5"):
        FastLoader(Mixture({"a": paths["a"], "b": other}, HALF), 6)


def test_many_fields(tmp_path: Path) -> None:
    """Dicts of pictures, captions and boxes: the fields of a sample stay together."""
    names = ("image", "caption", "boxes", "label")
    for number, name in enumerate("ab"):
        samples = make_samples(6, seed=number)
        for index, sample in enumerate(samples):
            sample |= {"caption": f"{name}{index}", "image": sample["image"][:40, :30], "label": 100 * number + index}
        write_fields(tmp_path / f"{name}.tar", samples, {field: TYPES[field] for field in names})
    mixture = Mixture({name: tmp_path / f"{name}.tar" for name in "ab"}, HALF, batching="stratified")
    pairs = []
    with FastLoader(mixture, 4, shuffle=True) as loader:
        for batch in loader:
            assert (4, 3, 40, 30) == tuple(batch["image"].shape)
            assert [2, 2] == [sum(caption[0] == name for caption in batch["caption"]) for name in "ab"]
            pairs += list(zip(batch["caption"], batch["label"].tolist(), strict=True))

    assert sorted(
        (f"{name}{index}", first + index) for name, first in (("a", 0), ("b", 100)) for index in range(6)
    ) == sorted(pairs)


def test_an_order_that_reads_whole_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little memory, members come in lanes: all samples, on two ranks and after a resume too."""
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", "16MiB")
    paths, numbers = {}, []
    for name, first in (("a", 0), ("b", 10_000)):
        values = [np.full(2048, first + number, np.int32).tobytes() for number in range(3000)]
        paths[name] = write_store(tmp_path / f"{name}.lmdb", values, field=Field("number", RAW, "<i4", (2048,)))
    mixture = Mixture(paths, {"a": 3, "b": 1})
    with FastLoader(mixture, 100, shuffle=True) as loader:
        assert ["lanes", "lanes"] == [order["kind"] for order in loader.state_dict()["order"]["members"]]
        batches = iter(loader)
        numbers += [batch[:, 0] for batch in islice(batches, 5)]
        state = json.loads(json.dumps(loader.state_dict()))
    for rank in range(2):
        with FastLoader(mixture, 55, shuffle=True, rank=rank, world_size=2) as loader:
            loader.load_state_dict(state)
            numbers += [batch[:, 0] for batch in loader]
    counts = np.bincount(torch.cat(numbers).numpy(), minlength=13_000)

    assert (4500, 1500) == (counts[:3000].sum(), counts[10_000:].sum())
    assert {1, 2} == set(counts[:3000].tolist())
    assert {0, 1} == set(counts[10_000:].tolist())


def test_a_prefetcher_and_the_sampler(tmp_path: Path) -> None:
    """Batches ahead on a device are the loader's; ``loader.sampler`` tells their samples."""
    mixture = Mixture(photos(tmp_path), HALF)
    with FastLoader(mixture, 5, shuffle=True) as loader, FastLoader(mixture, 5, shuffle=True) as other:
        numbers = list(loader.sampler)
        expected = [label for batch in labels_of(loader) for label in batch]
        assert expected == [label for batch in labels_of(DevicePrefetcher(other, "cpu")) for label in batch]
        assert [number if number < 12 else number + 88 for number in numbers] == expected
        assert loader.sources() == other.sources()


@pytest.mark.parametrize("batching", ["random", "stratified", "per_source"])
@pytest.mark.parametrize("options", [{}, {"drop_last": True}])
def test_receipts(tmp_path: Path, batching: Any, options: dict[str, Any]) -> None:
    """An epoch whose members come more or less than once has the receipt of what it should give, resumed or not."""
    parts = {"a": photos(tmp_path)["a"], "b": Subset(FastDataset(tmp_path / "b.lmdb"), [3, 1, 7])}
    mixture = Mixture(parts, {"a": 0.6, "b": 0.4}, batching=batching)
    with FastLoader(mixture, 4, shuffle=True, samples_per_epoch=31, **options) as loader:
        batches = iter(loader)
        list(islice(batches, 3))
        state = json.loads(json.dumps(loader.state_dict()))
        assert not loader.receipt().is_exact
        list(batches)
        whole = loader.receipt()
    with FastLoader(mixture, 3, shuffle=True, samples_per_epoch=31, **options) as loader:
        loader.load_state_dict(state)
        list(loader)
        resumed = loader.receipt()

    dropped = 31 - whole.samples
    assert (dropped > 0) == bool(options)
    for receipt in (whole, resumed):
        assert receipt.is_exact == (not options or receipt.expected is not None), receipt
        assert 0 == receipt.repeated == receipt.skipped
    if not options:
        assert whole.number == resumed.number == whole.expected
