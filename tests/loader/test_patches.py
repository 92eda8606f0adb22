"""Loaders of patches: pixels, packing, states, ranks, receipts, bad samples, normalising, fields, other decoders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, Mixture, PackSampler, SampleError
from fastio.errors import SchemaError
from fastio.transforms import (
    ChannelsLast,
    ColorJitter,
    Compose,
    KeepCrop,
    MixUp,
    Mosaic,
    Normalize,
    Patchify,
    PerBatch,
    PerSample,
    RandomHorizontalFlip,
    RandomResizedCrop,
    ResizeToTokens,
    SmartResize,
    ToDtype,
    patches_of,
)
from tests.conftest import encode, write_store
from tests.dataset.many_fields import TYPES, make_samples, write_fields
from tests.loader.sized_pictures import COUNT, write_pictures

RESIZE = ResizeToTokens(20, 8)
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """41 pictures."""
    return write_pictures(tmp_path_factory.mktemp("patches") / "a.lmdb")


def packed_loader(store: Path | FastDataset, transforms: list[Any], **options: Any) -> FastLoader:
    """Batches of at most 60 patches."""
    dataset = store if isinstance(store, FastDataset) else FastDataset(store)
    own = {name: options.pop(name) for name in ("rank", "world_size", "max_tokens") if name in options}
    counts = patches_of(dataset.sizes(), transforms)
    sampler = PackSampler(counts, **{"max_tokens": 60, "seed": 2} | own)
    return FastLoader(dataset, batch_sampler=sampler, transforms=transforms, **{"seed": 4, "threads": 2} | options)


def pictures_of(batch: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[int]]]:
    """Patches, coordinates and grid of each picture of a batch."""
    starts = batch["cu_seqlens"].tolist() if "cu_seqlens" in batch else None
    for place, grid in enumerate(batch["grid_thw"].tolist()):
        if starts is None:
            valid = batch["patch_valid"][place]
            yield batch["patches"][place, valid], batch["patch_coord"][place, valid], grid
        else:
            part = slice(*starts[place : place + 2])
            yield batch["patches"][part], batch["patch_coord"][part], grid


def by_index(*loaders: FastLoader) -> dict[int, bytes]:
    """The patches of each sample."""
    return {
        i: patches.numpy().tobytes()
        for loader in loaders
        for batch, labels in loader
        for i, (patches, _, _) in zip(labels.tolist(), pictures_of(batch), strict=True)
    }


CUTS = [
    Patchify(8, 20),
    Patchify(8),
    Patchify(8, packed=True),
    Patchify(4, order="qwen"),
    Patchify(4, order="qwen", packed=True),
]


@pytest.mark.parametrize("patches", CUTS, ids=repr)
def test_batches_have_the_patches_of_their_pictures(store: Path, patches: Patchify) -> None:
    """Each picture comes once; its patches are those of the transforms by Pillow and of NumPy's reshape."""
    dataset, resize = FastDataset(store), RESIZE if patches.order == "raster" else SmartResize(8, 64, 600)
    transforms = [resize, patches]
    loader = packed_loader(store, transforms) if patches.packed else FastLoader(dataset, 6, transforms=transforms)
    found = []
    for batch, labels in loader:
        for i, (own, places, grid) in zip(labels.tolist(), pictures_of(batch), strict=True):
            expected = patches(resize(dataset[i][0]))
            assert torch.equal(expected["patches"], own)
            assert torch.equal(expected["patch_coord"], places)
            assert expected["grid_thw"].tolist() == grid
        if patches.packed:
            assert batch["max_seqlen"] == batch["cu_seqlens"].diff().max()
            assert batch["cu_seqlens"].dtype == torch.int32
        else:
            longest = patches.max_patches or int(batch["patch_valid"].sum(1).max())
            assert batch["patch_valid"].shape == (len(labels), longest)
            assert not batch["patches"][~batch["patch_valid"]].any()
        found += labels.tolist()

    assert sorted(found) == list(range(COUNT))
    assert loader.receipt().is_exact
    assert loader.stats.tokens == patches_of(dataset.sizes(), transforms).sum()
    assert (loader.stats.padding == 0) == patches.packed


