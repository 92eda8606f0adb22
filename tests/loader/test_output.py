"""output="numpy": arrays with the values of the tensors, where torch is not installed; what needs torch is refused."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio import DevicePrefetcher, FastDataset, FastLoader
from fastio.transforms import ColorJitter, MixUp, Normalize, RandomHorizontalFlip, ToDtype
from tests.conftest import encode, pictures, write_store
from tests.dataset.many_fields import TYPES, make_samples, write_fields
from tests.loader import output_cases
from tests.loader.output_cases import CASES, plain

SCRIPT = Path(output_cases.__file__)
PAIRS = {"prompt": "tokens", "chosen": "tokens", "rejected": "tokens"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores of the cases."""
    path = tmp_path_factory.mktemp("output")
    labels = np.arange(10, dtype=np.int64) % 3
    values = [encode(each) for each in pictures(10, (20, 24, 3))]
    write_store(path / "pictures.lmdb", values, labels)
    write_store(path / "damaged.lmdb", [*values[:3], values[3][:70], *values[4:]], labels)
    write_store(path / "gifs.lmdb", [encode(each, "GIF") for each in pictures(10, (20, 24, 3))], labels)
    random = np.random.default_rng(5)
    samples = make_samples(10)
    for sample in samples:
        sample |= {name: sample[name][:40, :30] for name in ("image", "mask", "depth")}
    write_fields(path / "scenes.tar", samples, {name: TYPES[name] for name in (*output_cases.NAMES, "kinds")})
    ids = [{"tokens": random.integers(0, 99, size)} for size in random.integers(1, 30, 10)]
    write_fields(
        path / "ids.lmdb",
        [sample | {"label": i} for i, sample in enumerate(ids)],
        {"tokens": "tokens", "label": "label"},
    )
    pairs = [{name: random.integers(0, 99, size) for name in PAIRS} for size in random.integers(1, 30, 10)]
    write_fields(path / "pairs.lmdb", pairs, PAIRS)
    return path


@pytest.fixture(scope="module")
def without_torch(folder: Path) -> dict[str, Any]:
    """What the cases give where torch cannot be imported."""
    file = folder / "made.pickle"
    ended = subprocess.run([sys.executable, SCRIPT, folder, file], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    made: dict[str, Any] = pickle.loads(file.read_bytes())
    return made


@pytest.fixture(scope="module")
def with_torch(folder: Path) -> dict[str, Any]:
    """What the cases give as tensors, with arrays in their place."""
    return output_cases.made(folder, "torch")


def check_same(expected: Any, found: Any) -> None:
    """Raise AssertionError for values that differ."""
    assert type(expected) is type(found)
    if isinstance(expected, np.ndarray):
        assert expected.dtype == found.dtype
        np.testing.assert_array_equal(expected, found)
    elif isinstance(expected, dict):
        assert list(expected) == list(found)
        for name, part in expected.items():
            check_same(part, found[name])
    elif isinstance(expected, (list, tuple)):
        assert len(expected) == len(found)
        for part, other in zip(expected, found, strict=True):
            check_same(part, other)
    else:
        assert expected == found


@pytest.mark.parametrize("case", CASES)
def test_arrays_have_the_values_of_tensors(
    case: str, with_torch: dict[str, Any], without_torch: dict[str, Any]
) -> None:
    """Batches, receipt, the state in an epoch and the samples left out are those of tensors."""
    check_same(with_torch[case], without_torch[case])


@pytest.mark.parametrize(("before", "after"), [("torch", "numpy"), ("numpy", "torch")])
def test_a_state_resumes_with_the_other_output(before: str, after: str, folder: Path) -> None:
    """A state says nothing of the output: what is left of an epoch comes as either."""
    options: dict[str, Any] = {"shuffle": True, "threads": 1, "transforms": [RandomHorizontalFlip(), ColorJitter(0.4)]}
    with (
        FastLoader(folder / "pictures.lmdb", 3, output=before, **options) as first,
        FastLoader(folder / "pictures.lmdb", 3, output=after, **options) as second,
    ):
        batches = iter(first)
        next(batches)
        second.load_state_dict(first.state_dict())

        check_same([plain(batch) for batch in batches], [plain(batch) for batch in second])


def test_memory_returns_when_an_array_dies(folder: Path) -> None:
    """An array keeps its memory, also as a part of it, and no batch takes it meanwhile; then it is lent again."""
    with FastLoader(folder / "pictures.lmdb", 5, output="numpy", threads=1, prefetch_batches=1) as loader:
        kept = [images[1:2] for images, _ in loader]
        copies = [np.array(each) for each in kept]
        for _ in range(4):
            for _ in loader:
                pass
        check_same(copies, kept)
        held = loader.stats.buffer_bytes
        del kept
        gc.collect()
        for _ in range(20):
            for _ in loader:
                pass

        assert held >= loader.stats.buffer_bytes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "cpu"}, "device='cpu' with output='numpy': arrays of NumPy are on the CPU: drop one of the two"),
        ({"pin_memory": True}, "pin_memory with output='numpy': pinned memory is torch's: drop one of the two"),
        ({"collate": "nested"}, "collate='nested' with output='numpy': nested tensors are torch's: write 'list'"),
        ({"decode": "device", "device": "cuda"}, "device='cuda' with output='numpy'"),
        ({"cache": "device", "device": "cuda"}, "device='cuda' with output='numpy'"),
        ({"output": "jax"}, "output='jax': expected one of 'torch', 'numpy'"),
    ],
)
def test_what_needs_torch_is_refused(options: dict[str, Any], said: str, folder: Path) -> None:
    """One line says what does not go with arrays."""
    with pytest.raises(ValueError, match="output=") as caught:
        FastLoader(folder / "pictures.lmdb", 4, **{"output": "numpy", **options})
    assert said in str(caught.value)


def test_arrays_go_to_no_device(folder: Path) -> None:
    """A DevicePrefetcher would hand them on as they are."""
    with (
        FastLoader(folder / "pictures.lmdb", 4, output="numpy") as loader,
        pytest.raises(ValueError, match="takes tensors, but this loader has output='numpy'"),
    ):
        DevicePrefetcher(loader, "cpu")


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([Normalize([0.5], [0.5]), ColorJitter(0.4)], r"ColorJitter.* needs torch.* put it before Normalize"),
        (
            [MixUp(0.2, num_classes=3), RandomHorizontalFlip()],
            r"RandomHorizontalFlip.* needs torch.* put it before MixUp",
        ),
        ([ToDtype("bfloat16")], r"ToDtype.*NumPy has no bfloat16"),
    ],
)
def test_transforms_that_need_torch_are_refused(steps: Any, said: str, folder: Path) -> None:
    """What native threads do not run where they decode, and numbers that NumPy does not have."""
    with pytest.raises(ValueError, match=f"output='numpy': {said}"):
        FastLoader(folder / "pictures.lmdb", 4, output="numpy", transforms=steps)
    dataset = FastDataset(folder / "pictures.lmdb", np.asarray)
    with pytest.raises(ValueError, match=r"ColorJitter.* needs torch.* leave it out"):
        FastLoader(dataset, 4, output="numpy", transforms=[ColorJitter(0.4)])
