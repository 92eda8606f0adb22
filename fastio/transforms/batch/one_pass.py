"""Crop, flip, normalise, dtype and memory format in one pass: by Triton on a GPU, by a native table on the CPU."""

from __future__ import annotations

from functools import cache, cached_property, lru_cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.lazy import is_tensor, torch
from fastio.machine import available_cpus
from fastio.transforms.batch.finish import Finish
from fastio.transforms.batch.geometry import RenderTarget, gather
from fastio.types.bfloat16 import rounded

__all__ = [
    "HostPass",
    "one_pass",
    "plain_pass",
]


_OLDEST_TRITON: Final = (3, 4)  # that the kernels are tested with; torch for CUDA includes it since 2.8


def one_pass(images: Any, finish: Finish, rows: torch.Tensor | None = None, target: RenderTarget | None = None) -> Any:
    """
    Apply ``finish`` to pictures (B, C, H, W), or to what plans ``rows`` (B, 13) that do not resample make of them.

    With plans, the result is channels_last. Triton and torch may differ in the last rounding, where one of them
    multiplies and adds in a single step.
    """
    finish.check(images.shape[1])
    if is_tensor(images) and images.is_cuda and images.shape[1] <= 4 and images.numel() and _has_triton():
        from fastio.transforms.batch.triton_pass import triton_pass

        return triton_pass(images, finish, rows, target)
    return plain_pass(images, finish, rows, target)


def plain_pass(
    images: Any, finish: Finish, rows: torch.Tensor | None = None, target: RenderTarget | None = None
) -> Any:
    """``one_pass`` with torch's operations, or for arrays and without plans, with NumPy's."""
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
    Applies a Finish to uint8 pictures on the CPU, tensors or arrays, into recycled memory.

    The table has what ``Finish.run`` makes of each of 256 bytes in each channel, so results equal that to the bit, and
    those of tensors those of arrays.
    Threads are as many as torch uses for its own operations; without torch, as many as there are CPUs for this process.
    """

    def __init__(self) -> None:
        self._ring = _native.BufferRing(_FREE_BUFFERS)
        self._pool: _native.ThreadPool | None = None

    def __reduce__(self) -> tuple[type[HostPass], tuple[()]]:
        return HostPass, ()  # a copy in another process has memory and threads of its own

    @staticmethod
    def takes(images: Any, finish: Finish) -> bool:
        """Whether these pictures (B, C, H, W) lie in memory so that a table can be applied row by row."""
        if is_tensor(images):
            if images.device.type != "cpu" or images.dtype != torch.uint8 or finish.dtype == torch.uint8:
                return False
            images = images.detach().numpy()
        kept = images.flags.c_contiguous and not finish.channels_last
        is_last = images.transpose(0, 2, 3, 1).flags.c_contiguous
        return bool(images.dtype == np.uint8 and finish.dtype != np.uint8 and images.size > 0 and (kept or is_last))

    def run(self, images: Any, finish: Finish) -> Any:
        """
        Return ``finish.run(images)``: (B, C, H, W) of the dtype and memory format that ``finish`` names.

        Raises SchemaError if the numbers of ``finish`` are for a different count of channels.
        """
        count, channels, height, width = images.shape
        finish.check(channels)
        pixels = images.detach().numpy() if is_tensor(images) else images
        last = pixels.transpose(0, 2, 3, 1)
        planar = not last.flags.c_contiguous
        tables, values = _tables(finish, channels), channels * height * width
        memory = self._ring.acquire(count * values * finish.dtype.itemsize)
        done = memory.view(tables.dtype).reshape(count, values)
        order = pixels if planar else last
        threads = self._threads(is_torch=is_tensor(images))
        _native.look_up(order.reshape(count, values), tables, done, threads, planar=planar).wait()
        made: Any = (
            memory.view(finish.dtype)
            if isinstance(finish.dtype, np.dtype)
            else torch.from_numpy(memory).view(finish.dtype)
        )
        made = made.reshape(order.shape)
        if planar:
            return made
        return made.transpose(0, 3, 1, 2) if isinstance(made, np.ndarray) else made.permute(0, 3, 1, 2)

    @cached_property
    def _cpus(self) -> int:
        return available_cpus()  # it reads files: not for each batch

    def _threads(self, *, is_torch: bool) -> _native.ThreadPool | None:
        threads = torch.get_num_threads() if is_torch else self._cpus
        if threads < 2:
            return None
        if self._pool is None or self._pool.threads != threads:
            self._pool = _native.ThreadPool(threads)
        return self._pool


@lru_cache(maxsize=8)
def _tables(finish: Finish, channels: int) -> NDArray[Any]:
    """What ``finish`` makes of each byte in each channel, (C, 256), as integers: NumPy has no bfloat16."""
    bytes_ = np.tile(np.arange(_VALUES, dtype=np.uint8), (1, channels, 1, 1))
    values = np.ascontiguousarray(finish.float32_of(bytes_)).reshape(channels, _VALUES)
    name = str(finish.dtype).removeprefix("torch.")
    if name == "bfloat16":
        return rounded(values).view(np.int16)
    with np.errstate(over="ignore"):
        made = values.astype(name)
    return made.view(f"i{made.itemsize}")