@pytest.mark.parametrize("patches", CUTS[::2], ids=repr)
def test_normalising_sees_channels(store: Path, patches: Patchify) -> None:
    """Normalize behind the cut gives what it gives before it, and what comes behind it is called with the dict."""
    names: list[list[str]] = []

    def look(batch: Any) -> Any:
        names.append(list(batch[0]))
        return batch

    steps = [RandomResizedCrop(32), RandomHorizontalFlip(), ColorJitter(0.3)]
    plain = FastLoader(store, COUNT, transforms=[*steps, Normalize(MEAN, STD)], seed=4)
    finish = [Normalize(MEAN, STD), PerBatch(look), ToDtype(torch.float16)]
    cut = FastLoader(store, COUNT, transforms=[*steps, patches, *finish], seed=4)
    (pictures, _), (batch, _) = next(iter(plain)), next(iter(cut))
    side, rows = patches.patch, 32 // patches.patch

    assert names == [list(batch)]
    for picture, (own, places, _) in zip(pictures, pictures_of(batch), strict=True):
        assert own.dtype == torch.float16
        blocks = picture.reshape(3, rows, side, rows, side).permute(1, 3, 2, 4, 0)
        if patches.order == "qwen":
            blocks = blocks.permute(0, 1, 4, 2, 3)[:, :, :, None].expand(-1, -1, -1, 2, -1, -1)
        expected = blocks[places[:, 0], places[:, 1]].reshape(len(own), -1)
        assert torch.equal(expected.half(), own)


def test_patches_do_not_depend_on_the_batch(store: Path) -> None:
    """On other ranks, in batches of another size and from a cache, samples have the same patches."""
    transforms = [RandomHorizontalFlip(), RESIZE, ColorJitter(0.4), Patchify(8, packed=True)]
    alone = by_index(packed_loader(store, transforms))
    ranks = [packed_loader(store, transforms, rank=rank, world_size=3, max_tokens=30) for rank in range(3)]

    assert alone.keys() == set(range(COUNT))
    assert by_index(*ranks) == alone
    assert by_index(packed_loader(store, transforms, cache="ram")) == alone


@pytest.mark.parametrize("worlds", [(1, 1), (2, 3)])
def test_a_state_goes_on_with_other_ranks(store: Path, worlds: tuple[int, int]) -> None:
    """After some steps, other ranks with other batches give all that is left, once; and receipts say so."""
    transforms = [RESIZE, Patchify(8, packed=True)]

    def loaders(world: int, **options: Any) -> list[FastLoader]:
        return [packed_loader(store, transforms, rank=rank, world_size=world, **options) for rank in range(world)]

    first = loaders(worlds[0], max_tokens=30)
    had = {i for loader in first for _, labels in islice(loader, 3) for i in labels.tolist()}
    state = json.loads(json.dumps(first[0].state_dict()))
    left = set()
    for loader in loaders(worlds[1]):
        loader.load_state_dict(state)
        left |= {i for _, labels in loader for i in labels.tolist()}

    assert had | left == set(range(COUNT))
    assert not had & left
    with pytest.raises(ValueError, match=r"batch_transforms is .*packed=True.* in the state"):
        packed_loader(store, [RESIZE, Patchify(8, 20)]).load_state_dict(state)


