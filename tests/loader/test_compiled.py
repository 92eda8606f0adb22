"""A user's own function, compiled by numba, in the native threads: its pixels are the plain path's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from fastio import FastDataset, FastLoader, SampleError, SchemaError
from fastio.transforms import (
    CenterCrop,
    Compiled,
    Compose,
    Grayscale,
    RandomApply,
    RandomCrop,
    RandomHorizontalFlip,
    RandomInvert,
    RandomResizedCrop,
    Resize,
    ToDtype,
    Transform,
)
from fastio.transforms.batch.recipe import _stage_seed, is_geometry
from fastio.transforms.fused import uniform
from fastio.types.schema import RAW, Field
from tests.conftest import encode, write_store

COUNT = 14
SIZES = ((40, 60), (64, 48), (50, 50))

Pixels = NDArray[np.uint8]
Numbers = NDArray[np.float64]


def shade(image: Pixels, numbers: Numbers) -> None:
    """Another brightness from left to right, and a mark that tells rows from columns and channels apart."""
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            for c in range(image.shape[2]):
                image[y, x, c] = int(image[y, x, c] * (0.5 + 0.5 * numbers[0] * x / image.shape[1]))
    image[0, image.shape[1] - 1, image.shape[2] - 1] = int(255 * numbers[1])


def invert(image: Pixels, numbers: Numbers) -> None:
    """Without random numbers, in numpy's words."""
    image[:] = 255 - image


