"""FastLoader: its batches are those of the plain path, in the order of the sampler, without a copy."""

from __future__ import annotations

import io
import json
import logging
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, SchemaError, open_store
from fastio.samplers.order import Division, Shuffle, Uneven, full_order
from fastio.types.schema import BYTES, RAW, TOKENS, Field
from tests.conftest import SUFFIXES, encode, pictures, write_store
from tests.dataset.test_fast_dataset import to_tensor

COUNT = 50
MODES = ("L", "RGB", "RGBA", None)

shared = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@shared
@given(
    suffix=st.sampled_from(SUFFIXES),
    batch_size=st.integers(1, 60),
    shuffle=st.sampled_from([False, True, "full"]),
    threads=st.sampled_from([1, 2, 4]),
    mode=st.sampled_from(MODES),
    epoch=st.integers(0, 3),
    prefetch_batches=st.integers(1, 5),
)
def test_the_fast_path_is_the_plain_path(
    png_stores: dict[str, Path],
    suffix: str,
    batch_size: int,
    shuffle: Shuffle,
    threads: int,
    mode: str | None,
    epoch: int,
    prefetch_batches: int,
) -> None:
    """Natively decoded batches equal those of __getitems__ and Pillow, sample for sample, in the sampler's order."""
    fast = FastDataset(png_stores[suffix], mode=mode)
    plain = FastDataset(png_stores[suffix], to_tensor, mode=mode)
    order = list(range(COUNT)) if shuffle is False else full_order(COUNT, seed=7, epoch=epoch).tolist()
    batches = []
    for dataset in (fast, plain):
        with FastLoader(
            dataset, batch_size, shuffle=shuffle, seed=7, threads=threads, prefetch_batches=prefetch_batches
        ) as loader:
            loader.set_epoch(epoch)
            batches.append([(images.clone(), labels.clone()) for images, labels in loader])

    assert len(batches[0]) == len(batches[1]) == -(-COUNT // batch_size)
    for step, ((images, labels), (plain_images, plain_labels)) in enumerate(zip(*batches, strict=True)):
        chosen = order[step * batch_size : (step + 1) * batch_size]
        assert torch.equal(torch.stack([plain[index][0] for index in chosen]), images)
        assert torch.equal(plain_images, images)
        assert [index % 3 for index in chosen] == labels.tolist() == plain_labels.tolist()


def test_a_loader_says_what_it_is(png_store: Path) -> None:
    """In a notebook or a log: which store, how many batches of how many, and where they are made."""
    expected = f"FastLoader({str(png_store)!r}): 3 batches of 20, 50 samples\n  image: native threads\n  label: index"
    with FastLoader(png_store, 20) as loader:
        assert expected == repr(loader)
    assert expected == repr(loader)


def test_a_batch_is_that_of_a_dataloader(png_store: Path) -> None:
    """uint8 (B, C, H, W) and int64 (B,), as default_collate of PILToTensor makes them."""
    with FastLoader(png_store, 16) as loader:
        ours = list(loader)
    theirs = list(DataLoader(FastDataset(png_store, to_tensor), batch_size=16))

    for (images, labels), (their_images, their_labels) in zip(ours, theirs, strict=True):
        assert torch.equal(their_images, images)
        assert torch.equal(their_labels, labels)
        assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
        assert images.stride() == their_images.stride()


@pytest.mark.parametrize("target_transform", [None, np.max])
@pytest.mark.parametrize("labels", [None, np.arange(4), np.arange(12, dtype=np.float32).reshape(4, 3)])
def test_a_batch_has_the_types_of_a_dataloader(
    tmp_path: Path, target_transform: Any, labels: NDArray[Any] | None
) -> None:
    """Both paths hand out the containers, tensors and dtypes that torch's DataLoader does."""
    values = [encode(pixels) for pixels in pictures(4)]
    store = write_store(tmp_path / "a.lmdb", values, labels)
    plain = FastDataset(store, to_tensor, target_transform)
    expected = kinds(next(iter(DataLoader(plain, batch_size=2))))

    for dataset in (plain, FastDataset(store, target_transform=target_transform)):
        with FastLoader(dataset, 2) as loader:
            assert expected == kinds(next(iter(loader)))


def kinds(batch: Any) -> Any:
    """The types of a batch and of what is in it."""
    if isinstance(batch, torch.Tensor):
        return type(batch), batch.dtype, batch.shape
    return type(batch), [kinds(part) for part in batch]


def test_no_copy_between_decoder_and_tensor(png_store: Path) -> None:
    """Each batch's memory is the ring's own, and several epochs take no more buffers than were promised."""
    with FastLoader(FastDataset(png_store), 5, prefetch_batches=2, drop_last=True) as loader:
        lent = {images.data_ptr() for _ in range(3) for images, _ in loader}

        assert len(lent) <= 2 + 2
        assert 0 < loader.stats.buffer_bytes <= (2 + 2) * (5 * 8 * 8 * 3 + 64)


def test_a_kept_batch_keeps_its_values(png_store: Path) -> None:
    """A batch that the loop keeps is not overwritten by later ones, nor when the loader is gone."""
    with FastLoader(png_store, 4, prefetch_batches=1) as loader:
        kept = [images for _ in range(3) for images, _ in loader]
    expected = torch.stack([torch.from_numpy(pixels).permute(2, 0, 1) for pixels in pictures(COUNT)])

    assert torch.equal(torch.cat([expected] * 3), torch.cat(kept))


def test_without_labels_the_images_alone(tmp_path: Path) -> None:
    """A store without a label column gives a tensor and no invented label."""
    store = write_store(tmp_path / "a.lmdb", [encode(pixels) for pixels in pictures(3)])

    with FastLoader(store, 2) as loader:
        assert [images.shape for images in loader] == [(2, 3, 8, 8), (1, 3, 8, 8)]


def test_a_target_transform_keeps_the_fast_path(png_store: Path) -> None:
    """target_transform is applied to each label, as default_collate would collate them."""
    dataset = FastDataset(png_store, target_transform=lambda label: {"class": label + 1})
    with FastLoader(dataset, 3) as loader:
        _, labels = next(iter(loader))

    assert labels["class"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("shape", "dtype", "batch_shape"),
    [
        ((4, 5, 3), "|u1", (3, 3, 4, 5)),
        ((4, 5), "|u1", (3, 1, 4, 5)),
        ((2, 3), "<f4", (3, 2, 3)),
        ((), "<i8", (3,)),
    ],
)
@pytest.mark.parametrize("verify", [None, True, False])
def test_raw_arrays(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, batch_shape: tuple[int, ...], verify: bool | None
) -> None:
    """Raw pictures become (B, C, H, W), other raw arrays (B, *shape) of their dtype."""
    arrays = np.random.default_rng(0).integers(0, 99, (3, *shape)).astype(dtype)
    field = Field("image", RAW, dtype, shape)
    store = write_store(tmp_path / "a.h5", [each.tobytes() for each in arrays], np.arange(3.0), field=field)
    with FastLoader(store, 3, verify=verify) as loader:
        values, labels = next(iter(loader))

    expected = arrays.transpose(0, 3, 1, 2) if len(shape) == 3 else arrays.reshape(batch_shape)
    assert values.shape == batch_shape
    assert np.array_equal(expected, values.numpy())
    assert labels.tolist() == [0.0, 1.0, 2.0]


def test_plain_bytes_come_as_a_list(tmp_path: Path) -> None:
    """Values without a fixed size take the plain path: what default_collate makes of bytes."""
    store = write_store(tmp_path / "a.tar", [b"one", b"three"], field=Field("text", BYTES, "|u1", (None,)))

    with FastLoader(store, 2) as loader:
        assert list(loader) == [[b"one", b"three"]]


def test_different_sizes_are_one_clear_error(tmp_path: Path) -> None:
    """Two pictures of different sizes in a batch are named, at that batch and not before it."""
    values = [encode(pictures(1, shape)[0]) for shape in [(8, 8, 3)] * 5 + [(8, 9, 3)]]
    store = write_store(tmp_path / "a.lmdb", values)
    with FastLoader(store, 2) as loader:
        batches = iter(loader)
        assert [len(next(batches)), len(next(batches))] == [2, 2]
        with pytest.raises(SchemaError, match=r"'a/0004.png' is 8x8x3, 'a/0005.png' is 8x9x3 .* pass transforms"):
            next(batches)

    dataset = FastDataset(store, lambda image: to_tensor(image.resize((4, 4))))
    with FastLoader(dataset, 6) as loader:
        assert next(iter(loader)).shape == (6, 3, 4, 4)


def test_stored_channels_must_agree(tmp_path: Path) -> None:
    """With mode=None, grey and colour do not fit into one batch; with a mode they do."""
    values = [encode(pictures(1, shape)[0]) for shape in [(8, 8, 3), (8, 8)]]
    store = write_store(tmp_path / "a.lmdb", values)

    with pytest.raises(SchemaError, match=r"8x8x3.*8x8x1"), FastLoader(FastDataset(store, mode=None), 2) as loader:
        next(iter(loader))
    with FastLoader(FastDataset(store, mode="L"), 2) as loader:
        assert next(iter(loader)).shape == (2, 1, 8, 8)


class Numbered(FastDataset):
    """Samples that are their own index, as many as asked for, whatever the store has."""

    count = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return index


@pytest.mark.parametrize("count", [5, COUNT, 2 * COUNT])
@pytest.mark.parametrize("shuffle", [False, True, "full"])
@pytest.mark.parametrize("world_size", [1, 3])
def test_a_subclass_length_is_the_epochs(
    png_stores: dict[str, Path], count: int, shuffle: Shuffle, world_size: int
) -> None:
    """Each index of a dataset that is shorter or longer than its store comes once, and no other."""
    dataset = Numbered(png_stores["h5"])
    dataset.count = count
    got: list[int] = []
    for rank in range(world_size):
        with FastLoader(dataset, 4, shuffle=shuffle, rank=rank, world_size=world_size) as loader:
            got += [index for batch in loader for index in batch.tolist()]
            repeated = loader.division.repeated

    assert set(got) == set(range(count))
    assert len(got) == count + repeated


def test_an_empty_store_has_no_batches(tmp_path: Path) -> None:
    """No samples, no batches, no error."""
    store = write_store(tmp_path / "a.h5", [], np.empty(0, np.int64))

    for dataset in (FastDataset(store), FastDataset(store, to_tensor)):
        with FastLoader(dataset, 4, shuffle=True) as loader:
            assert len(loader) == 0
            assert list(loader) == []


@shared
@given(
    world_size=st.sampled_from([1, 2, 3, 8]),
    batch_size=st.integers(1, 9),
    uneven=st.sampled_from(["pad", "drop", "repeat"]),
    drop_last=st.booleans(),
    shuffle=st.sampled_from([False, True, "full"]),
)
def test_ranks_share_an_epoch(
    png_stores: dict[str, Path], world_size: int, batch_size: int, uneven: Uneven, drop_last: bool, shuffle: Shuffle
) -> None:
    """All ranks get equal batches, and together what the division says."""
    lengths, got = [], []
    dataset = FastDataset(png_stores["h5"])
    for rank in range(world_size):
        with FastLoader(
            dataset, batch_size, shuffle=shuffle, uneven=uneven, drop_last=drop_last, rank=rank, world_size=world_size
        ) as loader:
            batches = [images.clone() for images, _ in loader]
            assert len(batches) == len(loader)
            lengths.append([len(images) for images in batches])
            got += [images.numpy().tobytes() for batch in batches for images in batch]
    division = Division(COUNT, batch_size, world_size, uneven, drop_last)

    assert all(each == lengths[0] for each in lengths)
    assert len(got) == COUNT + division.repeated - division.dropped
    assert len(set(got)) == COUNT - division.dropped


def test_what_is_repeated_is_said_once(png_store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first epoch of a configuration says what it repeats, by a warning on rank 0; nothing else does."""
    caplog.set_level("INFO")
    for rank in (1, 0):
        with FastLoader(png_store, 16, rank=rank, world_size=4) as loader:
            assert loader.division is not None
            assert loader.division.repeated == 2
            for _ in range(2):
                list(loader)
    with FastLoader(png_store, 10) as loader:
        list(loader)

    expected = f"{png_store}: 50 samples for 4 ranks (batch_size=16, uneven='pad', drop_last=False): "
    assert [(logging.WARNING, expected + "each epoch repeats 2 of them")] == [
        (record.levelno, record.message) for record in caplog.records
    ]


def test_what_the_rest_of_an_epoch_repeats_is_said(png_store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An epoch that goes on with other ranks says what only this rest repeats."""
    with FastLoader(png_store, 16) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with FastLoader(png_store, 7, rank=0, world_size=3) as loader:
        loader.load_state_dict(state)
        list(loader)

    expected = f"{png_store}: 50 samples for 3 ranks (batch_size=7, uneven='pad', drop_last=False): "
    assert [expected + "the rest of this epoch repeats 2 of them"] == caplog.messages


@pytest.mark.parametrize(
    ("batch_size", "world_size", "level"),
    [(20, 1, [logging.INFO]), (60, 1, [logging.WARNING]), (20, 2, [logging.WARNING]), (10, 1, [])],
    ids=["a short batch", "no batch at all", "ranks", "nothing left out"],
)
def test_drop_last_is_said_where_it_matters(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, batch_size: int, world_size: int, level: list[int]
) -> None:
    """Who asks for drop_last in one process is not told; an epoch without a batch, or a share of many ranks, is."""
    caplog.set_level("INFO")
    store = write_store(tmp_path / "a.h5", [encode(pixels) for pixels in pictures(50)])
    with FastLoader(store, batch_size, drop_last=True, rank=0, world_size=world_size) as loader:
        list(loader)

    assert level == [record.levelno for record in caplog.records]


def test_statistics(png_store: Path) -> None:
    """The loader counts batches, samples, waits and memory."""
    with FastLoader(png_store, 20, prefetch_batches=1) as loader:
        for _ in range(2):
            list(loader)
        stats = loader.stats

    assert (stats.batches, stats.samples) == (6, 100)
    assert sum(stats.stalls.values()) == 4
    assert 0 < stats.first_batch_s <= stats.loading_s
    assert stats.batch_bytes == 20 * 8 * 8 * 3
    assert stats.buffer_bytes > 0
    assert stats.estimated_bytes == 3 * stats.batch_bytes


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 0},
        {"batch_size": 1, "shuffle": "yes"},
        {"batch_size": 4.0},
        {"batch_size": "4"},
        {"batch_size": 1, "shuffle": 1},
        {"batch_size": 1, "shuffle": 0},
        {"batch_size": 1, "shuffle": np.True_},
        {"batch_size": 1, "seed": -1},
        {"batch_size": 1, "seed": 1.5},
        {"batch_size": 1, "seed": 1 << 64},
        {"batch_size": 1, "threads": 1.5},
        {"batch_size": 1, "prefetch_batches": 2.0},
        {"batch_size": 1, "threads": -1},
        {"batch_size": 1, "prefetch_batches": 0},
        {"batch_size": 1, "on_error": "ignore"},
        {"batch_size": 1, "uneven": "ignore"},
        {"batch_size": 1, "rank": 1},
    ],
)
def test_nonsense_is_refused(png_stores: dict[str, Path], arguments: dict[str, Any]) -> None:
    """An argument that cannot be is refused at once."""
    with pytest.raises(ValueError, match=r"expected|both"):
        FastLoader(FastDataset(png_stores["h5"]), **arguments)