@pytest.mark.parametrize("patches", [Patchify(8, 20), Patchify(8, packed=True)], ids=repr)
@pytest.mark.parametrize("on_error", ["skip", "zero", "raise"])
def test_bad_samples(tmp_path: Path, patches: Patchify, on_error: Any) -> None:
    """Pictures with bad pixels or headers are skipped, zeroed or raised; the others are as without them."""
    bad = [4, 9, 10, 30]
    transforms, good = [RESIZE, patches], write_pictures(tmp_path / "good.lmdb")
    dataset = FastDataset(write_pictures(tmp_path / "bad.lmdb", bad=bad))
    loader = FastLoader(dataset, 6, transforms=transforms, on_error=on_error)
    if on_error == "raise":
        with pytest.raises(SampleError):
            list(loader)
        return
    found, expected = by_index(loader), by_index(FastLoader(good, 6, transforms=transforms))

    assert {i: patches for i, patches in expected.items() if i not in bad} == {
        i: patches for i, patches in found.items() if i not in bad
    }
    assert (set(bad) <= found.keys()) == (on_error == "zero")
    if on_error == "zero":
        assert not any(any(found[i]) for i in bad)
        assert [len(found[i]) // 192 for i in bad] == [len(expected[4]) // 192, 1, len(expected[10]) // 192, 1]
    assert loader.receipt().samples == COUNT - len(bad)


def test_pictures_that_pillow_decodes(tmp_path: Path, store: Path) -> None:
    """Pictures without a native decoder have the patches that Pillow and NumPy make of them."""
    avif = pytest.importorskip("PIL.AvifImagePlugin")
    if not getattr(avif, "SUPPORTED", False):
        pytest.skip("this Pillow writes no AVIF")
    path = write_pictures(tmp_path / "avif.lmdb", kind="AVIF")
    steps = [RandomHorizontalFlip(1.0), RESIZE]
    for patches in (Patchify(8, 20), Patchify(4, order="qwen", packed=True)):
        loader = FastLoader(path, 6, transforms=[*steps, patches])
        for batch, labels in loader:
            for i, (own, _, _) in zip(labels.tolist(), pictures_of(batch), strict=True):
                expected = patches(Compose(steps)(FastDataset(path)[i][0]))
                assert torch.equal(expected["patches"], own)
        assert {"AVIF": COUNT} == loader.stats.decoded_by_pillow


def test_pixels_without_files(tmp_path: Path) -> None:
    """Raw pixels are cut, too, grey ones as such."""
    pixels = np.random.default_rng(0).integers(0, 256, (7, 16, 24), np.uint8)
    path = write_fields(tmp_path / "raw.h5", [{"image": each} for each in pixels], {"image": "uint8[16,24]"})
    (batch,) = FastLoader(FastDataset(path), 7, transforms=[Patchify(8)])

    expected = pixels.reshape(7, 2, 8, 3, 8).transpose(0, 1, 3, 2, 4).reshape(7, 6, 64)
    assert np.array_equal(expected, batch["patches"].numpy())


def test_fields_of_samples(tmp_path: Path) -> None:
    """In dicts, the picture's entry is a dict; boxes follow the picture as it is cut; other fields stay."""
    names = ["image", "boxes", "label"]
    path = write_fields(tmp_path / "many.h5", make_samples(9), {name: TYPES[name] for name in names})
    dataset, steps = FastDataset(path), [RESIZE, KeepCrop(), RandomHorizontalFlip(1.0)]
    plain = FastLoader(FastDataset(path, Compose(steps)), 1)
    loader = FastLoader(dataset, 1, transforms=[*steps, Patchify(8), Normalize(MEAN, STD)])
    for batch, expected in zip(loader, plain, strict=True):
        assert list(batch) == ["image", "boxes", "label", "original_size", "crop"]
        assert batch["image"]["patches"].dtype == torch.float32
        assert torch.equal(expected["boxes"][0], batch["boxes"][0])
        assert torch.equal(expected["crop"], batch["crop"])
    with_masks = write_fields(tmp_path / "masks.h5", make_samples(9), {name: TYPES[name] for name in ("image", "mask")})
    with pytest.raises(SchemaError, match=r"Patchify\(patch=8\) cuts pictures, not masks, which mask are"):
        FastLoader(with_masks, 2, transforms=[RESIZE, Patchify(8)])


def test_arrays(store: Path) -> None:
    """With output="numpy", all entries are arrays, and normalised ones equal tensors to the bit."""
    transforms = [RESIZE, Patchify(8, 20), Normalize(MEAN, STD)]
    for (arrays, _), (batch, _) in zip(
        FastLoader(store, 6, transforms=transforms, output="numpy"),
        FastLoader(store, 6, transforms=transforms),
        strict=True,
    ):
        assert {name: type(value) for name, value in arrays.items()} == dict.fromkeys(batch, np.ndarray)
        assert all(np.array_equal(values, batch[name].numpy()) for name, values in arrays.items())


def test_placement_says_who_cuts(store: Path) -> None:
    """Native threads do all of it."""
    loader = FastLoader(store, 6, transforms=[RESIZE, ColorJitter(0.1), Patchify(8), Normalize(MEAN, STD)])

    assert "native threads (ResizeToTokens, ColorJitter, Patchify), then cpu in the loop's thread (Normalize)" in repr(
        loader
    )


@pytest.mark.parametrize(
    ("transforms", "options", "expected"),
    [
        ([Patchify(8), Patchify(8)], {}, "pictures are cut once"),
        ([Patchify(8), RESIZE], {}, "behind Patchify.*: it is for pictures"),
        ([Patchify(8), PerSample(torch.clone)], {}, "behind Patchify.*: it is for pictures"),
        ([Patchify(8), ChannelsLast()], {}, "patches have no such layout"),
        ([MixUp(COUNT), Patchify(8)], {}, "native threads do not run it"),
        ([RESIZE, Patchify(8)], {"cache": "device", "device": "cpu"}, "does not go with cache='device'"),
        ([RESIZE, Patchify(8)], {"repeats": 2}, "does not go with views= and repeats="),
        ([Mosaic(16), Patchify(8)], {}, "does not go with a Mosaic"),
    ],
)
def test_what_does_not_go_together(store: Path, transforms: list[Any], options: Any, expected: str) -> None:
    """One line, before the first batch."""
    with pytest.raises(ValueError, match=expected):
        FastLoader(store, 6, transforms=transforms, **options)


def test_members_with_transforms_of_their_own(store: Path) -> None:
    """A mixture's members may not differ in how they are cut."""
    mixture = Mixture({"a": FastDataset(store)}, {"a": 1}, transforms={"a": [RESIZE]})
    with pytest.raises(ValueError, match="does not go with a Mixture whose members have transforms of their own"):
        FastLoader(mixture, 6, transforms=[Patchify(8)])


def test_pictures_that_do_not_fit(store: Path, tmp_path: Path) -> None:
    """Other channels end the loop at their batch with what to do."""
    values = [encode(np.zeros((16, 16, 3), np.uint8)), encode(np.zeros((16, 16), np.uint8))]
    shapes = np.array([(16, 16, 3), (16, 16, 1)], np.int32)
    mixed = write_store(tmp_path / "mixed.lmdb", values, np.arange(2), shapes=shapes)
    with pytest.raises(SchemaError, match=r"different channels .*: pass FastDataset\(path, mode='RGB'\)"):
        list(FastLoader(FastDataset(mixed, mode=None), 2, transforms=[Patchify(8)]))
    ((batch, _),) = FastLoader(FastDataset(mixed, mode="RGB"), 2, transforms=[Patchify(8)])

    assert batch["patches"].shape == (2, 4, 192)


@pytest.mark.parametrize("on_error", ["skip", "zero", "raise"])
@pytest.mark.parametrize("cut", CUTS, ids=repr)
def test_pictures_that_a_transform_refuses(tmp_path: Path, cut: Patchify, on_error: str) -> None:
    """Pictures beyond 1:200 are bad samples of a loader, named as others are, and have one block for a sampler."""
    sizes = [(40, 60), (3, 700), (30, 30), (700, 3), (20, 50)]
    values = [encode(np.full((*size, 3), 90, np.uint8)) for size in sizes]
    dataset = FastDataset(write_store(tmp_path / "a.lmdb", values, np.arange(5)))
    transforms = [SmartResize(8, 64, 640), cut]
    options: dict[str, Any] = {"transforms": transforms, "on_error": on_error}
    if on_error == "raise":
        with pytest.raises(SampleError, match=r"\[1\] .*: SmartResize\(.*: one side is more than 200 times the other"):
            list(FastLoader(dataset, 3, **options))
        return
    found: list[int] = []
    with FastLoader(dataset, 3, **options) as loader:
        for batch, labels in loader:
            bad = np.isin(labels, [1, 3])
            assert all(int(patches.max()) in ((0,) if is_bad else (89, 90)) for (patches, _, _), is_bad in zip(
                pictures_of(batch), bad, strict=True
            ))  # fmt: skip
            found += labels.tolist()
        skipped = [error.index for error in loader.skipped]
    counts = patches_of(dataset.sizes(), transforms)

    assert ([0, 2, 4] if on_error == "skip" else list(range(5))) == found
    assert [1, 3] == skipped
    assert counts[[1, 3]].tolist() == [cut.merged**2] * 2
    assert counts.min(initial=99) == cut.merged**2 < counts[0]


def test_a_sampler_of_other_transforms(store: Path) -> None:
    """Packed batches of more patches than their sampler planned are refused, before they take memory."""
    dataset, cut = FastDataset(store), Patchify(4, packed=True)
    counts = patches_of(dataset.sizes(), [SmartResize(4, 16, 256), cut])
    transforms = [ResizeToTokens(200, 4), cut]
    loader = FastLoader(dataset, batch_sampler=PackSampler(counts, max_tokens=60), transforms=transforms)
    with pytest.raises(SchemaError, match=r"a batch of \d+ patches, .*PackSampler plans at most 60: .*patches_of"):
        next(iter(loader))
    rows = PackSampler(patches_of(dataset.sizes(), transforms), max_tokens=200, rows=2)
    found = [len(batch["patches"]) for batch, _ in FastLoader(dataset, batch_sampler=rows, transforms=transforms)]
    assert 200 < max(found) <= 400


def test_a_sampler_that_counts_text(tmp_path: Path) -> None:
    """Where pictures have text beside them, a sampler may count that instead."""
    path = write_fields(tmp_path / "a.h5", make_samples(6), {name: TYPES[name] for name in ("image", "caption")})
    sampler = PackSampler([1] * 6, max_tokens=3)
    batches = FastLoader(path, batch_sampler=sampler, transforms=[RESIZE, Patchify(8, packed=True)])

    assert [3, 3] == [len(batch["caption"]) for batch in batches]


def test_timms_collator(store: Path) -> None:
    """A dataset whose function cuts pictures feeds timm's collator, which makes the batches of FastLoader."""
    timm = pytest.importorskip("timm.data.naflex_dataset")
    cut = Patchify(8)
    dataset = FastDataset(store, lambda picture: cut(RESIZE(picture)))
    ours = FastLoader(store, 6, transforms=[RESIZE, Patchify(8, 20)])
    for (expected, labels), (batch, own) in zip(
        DataLoader(dataset, 6, collate_fn=timm.NaFlexCollator(20)), ours, strict=True
    ):
        assert labels.tolist() == own.tolist()
        for name in ("patches", "patch_coord", "patch_valid"):
            assert torch.equal(expected[name].to(batch[name]), batch[name])
