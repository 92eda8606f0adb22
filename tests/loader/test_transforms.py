"""FastLoader with transforms: its rows are the plain path's, whatever the threads, ranks and batches."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, SampleError, SchemaError
from fastio.transforms import (
    BatchTransform,
    CenterCrop,
    ChannelsLast,
    Compose,
    GaussianBlur,
    Grayscale,
    Normalize,
    Pad,
    Patchify,
    RandomApply,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToDtype,
    Transform,
)
from fastio.transforms.fused import uniform
from fastio.types.schema import RAW, Field
from tests.conftest import SUFFIXES, encode, write_store
from tests.transforms.chains import FILL, MASK_FILL, chains, is_fusible, tolerance

COUNT = 23
SIZES = ((40, 60), (64, 48), (50, 50), (33, 91), (120, 21))

TRAIN = [RandomResizedCrop(24), RandomHorizontalFlip()]
CHAINS: dict[str, list[Transform]] = {
    "train": TRAIN,
    "bicubic": [RandomResizedCrop((20, 31), interpolation="bicubic"), RandomHorizontalFlip()],
    "nearest": [RandomResizedCrop(17, interpolation="nearest")],
    "val": [Resize(32), CenterCrop(28)],
    "small": [Resize(24), CenterCrop((30, 26))],
    "crop": [RandomCrop(20, padding=4), RandomHorizontalFlip()],
    "edges": [RandomCrop(60, padding=(1, 2, 3, 4), pad_if_needed=True, fill=(7, 8, 9)), RandomHorizontalFlip()],
    "resize": [Resize((19, 27), "lanczos"), Pad(2, fill=200)],
    "grey": [RandomResizedCrop(24), Grayscale(3)],
    "grey first": [Grayscale(), RandomResizedCrop(24, interpolation="box")],
    "grey last": [RandomCrop(16), Grayscale()],
}


def smooth(height: int, width: int, seed: int) -> np.ndarray:
    """Pixels as of a photo: smooth, with a little noise."""
    small = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (7, 7, 3), np.uint8))
    pixels = np.array(small.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int64)
    return np.clip(pixels + np.random.default_rng(seed).integers(-9, 10, pixels.shape), 0, 255).astype(np.uint8)


def photos(kind: str) -> list[bytes]:
    """Pictures of different sizes, encoded."""
    return [encode(smooth(*SIZES[index % len(SIZES)], index), kind) for index in range(COUNT)]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """
    Pictures in every format and kind; "raw" ones of one size, "planar" the same with their channels one behind the
    other, "foreign" a tar without an index.
    """
    folder = tmp_path_factory.mktemp("photos")
    labels = np.arange(COUNT)
    found = {
        f"{kind} {suffix}": write_store(folder / f"{kind}.{suffix}", photos(kind), labels)
        for kind in ("JPEG", "PNG", "WEBP")
        for suffix in SUFFIXES
    }
    field = Field("image", RAW, "|u1", (40, 60, 3))
    for suffix in SUFFIXES:
        values = [smooth(40, 60, index).tobytes() for index in range(COUNT)]
        found[f"raw {suffix}"] = write_store(folder / f"raw.{suffix}", values, labels, field=field)
    values = [np.moveaxis(smooth(40, 60, index), -1, 0).tobytes() for index in range(COUNT)]
    found["planar lmdb"] = write_store(folder / "planar.lmdb", values, labels, field=field.planar)
    found["foreign"] = folder / "foreign.tar"
    with tarfile.open(found["foreign"], "w") as archive:
        for index, value in enumerate(photos("JPEG")):
            for name, content in ((f"{index:03d}.jpg", value), (f"{index:03d}.cls", str(index).encode())):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return found


def expected(dataset: FastDataset, chain: list[Transform], indices: Any, *, epoch: int = 0, seed: int = 0) -> Any:
    """The plain path: each sample's PIL image transformed step by step by the numbers that belong to it."""
    transform = Compose(chain)
    numbers = uniform(np.array(indices), transform.draws, seed=seed, epoch=epoch)
    images = [np.array(transform.apply(dataset[index][0], each)) for index, each in zip(indices, numbers, strict=True)]
    return torch.from_numpy(np.stack([each.reshape(*each.shape[:2], -1) for each in images])).permute(0, 3, 1, 2)


