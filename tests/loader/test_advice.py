"""What errors of FastLoader advise is done, and works: no message sends its reader into the next error."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio import FastDataset, FastioError, FastLoader
from fastio.transforms import (
    CenterCrop,
    Compose,
    Grayscale,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)
from fastio.types.schema import TOKENS, Field
from tests.conftest import encode, pictures, write_store
from tests.dataset.test_fast_dataset import to_tensor


@dataclass(frozen=True)
class Case:
    """A mistake, what the error says, and what it advises: options of FastLoader, and of FastDataset."""

    store: str
    wrong: dict[str, Any]
    message: str
    advised: tuple[dict[str, Any], ...]
    dataset: dict[str, Any] = field(default_factory=dict)  # of the mistake
    datasets: tuple[dict[str, Any], ...] = ()  # of each advice; those of the mistake where there are none


def cropped(image: Any) -> torch.Tensor:
    """What the advice says: one of fastio.transforms, called in a transform of one's own."""
    return to_tensor(RandomCrop(4)(image))


def doubled(batch: Any) -> Any:
    """A user's own function of a batch."""
    return [batch[0] * 2, *batch[1:]]


NORMALIZE = Normalize((0.5,), (0.5,))
TWICE = [Resize(12), RandomResizedCrop(6)]
CASES = {
    "sizes that differ": Case("mixed", {}, "pass transforms that make them equal", ({"transforms": CenterCrop(6)},)),
    "sizes that differ, cached": Case(
        "mixed",
        {"cache": "ram"},
        "pass transforms that make them equal",
        ({"cache": "ram", "transforms": CenterCrop(6)},),
    ),
    "cropped after a transform of batches": Case(
        "mixed",
        {"transforms": [NORMALIZE, CenterCrop(6)]},
        "CenterCrop comes after Normalize, .*: put CenterCrop before Normalize",
        ({"transforms": [CenterCrop(6), NORMALIZE]},),
    ),
    "transforms beside a transform": Case(
        "equal",
        {"transforms": RandomCrop(4)},
        "drop it here and use fastio.transforms there",
        ({},),
        {"transform": to_tensor},
        ({"transform": cropped},),
    ),
    "layout beside a transform": Case(
        "equal",
        {"layout": "channels_last"},
        "layout='channels_last' is for pictures that native threads decode.*drop it",
        ({},),
        {"transform": to_tensor},
    ),
    "resampled twice": Case(
        "mixed",
        {"transforms": TWICE},
        r"drop one, or pass them to FastDataset\(transform=Compose\(\[...\]\)\)",
        ({"transforms": TWICE[1:]}, {}),
        datasets=({}, {"transform": Compose(TWICE)}),
    ),
    "a function in transforms": Case(
        "equal",
        {"transforms": [to_tensor]},
        r"pass a function of samples to FastDataset\(path, transform=...\)",
        ({},),
        datasets=({"transform": to_tensor},),
    ),
    "own functions before ours": Case(
        "equal",
        {"transforms": [doubled, NORMALIZE]},
        "put your own callables last",
        ({"transforms": [NORMALIZE, doubled]},),
    ),
    "grey first": Case(
        "mixed",
        {"transforms": [Grayscale(3), Resize((5, 5))]},
        "put it last, which is also faster",
        ({"transforms": [Resize((5, 5)), Grayscale(3)]},),
    ),
    "grey of grey": Case(
        "equal",
        {"transforms": [CenterCrop(4), Grayscale(3)]},
        r"drop it, or pass FastDataset\(mode='RGB'\)",
        ({"transforms": CenterCrop(4)}, {"transforms": [CenterCrop(4), Grayscale(3)]}),
        {"mode": "L"},
        ({"mode": "L"}, {"mode": "RGB"}),
    ),
    "grey with alpha": Case(
        "equal",
        {"transforms": [CenterCrop(4), Grayscale()]},
        r"pass FastDataset\(mode='RGB'\)",
        ({"transforms": [CenterCrop(4), Grayscale()]},),
        {"mode": "RGBA"},
        ({"mode": "RGB"},),
    ),
    "a cache that skips": Case(
        "equal", {"cache": "ram", "on_error": "skip"}, "on_error='raise'", ({"cache": "ram", "on_error": "raise"},)
    ),
    "a cache beside a transform": Case(
        "equal", {"cache": "ram"}, "no transform of the dataset", ({"cache": "ram"},), {"transform": to_tensor}, ({},)
    ),
    "a cache nowhere": Case("equal", {"cache": "device"}, "pass device= too", ({"cache": "device", "device": "cpu"},)),
    "random crops on a device": Case(
        "mixed",
        {"cache": "device", "device": "cpu", "transforms": RandomCrop(4)},
        r"begin with Resize\(\(height, width\)\), or use cache='ram'",
        (
            {"cache": "device", "device": "cpu", "transforms": [Resize((9, 9)), RandomCrop(4)]},
            {"cache": "ram", "device": "cpu", "transforms": RandomCrop(4)},
        ),
    ),
    "zeros of no size": Case(
        "bad",
        {"on_error": "zero"},
        "because its size is unknown: use on_error='skip'",
        ({"on_error": "skip"},),
        {"transform": to_tensor},
    ),
    "a collate of pictures": Case("equal", {"collate": "pad"}, "collate= is for token ids.*drop it", ({},)),
    "pictures' transforms of ids": Case(
        "ids", {"transforms": RandomHorizontalFlip()}, "is for pictures, but the samples are token ids", ({},)
    ),
    "indices as a set": Case(
        "equal", {"indices": {1, 2}}, "expected an array, list or range", ({"indices": [1, 2]}, {"indices": range(2)})
    ),
    "an iterator": Case("equal", {"sampler": iter([1])}, r"pass list\(...\)", ({"sampler": list(iter([1]))},)),
    "lists as a sampler": Case(
        "equal",
        {"sampler": [[1]]},
        "pass lists of indices as batch_sampler=",
        ({"batch_sampler": [[1]], "batch_size": None},),
    ),
    "numbers as batches": Case(
        "equal",
        {"batch_sampler": [1], "batch_size": None},
        "pass single indices as sampler=",
        ({"sampler": [1]},),
    ),
    "weights and a shuffle": Case(
        "equal", {"weights": [1.0] * 5, "shuffle": True}, "drop it here", ({"weights": [1.0] * 5},)
    ),
    "a class without a weight": Case(
        "equal",
        {"weights": {0: 1, 1: 1, 2: 1, 3: 2}},
        r"no weight for '4' \(one class\): give each class one, or 0 to leave it out",
        ({"weights": {0: 1, 1: 1, 2: 1, 3: 2, 4: 0}},),
    ),
    "a weight a class": Case(
        "two classes",
        {"weights": [1, 2]},
        r"for one weight per class, pass \{class: weight\}",
        ({"weights": {0: 1, 1: 2}},),
    ),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pictures of one size and of three, with a bad one among them, of two classes; token ids."""
    folder = tmp_path_factory.mktemp("advice")
    equal = [encode(pixels) for pixels in pictures(5)]
    values = {
        "equal": equal,
        "two classes": equal,
        "mixed": [encode(pictures(1, (8 + n % 3, 9, 3))[0]) for n in range(5)],
        "bad": [*equal[:4], b"no picture"],
    }
    labels = {"two classes": np.arange(5) % 2}
    paths = {
        name: write_store(folder / f"{number}.h5", each, labels.get(name, np.arange(5)))
        for number, (name, each) in enumerate(values.items())
    }
    ids = [np.arange(n, dtype="<u2").tobytes() for n in range(1, 6)]
    paths["ids"] = write_store(folder / "ids.h5", ids, field=Field("tokens", TOKENS, "<u2", (None,)))
    return paths


def run(path: Path, dataset: dict[str, Any], options: dict[str, Any]) -> None:
    """An epoch, as a training would."""
    with FastLoader(FastDataset(path, **dataset), **{"batch_size": 5, "threads": 1, **options}) as loader:
        assert len(list(loader)) > 0


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_advised_works(stores: dict[str, Path], case: Case) -> None:
    """The mistake is an error that advises something, and whoever does that gets batches."""
    path = stores[case.store]
    with pytest.raises((FastioError, ValueError, TypeError), match=case.message):
        run(path, case.dataset, case.wrong)
    for number, advised in enumerate(case.advised):
        run(path, case.datasets[number] if case.datasets else case.dataset, advised)


class Mirrored(FastDataset):
    """Makes its samples itself."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return to_tensor(image).flip(2), label


class WithBlank(Mirrored):
    """What a message advises."""

    def blank(self, index: int) -> Any:
        return torch.zeros(3, 8, 8, dtype=torch.uint8), index


@pytest.mark.parametrize(
    ("kind", "options"), [(Mirrored, {"on_error": "skip"}), (WithBlank, {"on_error": "zero"})], ids=["skip", "blank"]
)
def test_bad_samples_of_a_subclass(stores: dict[str, Path], kind: type[FastDataset], options: dict[str, Any]) -> None:
    """on_error="zero" of a subclass is refused; both ways out work."""
    with pytest.raises(ValueError, match=r"use on_error='skip' or 'raise', or give Mirrored its own blank\(index\)"):
        FastLoader(Mirrored(stores["bad"]), 5, on_error="zero")
    with FastLoader(kind(stores["bad"]), 5, **options) as loader:
        images, _ = next(iter(loader))
    assert len(images) == (5 if kind is WithBlank else 4)


def build(dataset: FastDataset) -> FastLoader:
    """In another process, say."""
    return FastLoader(dataset, 5)


def test_a_pickled_loader(stores: dict[str, Path]) -> None:
    """The dataset travels, and the loader is built where it arrives."""
    dataset = FastDataset(stores["equal"])
    with (
        FastLoader(dataset, 5) as loader,
        pytest.raises(TypeError, match="pass the FastDataset, and build the loader there"),
    ):
        pickle.dumps(loader)
    there: Callable[[], FastLoader] = lambda: build(pickle.loads(pickle.dumps(dataset)))  # noqa: E731
    with there() as loader:
        assert len(list(loader)) == 1


def test_a_transform_after_the_loader(stores: dict[str, Path]) -> None:
    """Built anew, the loader takes it."""
    dataset = FastDataset(stores["equal"])
    with FastLoader(dataset, 5) as loader:
        dataset.transform = to_tensor
        with pytest.raises(ValueError, match="set it first, or build the loader again"):
            next(iter(loader))
    with FastLoader(dataset, 5) as loader:
        assert len(next(iter(loader))[0]) == 5


def test_pictures_of_a_transform_are_those_of_native_batches(stores: dict[str, Path]) -> None:
    """A transform that leaves a PIL image gives uint8 (B, C, H, W), as batches without a transform have it."""
    for mode in ("RGB", "L"):
        chain = Compose([CenterCrop(6)])
        with (
            FastLoader(FastDataset(stores["equal"], chain, mode=mode), 5) as plain,
            FastLoader(FastDataset(stores["equal"], mode=mode), 5, transforms=chain) as native,
        ):
            for one, other in zip(next(iter(plain)), next(iter(native)), strict=True):
                assert torch.equal(one, other)
