"""FastLoader(decode="device"), by a decoder that stands for the GPU's: same samples, crops, errors and positions."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from fastio import FastDataset, FastLoader, SampleError, SchemaError
from fastio.loader.forks import PerProcess
from fastio.transforms import (
    CenterCrop,
    Grayscale,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
)
from tests.conftest import encode, write_store
from tests.loader.device.slow_lane import SlowLane

COUNT = 24
CLOSE = 2  # levels: the geometry is the same, torch rounds once where the CPU's two passes round twice


class FakeGpu:
    """Decodes by Pillow; refuses the calls' places in ``refused``, and returns garbage of another size in ``wrong``."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.refused: set[int] = set()
        self.wrong: set[int] = set()

    def decode(self, encoded: Sequence[NDArray[np.uint8]]) -> list[torch.Tensor | None]:
        self.calls.append(len(encoded))
        return [self._one(place, data) for place, data in enumerate(encoded)]

    def _one(self, place: int, data: NDArray[np.uint8]) -> torch.Tensor | None:
        if place in self.refused:
            return None
        if place in self.wrong:
            return torch.zeros(3, 3, 3, dtype=torch.uint8)
        with Image.open(io.BytesIO(data.tobytes())) as picture:
            return torch.from_numpy(np.array(picture.convert("RGB")))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """The decoder of all loaders of a test, on a "device" that is the CPU."""
    fake = FakeGpu()
    monkeypatch.setattr("fastio.loader.producer.device_decode.decoder_on", lambda device, threads: fake)
    return fake


def photo(height: int, width: int, seed: int) -> NDArray[np.uint8]:
    """Smooth colours with a little noise, so that JPEG and resampling do not differ by much at any pixel."""
    y, x = np.mgrid[:height, :width]
    planes = [128 + 100 * np.sin(x / 9 + seed + phase) * np.cos(y / 7 + phase) for phase in range(3)]
    return np.stack(planes, 2).clip(0, 255).astype(np.uint8)


def mixed(count: int = COUNT, *, equal: bool = False) -> list[bytes]:
    """Photos of many sizes: every third is a PNG, every fifth is a progressive JPEG."""
    values = []
    for index in range(count):
        size = (40, 48) if equal else (30 + 7 * (index % 5), 90 - 11 * (index % 4))
        pixels = photo(*size, index)
        if index % 3 == 2:
            values.append(encode(pixels))
        else:
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "JPEG", quality=92, progressive=index % 5 == 4)
            values.append(file.getvalue())
    return values


def for_gpu(count: int = COUNT) -> int:
    return sum(index % 3 != 2 and index % 5 != 4 for index in range(count))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 photos of many sizes and kinds, whose label is their index."""
    return write_store(tmp_path_factory.mktemp("decode") / "photos.lmdb", mixed(), np.arange(COUNT))


def damaged(path: Path, at: int) -> Path:
    """As ``mixed``, with a JPEG that was cut off before it was packed, so that its checksum is right."""
    values = mixed(equal=True)
    values[at] = values[at][: len(values[at]) // 2]
    return write_store(path, values, np.arange(COUNT))


def on_gpu(path: Path | FastDataset, **options: Any) -> FastLoader:
    return FastLoader(path, options.pop("batch_size", 7), device="cpu", decode="device", threads=1, **options)


PLANS = pytest.mark.parametrize(
    "transforms",
    [
        [RandomResizedCrop(20), RandomHorizontalFlip()],
        [RandomResizedCrop((9, 33), interpolation="bicubic"), RandomHorizontalFlip(1.0)],
        [Resize((24, 18))],
        [Resize(26), CenterCrop(22)],
        [RandomCrop(28, padding=3, fill=(9, 90, 200)), RandomHorizontalFlip()],
        [CenterCrop(64)],
        [Resize((20, 20)), Grayscale(3)],
        [CenterCrop(18), Grayscale(1)],
        [CenterCrop(24), RandomVerticalFlip(), RandomRotation(40, "bilinear"), RandomHorizontalFlip()],
    ],
)


@PLANS
@pytest.mark.parametrize("layout", ["channels_last", "contiguous"])
def test_as_on_the_cpu(transforms: list[Any], layout: Any, store: Path, gpu: FakeGpu) -> None:
    """Same samples, labels, crops and flips as from the CPU's decoder; only pixels differ, by at most two levels."""
    options: dict[str, Any] = {"transforms": transforms, "layout": layout, "shuffle": "full", "seed": 3}
    with FastLoader(store, 7, **options) as plain, on_gpu(store, **options) as loader:
        for epoch in range(2):
            expected, got = list(plain), list(loader)
            assert [labels.tolist() for _, labels in expected] == [labels.tolist() for _, labels in got]
            for (images, _), (others, _) in zip(expected, got, strict=True):
                assert images.shape == others.shape
                assert others.is_contiguous(
                    memory_format=torch.contiguous_format if layout == "contiguous" else torch.channels_last
                )
                assert (images.int() - others.int()).abs().max() <= CLOSE, epoch
        assert 2 * for_gpu() == loader.stats.decoded_on_device
        assert 2 * COUNT == loader.stats.samples