def batches(loader: FastLoader) -> list[tuple[torch.Tensor, list[int]]]:
    """Copies of an epoch's batches."""
    return [(images.clone(), labels.tolist()) for images, labels in loader]


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "raw", "WEBP"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_fused_path_is_the_plain_path(stores: dict[str, Path], kind: str, suffix: str, chain: Any) -> None:
    """One native pass gives what decoding, cropping, resizing and flipping with Pillow give, to the bit."""
    dataset = FastDataset(stores[f"{kind} {suffix}"])
    if kind == "raw" and chain is CHAINS["grey first"]:
        with pytest.raises(SchemaError, match="put it last"):  # nothing is decoded, to grey or otherwise
            FastLoader(dataset, 8, transforms=chain)
        return
    with FastLoader(dataset, 8, shuffle="full", seed=5, transforms=chain) as loader:
        loader.set_epoch(2)
        for images, labels in loader:
            assert torch.equal(expected(dataset, chain, labels.tolist(), epoch=2, seed=5), images)
            assert images.is_contiguous()


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("chain", [None, *(CHAINS[name] for name in CHAINS if name != "grey first")])
def test_planes_are_pixels(stores: dict[str, Path], chain: Any, layout: Any) -> None:
    """Pictures whose channels lie one behind the other give the same batches, without transforms and with any."""
    found = []
    for kind in ("raw", "planar"):
        with FastLoader(stores[f"{kind} lmdb"], 5, shuffle=True, transforms=chain, layout=layout) as loader:
            found.append([(images, labels.tolist()) for images, labels in loader])
    for (images, labels), (others, expected) in zip(*found, strict=True):
        assert labels == expected
        views = zip(images, others, strict=True) if isinstance(images, list) else [(images, others)]
        assert all(torch.equal(one, other) and one.stride() == other.stride() for one, other in views)


@settings(max_examples=60, deadline=None)
@given(
    chain=chains.filter(is_fusible),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    kind=st.sampled_from(["JPEG", "PNG", "raw", "planar"]),
    threads=st.sampled_from([1, 2]),
    epoch=st.integers(0, 1 << 31),
)
def test_any_chain(
    stores: dict[str, Path], chain: list[Transform], size: tuple[int, int], kind: str, threads: int, epoch: int
) -> None:
    """Chains of every form, brought to one size at the end."""
    dataset = FastDataset(stores[f"{kind} lmdb"])
    chain = [*chain, RandomCrop(size, pad_if_needed=True, fill=FILL, mask_fill=MASK_FILL)]
    with FastLoader(dataset, COUNT, transforms=chain, threads=threads) as loader:
        loader.set_epoch(epoch)
        images, labels = next(iter(loader))
    difference = expected(dataset, chain, labels.tolist(), epoch=epoch).int() - images.int()

    assert difference.abs().max() <= tolerance(chain)


@pytest.mark.parametrize("chain", [TRAIN, CHAINS["crop"], CHAINS["nearest"]])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", None])
@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_modes(tmp_path: Path, kind: str, mode: str | None, chain: Any) -> None:
    """The dataset's mode decides the channels, as without transforms; colours are weighed by alpha as Pillow does."""
    pixels = [np.random.default_rng(index).integers(0, 256, (*size, 4), np.uint8) for index, size in enumerate(SIZES)]
    for each in pixels:
        each[:20, :, 3] = 255
        each[20:25, :, 3] = 0
    store = write_store(tmp_path / "a.lmdb", [encode(each, kind) for each in pixels], np.arange(len(pixels)))
    dataset = FastDataset(store, mode=mode)
    with FastLoader(dataset, COUNT, transforms=chain) as loader:
        images, labels = next(iter(loader))

    assert torch.equal(expected(dataset, chain, labels.tolist()), images)


def test_raw_alpha(tmp_path: Path) -> None:
    """Raw pictures with alpha, too."""
    values = [np.random.default_rng(index).bytes(30 * 20 * 4) for index in range(5)]
    field = Field("image", RAW, "|u1", (30, 20, 4))
    dataset = FastDataset(write_store(tmp_path / "a.h5", values, np.arange(5), field=field))
    for chain in (TRAIN, [RandomCrop(20, padding=3, fill=(1, 2, 3, 4)), RandomHorizontalFlip()]):
        with FastLoader(dataset, 5, transforms=chain) as loader:
            assert torch.equal(expected(dataset, chain, range(5)), next(iter(loader))[0])


