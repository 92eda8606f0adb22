"""Training from stores and files: what must come out is learned, finite and the same whatever the format."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio.converters import pack
from fastio.converters.text import Encoder, Sequences, TextSamples, load_tokenizer, open_text
from fastio.errors import FastioError
from fastio.measure.loop.data import Data, DataOptions
from fastio.measure.trainer.run import MODELS, SYNTHETIC, TrainResult, accuracy, fitted, open_training, synthetic, train
from fastio.measure.trainer.step import StepOptions, TrainStep
from tests.conftest import encode, pictures, write_store
from tests.measure.trainer.coloured import as_folder, as_stores

CIFAR = MODELS["cifar10cnn"]
SIZE = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of 40 PNGs."""
    return as_folder(tmp_path_factory.mktemp("trainer") / "train", 40)


@pytest.fixture(scope="module")
def stores(folder: Path) -> dict[str, Path]:
    """The same, packed."""
    return as_stores(folder)


def losses(path: Path, steps: int, *, settings: StepOptions | None = None, **options: Any) -> list[float]:
    """Of a training on one path."""
    settings = settings or StepOptions()
    with open_training(str(path), CIFAR, DataOptions(batch_size=SIZE, **options), settings=settings) as (
        data,
        workload,
    ):
        return train(data, TrainStep(workload, settings), steps).losses


def test_the_network_learns(tmp_path: Path) -> None:
    """From a quarter of them right, as by chance, to nearly all, of pictures that it has not seen too."""
    settings = StepOptions()
    seen = as_stores(as_folder(tmp_path / "train", 160))["h5"]
    unseen = as_stores(as_folder(tmp_path / "test", 80, seed=1))["lmdb"]

    def told() -> float:
        with open_training(str(unseen), CIFAR, DataOptions(batch_size=40), settings=settings) as (data, _):
            return accuracy(step, data.loader)

    with open_training(str(seen), CIFAR, DataOptions(batch_size=16, shuffle=True), settings=settings) as (
        data,
        workload,
    ):
        step = TrainStep(workload, settings)
        before = told()
        result = train(data, step, 60)

    assert before < 0.5
    assert told() > 0.8
    assert result.first_loss > 1.5
    assert result.last_loss < 0.5 * result.first_loss


def test_one_curve_from_every_format_and_from_files(folder: Path, stores: dict[str, Path]) -> None:
    """In storage order, over the end of an epoch: the same numbers, to the bit."""
    curves = [losses(path, 7) for path in stores.values()] + [losses(folder, 7, workers=0)]

    assert [curves[0]] * 4 == curves
    assert curves[0][0] > curves[0][-1]


@pytest.mark.parametrize("options", [{"shuffle": True}, {"augment": True}, {"crop": 32, "augment": True}])
def test_one_curve_in_random_order(stores: dict[str, Path], options: dict[str, Any]) -> None:
    """Order and augmentation are those of the seed, whatever the format; another layout changes digits at most."""
    curves = [losses(path, 3, **options) for path in stores.values()]
    other = losses(stores["lmdb"], 3, settings=StepOptions(channels_last=True), **options)

    assert [curves[0]] * 3 == curves
    assert pytest.approx(curves[0], rel=1e-3) == other


def test_what_a_result_says() -> None:
    """All losses, of which the first few are not timed; means of the tenths; no device, no figure of its memory."""
    seen: list[tuple[int, int]] = []
    data = synthetic(CIFAR, 2, StepOptions())
    result = train(data, TrainStep(CIFAR, StepOptions()), 8, on_step=lambda done, of: seen.append((done, of)))

    assert (8, 3, 5, 10) == (len(result.losses), result.warm_up, result.summary.steps, result.summary.samples)
    assert [(done, 8) for done in range(4, 9)] == seen
    assert result.losses[0] == result.first_loss
    assert result.peak_bytes is None
    assert TrainResult([3.0] * 2 + [1.0] * 9, 0, result.summary, result.timeline, None).last_loss == 1.0


@pytest.mark.parametrize("name", sorted(MODELS))
def test_synthetic_batches_are_ready(name: str) -> None:
    """Prepared once: what is timed is training."""
    settings = StepOptions(channels_last=True)
    data = synthetic(MODELS[name], 2, settings)
    first, second = (next(iter(data.loader)) for _ in range(2))

    assert first is second
    assert name == "transformer" or first[0].is_contiguous(memory_format=torch.channels_last)
    assert name == "transformer" or first[0].dtype == torch.float32


