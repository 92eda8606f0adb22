"""LoaderOptions: every argument of FastLoader arrives under its own name, and is checked before anything is opened."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fastio import FastDataset, FastLoader, Mixture
from fastio.loader import fast_loader
from fastio.loader.options import LoaderOptions
from fastio.transforms import Normalize, RandomCrop
from tests.conftest import encode, pictures, write_store

# One value for each option that no other option has; several would rule each other out.
VALUES: dict[str, Any] = {
    "batch_size": 7,
    "shuffle": True,
    "seed": np.int64(11),
    "drop_last": "drop_last",
    "rank": "rank",
    "world_size": "world_size",
    "uneven": "uneven",
    "indices": "indices",
    "sampler": None,
    "batch_sampler": None,
    "weights": None,
    "samples_per_epoch": None,
    "collate": "collate",
    "threads": np.uint8(3),
    "prefetch_batches": 5,
    "on_error": "skip",
    "verify": False,
    "pin_memory": "pin_memory",
    "transforms": [print],
    "views": None,
    "repeats": 1,
    "quality": "fast",
    "layout": "channels_last",
    "device": "device",
    "cache": "ram",
    "decode": "cpu",
    "cost": None,
    "output": "torch",
}
PARTS = ("samples", "order", "pixels", "work")


class WiredError(Exception):
    """Instead of wiring: the options."""


def options_of(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> LoaderOptions:
    def wire(dataset: object, options: LoaderOptions) -> None:
        raise WiredError(options)

    monkeypatch.setattr(fast_loader, "wire", wire)
    with pytest.raises(WiredError) as wired:
        FastLoader("nowhere", **arguments)
    (options,) = wired.value.args
    assert isinstance(options, LoaderOptions)
    return options


@pytest.mark.parametrize("changed", [{}, {"shuffle": False, "sampler": [1]}, {"shuffle": False, "weights": [2.0]}])
def test_each_argument_arrives(monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]) -> None:
    """No two arguments change places on their way."""
    values = {**VALUES, **changed}
    if "weights" in changed:
        values["samples_per_epoch"] = 9
    options = options_of(monkeypatch, **values)
    parts = [*(getattr(options, part) for part in PARTS), options.order.ranks]
    arrived = {field.name: getattr(part, field.name) for part in parts for field in fields(part) if field.init}
    del arrived["ranks"]

    assert values | {"mesh": None, "replication": 1} == arrived
    assert set(inspect.signature(FastLoader).parameters) == {"dataset", "ranks", *values, "samples_per_epoch"}


@pytest.mark.parametrize(
    ("torchs", "ours"),
    [
        ({"collate_fn": "pad"}, {"collate": "pad"}),
        ({"memory_format": torch.channels_last}, {"layout": "channels_last"}),
        ({"memory_format": torch.contiguous_format}, {"layout": "contiguous"}),
        ({"layout": torch.channels_last}, {"layout": "channels_last"}),
    ],
)
def test_torchs_words(monkeypatch: pytest.MonkeyPatch, torchs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Where torch has a word for an option, it is accepted."""
    assert options_of(monkeypatch, batch_size=4, **ours) == options_of(monkeypatch, batch_size=4, **torchs)