def test_a_foreign_tar_is_probed(stores: dict[str, Path]) -> None:
    """Sizes that no index knows are read from the pictures' headers."""
    dataset = FastDataset(stores["foreign"])
    with FastLoader(dataset, 5, transforms=TRAIN) as loader:
        for images, labels in loader:
            assert torch.equal(expected(dataset, TRAIN, labels.tolist()), images)


@pytest.mark.parametrize("kind", ["JPEG h5", "raw lmdb", "WEBP tar"])
def test_layouts(stores: dict[str, Path], kind: str) -> None:
    """The same values in both layouts, with transforms and without; channels_last where it is asked for."""
    for recipe in (TRAIN, None):
        store = stores[kind if recipe else "raw h5"]
        with (
            FastLoader(store, 4, transforms=recipe) as one,
            FastLoader(store, 4, transforms=recipe, layout="channels_last") as other,
        ):
            for (images, _), (last, _) in zip(one, other, strict=True):
                assert torch.equal(images, last)
                assert images.is_contiguous()
                assert last.is_contiguous(memory_format=torch.channels_last)
            assert one.state_dict() == other.state_dict()


@pytest.mark.parametrize("options", [{}, {"cache": "device"}], ids=["device", "cache"])
def test_layouts_behind_transforms_on_a_device(stores: dict[str, Path], options: dict[str, Any]) -> None:
    """What is cropped or changed there comes in the layout asked for, and ChannelsLast at the end is one too."""
    recipe = [Grayscale(3), Normalize((0.5,), (0.5,)), RandomCrop(3)]
    last = torch.channels_last
    for layout, more, expected in (
        ("contiguous", [], torch.contiguous_format),
        ("channels_last", [], last),
        ("contiguous", [ChannelsLast()], last),
    ):
        with FastLoader(
            stores["raw h5"], 4, transforms=[*recipe, *more], layout=layout, device="cpu", **options
        ) as loader:
            assert next(iter(loader))[0].is_contiguous(memory_format=expected)


def test_threads_and_batches_change_nothing(stores: dict[str, Path]) -> None:
    """Any number of threads, any batch size: every sample gets the same crop in an epoch, another in the next."""
    epochs = []
    for threads, batch_size in ((1, 4), (2, 4), (4, 4), (2, 1), (1, COUNT)):
        with FastLoader(stores["JPEG lmdb"], batch_size, shuffle=True, threads=threads, transforms=TRAIN) as loader:
            epochs.append([torch.cat([images for images, _ in batches(loader)]) for _ in range(2)])

    for each in epochs:
        assert torch.equal(epochs[0][0], each[0])
        assert torch.equal(epochs[0][1], each[1])
    assert not torch.equal(epochs[0][0], epochs[0][1])


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_change_nothing(stores: dict[str, Path], world_size: int) -> None:
    """A sample's crop does not depend on the rank that it comes to."""
    dataset = FastDataset(stores["PNG h5"])
    wanted = expected(dataset, TRAIN, range(COUNT))
    for rank in range(world_size):
        with FastLoader(dataset, 4, shuffle="full", transforms=TRAIN, rank=rank, world_size=world_size) as loader:
            for images, labels in loader:
                assert torch.equal(wanted[labels], images)


def test_a_resume_changes_nothing(stores: dict[str, Path]) -> None:
    """After a state is loaded, the rest of the epoch and the next one are what they would have been."""
    with FastLoader(stores["JPEG tar"], 4, shuffle=True, transforms=TRAIN) as loader:
        under_way = iter(loader)
        list(islice(under_way, 2))
        state = json.loads(json.dumps(loader.state_dict()))
        rest = [(images.clone(), labels.tolist()) for images, labels in under_way]
        following = batches(loader)
    with FastLoader(stores["JPEG tar"], 4, shuffle=True, threads=1, transforms=TRAIN) as resumed:
        resumed.load_state_dict(state)
        for expected_batches in (rest, following):
            for (images, labels), (again, same) in zip(expected_batches, batches(resumed), strict=True):
                assert torch.equal(images, again)
                assert labels == same


