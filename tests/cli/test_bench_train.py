"""`fastio bench train`, and `bench both --model`, as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fastio.cli.options import MODEL_NAMES
from fastio.measure.trainer import run as trainer
from fastio.measure.trainer.run import MODELS
from tests.commands import run
from tests.conftest import encode, pictures, write_store

CIFAR = ("bench", "train", "--model", "cifar10cnn", "--device", "cpu")
SCRIPT = """
import torch
def loader():
    return [(torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64))] * 3
def tensors():
    return [torch.zeros(2, 3, 32, 32)]
def pair():
    return loader(), print
"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """torch computes in one thread: small batches are faster so."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Twenty pictures of the network's size, of ten classes."""
    values = [encode(pixels) for pixels in pictures(20, (32, 32, 3))]
    return write_store(tmp_path / "train.lmdb", values, np.arange(20, dtype=np.int64) % 10)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script of the user's."""
    (tmp_path / "user_train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "user_train.py"


def test_every_model_can_be_named() -> None:
    """The names on the command line, which knows no torch, are those of the trainer."""
    assert list(MODEL_NAMES) == list(MODELS)


def test_train(store: Path) -> None:
    """Rates, waiting, losses, verdict; the batch size is the model's, as far as the store goes."""
    said = json.loads(run(*CIFAR, "--data", store, "--steps", 4, "--test", store, "--json"))
    printed = run(*CIFAR, "--data", store, "--steps", 4, "--batch-size", 5, "--test", store)

    assert (4, 2, 20) == (len(said["losses"]), said["warm_up"], said["ranks"][0]["samples"] / 2)
    assert said["samples_per_s"] > 0
    assert 0 <= said["test_accuracy"] <= 1
    assert said["verdict"]["bound"] in ("io_bound", "balanced", "compute_bound")
    assert all(word in printed for word in ("Training cifar10cnn", "2,168,362", "float32", "cpu"))
    assert "2 steps of 5 samples timed, after 2 to warm up" in printed
    assert all(word in printed for word in ("loss, last tenth", "next: ", "accuracy  "))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--test", "synthetic"), "--test synthetic: expected a store or a folder of pictures"),
        (("--test", "SCRIPT:loader"), "--test SCRIPT:loader: expected a store or a folder of pictures"),
        (("--test", "missing.lmdb"), "missing.lmdb: "),
        (("--test", "bare.lmdb"), "bare.lmdb: cifar10cnn learns classes, but the store has no labels"),
        (("--test", "empty.lmdb"), "--test empty.lmdb: no samples in it"),
        (("--test", "others"), "--test others: class 1 is 'dog', but 'cat' in the training data"),
        (("--model", "transformer", "--data", "synthetic", "--test", "STORE"), "transformer does not classify"),
    ],
)
def test_a_test_that_is_none(
    arguments: tuple[object, ...], message: str, store: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before the training, whose figures would be lost after it."""
    monkeypatch.setattr(trainer, "train", lambda *_, **__: pytest.fail("has trained"))
    folder = store.parent
    write_store(folder / "bare.lmdb", [encode(pixels) for pixels in pictures(2, (32, 32, 3))])
    write_store(folder / "empty.lmdb", [], np.arange(0))
    for name in ("train/ape/a", "train/cat/b", "others/ape/a", "others/dog/b"):
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(pictures(1, (32, 32, 3))[0]))
    words = [str(word).replace("STORE", str(store)).replace("SCRIPT", script) for word in arguments]
    data = () if "--data" in words else ("--data", "train", "--workers", 0)
    output = run(*CIFAR, *data, *words, code=1)

    assert output.startswith("error: " + message.replace("SCRIPT", script))
    assert output.count("\n") == 1


def test_a_folder_tests_what_a_store_trained(store: Path, tmp_path: Path) -> None:
    """Options of the one kind are none of the other's."""
    for label in range(2):
        path = tmp_path / "test" / str(label) / "a.png"
        path.parent.mkdir(parents=True)
        path.write_bytes(encode(pictures(1, (32, 32, 3))[0]))
    printed = run(*CIFAR, "--data", store, "--steps", 1, "--threads", 1, "--test", tmp_path / "test")

    assert "accuracy  " in printed


def test_synthetic() -> None:
    """No loading, no verdict; the precision is said."""
    printed = run(*CIFAR, "--data", "synthetic", "--steps", 2, "--batch-size", 2, "--amp", "bf16", "--channels-last")

    assert "bf16, channels_last" in printed
    assert "this limit of training" in printed
    assert "next: " not in printed


def test_a_loader_of_the_user(script: str) -> None:
    """Floating pictures are taken as normalised; batches are as the loader makes them."""
    assert "timed" in run(*CIFAR, "--data", f"{script}:loader", "--steps", 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "STORE", "--crop", 16), "STORE: expected pictures of 32x32, got 16x16: add --crop 32"),
        (
            ("--data", "SCRIPT:tensors"),
            "SCRIPT:tensors: expected pictures (B, 3, 32, 32) and labels (B,), got a tensor",
        ),
        (("--data", "missing.lmdb"), "missing.lmdb: "),
        (("--data", "synthetic", "--crop", 32), "synthetic: --crop has no effect"),
        (("--data", "SCRIPT:loader", "--batch-size", 4), "SCRIPT:loader: --batch-size has no effect"),
    ],
)
def test_errors_are_one_line(arguments: tuple[object, ...], message: str, store: Path, script: str) -> None:
    """What does not fit is said without a traceback."""
    words = [str(word).replace("STORE", str(store)).replace("SCRIPT", script) for word in arguments]
    output = run(*CIFAR, "--steps", 2, *words, code=1)

    assert output.startswith("error: " + message.replace("STORE", str(store)).replace("SCRIPT", script))
    assert output.count("\n") == 1


@pytest.mark.parametrize("device", ["tpu", "meta", "cuda:99"])
def test_a_device_that_is_not_there(device: str) -> None:
    """Named, before anything is opened."""
    arguments = ("bench", "train", "--model", "resnet50", "--data", "x", "--device", device)

    assert run(*arguments, code=1).startswith(f"error: --device {device}: ")


def test_both_with_a_model(store: Path) -> None:
    """A real step in the place of one that is known by its time."""
    arguments = (
        "bench",
        "both",
        store,
        "--model",
        "cifar10cnn",
        "--device",
        "cpu",
        "--seconds",
        0.1,
        "--batch-size",
        4,
    )
    said = json.loads(run(*arguments, "--json"))

    assert said["training"]["samples"] >= 4
    assert said["training"]["training"]["mean_s"] > 1e-4
    assert said["verdict"]["evidence"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "cifar10cnn", "--step-ms", 2), "exclude each other"),
        (("--amp", "bf16", "--step-ms", 2), "--amp has no effect without --model"),
        (("--compile", "--step-ms", 2), "--compile has no effect without --model"),
        (("--channels-last",), "--channels-last has no effect without --model"),
    ],
)
def test_answers_that_contradict(arguments: tuple[object, ...], message: str, store: Path) -> None:
    """One step is enough, and what belongs to a model needs one."""
    assert message in run("bench", "both", store, *arguments, code=2)


def test_a_step_beside_a_model(script: str) -> None:
    """A function that returns its step needs no model."""
    said = run("bench", "both", f"{script}:pair", "--model", "cifar10cnn", code=2)

    assert "a step of its own" in said