def test_numbers_become_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state is plain numbers, so numpy's are made Python's; options are frozen."""
    options = options_of(monkeypatch, batch_size=np.int32(4), seed=np.uint64(2), threads=np.int8(1))

    assert [int] * 3 == [
        type(number) for number in (options.order.batch_size, options.order.seed, options.work.threads)
    ]
    with pytest.raises(FrozenInstanceError):
        options.order.seed = 3  # type: ignore[misc] # what is tested


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: expected a whole number from 1"),
        ({"batch_size": True}, "batch_size=True: expected a whole number from 1"),
        ({"batch_size": 10**30}, f"batch_size={10**30}: expected a whole number from 1, and less than 2"),
        ({"batch_size": 4, "prefetch_batches": 1 << 63}, f"prefetch_batches={1 << 63}: expected 1 or more, and less"),
        ({"batch_size": 4, "shuffle": 1}, "shuffle=1: expected False, True or 'full'"),
        ({"batch_size": 4, "seed": -1}, "seed=-1: expected 0 <= seed < 2"),
        ({"batch_size": 4, "threads": -1}, "threads=-1: expected 0"),
        ({"batch_size": 4, "prefetch_batches": 0}, "prefetch_batches=0: expected 1 or more"),
        ({"batch_size": 4, "on_error": "ignore"}, "on_error='ignore': expected one of 'raise', 'skip', 'zero'"),
        ({"batch_size": 4, "verify": "auto"}, "verify='auto': expected True"),
        ({"batch_size": 4, "quality": "best"}, "quality='best': expected one of 'exact', 'fast'"),
        ({"batch_size": 4, "layout": "NCHW"}, "layout='NCHW': expected one of 'contiguous', 'channels_last'"),
        ({"batch_size": 4, "decode": "gpu"}, "decode='gpu': expected one of 'cpu', 'device'"),
        ({"batch_size": 4, "cache": "disk"}, "cache='disk': expected one of 'ram', 'device' or None"),
        ({"batch_size": 4, "cache": "device"}, "cache='device': pass device= too"),
        ({"batch_size": 4, "decode": "device"}, "decode='device': pass device='cuda' too"),
        ({"batch_size": 4, "samples_per_epoch": 3}, "samples_per_epoch=3: only for weights= or a Mixture: drop it"),
        ({"batch_size": 4, "batch_sampler": [[0]]}, "batch_size: the batch_sampler decides that: drop it here"),
        ({"batch_size": 4, "sampler": [0], "shuffle": True}, "shuffle: the sampler decides that"),
        ({"batch_size": 4, "weights": [1], "shuffle": "full"}, "shuffle: the weights decide that"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    """A value that no dataset could make right is one line, though the store is not there."""
    with pytest.raises(ValueError, match=f"^{message}".replace("(", r"\(")):
        FastLoader(tmp_path / "nowhere.lmdb", **arguments)


# What users write and pass instead of what is meant ends in one line, which says what to write.


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"num_workers": 4}, "no option num_workers: pass threads=N, or leave it out for all CPUs"),
        ({"num_worker": 4}, "no option num_worker: pass threads=N"),
        (
            {"collate_fn": list},
            r"^collate=.* of your own, use torch's DataLoader\(FastDataset\(path\), collate_fn=...\)",
        ),
        ({"collate_fn": "pad", "collate": "pad"}, "collate_fn is another word for collate: pass one of them"),
        ({"prefetch_factor": 2}, "no option prefetch_factor: pass prefetch_batches=N"),
        ({"persistent_workers": True}, "no option persistent_workers: leave it out"),
        ({"worker_init_fn": print}, "no option worker_init_fn: leave it out"),
        ({"multiprocessing_context": "fork"}, "no option multiprocessing_context: leave it out"),
        ({"timeout": 60}, "no option timeout: leave it out"),
        ({"generator": None}, "no option generator: pass seed=N"),
        ({"pin_memory_device": "cuda"}, 'no option pin_memory_device: pass device="cuda"'),
        ({"in_order": True}, "no option in_order: leave it out"),
        ({"transform": None}, r"no option transform: pass transforms=\[...\]"),
        ({"fields": ("image",)}, r"no option fields: FastDataset has it: pass FastLoader\(FastDataset\(path, fields="),
        ({"shufle": True}, r"^FastLoader has no option shufle: did you mean shuffle\?$"),
        ({"num_threads": 2}, r"no option num_threads: did you mean threads\?"),
        ({"batchsize": 2}, r"no option batchsize: did you mean batch_size\?"),
        ({"zzz": 1}, "no option zzz: it has dataset, batch_size, indices, "),
        ({"shufle": True, "num_workers": 4}, "did you mean shuffle.; FastLoader has no option num_workers: pass"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_what_to_write_instead(arguments: dict[str, Any], expected: str) -> None:
    """Options of a DataLoader and of FastDataset, and misspelt ones, lead to the right ones; nothing is opened."""
    with pytest.raises(TypeError, match=expected) as caught:
        FastLoader("nowhere.lmdb", 4, **arguments)

    assert "\n" not in str(caught.value)


def test_the_third_value_needs_a_name() -> None:
    """A DataLoader's third value is ``shuffle``; here it says so itself."""
    with pytest.raises(TypeError, match=r"^FastLoader\(dataset, batch_size\): got 3 values without .*shuffle=True"):
        FastLoader("nowhere.lmdb", 4, True)  # type: ignore[misc] # what is tested


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four pictures of 40 x 40 in two classes."""
    path = tmp_path_factory.mktemp("photos") / "a.lmdb"
    return write_store(path, list(map(encode, pictures(4, (40, 40, 3)))), np.array([0, 0, 1, 1]))


@pytest.mark.parametrize("owner", [FastDataset, lambda value: FastLoader(value, 4)])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            ["a.jpg", "b.jpg"],
            r"got list: the shards of a store are one path .*; files are packed first: fastio pack FOLDER",
        ),
        (("a.lmdb", "b.lmdb"), "got tuple: .* several stores a ConcatDataset of FastDatasets"),
        (None, "got None$"),
        (
            {"web": "a.lmdb"},
            r"got dict: rows are packed first, by fastio.pack\(.* datasets by name are a fastio.Mixture",
        ),
        (3, "got int$"),
        (b"a.lmdb", "got bytes$"),
    ],
    ids=repr,
)
def test_what_is_no_path_is_named(owner: Callable[[Any], Any], value: Any, expected: str) -> None:
    """A list of files, nothing, a dict, a number: what a path is and what to do."""
    with pytest.raises(TypeError, match=f"the path of a store, such as 'train.lmdb', {expected}") as caught:
        owner(value)

    assert "\n" not in str(caught.value)


def test_a_folder_of_pictures_is_read(tmp_path: Path) -> None:
    """The first line that a newcomer types gives pictures and classes."""
    for number, name in enumerate(("cats", "dogs")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (6, 5), (number, 2, 3)).save(tmp_path / "photos" / name / f"{name}.png")
    dataset = FastDataset(tmp_path / "photos")
    ((images, labels),) = FastLoader(tmp_path / "photos", 4)

    assert [("cats", 0), ("dogs", 1)] == list(dataset.class_to_idx.items())
    assert ([0, 1], (2, 3, 5, 6)) == (labels.tolist(), tuple(images.shape))
    assert [0, 1] == images[:, 0, 0, 0].tolist()


def own(batch: Any) -> Any:
    """A function of the user's."""
    return batch


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"batch_size": "8"}, ValueError, "^batch_size='8': expected a whole number from 1$"),
        ({"batch_size": None}, ValueError, "^batch_size=None: expected a whole number from 1$"),
        ({"threads": "4"}, ValueError, "^threads='4': expected 0"),
        ({"rank": "0", "world_size": "2"}, ValueError, "expected whole numbers, got rank='0', world_size='2'$"),
        ({"transforms": {3: [RandomCrop(8)]}}, TypeError, "^transforms: expected the name of a field, or a tuple"),
        ({"transforms": "crop"}, TypeError, "^transforms='crop': expected a list, such as"),
        ({"transforms": [RandomCrop]}, TypeError, r"^transforms has the class RandomCrop: write RandomCrop\(...\)$"),
        ({"transforms": [None]}, TypeError, "expected transforms of fastio or functions in a list, got None in it$"),
        (
            {"transforms": [own, RandomCrop(8)]},
            TypeError,
            r"behind <function own .* write PerSample\(function\), .* or PerBatch\(function\)",
        ),
        (
            {"weights": {2: 5}},
            ValueError,
            r"weights: no class 2 among",
        ),
    ],
)
def test_values_of_another_kind_are_named(photos: Path, options: dict[str, Any], error: Any, expected: str) -> None:
    """Numbers as text, a dict of transforms, a class, functions in the wrong place: one line each."""
    with pytest.raises(error, match=expected) as caught:
        FastLoader(photos, **{"batch_size": 4, **options})

    assert "\n" not in str(caught.value)


