"""Decodes JPEGs on a GPU with nvImageCodec. All knowledge of that package is in this file."""

from __future__ import annotations

import importlib
import io
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.dlpack import from_dlpack

__all__ = ["DeviceDecoder", "NvImageCodec", "decoder_on"]


class DeviceDecoder(Protocol):
    """Decodes JPEGs into the memory of a device."""

    def decode(self, encoded: Sequence[NDArray[np.uint8]]) -> list[torch.Tensor | None]:
        """
        Return RGB pictures (H, W, 3) uint8 on the device, valid once its current stream gets there.

        None for each picture that this decoder cannot decode. EXIF's orientation is ignored, as on the CPU.
        """
        ...


class NvImageCodec:
    """
    nvJPEG through nvImageCodec's Python package, on the chip's JPEG engines if it has any.

    The package's own CPU decoders are not used: what nvJPEG cannot decode is decoded by fastio, and counted.
    """

    def __init__(self, device: torch.device, *, threads: int) -> None:
        self._module = _module()
        self._device = device
        kinds = self._module.BackendKind
        self._decoder = self._module.Decoder(
            device_id=device.index,
            max_num_cpu_threads=threads,
            backends=[self._module.Backend(kind) for kind in (kinds.HW_GPU_ONLY, kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU)],
            options=":fancy_upsampling=1",  # as in libjpeg-turbo
        )
        self._params = self._module.DecodeParams(
            apply_exif_orientation=False, color_spec=self._module.ColorSpec.SRGB, allow_any_depth=False
        )
        self._reading: deque[tuple[torch.cuda.Event, object]] = deque()  # bytes that the device may still be reading
        self._lock = threading.Lock()  # two threads may use two iterators of a loader
        self._check_works()

    def _check_works(self) -> None:
        """Raise ImportError if the package is installed, but not the library that it loads."""
        file = io.BytesIO()
        Image.new("RGB", (64, 64)).save(file, "JPEG")
        if self.decode([np.frombuffer(file.getvalue(), np.uint8)])[0] is None:
            raise ImportError(
                f"decode='device': nvImageCodec {self._module.__version__} cannot decode a JPEG on {self._device}: "
                f"install nvJPEG ({_install()}), and see its messages above"
            )

    def decode(self, encoded: Sequence[NDArray[np.uint8]]) -> list[torch.Tensor | None]:
        """As DeviceDecoder.decode."""
        places, streams = [], []
        for place, data in enumerate(encoded):
            try:
                streams.append(self._module.CodeStream(data))
            except RuntimeError:  # a header that nvImageCodec cannot read: the CPU reports what is wrong
                continue
            places.append(place)
        pictures: list[torch.Tensor | None] = [None] * len(encoded)
        if not streams:
            return pictures
        stream = torch.cuda.current_stream(self._device)
        with self._lock, torch.cuda.device(self._device):  # a stream must belong to the current device
            images = self._decoder.decode(streams, params=self._params, cuda_stream=stream.cuda_stream)
            self._keep(stream, (encoded, streams))
        if len(images) != len(streams):
            raise RuntimeError(
                f"nvImageCodec {self._module.__version__} returned {len(images)} pictures for {len(streams)}, so it "
                f"is unknown which is which; {_install()}"
            )
        for place, image in zip(places, images, strict=True):
            pictures[place] = None if image is None else from_dlpack(image)
        return pictures

    def _keep(self, stream: torch.cuda.Stream, what: object) -> None:
        while self._reading and self._reading[0][0].query():  # type: ignore[no-untyped-call] # torch's
            self._reading.popleft()
        event = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch's
        event.record(stream)
        self._reading.append((event, what))


def decoder_on(device: torch.device, *, threads: int) -> DeviceDecoder:
    """Return the decoder of a device. Raises an error of one line that says what to do if there is none."""
    if device.type != "cuda":
        raise ValueError(f"decode='device' needs a GPU, but device={str(device)!r} is not one: pass device='cuda'")
    return NvImageCodec(device, threads=threads)


def _module() -> Any:
    try:
        return importlib.import_module("nvidia.nvimgcodec")
    except ImportError as exc:
        raise ImportError(
            f"decode='device' needs nvImageCodec, which cannot be imported ({exc}): {_install()}"
        ) from exc


def _install() -> str:
    """Return how to install the package for torch's CUDA."""
    extra = "gpu-decode" if (torch.version.cuda or "12").startswith("12") else "gpu-decode-cu13"
    return f"pip install 'fastio[{extra}]'"