def test_without_transforms(tmp_path: Path, gpu: FakeGpu) -> None:
    """Pictures of one size need no transforms, and are the same to the bit where the decoders are."""
    path = write_store(tmp_path / "a.h5", mixed(equal=True), np.arange(COUNT))
    with FastLoader(path, 5) as plain, on_gpu(path, batch_size=5) as loader:
        for (images, labels), (others, own) in zip(plain, loader, strict=True):
            assert torch.equal(images, others)
            assert torch.equal(labels, own)


def test_transforms_of_batches_follow(store: Path, gpu: FakeGpu) -> None:
    """What stands behind the first transform of batches is done with the rows that the decoder made."""
    transforms = [Resize((16, 16)), Normalize((0.5,) * 3, (0.25,) * 3)]
    with (
        FastLoader(store, 8, device="cpu", transforms=transforms) as plain,
        on_gpu(store, batch_size=8, transforms=transforms) as loader,
    ):
        for (images, _), (others, _) in zip(plain, loader, strict=True):
            assert torch.float32 == others.dtype
            assert (images - others).abs().max() <= CLOSE / 255 / 0.25 + 1e-6


@pytest.mark.parametrize("what", ["refused", "wrong"])
def test_what_the_decoder_refuses(what: str, store: Path, gpu: FakeGpu) -> None:
    """A picture that the decoder cannot do after all, or of another size than the index says, comes from the CPU."""
    setattr(gpu, what, {0, 2})
    options: dict[str, Any] = {"transforms": [Resize((16, 16))]}
    with FastLoader(store, 8, **options) as plain, on_gpu(store, batch_size=8, **options) as loader:
        for (images, labels), (others, own) in zip(plain, loader, strict=True):
            assert torch.equal(labels, own)
            assert (images.int() - others.int()).abs().max() <= CLOSE
        assert for_gpu() - 2 * 3 == loader.stats.decoded_on_device


def test_nothing_for_the_decoder(tmp_path: Path, gpu: FakeGpu) -> None:
    """A store of PNGs is decoded by the CPU alone, and the decoder is not bothered."""
    path = write_store(tmp_path / "a.tar", [encode(photo(8, 8, seed)) for seed in range(5)], np.arange(5))
    with FastLoader(path, 5) as plain, on_gpu(path, batch_size=5) as loader:
        assert torch.equal(next(iter(plain))[0], next(iter(loader))[0])
        assert 0 == loader.stats.decoded_on_device
    assert [] == gpu.calls


@pytest.mark.parametrize("at", [0, 10, 12])
def test_a_bad_sample_raises(at: int, tmp_path: Path, gpu: FakeGpu) -> None:
    """A JPEG that was cut off is never the decoder's to fill up: it is the SampleError that the CPU raises."""
    path = damaged(tmp_path / "a.lmdb", at)
    messages = []
    for loader in (FastLoader(path, 5), on_gpu(path, batch_size=5)):
        with loader, pytest.raises(SampleError) as caught:
            list(loader)
        messages.append(str(caught.value))

    assert messages[0] == messages[1]