@pytest.mark.parametrize("other", [None, TRAIN[:1], [RandomResizedCrop(25), RandomHorizontalFlip()]])
def test_a_resume_with_other_transforms_is_refused(stores: dict[str, Path], other: Any) -> None:
    """The state names the transforms; a loader with others would give other pictures without a word."""
    with FastLoader(stores["JPEG h5"], 4, transforms=TRAIN) as loader:
        state = json.loads(json.dumps(loader.state_dict()))
    words = r"transforms is .*RandomResizedCrop\(size=\(24, 24\)"
    with FastLoader(stores["JPEG h5"], 4, transforms=other) as changed, pytest.raises(ValueError, match=words):
        changed.load_state_dict(state)


STATES: dict[str, tuple[Callable[[Any], dict[str, Any]], Any, Any, str]] = {
    "Normalize": (
        lambda mean: {"transforms": [*TRAIN, Normalize([mean] * 3, [0.2] * 3)]},
        0.1,
        0.9,
        r"batch_transforms is \[.*mean=\(0.1, .*\] in the state and \[.*mean=\(0.9, .*\] here",
    ),
    "own BatchTransform": (
        lambda step: {"transforms": [*TRAIN, step()]},
        lambda: Same(),
        lambda: Normalize([0.5], [0.2]),
        r"batch_transforms is \['<.*Same object>'\] in the state and \['Normalize",
    ),
    "mode": (lambda mode: {"mode": mode, "transforms": TRAIN}, "RGB", "L", "mode is 'RGB' in the state and 'L' here"),
    "fields": (
        lambda fields: {"fields": fields},
        ("image", "label"),
        "image",
        r"fields is \['image', 'label'\] in the state and \['image'\] here",
    ),
    "transform": (
        lambda size: {"transform": CenterCrop(size)},
        24,
        20,
        r"transform is 'CenterCrop\(size=\(24, 24\)\)' in the state and 'CenterCrop\(size=\(20, 20\)\)' here",
    ),
}


class Same(BatchTransform):
    """A transform of the user's that is no dataclass: its repr has an address."""

    draws = 0

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> dict[str, Any]:
        return {}

    def run(self, pictures: Any, parameters: Any) -> Any:
        return pictures


@pytest.mark.parametrize("what", STATES)
def test_a_state_names_what_is_done_to_values(stores: dict[str, Path], what: str) -> None:
    """A loader that would give other values is refused by name; one built alike, and states of 0.1.0, are not."""
    options, first, other, words = STATES[what]

    def built(value: Any) -> FastLoader:
        given = options(value)
        transforms = given.pop("transforms", None)
        return FastLoader(FastDataset(stores["JPEG h5"], **given), 1, transforms=transforms)

    with built(first) as loader, built(first) as alike, built(other) as changed:
        next(iter(loader))
        state = json.loads(json.dumps(loader.state_dict()))
        alike.load_state_dict(state)
        with pytest.raises(ValueError, match=words):
            changed.load_state_dict(state)
        known = ("batch_transforms", "fields", "mode", "transform")
        changed.load_state_dict({name: value for name, value in state.items() if name not in known})


def test_functions_of_the_users_are_not_compared(stores: dict[str, Path]) -> None:
    """They have no name that would say what they do: a state is accepted for others."""
    first, second = (
        FastLoader(stores["JPEG h5"], 4, transforms=[*TRAIN, ToDtype(torch.float32), function])
        for function in (lambda batch: batch, lambda batch: [*batch])
    )
    with first, second:
        second.load_state_dict(first.state_dict())


def checksums(paths: Sequence[Path | str]) -> list[list[int]]:
    """Of every batch, per store and chain that can take it."""
    found = []
    for path in paths:
        for chain in CHAINS.values():
            try:
                loader = FastLoader(path, 8, transforms=chain)
            except ValueError:
                continue
            with loader:
                found.append([zlib.crc32(images.contiguous().numpy()) for images, _ in loader])
    return found


