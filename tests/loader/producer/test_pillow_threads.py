"""Pictures that only Pillow decodes: in threads, with the rows, errors and order of the plain path, and one warning."""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import FastLoader, SampleError
from fastio.cli import cli
from fastio.dataset import undecoded
from fastio.loader.producer import pillow_threads
from fastio.loader.producer.pillow_threads import PillowCount
from fastio.transforms import CenterCrop, Grayscale, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize
from fastio.transforms.compose import Compose
from fastio.transforms.fused import uniform
from tests.conftest import write_store

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")  # of any fork, from Python 3.12 on

KINDS = ("JPEG", "PNG", "WEBP", "CMYK", "BMP", "GIF", "TIFF", "CMYK TIFF", "F TIFF", "I;16")
SIZE = (20, 26)
CHAINS: tuple[list[Any], ...] = (
    [],
    [RandomResizedCrop(9), RandomHorizontalFlip()],
    [RandomCrop(16, padding=3), Grayscale(3)],
    [Resize(14, "bicubic"), CenterCrop(12)],
)


def picture(kind: str, seed: int) -> bytes:
    """A picture file of this kind, of pixels from a seed."""
    pixels = np.random.default_rng(seed).integers(0, 256, (*SIZE, 3), np.uint8)
    image, file = Image.fromarray(pixels), io.BytesIO()
    if kind == "CMYK":
        image.convert("CMYK").save(file, "JPEG")
    elif kind.endswith(" TIFF"):
        image.convert(kind.split(maxsplit=1)[0]).save(file, "TIFF")
    elif kind == "I;16":
        Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257).save(file, "PNG")
    else:
        image.save(file, kind)
    return file.getvalue()


@pytest.fixture(autouse=True)
def nothing_said_yet() -> None:
    """Forget which stores a warning was about."""
    pillow_threads._warned_of.clear()


@pytest.fixture(scope="module")
def pictures() -> dict[tuple[str, int], bytes]:
    """Two pictures of each kind."""
    return {(kind, seed): picture(kind, seed) for kind in KINDS for seed in range(2)}


def epoch(loader: FastLoader) -> list[tuple[torch.Tensor, list[int]]]:
    """Copies of an epoch's batches."""
    return [(images.clone(), labels.tolist()) for images, labels in loader]