def test_numpys_integers_are_integers(png_stores: dict[str, Path]) -> None:
    """They are taken, and a saved state holds plain numbers that JSON can write."""
    with FastLoader(png_stores["h5"], np.int64(20), seed=np.uint64(3), threads=np.int8(1)) as loader:  # type: ignore[arg-type]
        loader.set_epoch(np.int64(2))  # type: ignore[arg-type]
        assert [len(images) for images, _ in loader] == [20, 20, 10]
        assert json.loads(json.dumps(loader.state_dict())) == loader.state_dict()


def test_what_is_no_fast_dataset_is_refused(png_store: Path) -> None:
    """Whatever else torch's DataLoader takes: the message says what to pass."""
    dataset = FastDataset(png_store)
    for other, advice in ((dataset.store, "use torch's DataLoader"), ([1, 2], "the shards of a store are one path")):
        with pytest.raises(TypeError, match=f"got {type(other).__name__}: {advice}"):
            FastLoader(other, 2)  # type: ignore[arg-type]


def test_a_transform_set_later_is_not_passed_over(png_store: Path) -> None:
    """A transform that comes or changes after the loader was built is applied, or refused when the epoch starts."""
    dataset = FastDataset(png_store)
    with FastLoader(dataset, 4) as loader:
        list(loader)
        dataset.transform = to_tensor
        with pytest.raises(ValueError, match="got its transform after this FastLoader was built"):
            iter(loader)
    with FastLoader(dataset, 4) as loader:
        dataset.transform = lambda image: 7
        assert next(iter(loader))[0].tolist() == [7] * 4