def many(image: Pixels, numbers: Numbers) -> None:
    """Each of its numbers counts."""
    for k in range(numbers.shape[0]):
        image[k % image.shape[0], k // image.shape[0], 0] = int(255 * numbers[k])


def refuse_bright(image: Pixels, numbers: Numbers) -> None:
    """Fails for some pictures."""
    if image[0, 0, 0] > 127:
        raise ValueError("too bright")
    image[:] = 9


CHAINS: dict[str, list[Transform]] = {
    "train": [RandomResizedCrop((24, 20)), RandomHorizontalFlip(), Compiled(shade, draws=2)],
    "edges": [RandomCrop(60, padding=30, pad_if_needed=True), Compiled(shade, draws=2)],
    "grey": [CenterCrop(30), Grayscale(3), Compiled(invert)],
    "one channel": [CenterCrop((20, 30)), Grayscale(), Compiled(numba.njit(shade), draws=2)],
    "two": [CenterCrop(30), Compiled(shade, draws=2), Compiled(many, draws=40)],
    "among colours": [CenterCrop(30), Compiled(shade, draws=2), RandomInvert(), Compiled(many, draws=40)],
    "with a chance": [CenterCrop(30), RandomApply([RandomInvert(1.0), Compiled(shade, draws=2)])],
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Noise of different sizes by kind; "raw" of one size."""
    folder = tmp_path_factory.mktemp("compiled")
    pixels = [
        np.random.default_rng(index).integers(0, 256, (*SIZES[index % len(SIZES)], 3), np.uint8)
        for index in range(COUNT)
    ]
    labels = np.arange(COUNT)
    found = {
        kind: write_store(folder / f"{kind}.h5", [encode(each, kind) for each in pixels], labels)
        for kind in ("JPEG", "PNG", "WEBP")
    }
    field = Field("image", RAW, "|u1", (48, 50, 3))
    raw = [each.tobytes()[: 48 * 50 * 3].ljust(48 * 50 * 3, b"\x07") for each in pixels]
    found["raw"] = write_store(folder / "raw.h5", raw, labels, field=field)
    return found


def expected(dataset: FastDataset, chain: list[Transform], *, epoch: int = 0) -> torch.Tensor:
    """The plain path: every PIL image through the same objects, by the numbers that belong to it."""
    transform, indices = Compose(chain), np.arange(len(dataset))
    native = sum(is_geometry(step) for step in chain)
    draws = [Compose(chain[:native]).draws, *(step.draws for step in chain[native:])]
    seeds = [0, *(_stage_seed(0, number) for number in range(len(chain) - native))]
    pairs = zip(draws, seeds, strict=True)
    numbers = np.concatenate([uniform(indices, draw, seed=seed, epoch=epoch) for draw, seed in pairs], axis=1)
    images = [np.array(transform.apply(dataset[index][0], each)) for index, each in enumerate(numbers)]
    return torch.from_numpy(np.stack([each.reshape(*each.shape[:2], -1) for each in images])).permute(0, 3, 1, 2)


def pictures(store: Path, chain: list[Transform], *, epoch: int = 0, **options: Any) -> torch.Tensor:
    """One epoch, in order."""
    with FastLoader(store, 5, transforms=chain, **options) as loader:
        loader.set_epoch(epoch)
        return torch.cat([images.clone() for images, _ in loader])


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "raw"])
def test_native_is_plain(stores: dict[str, Path], kind: str, chain: list[Transform]) -> None:
    """Called by native threads, in either layout, or one by one: the same pixels."""
    wanted = expected(FastDataset(stores[kind]), chain, epoch=3)

    assert torch.equal(wanted, pictures(stores[kind], chain, epoch=3))
    planar = pictures(stores[kind], chain, epoch=3, layout="contiguous", threads=3)
    assert planar.is_contiguous()
    assert torch.equal(wanted, planar)


def test_a_tensor_is_a_picture() -> None:
    """Tensors get the same pixels as PIL images, leading dimensions share the numbers, and the input stays as it is."""
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
    image, tensor = Image.fromarray(pixels), torch.from_numpy(pixels).permute(2, 0, 1)
    numbers = np.array([0.3, 0.8])
    compiled = Compiled(shade, draws=2)
    wanted = torch.from_numpy(np.array(compiled.apply(image, numbers))).permute(2, 0, 1)

    assert torch.equal(wanted, compiled.apply(tensor, numbers))
    assert torch.equal(wanted.expand(2, 2, 3, 9, 12), compiled.apply(tensor.expand(2, 2, 3, 9, 12), numbers))
    assert np.array_equal(pixels, np.array(image))
    assert np.array_equal(pixels, tensor.permute(1, 2, 0).numpy())
    grey = image.convert("L")
    assert np.array_equal(255 - np.array(grey), np.array(Compiled(invert)(grey)))


def test_the_plain_path_of_a_loader(stores: dict[str, Path]) -> None:
    """The same object is a transform of FastDataset."""
    dataset = FastDataset(stores["PNG"], lambda image: np.array(Compose([CenterCrop(20), Compiled(invert)])(image)))
    with FastLoader(dataset, COUNT) as loader:
        images, _ = next(iter(loader))

    chain: list[Transform] = [CenterCrop(20), Compiled(invert)]
    assert torch.equal(pictures(stores["PNG"], chain), images.permute(0, 3, 1, 2))


def test_threads_ranks_and_resumes_change_nothing(stores: dict[str, Path]) -> None:
    """A picture's numbers belong to seed, epoch and sample."""
    chain = CHAINS["train"]
    wanted = expected(FastDataset(stores["JPEG"]), chain)
    for threads, batch_size, rank, world_size in ((1, 3, 0, 1), (4, COUNT, 0, 1), (2, 2, 1, 2)):
        with FastLoader(
            stores["JPEG"],
            batch_size,
            shuffle=True,
            threads=threads,
            transforms=chain,
            rank=rank,
            world_size=world_size,
        ) as loader:
            for images, labels in loader:
                assert torch.equal(wanted[labels], images)
    with FastLoader(stores["JPEG"], 4, transforms=chain) as loader:
        next(iter(loader))
        state = json.loads(json.dumps(loader.state_dict()))
    with FastLoader(stores["JPEG"], 4, transforms=chain) as loader:
        loader.load_state_dict(state)
        assert torch.equal(wanted[4:8], next(iter(loader))[0])
    assert ["Compiled(tests.loader.test_compiled.shade, draws=2)"] == state["batch_transforms"]


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "raw"])
def test_an_exception_is_a_sample_error(stores: dict[str, Path], kind: str) -> None:
    """What the function raises names the sample; the others are good."""
    chain: list[Transform] = [CenterCrop(20), Compiled(refuse_bright)]
    crops = pictures(stores[kind], [CenterCrop(20)])
    bad = [index for index, crop in enumerate(crops) if crop[0, 0, 0] > 127]
    assert 0 < len(bad) < COUNT
    with FastLoader(stores[kind], COUNT, transforms=chain, on_error="zero") as loader:
        images, _ = next(iter(loader))
        assert bad == [error.index for error in loader.skipped]
    assert [0 if index in bad else 9 for index in range(COUNT)] == [int(image.max()) for image in images]
    with (
        FastLoader(stores[kind], COUNT, transforms=chain) as loader,
        pytest.raises(SampleError, match=rf"\[{bad[0]}\].*a function in the transforms raised"),
    ):
        next(iter(loader))
    with pytest.raises(ValueError, match="too bright"):
        Compose(chain)(FastDataset(stores[kind])[bad[0]][0])


def test_many_exceptions_in_many_threads(stores: dict[str, Path]) -> None:
    """Exceptions of numba's are raised and caught outside the GIL."""
    chain: list[Transform] = [CenterCrop(8), Compiled(refuse_bright)]
    with FastLoader(stores["raw"], COUNT, transforms=chain, on_error="zero", threads=4) as loader:
        sums = {int(images.sum()) for _ in range(200) for images, _ in loader}

    assert 1 == len(sums)


