"""A peer's run: whole epochs, what is checked of their batches, what packing leaves."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.peers.measure import OutputError, check_photos, measure_loading, measure_packing
from benchmarks.peers.work import MEAN, STD, Work, from_json, to_json

DISTINCT, SAMPLES = 2, 4
REFERENCE = np.random.default_rng(0).integers(0, 256, (DISTINCT, 224, 224, 3)).astype(np.uint8)
RIGHT = np.concatenate([REFERENCE, REFERENCE]).transpose(0, 3, 1, 2)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Four photos of two different ones, in batches of two."""
    labels = tmp_path / "numbers.pkl"
    labels.write_bytes(pickle.dumps({f"{number}.jpg": number for number in range(SAMPLES)}))
    return Work(
        source=tmp_path / "photos",
        labels=labels,
        packed=tmp_path / "packed" / "peer",
        variant="",
        task="center_224",
        batch_size=2,
        workers=1,
    )


def batches(images: Any, numbers: Iterable[int]) -> Iterator[Any]:
    """Batches of two."""
    numbers = np.array(list(numbers))
    for start in range(0, len(numbers), 2):
        yield images[start : start + 2], numbers[start : start + 2]


def test_work_survives_json(work: Work) -> None:
    """What the runner sends is what the peer gets."""
    assert work == from_json(to_json(work))


def test_pillows_own_crops_are_no_error(work: Work) -> None:
    """In any order of samples."""
    order = [3, 0, 2, 1]
    found = check_photos(REFERENCE)(batches(RIGHT[order], order), work)

    assert 0.0 == found["error"]


def test_floats_are_measured_in_levels(work: Work) -> None:
    """Pillow's own crops after ToTensor and Normalize have the mean that they had before."""
    floats = (RIGHT / 255 - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    wanted = replace(work, task="floats_224")
    checked = check_photos(REFERENCE)(batches(floats.astype(np.float32), range(SAMPLES)), wanted)

    assert float(REFERENCE.mean()) == pytest.approx(checked["mean"], abs=0.01)
    with pytest.raises(OutputError, match=r"expected .* float32"):
        check_photos(REFERENCE)(batches(RIGHT, range(SAMPLES)), wanted)


def test_the_distance_from_pillow_is_a_mean(work: Work) -> None:
    """Two levels off in half of the photos is one level."""
    images = np.clip(RIGHT, 0, 250)
    expected = images.copy()
    images[::2] += 2
    found = check_photos(expected[:2].transpose(0, 2, 3, 1))(batches(images, range(SAMPLES)), work)

    assert 1.0 == pytest.approx(found["error"])


@pytest.mark.parametrize(
    ("message", "images", "numbers"),
    [
        ("4 samples, 3 of them different", RIGHT, [0, 1, 2, 2]),
        ("2 samples, 2 of them different", RIGHT[:2], [0, 1]),
        ("expected (B, 3, 224, 224) uint8", RIGHT.astype(np.float32), range(SAMPLES)),
        ("expected (B, 3, 224, 224) uint8", RIGHT.transpose(0, 2, 3, 1), range(SAMPLES)),
        ("the mean of all pixels is 0.0", np.zeros_like(RIGHT), range(SAMPLES)),
    ],
)
def test_wrong_photos_are_an_error(work: Work, message: str, images: Any, numbers: Iterable[int]) -> None:
    """Samples left out or given twice, another shape or type, pictures that are black."""
    with pytest.raises(OutputError) as caught:
        check_photos(REFERENCE)(batches(images, numbers), work)

    assert message in str(caught.value)


class Peer:
    """Packs two bytes; counts its epochs."""

    epochs = 0

    def pack(self, work: Work) -> None:
        """Two files."""
        (work.packed / "inner").mkdir()
        (work.packed / "a").write_bytes(b"1")
        (work.packed / "inner" / "b").write_bytes(b"2")

    def loader(self, work: Work) -> Iterable[Any]:
        """Itself."""
        return self

    def __iter__(self) -> Iterator[Any]:
        self.epochs += 1
        return batches(RIGHT, range(SAMPLES))


def test_whole_epochs_are_measured_after_one_that_is_checked(work: Work) -> None:
    """The first is not counted."""
    peer = Peer()
    found = measure_loading(peer, work, seconds=1e-9, check=check_photos(REFERENCE))

    assert (2, 1, SAMPLES) == (peer.epochs, found["epochs"], found["samples"])
    assert found["cpu_s"] >= 0 < found["first_batch_s"]


def test_packing_leaves_its_size(work: Work) -> None:
    """All files below the peer's folder."""
    assert 2 == measure_packing(Peer(), work)["size_bytes"]


def test_a_peer_that_reads_files_takes_their_size(work: Work) -> None:
    """It has nothing to pack."""
    work.source.mkdir()
    (work.source / "0.jpg").write_bytes(b"123")

    assert {"size_bytes": 3, "packs": False} == measure_packing(object(), work)  # type: ignore[arg-type]