def test_a_loss_that_is_no_number() -> None:
    """Its step is named."""
    batch = (torch.full((2, 3, 32, 32), math.inf), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(FastioError, match="mine: the loss of step 0 is nan"):
        train(Data("mine", "function", [batch]), TrainStep(CIFAR, StepOptions()), 2)


def test_a_loader_that_ends() -> None:
    """An iterator serves one epoch; an empty loader none."""
    step = TrainStep(CIFAR, StepOptions())
    batches: Iterator[Any] = iter([CIFAR.task.random_batch(2, torch.Generator())] * 2)
    with pytest.raises(FastioError, match="gave no batch when it was iterated again"):
        train(Data("mine", "function", batches), step, 3)
    with pytest.raises(FastioError, match=r"mine: the loader gave no batch$"):
        train(Data("mine", "function", []), step, 3)


class _Ring:
    """A loader that says how many of its batches are alive."""

    def __init__(self) -> None:
        self.alive = self.most = 0

    def __iter__(self) -> Iterator[Any]:
        for _ in range(4):
            images, labels = CIFAR.task.random_batch(2, torch.Generator())
            self.alive += 1
            self.most = max(self.most, self.alive)
            batch = (_Counted(images, self), labels)
            del images
            yield batch
            del batch


class _Counted(torch.Tensor):
    """Pictures that tell their ring when they die."""

    def __new__(cls, images: torch.Tensor, ring: _Ring) -> _Counted:
        """As the tensor."""
        made = torch.Tensor._make_subclass(cls, images)
        made.ring = ring
        return made

    def __del__(self) -> None:
        if hasattr(self, "ring"):
            self.ring.alive -= 1


def test_no_batch_is_kept() -> None:
    """While one is trained on, those before it are free, but for the one that the loader itself holds."""
    ring = _Ring()
    train(Data("mine", "function", ring), TrainStep(CIFAR, StepOptions()), 6)

    assert ring.most <= 2


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Forty documents of bytes."""
    lines = "\n".join(f"line {number} of a short text, {number % 7}" for number in range(40))
    (tmp_path / "text.txt").write_text(lines)
    encoder = Encoder(load_tokenizer("bytes"), Sequences(), has_labels=False)
    pack(TextSamples(open_text(tmp_path / "text.txt"), encoder), tmp_path / "text.h5")
    return tmp_path / "text.h5"


def test_text_is_learned(text: Path) -> None:
    """The vocabulary is the store's; the loss falls."""
    settings = StepOptions()
    transformer = MODELS["transformer"]
    with open_training(str(text), transformer, DataOptions(batch_size=4), settings=settings) as (data, workload):
        result = train(data, TrainStep(workload, settings), 10)

    assert 250 < workload.task.outputs < 300
    assert result.last_loss < result.first_loss


def _store(path: Path, **arguments: Any) -> Path:
    return write_store(path, [encode(each) for each in pictures(4, (32, 32, 3))], **arguments)


def test_data_that_are_nothing_for_a_model(text: Path, tmp_path: Path, folder: Path, stores: dict[str, Path]) -> None:
    """One line before anything is read, from any side of the mismatch."""
    cases = [
        (text, "cifar10cnn", "cifar10cnn takes pictures, but the store has token ids in 'tokens'"),
        (stores["h5"], "transformer", "transformer takes token ids, but the store has encoded pictures in 'image'"),
        (folder, "transformer", "the folder has pictures"),
        (_store(tmp_path / "no.lmdb"), "cifar10cnn", "the store has no labels: pack with --labels"),
        (
            _store(tmp_path / "many.lmdb", labels=np.arange(4) * 5),
            "cifar10cnn",
            "labels from 0 to 15, but the model has 10 classes",
        ),
    ]
    for path, model, said in cases:
        options = DataOptions(batch_size=2, workers=0 if path.is_dir() else None)
        with (
            pytest.raises(FastioError, match=said) as caught,
            open_training(str(path), MODELS[model], options, settings=StepOptions()),
        ):
            pass
        assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(("batch_size", "sizes"), [(3, [3]), (4, [4]), (5, [4])])
def test_a_compiled_network_gets_batches_of_one_size(tmp_path: Path, batch_size: int, sizes: list[int]) -> None:
    """A short last batch would be compiled anew within the steps that are timed; one that is all there is, is taken."""
    store = _store(tmp_path / "a.lmdb", labels=np.arange(4))
    settings = StepOptions(compiled=True)
    options = DataOptions(batch_size=batch_size)
    with open_training(str(store), MODELS["cifar10cnn"], options, settings=settings) as (data, _):
        assert sizes == [len(labels) for _, labels in data.loader]
    few = tmp_path / "few" / "0"
    few.mkdir(parents=True)
    for number in range(4):
        (few / f"{number}.png").write_bytes(encode(pictures(1, (32, 32, 3))[0]))
    files = DataOptions(batch_size=batch_size, workers=0)
    with open_training(str(few.parent), MODELS["cifar10cnn"], files, settings=settings) as (data, _):
        assert sizes == [len(labels) for _, labels in data.loader]


def test_options_of_random_data() -> None:
    """What would have no effect is refused."""
    with (
        pytest.raises(FastioError, match="synthetic: --shuffle has no effect"),
        open_training(SYNTHETIC, CIFAR, DataOptions(shuffle=True), settings=StepOptions()),
    ):
        pass


def test_a_users_loader_is_taken_as_it_comes() -> None:
    """Whatever the dataset behind it: the first batch is looked at by the step."""
    data = Data("mine", "function", [1])

    assert fitted(CIFAR, data) is CIFAR
    assert fitted(MODELS["transformer"], data) is MODELS["transformer"]


def test_accuracy_of_a_model_of_text() -> None:
    """It has none."""
    with pytest.raises(FastioError, match="does not classify"):
        accuracy(TrainStep(MODELS["transformer"], StepOptions()), [])
