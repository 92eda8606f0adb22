"""JPEGs decoded on a GPU, by nvImageCodec. All that is known of that package is behind this seam."""

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
        RGB pictures (H, W, 3) uint8 on the device, which are there when its current stream gets there.

        None for each that this decoder cannot do. EXIF's orientation is not looked at, as on the CPU.
        """
        ...


class NvImageCodec:
    """
    nvJPEG by way of nvImageCodec's Python package, on the chip's JPEG engines where it has some.

    Its own decoders for the CPU are left out: what nvJPEG cannot do is ours, and counted.
    """

    def __init__(self, device: torch.device, *, threads: int) -> None:
        self._module = _module()
        self._device = device
        kinds = self._module.BackendKind
        self._decoder = self._module.Decoder(
            device_id=device.index,
            max_num_cpu_threads=threads,
            backends=[self._module.Backend(kind) for kind in (kinds.HW_GPU_ONLY, kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU)],
            options=":fancy_upsampling=1",  # as libjpeg-turbo does it
        )
        self._params = self._module.DecodeParams(
            apply_exif_orientation=False, color_spec=self._module.ColorSpec.SRGB, allow_any_depth=False
        )
        self._reading: deque[tuple[torch.cuda.Event, object]] = deque()  # bytes that the device may still read
        self._lock = threading.Lock()  # two iterators of a loader may be asked by two threads
        self._check_works()

    def _check_works(self) -> None:
        """ImportError where the package is there, but not the library that it loads."""
        file = io.BytesIO()
        Image.new("RGB", (64, 64)).save(file, "JPEG")
        if self.decode([np.frombuffer(file.getvalue(), np.uint8)])[0] is None:
            raise ImportError(
                f"decode='device': nvImageCodec {self._module.__version__} cannot decode a JPEG on {self._device}; "
                f"install nvJPEG ({_install()}) and look at its messages above"
            )

    def decode(self, encoded: Sequence[NDArray[np.uint8]]) -> list[torch.Tensor | None]:
        """As DeviceDecoder.decode."""
        places, streams = [], []
        for place, data in enumerate(encoded):
            try:
                streams.append(self._module.CodeStream(data))
            except RuntimeError:  # a header that nvImageCodec cannot read: the CPU says what it is
                continue
            places.append(place)
        pictures: list[torch.Tensor | None] = [None] * len(encoded)
        if not streams:
            return pictures
        stream = torch.cuda.current_stream(self._device)
        with self._lock, torch.cuda.device(self._device):  # a stream of another than the current device is none
            images = self._decoder.decode(streams, params=self._params, cuda_stream=stream.cuda_stream)
            self._keep(stream, (encoded, streams))
        if len(images) != len(streams):
            raise RuntimeError(
                f"nvImageCodec {self._module.__version__} returned {len(images)} pictures for {len(streams)}, "
                f"and nobody knows which is which; {_install()}"
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
    """The decoder of a device; one line that says what to do where there is none."""
    if device.type != "cuda":
        raise ValueError(f"decode='device' needs a GPU, and device={str(device)!r} is none; pass device='cuda'")
    return NvImageCodec(device, threads=threads)


def _module() -> Any:
    try:
        return importlib.import_module("nvidia.nvimgcodec")
    except ImportError as exc:
        raise ImportError(
            f"decode='device' needs nvImageCodec, which cannot be imported ({exc}): {_install()}"
        ) from exc


def _install() -> str:
    """How to get the package for torch's CUDA."""
    extra = "gpu-decode" if (torch.version.cuda or "12").startswith("12") else "gpu-decode-cu13"
    return f"pip install 'fastio[{extra}]'"