@pytest.mark.parametrize("on_error", ["skip", "zero"])
@pytest.mark.parametrize("at", [0, 10, 12])
def test_a_bad_sample_is_skipped_or_black(on_error: Any, at: int, tmp_path: Path, gpu: FakeGpu) -> None:
    """With "skip" and "zero" the loader gives what the CPU's gives, and names the sample."""
    path = damaged(tmp_path / "a.lmdb", at)
    with FastLoader(path, 5, on_error=on_error) as plain, on_gpu(path, batch_size=5, on_error=on_error) as loader:
        for (images, labels), (others, own) in zip(plain, loader, strict=True):
            assert torch.equal(labels, own)
            assert torch.equal(images, others)
        assert [at] == [error.index for error in loader.skipped]


@pytest.mark.parametrize("on_error", ["skip", "zero", "raise"])
def test_pictures_that_a_transform_refuses(on_error: Any, store: Path, gpu: FakeGpu) -> None:
    """They are bad samples, as on the CPU, in the same words, whoever would have decoded them."""
    options: dict[str, Any] = {"transforms": [RandomCrop(32)], "on_error": on_error}
    got: list[tuple[list[Any], list[str]]] = []
    for loader in (FastLoader(store, 7, **options), on_gpu(store, **options)):
        batches = []
        with loader:
            try:
                batches += loader
            except SampleError as exc:
                assert on_error == "raise"
                got.append((batches, [str(exc)]))
                continue
            got.append((batches, [str(error) for error in loader.skipped]))
    (plain, expected), (others, errors) = got
    assert expected == errors
    assert len(expected) == (1 if on_error == "raise" else len(range(0, COUNT, 5)))
    for (images, labels), (pictures, own) in zip(plain, others, strict=True):
        assert torch.equal(labels, own)
        assert (images.int() - pictures.int()).abs().max() <= CLOSE


def test_a_batch_of_bad_samples(tmp_path: Path, gpu: FakeGpu) -> None:
    """A batch without any good sample is left out with "skip"."""
    good = encode(photo(8, 8, 0), "JPEG")
    path = write_store(tmp_path / "a.h5", [good, good, good[:300], good[:300], good], np.arange(5))
    with on_gpu(path, batch_size=2, on_error="skip") as loader:
        assert [[0, 1], [4]] == [labels.tolist() for _, labels in loader]


def test_a_wrong_checksum(tmp_path: Path, gpu: FakeGpu) -> None:
    """A byte that changed on the disk is a SampleError, though the decoder would make a picture of it."""
    path = write_store(tmp_path / "a.tar", mixed(equal=True), np.arange(COUNT))
    content = bytearray(path.read_bytes())
    first = content.index(b"\xff\xda") + 40
    content[first] ^= 1
    path.write_bytes(content)
    with on_gpu(path) as loader, pytest.raises(SampleError, match="checksum"):
        list(loader)


@pytest.mark.parametrize("read", ["map", "pread"])
def test_resume(read: Any, store: Path, gpu: FakeGpu) -> None:
    """A state taken in the middle of an epoch goes on with the next batch, also in a loader that decodes on the CPU."""
    options: dict[str, Any] = {"shuffle": "full", "transforms": [RandomResizedCrop(12)]}
    with on_gpu(FastDataset(store, read=read), **options) as loader:
        whole = list(loader)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        rest = list(iterator)
    with on_gpu(store, **options) as loader, FastLoader(store, 7, **options) as plain:
        for other in (loader, plain):
            other.load_state_dict(state)
            for (images, labels), (others, own) in zip(rest, other, strict=True):
                assert torch.equal(labels, own)
                assert (images.int() - others.int()).abs().max() <= CLOSE
    assert 4 == len(whole)


def test_ranks(store: Path, gpu: FakeGpu) -> None:
    """Two ranks together have each sample once, in the batches of loaders that decode on the CPU."""
    seen = []
    for rank in range(2):
        options: dict[str, Any] = {"rank": rank, "world_size": 2, "transforms": [Resize((8, 8))], "shuffle": "full"}
        with FastLoader(store, 4, **options) as plain, on_gpu(store, batch_size=4, **options) as loader:
            labels = [labels.tolist() for _, labels in loader]
            assert [own.tolist() for _, own in plain] == labels
            seen += [label for batch in labels for label in batch]
    assert list(range(COUNT)) == sorted(seen)


