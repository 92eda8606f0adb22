"""Crop, flip, normalise, dtype and memory format in one pass: by Triton on a GPU, by a native table on the CPU."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, Final

from numpy.typing import NDArray

from fastio import _native
from fastio.lazy import torch
from fastio.transforms.batch.finish import Finish
from fastio.transforms.batch.geometry import RenderTarget, gather

__all__ = [
    "HostPass",
    "one_pass",
    "plain_pass",
]


_OLDEST_TRITON: Final = (3, 4)  # that the kernels are tested with; torch for CUDA includes it since 2.8


def one_pass(
    images: torch.Tensor, finish: Finish, rows: torch.Tensor | None = None, target: RenderTarget | None = None
) -> torch.Tensor:
    """
    Apply ``finish`` to pictures (B, C, H, W), or to what plans ``rows`` (B, 13) that do not resample make of them.

    With plans, the result is channels_last. Triton and torch may differ in the last rounding, where one of them
    multiplies and adds in a single step.
    """
    finish.check(images.shape[1])
    if images.is_cuda and images.shape[1] <= 4 and images.numel() and _has_triton():
        from fastio.transforms.batch.triton_pass import triton_pass

        return triton_pass(images, finish, rows, target)
    return plain_pass(images, finish, rows, target)


def plain_pass(
    images: torch.Tensor, finish: Finish, rows: torch.Tensor | None = None, target: RenderTarget | None = None
) -> torch.Tensor:
    """``one_pass`` with torch's operations."""
    if rows is not None:
        assert target is not None
        images = gather(images, rows, target)
    return finish.run(images)


@cache
def _has_triton() -> bool:
    """Return whether a Triton that the kernels run with is installed; torch for CUDA includes one on most platforms."""
    if find_spec("triton") is None:
        return False
    import triton

    major, minor = triton.__version__.split(".")[:2]
    return (int(major), int(minor)) >= _OLDEST_TRITON


# Normalise and convert on the CPU: each byte of a picture is replaced by its value in a table, natively.

_VALUES = 256
_FREE_BUFFERS = 2  # kept while the loop works with one


class HostPass:
    """
    Applies a Finish to uint8 pictures on the CPU, into recycled memory.

    The table has what torch itself computes for each of 256 bytes in each channel, so results equal ``Finish.run`` to
    the bit. Threads are as many as torch uses for its own operations.
    """

    def __init__(self) -> None:
        self._ring = _native.BufferRing(_FREE_BUFFERS)
        self._pool: _native.ThreadPool | None = None

    def __reduce__(self) -> tuple[type[HostPass], tuple[()]]:
        return HostPass, ()  # a copy in another process has memory and threads of its own

    @staticmethod
    def takes(images: torch.Tensor, finish: Finish) -> bool:
        """Whether these pictures (B, C, H, W) lie in memory so that a table can be applied row by row."""
        kept = images.is_contiguous() and not finish.channels_last
        return (
            images.device.type == "cpu"
            and images.dtype == torch.uint8
            and finish.dtype != torch.uint8
            and images.numel() > 0
            and (kept or images.is_contiguous(memory_format=torch.channels_last))
        )

    def run(self, images: torch.Tensor, finish: Finish) -> torch.Tensor:
        """
        Return ``finish.run(images)``: (B, C, H, W) of the dtype and memory format that ``finish`` names.

        Raises SchemaError if the numbers of ``finish`` are for a different count of channels.
        """
        count, channels, height, width = images.shape
        finish.check(channels)
        planar = not images.is_contiguous(memory_format=torch.channels_last)
        tables = _tables(finish, channels)
        values = channels * height * width
        memory = torch.from_numpy(self._ring.acquire(count * values * finish.dtype.itemsize))
        done = memory.view(finish.dtype).view(count, values)
        order = images if planar else images.permute(0, 2, 3, 1)
        pixels = order.reshape(count, values).numpy()
        _native.look_up(pixels, _as_integers(tables), _as_integers(done), self._threads(), planar=planar).wait()
        return done.view(images.shape) if planar else done.view(order.shape).permute(0, 3, 1, 2)

    def _threads(self) -> _native.ThreadPool | None:
        threads = torch.get_num_threads()
        if threads < 2:
            return None
        if self._pool is None or self._pool.threads != threads:
            self._pool = _native.ThreadPool(threads)
        return self._pool


@lru_cache(maxsize=8)
def _tables(finish: Finish, channels: int) -> torch.Tensor:
    """What ``finish`` makes of each byte in each channel, (C, 256)."""
    bytes_ = torch.arange(_VALUES, dtype=torch.uint8).reshape(1, 1, 1, _VALUES).expand(1, channels, 1, _VALUES)
    return finish.run(bytes_.contiguous()).contiguous().reshape(channels, _VALUES)


def _as_integers(values: torch.Tensor) -> NDArray[Any]:
    """The same memory as integers of the same size: NumPy has no bfloat16."""
    return values.view(torch.int16 if values.dtype.itemsize == 2 else torch.int32).numpy()