@pytest.mark.parametrize("after", [Resize(9), CenterCrop(8), RandomHorizontalFlip(1.0), Grayscale(), Compiled(invert)])
def test_anything_may_follow(stores: dict[str, Path], after: Transform) -> None:
    """Crops and resizes behind it are done on the batch."""
    found = pictures(stores["PNG"], [CenterCrop(20), Compiled(invert), after])
    with FastLoader(FastDataset(stores["PNG"]), 5, transforms=[CenterCrop(20)]) as loader:
        plain = torch.cat([images for images, _ in loader])
    assert (found.int() - torch.stack([after(255 - each) for each in plain]).int()).abs().max() <= 1


def test_it_is_for_bytes_in_host_memory(stores: dict[str, Path]) -> None:
    """Floating pictures are refused, and a Compose within a list of a loader."""
    with (
        FastLoader(stores["PNG"], 4, transforms=[CenterCrop(20), ToDtype(torch.float32), Compiled(invert)]) as loader,
        pytest.raises(SchemaError, match=r"invert, draws=0\) changes uint8 pictures in host memory, got torch.float32"),
    ):
        next(iter(loader))
    with pytest.raises(SchemaError, match=r"is for FastDataset: pass its list"):
        FastLoader(stores["PNG"], 4, transforms=[Compose([CenterCrop(20), Compiled(invert)])])


def returns(image: Pixels, numbers: Numbers) -> Pixels:
    return 255 - image


def unknown(image: Pixels, numbers: Numbers) -> None:
    image[:] = np.asarray(Image.fromarray(image))


def lonely(image: Pixels) -> None:
    image[:] = 0


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (returns, r"returns .*change the image in place"),
        (unknown, "unknown: numba cannot compile it: .*Image"),
        (lonely, "lonely: numba cannot compile it"),
        (numba.njit(parallel=True)(invert), "parallel=True"),
    ],
)
def test_what_cannot_be_compiled_is_said_at_once(stores: dict[str, Path], function: Any, words: str) -> None:
    """The loader is not made, and the message is one line."""
    with pytest.raises(ValueError, match=words) as caught:
        FastLoader(stores["PNG"], 4, transforms=[CenterCrop(20), Compiled(function)])
    assert "\n" not in str(caught.value)


def test_the_example_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide's lines run as they stand there."""
    text = (Path(__file__).parents[2] / "fastio" / "guide" / "transforms.md").read_text()
    lines = next(block for block in text.split("```python\n") if "import Compiled" in block).split("```")[0]
    grey = [encode(np.full((260, 300, 3), 100, np.uint8)) for _ in range(3)]
    write_store(tmp_path / "train.lmdb", grey, np.arange(3))
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(compile(lines, "transforms.md", "exec"), found)

    with found["train"] as loader:
        images, _ = next(iter(loader))
    assert (3, 3, 224, 224) == images.shape
    assert 3 == len(images.unique())
    assert 80 <= int(images.min()) < int(images.max()) <= 120


@pytest.mark.parametrize(("function", "draws"), [(None, 0), ("invert", 0), (invert, -1), (invert, True), (invert, 0.5)])
def test_nonsense_is_refused(function: Any, draws: Any) -> None:
    """No function, no number."""
    with pytest.raises((TypeError, ValueError), match=r"function=|draws="):
        Compiled(function, draws)


def test_without_numba() -> None:
    """One line says what to install; everything else works without it."""
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from fastio.transforms import Compiled, Resize\n"
        "try: Compiled(print.__class__.mro)\n"
        "except TypeError: pass\n"
        "try: Compiled(lambda image, numbers: None)\n"
        "except ImportError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "fastio.transforms.Compiled needs numba: pip install 'fastio[numba]'\n" == said.stdout


def test_fastio_does_not_import_numba() -> None:
    """Importing all of fastio costs no second for those who have no use for it."""
    program = "import sys, fastio, fastio.transforms; print('numba' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "False\n" == said.stdout


def test_an_end_in_the_middle(stores: dict[str, Path]) -> None:
    """A program that ends while native threads call the function ends in peace."""
    program = (
        "import sys\n"
        "from fastio import FastLoader\n"
        "from fastio.transforms import CenterCrop, Compiled\n"
        "from tests.loader.test_compiled import shade\n"
        "loader = FastLoader(sys.argv[1], 1, transforms=[CenterCrop(2000), Compiled(shade, 2)], threads=2)\n"
        "under_way = iter(loader); next(under_way)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(stores["raw"])],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