def test_a_late_device(store: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches stay whole on a device that copies and trains as late as it may."""
    lane = SlowLane()
    monkeypatch.setattr("fastio.loader.wiring.lane_to", lambda device: lane)
    expected = [images for images, _ in FastLoader(store, 4, transforms=[Resize((8, 8))])]
    got: list[torch.Tensor] = []
    with on_gpu(store, batch_size=4, transforms=[Resize((8, 8))]) as loader:
        for batch in loader:
            lane.train(batch, lambda batch: got.append(batch[0]))
            del batch
    lane.consumer.finish()

    assert all((one.int() - other.int()).abs().max() <= CLOSE for one, other in zip(expected, got, strict=True))


def test_target_transform_and_no_labels(tmp_path: Path, store: Path, gpu: FakeGpu) -> None:
    """Labels go through the dataset's target_transform; a store without labels gives the pictures alone."""
    with on_gpu(FastDataset(store, target_transform=lambda label: -label), transforms=[Resize((8, 8))]) as loader:
        assert [0, -1, -2, -3, -4, -5, -6] == next(iter(loader))[1].tolist()
    path = write_store(tmp_path / "a.h5", mixed(4, equal=True))
    with on_gpu(path, batch_size=4) as loader:
        assert (4, 3, 40, 48) == next(iter(loader)).shape


def test_large_batches_are_decoded_in_parts(store: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded pictures and canvases are bounded, whatever the batch, and batches the same."""
    options: dict[str, Any] = {"transforms": [RandomResizedCrop(16)]}
    with on_gpu(store, batch_size=COUNT, **options) as loader:
        expected = next(iter(loader))
    assert 1 == len(gpu.calls)
    monkeypatch.setattr("fastio.loader.producer.device_decode._MOST_BYTES", 20_000)
    monkeypatch.setattr("fastio.transforms.batch.geometry._MOST_PIXELS", 3_000)
    with on_gpu(store, batch_size=COUNT, **options) as loader:
        got = next(iter(loader))

    assert len(gpu.calls) > 3
    assert torch.equal(expected[0], got[0])
    assert torch.equal(expected[1], got[1])


def test_a_forked_child(store: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child, which has neither the GPU nor the threads, is told so instead of waiting for ever."""
    with on_gpu(store, transforms=[Resize((8, 8))]) as loader:
        inherited = iter(loader)
        next(inherited)
        with monkeypatch.context() as child:
            child.setattr(PerProcess, "_process", staticmethod(lambda: -1))
            for iterator in (inherited, iter(loader)):
                with pytest.raises(RuntimeError, match="forked child"):
                    next(iterator)
        assert 4 == len(list(loader))


def test_what_cannot_be(store: Path, gpu: FakeGpu, tmp_path: Path) -> None:
    """Options that decode="device" cannot fulfil are one line when the loader is built."""
    with pytest.raises(ValueError, match="decode='gpu': expected one of 'cpu', 'device'"):
        FastLoader(store, 4, decode="gpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pass device='cuda'"):
        FastLoader(store, 4, decode="device")
    with pytest.raises(ValueError, match="drop one of the two"):
        on_gpu(store, cache="ram")
    with pytest.raises(ValueError, match="quality"):
        on_gpu(store, quality="fast", transforms=[Resize((8, 8))])
    with pytest.raises(SchemaError, match="must come after resampling"):
        on_gpu(store, transforms=[Grayscale(1), Resize((8, 8))])
    with pytest.raises(SchemaError, match="mode='L'"):
        on_gpu(FastDataset(store, mode="L"))
    with pytest.raises(ValueError, match="without a transform"):
        on_gpu(FastDataset(store, transform=np.array))


def test_without_a_gpu(store: Path) -> None:
    """Without a GPU the one error says what to pass."""
    with pytest.raises(ValueError, match=r"decode='device' needs a GPU.*pass device='cuda'"):
        on_gpu(store)