def test_a_function_of_batches_where_the_message_sends_it(photos: Path) -> None:
    """Behind Normalize, or with a device, it gets each batch."""
    for options in ({"transforms": [Normalize([0.5], [0.5]), own]}, {"transforms": [own], "device": "cpu"}):
        with FastLoader(photos, 4, **options) as loader:  # type: ignore[arg-type] # options of several kinds
            assert [0, 0, 1, 1] == next(iter(loader))[1].tolist()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"transform": [RandomCrop(8)]}, r"^transform=\[.*\]: expected a function, such as Compose\(\[...\]\)$"),
        ({"fields": 3}, "^fields=3: expected the name of a field, or a tuple of names$"),
    ],
)
def test_values_for_a_dataset_of_another_kind(photos: Path, options: dict[str, Any], expected: str) -> None:
    """A list of transforms, a number for a field."""
    with pytest.raises(TypeError, match=expected):
        FastDataset(photos, **options)


def test_members_of_a_mixture_need_one_transform(photos: Path) -> None:
    """The message is about the Mixture, not about a ConcatDataset that the user has not made."""
    mixture = Mixture({"a": FastDataset(photos, own), "b": FastDataset(photos)}, {"a": 1, "b": 1})
    with pytest.raises(ValueError, match="all datasets of a Mixture need the same transform"):
        FastLoader(mixture, 4)