def test_simd_changes_nothing(stores: dict[str, Path]) -> None:
    """FASTIO_SIMD=none, which a process reads when it begins, gives the same bytes."""
    paths = [str(stores[kind]) for kind in ("JPEG lmdb", "PNG h5", "raw tar")]
    program = "import sys; from tests.loader.test_transforms import checksums; print(checksums(sys.argv[1:]))"
    plain = subprocess.run(
        [sys.executable, "-c", program, *paths],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "FASTIO_SIMD": "none"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    expected = checksums(paths)

    assert f"{expected}\n" == plain
    assert 3 * len(CHAINS) - 1 == len(expected)


def damaged(folder: Path) -> Path:
    """Ten PNGs; 1 ends in the middle, 6 is text."""
    values = photos("PNG")[:10]
    values[1], values[6] = values[1][:900], b"no picture at all"
    return write_store(folder / "bad.lmdb", values, np.arange(10))


def test_bad_samples(tmp_path: Path) -> None:
    """Errors are named, skipped or black as without transforms, and the other samples' crops stay the same."""
    path = damaged(tmp_path)
    good = [index for index in range(10) if index not in (1, 6)]
    dataset = FastDataset(path)
    wanted = expected(dataset, TRAIN, good)
    with FastLoader(path, 5, transforms=TRAIN) as loader, pytest.raises(SampleError, match=r"bad.lmdb\[1\]"):
        next(iter(loader))
    with FastLoader(path, 5, transforms=TRAIN, on_error="skip") as loader:
        assert torch.equal(wanted, torch.cat([images.clone() for images, _ in loader]))
        assert [1, 6] == [error.index for error in loader.skipped]
    for layout in ("channels_last", "contiguous"):
        with FastLoader(path, 5, transforms=TRAIN, on_error="zero", layout=layout) as loader:
            images = torch.cat([images.clone() for images, _ in loader])
        assert torch.equal(wanted, images[good])
        assert not images[[1, 6]].any()


def test_a_batch_of_bad_headers_only(tmp_path: Path) -> None:
    """Nobody knows a size: every sample is an error, and none of them a crash."""
    store = write_store(tmp_path / "a.lmdb", [b"no picture at all", b"nor this, neither"], np.arange(2))
    with FastLoader(store, 2, transforms=TRAIN, on_error="skip") as loader:
        assert [] == list(loader)
        assert [0, 1] == [error.index for error in loader.skipped]


def test_different_sizes_after_transforms(stores: dict[str, Path]) -> None:
    """Resize to a short side leaves different sizes: the error names two samples and what to do."""
    with (
        FastLoader(stores["JPEG lmdb"], 4, transforms=[Resize(32)]) as loader,
        pytest.raises(SchemaError, match=r"'a/0000.png' is 32x48x3, 'a/0001.png' is 42x32x3.*transforms that make"),
    ):
        next(iter(loader))


# Transforms that refuse one of SIZES, which that is, and why it is left out.
REFUSING: dict[str, tuple[list[Any], int, str]] = {
    "crop": (
        [RandomCrop(32)],
        4,
        r"RandomCrop\(.*: the picture, with padding, is smaller than the crop: pass pad_if_n",
    ),
    "edges, crop": (
        [RandomHorizontalFlip(), RandomCrop(32, padding=2)],
        4,
        "is smaller than the crop: pass pad_if_nee",
    ),
    "blur": ([GaussianBlur(61), Patchify(8)], 4, r"GaussianBlur\(.*: the kernel is too large for the picture"),
    "some blur": ([RandomApply([GaussianBlur(61)]), Patchify(8)], 4, "the kernel is too large for the picture"),
    "patches": (
        [Patchify(8, 50)],
        3,
        r"Patchify\(.*: the picture has too many patches, more than max_patches=50: put R",
    ),
    "packed": ([Patchify(8, 50, packed=True)], 3, "too many patches, more than max_patches=50: put ResizeToTokens"),
}


def rows_of(batch: Any) -> list[bytes]:
    """The pixels of each picture of a batch, be they patches or rows."""
    if not isinstance(batch, dict):
        return [row.numpy().tobytes() for row in batch]
    if "patch_valid" in batch:
        patches = [own[valid] for own, valid in zip(batch["patches"], batch["patch_valid"], strict=True)]
    else:
        patches = list(batch["patches"].split(batch["cu_seqlens"].diff().tolist()))
    return [each.numpy().tobytes() for each in patches]


@pytest.mark.parametrize("on_error", ["skip", "zero", "raise"])
@pytest.mark.parametrize("case", REFUSING)
def test_a_picture_that_a_transform_refuses_is_a_bad_sample(stores: dict[str, Path], case: str, on_error: Any) -> None:
    """It is named and left out, zero, or ends the epoch, as a damaged one; all others are as without it."""
    (transforms, size, reason), path = REFUSING[case], stores["PNG tar"]
    bad = [index for index in range(COUNT) if index % len(SIZES) == size]
    good = [index for index in range(COUNT) if index not in bad]
    options: dict[str, Any] = {"transforms": transforms, "threads": 1, "seed": 3}
    if on_error == "raise":
        with pytest.raises(SampleError, match=rf"PNG.tar\[{size}\] .*{reason}"):
            list(FastLoader(path, 4, **options))
        return
    expected = [row for batch, _ in FastLoader(path, 4, sampler=good, **options) for row in rows_of(batch)]
    found: dict[int, bytes] = {}
    with FastLoader(path, 4, on_error=on_error, **options) as loader:
        for batch, labels in loader:
            found |= dict(zip(labels.tolist(), rows_of(batch), strict=True))
        receipt, skipped = loader.receipt(), loader.skipped

    assert bad == [error.index for error in skipped]
    assert all(re.search(reason, str(error)) for error in skipped)
    assert list(found) == (good if on_error == "skip" else list(range(COUNT)))
    assert expected == [found[index] for index in good]
    assert not any(any(found[index]) for index in bad if on_error == "zero")
    assert (len(good), len(bad)) == (receipt.samples, receipt.skipped)
    assert f"{len(good)} of {COUNT} samples, {len(bad)} skipped" in str(receipt)


@pytest.mark.parametrize("on_error", ["skip", "zero", "raise"])
@pytest.mark.parametrize("kind", ["raw h5", "planar lmdb"])
def test_raw_pictures_that_a_transform_refuses_are_bad_samples(
    stores: dict[str, Path], kind: str, on_error: Any
) -> None:
    """As encoded ones; all of them are refused, since all have one size."""
    reason = r"\[0\] .*RandomCrop\(.*: the picture, with padding, is smaller than the crop: pass pad_if_needed"
    with FastLoader(stores[kind], 4, transforms=[RandomCrop(200)], on_error=on_error) as loader:
        if on_error == "raise":
            with pytest.raises(SampleError, match=reason):
                list(loader)
            return
        batches = list(loader)

    assert list(range(COUNT)) == [error.index for error in loader.skipped]
    assert re.search(reason, str(loader.skipped[0]))
    assert (0 if on_error == "skip" else COUNT) == sum(len(labels) for _, labels in batches)
    assert not any(images.any() for images, _ in batches)


def test_a_picture_too_small_comes_at_its_batch(stores: dict[str, Path]) -> None:
    """Batches before the picture that a transform refuses are still good."""
    with FastLoader(stores["PNG tar"], 2, transforms=[RandomCrop(32)]) as loader:
        under_way = iter(loader)
        assert [2, 2] == [len(labels) for _, labels in islice(under_way, 2)]
        with pytest.raises(SampleError, match=r"PNG.tar\[4\] .*: the picture, with padding, is smaller than the crop"):
            next(under_way)


def test_labels_and_target_transform(stores: dict[str, Path]) -> None:
    """Labels come as without transforms."""
    dataset = FastDataset(stores["JPEG h5"], target_transform=lambda label: {"class": label + 1})
    with FastLoader(dataset, 3, transforms=TRAIN) as loader:
        assert [1, 2, 3] == next(iter(loader))[1]["class"].tolist()


def test_the_plain_path_takes_the_same_transforms(stores: dict[str, Path]) -> None:
    """FastDataset(transform=Compose(...)) in a DataLoader: the recipe works there too."""

    def as_tensor(image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    transform = Compose(TRAIN)
    dataset = FastDataset(stores["JPEG h5"], lambda image: as_tensor(transform(image)))
    images, labels = next(iter(DataLoader(dataset, batch_size=4)))

    assert (4, 3, 24, 24) == images.shape
    assert [0, 1, 2, 3] == labels.tolist()


def test_a_chain_or_one(stores: dict[str, Path]) -> None:
    """A Compose or a single transform are as good as a list."""
    got = []
    for transforms in (TRAIN, Compose(TRAIN), [Compose(TRAIN[:1]), TRAIN[1]]):
        with FastLoader(stores["PNG h5"], 4, transforms=transforms) as loader:
            got.append(next(iter(loader))[0])

    assert torch.equal(got[0], got[1])
    assert torch.equal(got[0], got[2])


def test_the_recipes_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide's lines run as they stand there."""
    text = (Path(__file__).parents[2] / "fastio" / "guide" / "transforms.md").read_text()
    lines = next(block for block in text.split("```python\n") if "import CenterCrop" in block).split("```")[0]
    for name in ("train.lmdb", "val.lmdb", "cifar.h5"):
        side = 32 if name == "cifar.h5" else 300
        write_store(tmp_path / name, [encode(smooth(side, side, index)) for index in range(3)], np.arange(3))
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(compile(lines, "transforms.md", "exec"), found)

    for name, size in (("train", 224), ("val", 224), ("cifar", 32)):
        with found[name] as loader:
            assert (3, 3, size, size) == next(iter(loader))[0].shape


class Own(FastDataset):
    """A subclass that makes samples of its own."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (lambda path: FastDataset(path, lambda image: image), {"transforms": TRAIN}, "has a transform or methods"),
        (Own, {"transforms": TRAIN}, "has a transform or methods"),
        (FastDataset, {"layout": "NCHW"}, "expected one of 'contiguous', 'channels_last'"),
        (FastDataset, {"transforms": [Resize(9), Resize(8)]}, "cannot be done in one pass"),
        (FastDataset, {"transforms": [Pad(1, (1, 2, 3)), Grayscale(), Pad(1, 9)]}, "two colours"),
        (FastDataset, {"transforms": [Grayscale(3), Resize(8)]}, "put it last"),
        (FastDataset, {"transforms": [Pad(1, (1, 2, 3, 4))]}, r"or 3 \(one per channel\)"),
        (lambda path: FastDataset(path, mode="RGBA"), {"transforms": [Grayscale()]}, "alpha"),
        (lambda path: FastDataset(path, mode="L"), {"transforms": [Grayscale(3)]}, "mode='RGB'"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(stores: dict[str, Path], make: Any, options: Any, words: str) -> None:
    """A loader that could not keep its promise is not made."""
    with pytest.raises(ValueError, match=words):
        FastLoader(make(stores["PNG lmdb"]), 4, **options)


def test_only_pictures_are_transformed(tmp_path: Path) -> None:
    """Raw arrays that are no pictures are refused by name."""
    store = write_store(tmp_path / "a.h5", [bytes(8)], field=Field("number", RAW, "<i8", ()))
    with pytest.raises(SchemaError, match="number"):
        FastLoader(store, 1, transforms=TRAIN)


def test_raw_grey(tmp_path: Path) -> None:
    """Raw grey pictures: one channel in, one or three out."""
    field = Field("image", RAW, "|u1", (20, 30))
    values = [smooth(20, 30, index)[:, :, 0].tobytes() for index in range(4)]
    dataset = FastDataset(write_store(tmp_path / "a.h5", values, np.arange(4), field=field))
    for chain in (TRAIN, [Grayscale(), *TRAIN], [*TRAIN, Grayscale(3)], [Grayscale(3), *TRAIN]):
        with FastLoader(dataset, 4, transforms=chain) as loader:
            images, _ = next(iter(loader))
        assert torch.equal(expected(dataset, chain, range(4)), images)


def test_pillow_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Pictures that only Pillow decodes are transformed by Pillow, with one line in the log."""
    path = write_store(tmp_path / "a.h5", photos("TIFF"), np.arange(COUNT))
    caplog.set_level(logging.INFO)
    with FastLoader(path, 4, transforms=TRAIN) as loader:
        batches(loader)

    assert ["Pillow" in record.message for record in caplog.records] == [True]