@pytest.mark.parametrize("options", [{}, {"cache": "ram"}, {"cache": "device", "device": "cpu"}, {"collate": "pad"}])
def test_whoever_decodes_refuses_it(png_store: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    """No producer that reads past the dataset goes on without a transform that came later."""
    path = png_store
    if "collate" in options:
        ids = np.arange(6, dtype="<u2").tobytes()
        path = write_store(tmp_path / "a.h5", [ids] * 5, field=Field("ids", TOKENS, "<u2", (None,)))
    dataset = FastDataset(path)
    with FastLoader(dataset, 4, **options) as loader:
        dataset.transform = repr
        with pytest.raises(ValueError, match="got its transform after this FastLoader was built"):
            iter(loader)


def test_a_closed_loader_says_so(png_store: Path) -> None:
    """Closing twice does no harm; using it afterwards is one clear error."""
    loader = FastLoader(png_store, 4)
    batches = iter(loader)
    next(batches)
    loader.close()
    loader.close()

    for use in (lambda: next(batches), lambda: iter(loader)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_the_datasets_store_stays_open(png_store: Path) -> None:
    """A loader closes what it has opened, and leaves a dataset that it was given alone."""
    dataset = FastDataset(png_store)
    with FastLoader(dataset, 4) as loader:
        list(loader)

    assert dataset[0][1] == 0


def test_a_loader_is_not_pickled(png_store: Path) -> None:
    """Threads do not travel: the message says what to send instead."""
    with FastLoader(png_store, 4) as loader, pytest.raises(TypeError, match="pass the FastDataset"):
        pickle.dumps(loader)


def test_an_open_store_reads_on(png_store: Path) -> None:
    """Two loaders over one file in one process do not disturb each other."""
    with open_store(png_store) as store:
        one, other = FastLoader(FastDataset(store), 7), FastLoader(png_store, 7)
        for (images, _), (other_images, _) in zip(one, other, strict=True):
            assert torch.equal(images, other_images)
        one.close()
        other.close()


def test_foreign_shards_of_unknown_sizes(tmp_path: Path) -> None:
    """A tar that others wrote says nothing of its pictures' sizes: they are probed, and the batches are the same."""
    path = tmp_path / "foreign.tar"
    with tarfile.open(path, "w") as tar:
        for index, pixels in enumerate(pictures(10)):
            for name, value in ((f"{index:04d}.png", encode(pixels)), (f"{index:04d}.cls", str(index % 4).encode())):
                member = tarfile.TarInfo(name)
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))
    dataset = FastDataset(path, to_tensor)
    expected = torch.stack([dataset[index][0] for index in range(10)])
    with FastLoader(path, 4) as loader:
        for _ in range(2):
            batches = list(loader)
            assert torch.equal(expected, torch.cat([images for images, _ in batches]))
            assert torch.cat([labels for _, labels in batches]).tolist() == [index % 4 for index in range(10)]
