"""Bad samples and failing transforms in FastLoader: named, by the policy that was asked for, never silent."""

from __future__ import annotations

import logging
import pickle
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio import FastDataset, FastioError, FastLoader, SampleError
from fastio.loader.options import OnError
from fastio.transforms import (
    CenterCrop,
    Compose,
    Grayscale,
    Normalize,
    PerBatch,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)
from fastio.types.schema import RAW, TOKENS, Field
from tests.conftest import SUFFIXES, encode, pictures, write_store
from tests.dataset.test_fast_dataset import to_tensor

BAD = (1, 6)


def damaged_pngs() -> list[bytes]:
    """Ten PNGs; 1 ends in the middle, 6 is text."""
    values = [encode(pixels) for pixels in pictures(10)]
    values[1] = values[1][:120]
    values[6] = b"no picture at all"
    return values


@pytest.fixture(scope="module", params=["native", "plain"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """A store with two bad pictures, for each of the loader's two paths."""
    path = write_store(tmp_path_factory.mktemp("bad") / "a.lmdb", damaged_pngs(), np.arange(10))
    return FastDataset(path, to_tensor if request.param == "plain" else None)


def test_raise_stops_at_the_batch(dataset: FastDataset) -> None:
    """The error comes at the batch of the bad sample, after all good ones before it."""
    with FastLoader(dataset, 1) as loader:
        batches = iter(loader)
        assert next(batches)[1].tolist() == [0]
        with pytest.raises(SampleError, match=re.escape("a.lmdb[1] ('a/0001.png'), field 'image'")):
            next(batches)


def test_the_error_names_the_option_that_goes_on(dataset: FastDataset) -> None:
    """Whoever meets a bad sample in training learns of on_error; outside of a loader, there is no such option."""
    with FastLoader(dataset, 5) as loader:
        for _ in range(2):
            with pytest.raises(SampleError, match=r"; FastLoader\(\.\.\., on_error=.skip.\) leaves .*") as caught:
                list(loader)
            assert (1, 1) == (caught.value.index, str(caught.value).count("on_error"))
    with pytest.raises(SampleError) as direct:
        np.asarray(dataset[1][0])

    assert "on_error" not in str(direct.value)


def test_skip_leaves_out_and_lists(dataset: FastDataset, caplog: pytest.LogCaptureFixture) -> None:
    """Bad samples are left out of their batch, named once in the log and in the ledger; the rest is untouched."""
    caplog.set_level(logging.WARNING)
    with FastLoader(dataset, 4, on_error="skip") as loader:
        epochs = [[(images.clone(), labels.tolist()) for images, labels in loader] for _ in range(2)]
        skipped = [error.index for error in loader.skipped]

    for epoch in epochs:
        assert [labels for _, labels in epoch] == [[0, 2, 3], [4, 5, 7], [8, 9]]
        for images, labels in epoch:
            for image, label in zip(images, labels, strict=True):
                assert np.array_equal(pictures(10)[label].transpose(2, 0, 1), image.numpy())
    assert list(BAD) == skipped
    assert len(caplog.records) == len(BAD)


def test_skip_with_a_batch_of_bad_samples_only(dataset: FastDataset) -> None:
    """Alone, the loader goes on without that batch; among ranks, which would wait for it, it raises."""
    with FastLoader(dataset, 1, on_error="skip") as loader:
        assert [labels.item() for _, labels in loader] == [0, 2, 3, 4, 5, 7, 8, 9]
    ranked = FastLoader(dataset, 1, on_error="skip", rank=1, world_size=2)
    with ranked, pytest.raises(SampleError, match='other ranks would wait for one: on_error="zero"'):
        list(ranked)


def test_zero_is_a_black_picture(tmp_path: Path) -> None:
    """A bad sample whose size is known becomes zeros under its own label; its batch keeps its size."""
    values = damaged_pngs()
    values[6] = values[6 - 1][:100]
    store = write_store(tmp_path / "a.h5", values, np.arange(10))
    for dataset in (FastDataset(store), FastDataset(store, to_tensor)):
        with FastLoader(dataset, 4, on_error="zero") as loader:
            images = torch.cat([images for images, _ in loader])
            assert list(BAD) == [error.index for error in loader.skipped]
        for index, pixels in enumerate(pictures(10)):
            expected = np.zeros_like(pixels) if index in BAD else pixels
            assert np.array_equal(expected.transpose(2, 0, 1), images[index].numpy())


class Reversed(FastDataset):
    """Sample i is the store's sample 9-i."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(9 - index)


class ReversedInBatches(FastDataset):
    """The same by the method that hands out several."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return super().__getitems__([9 - index for index in indices])


@pytest.mark.parametrize("kind", [Reversed, ReversedInBatches])
def test_zero_is_refused_where_the_label_is_a_subclass_matter(dataset: FastDataset, kind: type[FastDataset]) -> None:
    """A subclass with samples of its own would get the store's label under the black picture: it is told so."""
    changed = kind(dataset.store.path, to_tensor)
    with pytest.raises(ValueError, match=rf"'zero' .* {kind.__name__} .* use on_error='skip' or 'raise'"):
        FastLoader(changed, 4, on_error="zero")


@pytest.mark.parametrize("kind", [Reversed, ReversedInBatches])
def test_skip_keeps_a_subclass_samples(dataset: FastDataset, kind: type[FastDataset]) -> None:
    """The good neighbours of a bad sample are the subclass' own too."""
    with FastLoader(kind(dataset.store.path, to_tensor), 5, on_error="skip") as loader:
        assert [labels.tolist() for _, labels in loader] == [[9, 8, 7, 5], [4, 3, 2, 0]]


def test_zero_with_a_blank_of_its_own(dataset: FastDataset) -> None:
    """A subclass that says what its black sample is gets it."""

    class WithBlank(Reversed):
        def blank(self, index: int) -> Any:
            return torch.zeros(3, 8, 8, dtype=torch.uint8), 9 - index

    with FastLoader(WithBlank(dataset.store.path, to_tensor), 10, on_error="zero") as loader:
        images, labels = next(iter(loader))
    assert labels.tolist() == list(range(9, -1, -1))
    assert [9 - index for index in range(10) if not images[index].any()] == [6, 1]


def test_zero_in_a_native_batch_needs_no_header(dataset: FastDataset) -> None:
    """In the native path the batch knows the size; in the plain path nobody does, and it says so."""
    with FastLoader(dataset, 5, on_error="zero") as loader:
        if dataset.transform is None:
            assert [len(images) for images, _ in loader] == [5, 5]
        else:
            with pytest.raises(SampleError, match="its size is unknown"):
                list(loader)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("on_error", ["raise", "skip", "zero"])
def test_a_flipped_bit_is_seen(tmp_path: Path, suffix: str, on_error: OnError) -> None:
    """One bit changed in a packed file is found by the checksum, and never becomes a pixel."""
    values = [encode(pixels) for pixels in pictures(6)]
    path = write_store(tmp_path / f"a.{suffix}", values, np.arange(6))
    content = bytearray(path.read_bytes())
    place = content.find(values[3]) + len(values[3]) // 2
    content[place] ^= 16
    path.write_bytes(content)

    with FastLoader(path, 3, on_error=on_error) as loader:
        if on_error == "raise":
            with pytest.raises(SampleError, match=r"a/0003\.png"):
                list(loader)
        else:
            assert [len(images) for images, _ in loader] == ([3, 2] if on_error == "skip" else [3, 3])
            assert [error.key for error in loader.skipped] == ["a/0003.png"]


@pytest.mark.parametrize("verify", [None, True, False])
def test_raw_bits_are_checked_unless_told_otherwise(tmp_path: Path, verify: bool | None) -> None:
    """Raw arrays are compared with their checksums by default, as the documentation says."""
    values = [pixels.tobytes() for pixels in pictures(4)]
    path = write_store(tmp_path / "a.h5", values, field=Field("image", RAW, "|u1", (8, 8, 3)))
    content = bytearray(path.read_bytes())
    content[content.find(values[2]) + 5] ^= 1
    path.write_bytes(content)

    with FastLoader(path, 4, verify=verify) as loader:
        if verify is not False:
            with pytest.raises(SampleError, match=r"\[2\]"):
                list(loader)
        else:
            assert len(next(iter(loader))) == 4


IMPOSSIBLE = [(-8, -8, 3), (2**31 - 1, 2**31 - 1, 3), (8, 8, 5), (8, 8, -1), (8, 8, 0), (1 << 23, 1 << 23, 3)]


@pytest.mark.parametrize("shape", IMPOSSIBLE)
@pytest.mark.parametrize("mode", ["RGB", None])
@pytest.mark.parametrize("transform", [None, to_tensor])
def test_an_impossible_size_in_the_index_is_none(
    tmp_path: Path, shape: tuple[int, int, int], mode: str | None, transform: Any
) -> None:
    """What an index says of a picture's size and cannot be is not believed: the picture's header is asked."""
    shapes = np.array([(8, 8, 3), shape, (8, 8, 3)], np.int32)
    store = write_store(tmp_path / "a.lmdb", [encode(pixels) for pixels in pictures(3)], shapes=shapes)
    with FastLoader(FastDataset(store, transform, mode=mode), 3) as loader:
        assert np.array_equal(np.stack(pictures(3)).transpose(0, 3, 1, 2), next(iter(loader)).numpy())


@pytest.mark.parametrize("mode", ["RGB", None])
@pytest.mark.parametrize("transform", [None, to_tensor])
@pytest.mark.parametrize("index_has_it", [False, True])
@pytest.mark.parametrize("size", [(2**31 - 1, 2**31 - 1), (8, (1 << 23) + 8)])  # the second is one flipped bit
def test_an_impossible_header_is_one_bad_sample(
    tmp_path: Path, mode: str | None, transform: Any, index_has_it: bool, size: tuple[int, int]
) -> None:
    """A header of far too many pixels is that sample's error, alone in its batch or not, and asks for no memory."""
    values = [encode(pixels) for pixels in pictures(4)]
    values[1] = values[1][:16] + struct.pack(">II", size[1], size[0]) + values[1][24:]
    shapes = np.array([(8, 8, 3)] * 4, np.int32)
    shapes[1] = (*size, 3) if index_has_it else (0, 0, 0)
    store = write_store(tmp_path / "a.lmdb", values, shapes=shapes)
    for batch_size, lengths in ((2, [1, 2]), (1, [1, 1, 1])):
        with FastLoader(FastDataset(store, transform, mode=mode), batch_size, on_error="skip") as loader:
            assert [len(images) for images in loader] == lengths
            assert [error.key for error in loader.skipped] == ["a/0001.png"]


def test_grey_with_alpha_in_the_index_is_rgba(tmp_path: Path) -> None:
    """Two channels are a size that can be: as stored, they come as RGBA."""
    pixels = pictures(2, (8, 8, 2))
    values = [encode(each) for each in pixels]
    store = write_store(tmp_path / "a.lmdb", values, shapes=np.array([(8, 8, 2)] * 2, np.int32))
    with FastLoader(FastDataset(store, mode=None), 2) as loader:
        images = next(iter(loader)).numpy().transpose(0, 2, 3, 1)
    assert np.array_equal(np.stack(pixels)[..., [0, 0, 0, 1]], images)


def test_more_than_four_channels_are_rgba(tmp_path: Path) -> None:
    """A TIFF may say more channels than any mode has: it comes as Pillow makes RGB or RGBA of it."""
    value = bytearray(encode(pictures(1)[0], "TIFF"))
    at = value.index(struct.pack("<HHI", 277, 3, 1)) + 8  # the entry of SamplesPerPixel
    value[at : at + 2] = struct.pack("<H", 5)
    store = write_store(tmp_path / "a.lmdb", [bytes(value)], shapes=np.array([(8, 8, 5)], np.int32))

    for mode, channels in (("RGB", 3), (None, 4)):
        reader = FastDataset(store, mode=mode).reader
        index = np.array([0])
        assert reader.shapes(index, reader.store.spans("image", index)).tolist() == [[8, 8, channels]]


def test_a_failing_transform_is_handed_over(png_store: Path) -> None:
    """An exception in a thread comes out of the loop, as it was, with the sample's name."""

    def fail_at_7(image: Any) -> Any:
        if np.array_equal(pictures(50)[7], np.array(image)):
            raise ZeroDivisionError("seven")
        return to_tensor(image)

    with FastLoader(FastDataset(png_store, fail_at_7), 4) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(ZeroDivisionError) as caught:
            next(batches)
    assert "a/0007.png" in caught.value.__notes__[0]


def test_pillows_pictures_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A kind that only Pillow decodes gives the same pixels in a native batch, and one line in the log."""
    pixels = pictures(4, (16, 16, 3))
    values = [encode(each, "TIFF" if index % 2 else "PNG") for index, each in enumerate(pixels)]
    dataset = FastDataset(write_store(tmp_path / "a.lmdb", values))
    expected = torch.stack([to_tensor(image) for image in dataset.__getitems__(range(4))])
    caplog.set_level(logging.INFO)
    caplog.clear()
    with FastLoader(dataset.store.path, 4) as loader:
        assert torch.equal(expected, torch.cat(list(loader)))

    assert ["Pillow" in record.message for record in caplog.records] == [True]


# What errors of FastLoader advise is done, and works: no message sends its reader into the next error.


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
        "comes last: write PerSample",
        ({"transforms": [NORMALIZE, doubled]}, {"transforms": [PerBatch(doubled), NORMALIZE]}),
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
    "a weight for a class that is none": Case(
        "equal",
        {"weights": {0: 1, 5: 2}},
        "weights: no class 5 among 0, 1, 2, 3, 4",
        ({"weights": {0: 1, 4: 2}},),
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
