"""What users write and pass instead of what is meant ends in one line, which says what to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio import FastDataset, FastLoader, Mixture
from fastio.transforms import Normalize, RandomCrop
from tests.conftest import encode, pictures, write_store


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"num_workers": 4}, "no option num_workers: pass threads=N, or leave it out for all CPUs"),
        ({"num_worker": 4}, "no option num_worker: pass threads=N"),
        ({"collate_fn": list}, r"no option collate_fn: collate= .* DataLoader\(FastDataset\(path\), collate_fn=...\)"),
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


def test_a_folder_of_pictures_names_the_command(tmp_path: Path) -> None:
    """The first line that a newcomer types."""
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    for owner in (FastDataset, lambda path: FastLoader(path, 4)):
        with pytest.raises(
            FileNotFoundError, match=f"name a store, or pack it: fastio pack {tmp_path}/photos NAME.lmdb"
        ):
            owner(tmp_path / "photos")


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
        ({"transforms": {"image": [RandomCrop(8)]}}, TypeError, "^transforms={'image': .*}: expected a list, such as"),
        ({"transforms": "crop"}, TypeError, "^transforms='crop': expected a list, such as"),
        ({"transforms": [RandomCrop]}, TypeError, r"^transforms has the class RandomCrop: write RandomCrop\(...\)$"),
        ({"transforms": [None]}, TypeError, "expected transforms of fastio or functions in a list, got None in it$"),
        (
            {"transforms": [RandomCrop(8), own]},
            TypeError,
            r"own .* a function of samples to FastDataset\(path, transform=...\), .* behind a transform of batches",
        ),
        ({"transforms": own}, TypeError, "function own .* a function of batches behind a transform of batches"),
        (
            {"weights": {0: 5}},
            ValueError,
            r"no weight for '1' \(one class\): give each class one, or 0 to leave it out$",
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