@settings(max_examples=25)
@given(data=st.data())
def test_equal_to_the_plain_path(
    data: st.DataObject, pictures: dict[tuple[str, int], bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Mixed kinds under random transforms: every row is what Pillow makes of the file, every bad sample is named."""
    chosen = data.draw(st.lists(st.sampled_from([*pictures, ("cut", 0)]), min_size=1, max_size=17), label="kinds")
    chain = data.draw(st.sampled_from(CHAINS), label="transforms")
    options = data.draw(st.fixed_dictionaries({"batch_size": st.integers(1, 6), "threads": st.integers(1, 3)}))
    values = [pictures["WEBP", 1][:200] if name == ("cut", 0) else pictures[name] for name in chosen]
    shapes = np.array([(*SIZE, 3)] * len(values), np.int32)
    folder = tmp_path_factory.mktemp("mixed")
    path = write_store(folder / "a.lmdb", values, np.arange(len(values)), shapes=shapes)
    good = [index for index, name in enumerate(chosen) if name != ("cut", 0)]
    with FastLoader(path, transforms=chain, on_error="skip", seed=3, **options) as loader:
        for number in range(2):
            batches = epoch(loader)
            assert good == [label for _, labels in batches for label in labels]
            rows = torch.cat([images for images, _ in batches]) if batches else torch.empty(0)
            drawn = uniform(np.arange(len(values)), Compose(chain).draws, seed=3, epoch=number)
            for index, row in zip(good, rows, strict=True):
                image = Image.open(io.BytesIO(values[index])).convert("RGB")
                expected = np.array(Compose(chain).apply(image, drawn[index]))
                assert np.array_equal(expected, row.numpy().transpose(1, 2, 0)), chosen[index]
        assert sorted(error.index for error in loader.skipped) == sorted(set(range(len(values))) - set(good))


@pytest.fixture
def mixed(pictures: dict[tuple[str, int], bytes], tmp_path: Path) -> Path:
    """Forty pictures: each fourth a JPEG, the others for Pillow."""
    kinds = ("JPEG", "TIFF", "CMYK TIFF", "F TIFF")
    values = [pictures[kinds[index % 4], index % 2] for index in range(40)]
    return write_store(tmp_path / "mixed.lmdb", values, np.arange(40), shapes=np.array([(*SIZE, 3)] * 40, np.int32))


def test_never_in_the_loops_thread(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of the training loop decodes nothing, and no more threads do than the loader has."""
    threads: set[threading.Thread] = set()
    decode = undecoded.decode_with_pillow

    def noted(data: Any, mode: str) -> Any:
        threads.add(threading.current_thread())
        return decode(data, mode)

    monkeypatch.setattr(undecoded, "decode_with_pillow", noted)
    with FastLoader(mixed, 8, threads=2, transforms=CHAINS[1]) as loader:
        for _ in range(2):
            epoch(loader)

    assert threading.current_thread() not in threads
    assert 1 <= len(threads) <= 2
    assert not any(thread.is_alive() for thread in threads)


def test_begun_before_it_is_asked_for(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the loop works with a batch, the pictures of the next ones are decoded."""
    decode, seen, is_third = undecoded.decode_with_pillow, [], threading.Event()

    def noted(data: Any, mode: str) -> Any:
        seen.append(None)
        if len(seen) > 2 * 6:  # two batches of eight have six each
            is_third.set()
        return decode(data, mode)

    monkeypatch.setattr(undecoded, "decode_with_pillow", noted)
    with FastLoader(mixed, 8, threads=2, prefetch_batches=2) as loader:
        epoch(loader)  # from now on it is known that there are such pictures
        seen.clear()
        is_third.clear()
        batches = iter(loader)
        next(batches)
        assert is_third.wait(60)


def test_nothing_for_pillow_needs_no_threads(pictures: dict[tuple[str, int], bytes], tmp_path: Path) -> None:
    """JPEGs, damaged ones too, and PNGs start no thread of Python."""
    values = [pictures["JPEG", 0], pictures["PNG", 1], pictures["JPEG", 0][:-150]]
    path = write_store(tmp_path / "a.lmdb", values, np.arange(3), shapes=np.array([(*SIZE, 3)] * 3, np.int32))
    before = set(threading.enumerate())  # some of other tests may end meanwhile
    with FastLoader(path, 2, threads=2, on_error="skip") as loader:
        assert [[0, 1]] == [labels for _, labels in epoch(loader)]
        assert set(threading.enumerate()) <= before


def test_the_first_bad_sample_is_raised(pictures: dict[tuple[str, int], bytes], tmp_path: Path) -> None:
    """Of several bad samples in a batch, the error names the first, whichever thread was faster."""
    values = [pictures["WEBP", 0]] * 8
    values[3] = values[6] = values[3][:100]
    path = write_store(tmp_path / "a.lmdb", values, np.arange(8), shapes=np.array([(*SIZE, 3)] * 8, np.int32))
    with FastLoader(path, 8, threads=3) as loader, pytest.raises(SampleError, match=r"a/0003\.png"):
        epoch(loader)
    with FastLoader(path, 8, threads=3, on_error="zero") as loader:
        ((images, labels),) = epoch(loader)
        assert [3, 6] == [error.index for error in loader.skipped]
    assert [*range(8)] == labels
    assert [3, 6] == [index for index in range(8) if not images[index].any()]


def test_a_forked_child_decodes_anew(mixed: Path) -> None:
    """A child that is forked amid an epoch gets the rest of it, and so does its parent."""
    context = multiprocessing.get_context("fork")
    with FastLoader(mixed, 8, threads=2) as loader:
        expected = [images.sum().item() for images, _ in epoch(loader)]
        batches = iter(loader)
        next(batches)
        receiver, sender = context.Pipe(duplex=False)

        def rest() -> None:
            sender.send([images.sum().item() for images, _ in batches])
            os._exit(0)

        child = context.Process(target=rest)
        child.start()
        sender.close()
        assert receiver.poll(60)
        assert expected[1:] == receiver.recv()
        child.join(60)
        assert expected[1:] == [images.sum().item() for images, _ in batches]


def test_leaving_early(mixed: Path) -> None:
    """A loop that is left in the middle leaves no thread behind, and the next one begins anew."""
    with FastLoader(mixed, 4, threads=2, prefetch_batches=4) as loader:
        expected = [labels for _, labels in epoch(loader)]
        for _ in range(3):
            next(iter(loader))
        assert expected == [labels for _, labels in epoch(loader)]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fastio-pillow")]


def test_one_warning_with_the_count(mixed: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the end of the first epoch one warning says how many pictures of which kinds were Pillow's."""
    caplog.set_level(logging.INFO)
    with FastLoader(mixed, 8) as loader:
        epoch(loader)
        (record,) = caplog.records
        epoch(loader)

    assert [record] == caplog.records
    assert logging.WARNING == record.levelno
    assert "Pillow decodes 30 of the first 40 pictures (10 CMYK TIFF, 10 F TIFF, 10 TIFF)" in record.getMessage()


def test_one_warning_for_all_loaders_of_a_store(mixed: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Loaders for training and validation read the same store: one of them warns."""
    for _ in range(2):
        with FastLoader(mixed, 8) as loader:
            epoch(loader)

    assert 1 == len(caplog.records)


@pytest.mark.parametrize(
    ("count", "total", "words"),
    [
        (30, 4000, "30 of the first 4,000 pictures"),
        (4000, 4000, "all of the first 4,000 pictures"),
        (1, 1, "the first picture"),
    ],
)
def test_the_share_in_words(count: int, total: int, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """Plain English for some, all, and the only one."""
    pillow_count = PillowCount("a.lmdb")
    pillow_count.add(total, Counter({"TIFF": count}), is_last=True)

    assert f"a.lmdb: Pillow decodes {words} ({count:,} TIFF), because" in caplog.text


def test_an_epoch_that_is_left_is_told_of_too(mixed: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A loop that never ends an epoch gets the warning when the loader is closed."""
    with FastLoader(mixed, 8) as loader:
        next(iter(loader))
        assert [] == caplog.records

    assert ["6 of the first 8 pictures" in record.getMessage() for record in caplog.records] == [True]


def test_the_warning_comes_early_in_a_long_epoch(
    mixed: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large store is told of as soon as the share is known well enough."""
    monkeypatch.setattr("fastio.loader.producer.pillow_threads._ENOUGH", 16)
    with FastLoader(mixed, 8) as loader:
        batches = iter(loader)
        next(batches)
        assert [] == caplog.records
        next(batches)
        assert ["12 of the first 16 pictures" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("options", [["--resize", "12x12"], ["--resize", "12x12", "--raw"]], ids=["PNG", "pixels"])
def test_the_advice_of_the_warning_works(
    pictures: dict[tuple[str, int], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture, options: list[str]
) -> None:
    """Packed as the warning says, nothing is left to Pillow."""
    source = tmp_path / "source"
    source.mkdir()
    for kind, suffix in (("WEBP", "webp"), ("CMYK", "jpg"), ("BMP", "bmp"), ("TIFF", "tif")):
        (source / f"{kind}.{suffix}").write_bytes(pictures[kind, 0])
    result = CliRunner().invoke(cli, ["pack", str(source), str(tmp_path / "a.lmdb"), *options])
    assert 0 == result.exit_code, result.output
    with FastLoader(tmp_path / "a.lmdb", 4) as loader:
        epoch_size = sum(len(images) for images in loader)

    assert 4 == epoch_size
    assert [] == caplog.records
