"""The adapter of nvImageCodec, with a package that behaves as 0.9 does: what it is asked, and what it may answer."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from fastio.loader.producer.device_decode import NvImageCodec, decoder_on
from tests.conftest import encode, pictures


class FakePackage:
    """nvidia.nvimgcodec, as far as we use it: headers it cannot read may raise, pictures it cannot decode are None."""

    __version__ = "0.9.0"
    BackendKind = SimpleNamespace(HW_GPU_ONLY="hw", GPU_ONLY="gpu", HYBRID_CPU_GPU="hybrid", CPU_ONLY="cpu")
    ColorSpec = SimpleNamespace(SRGB="srgb")

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}
        self.current = torch.device("cuda", 0)
        self.asked_on = self.current
        self.fails = False
        self.loses = False

    @contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        """As torch.cuda.device."""
        before, self.current = self.current, device
        yield
        self.current = before

    def Backend(self, kind: str) -> str:
        return kind

    def DecodeParams(self, **options: Any) -> dict[str, Any]:
        return options

    def CodeStream(self, data: NDArray[np.uint8]) -> bytes:
        if data[:2].tobytes() != b"\xff\xd8":
            raise RuntimeError("Failed to get image info")
        return data.tobytes()

    def Decoder(self, **options: Any) -> Any:
        self.made = options
        return SimpleNamespace(decode=self._decode)

    def _decode(self, streams: list[bytes], **options: Any) -> list[torch.Tensor | None]:
        self.asked, self.asked_on = options, self.current
        if self.fails:
            return [None] * len(streams)
        decoded = [torch.from_numpy(np.array(Image.open(io.BytesIO(data)))) for data in streams]
        return decoded[1:] if self.loses else decoded


class FakeEvent:
    def record(self, stream: Any) -> None:
        """At once."""

    def query(self) -> bool:
        return True


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    """What is imported as nvidia.nvimgcodec, beside streams and events that need no GPU."""
    fake = FakePackage()
    monkeypatch.setattr("fastio.loader.producer.device_decode._module", lambda: fake)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: SimpleNamespace(cuda_stream=77))
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "device", fake.on)
    return fake


def decoder() -> NvImageCodec:
    return NvImageCodec(torch.device("cuda", 0), threads=3)


def jpegs(count: int) -> list[NDArray[np.uint8]]:
    return [np.frombuffer(encode(pixels, "JPEG"), np.uint8) for pixels in pictures(count)]


def test_pictures_in_their_places(package: FakePackage) -> None:
    """A value whose header the package cannot read is None, and the others stand where they belong."""
    values = jpegs(3)
    values.insert(1, np.zeros(50, np.uint8))
    decoded = decoder().decode(values)

    assert decoded[1] is None
    for place in (0, 2, 3):
        expected = np.array(Image.open(io.BytesIO(values[place].tobytes())))
        picture = decoded[place]
        assert picture is not None
        assert np.array_equal(expected, picture.numpy())


def test_what_it_is_asked(package: FakePackage) -> None:
    """It works on our stream, without the orientation of EXIF, with smooth chroma, and by no decoder of the CPU."""
    decoder().decode(jpegs(1))

    assert 77 == package.asked["cuda_stream"]
    assert package.asked["params"]["apply_exif_orientation"] is False
    assert ["hw", "gpu", "hybrid"] == package.made["backends"]
    assert ":fancy_upsampling=1" == package.made["options"]
    assert (0, 3) == (package.made["device_id"], package.made["max_num_cpu_threads"])


def test_another_device_than_the_current_one(package: FakePackage) -> None:
    """Whatever device is current, the package works where its stream is."""
    other = torch.device("cuda", 1)
    NvImageCodec(other, threads=1)

    assert other == package.asked_on
    assert torch.device("cuda", 0) == package.current


def test_nothing_to_decode(package: FakePackage) -> None:
    """Without any value that it can read the package is not asked."""
    assert [None, None] == decoder().decode([np.zeros(9, np.uint8)] * 2)


def test_a_package_without_nvjpeg(package: FakePackage) -> None:
    """A package that cannot load nvJPEG is found out when the decoder is made, not by an epoch on the CPU."""
    package.fails = True
    with pytest.raises(ImportError, match=r"install nvJPEG.*pip install 'fastio.gpu-decode"):
        decoder()


def test_lost_pictures(package: FakePackage) -> None:
    """Fewer pictures than values, as old versions returned them, are never taken for those of other samples."""
    made = decoder()
    package.loses = True
    with pytest.raises(RuntimeError, match="1 pictures for 2"):
        made.decode(jpegs(2))


def test_no_package() -> None:
    """Without the package one line says what to install."""
    pytest.importorskip("torch")
    try:
        import nvidia.nvimgcodec  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match=r"needs nvImageCodec.*pip install 'fastio\[gpu-decode"):
            decoder_on(torch.device("cuda", 0), threads=1)
    else:
        pytest.skip("the package is there")
