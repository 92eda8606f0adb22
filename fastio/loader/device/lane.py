"""Lanes: how tensors get to a device. All knowledge of streams and events is in this file."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from fastio.lazy import torch

__all__ = ["CudaLane", "HostLane", "Lane", "Mark", "dense_parts", "device_of", "lane_to"]


class Mark(Protocol):
    """A point in the work of a stream."""

    def wait(self) -> None:
        """Block the calling thread until the stream has passed it."""
        ...

    def is_passed(self) -> bool:
        """Return whether it has passed, without waiting."""
        ...


class Lane(Protocol):
    """
    A side stream to one device. Copies, and whatever runs inside ``side()``, happen on it later, in order.

    The consumer's stream is the current one of the calling thread. Only ``Mark.wait`` blocks.
    """

    device: torch.device
    is_immediate: bool  # copies are finished when ``copy`` returns: there is nothing to be ahead of

    def is_ready(self, tensor: torch.Tensor) -> bool:
        """Return whether ``copy`` takes the tensor directly: pinned, or already on the device."""
        ...

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """Return host memory that the device can read directly, uint8."""
        ...

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """
        Start copying; the result has its values once the side stream gets there.

        Do not change the source until a mark set after the copy is passed. A tensor that is not ready blocks until it
        is copied.
        """
        ...

    def side(self) -> AbstractContextManager[object]:
        """Run what follows on the side stream."""
        ...

    def mark(self) -> Mark:
        """Return a mark after everything submitted to the side stream so far."""
        ...

    def consumer_mark(self) -> Mark:
        """Return a mark after everything submitted to the consumer's stream so far."""
        ...

    def hand_over(self, batch: Iterable[torch.Tensor], arrived: Mark) -> None:
        """Let the consumer's stream wait for ``arrived``, and keep the tensors' memory until it has used them."""
        ...


class _Passed:
    """A mark on a device that does everything immediately."""

    def wait(self) -> None:
        """As Mark.wait."""

    def is_passed(self) -> bool:
        """As Mark.is_passed."""
        return True


class HostLane:
    """The lane to the CPU: tensors are already there."""

    is_immediate = True

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def is_ready(self, tensor: torch.Tensor) -> bool:
        """As Lane.is_ready."""
        return tensor.device.type == "cpu"

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """As Lane.pinned; any memory works."""
        return torch.empty(size_bytes, dtype=torch.uint8, device="cpu")

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """As Lane.copy."""
        return tensor.to(self.device)

    def side(self) -> AbstractContextManager[object]:
        """As Lane.side."""
        return nullcontext()

    def mark(self) -> Mark:
        """As Lane.mark."""
        return _Passed()

    def consumer_mark(self) -> Mark:
        """As Lane.consumer_mark."""
        return _Passed()

    def hand_over(self, batch: Iterable[torch.Tensor], arrived: Mark) -> None:
        """As Lane.hand_over."""


class _CudaMark:
    """An event during which a waiting thread sleeps: the CPU belongs to the decoders."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call] # torch's
        self.event.record(stream)

    def wait(self) -> None:
        """As Mark.wait."""
        self.event.synchronize()

    def is_passed(self) -> bool:
        """As Mark.is_passed."""
        return bool(self.event.query())  # type: ignore[no-untyped-call] # torch's


class CudaLane:
    """The lane to a GPU: a CUDA stream of its own that does not wait for the default stream."""

    is_immediate = False

    def __init__(self, device: torch.device) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call] # torch's

    def is_ready(self, tensor: torch.Tensor) -> bool:
        """As Lane.is_ready."""
        return self._is_here(tensor) or (tensor.layout == torch.strided and tensor.is_pinned())

    def _is_here(self, tensor: torch.Tensor) -> bool:
        return tensor.device == self.device

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """As Lane.pinned."""
        return torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """As Lane.copy; strides are kept, so that channels_last stays channels_last."""
        if self._is_here(tensor):  # made on the current stream: the consumer's, or the side stream itself
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
            self._note_use(tensor, self._stream)
            return tensor
        with self.side():
            return self._sent(tensor)

    def _sent(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor's copy, made by the current stream."""
        return tensor.to(self.device, non_blocking=True)

    def _note_use(self, tensor: torch.Tensor, stream: torch.cuda.Stream) -> None:
        """Tell the caching allocator which stream reads: it reuses the memory only after that."""
        for part in dense_parts(tensor):
            part.record_stream(stream)

    def side(self) -> AbstractContextManager[object]:
        """As Lane.side."""
        return torch.cuda.stream(self._stream)

    def mark(self) -> Mark:
        """As Lane.mark."""
        return _CudaMark(self._stream)

    def consumer_mark(self) -> Mark:
        """As Lane.consumer_mark."""
        return _CudaMark(torch.cuda.current_stream(self.device))

    def hand_over(self, batch: Iterable[torch.Tensor], arrived: Mark) -> None:
        """As Lane.hand_over."""
        assert isinstance(arrived, _CudaMark)
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(arrived.event)
        for tensor in batch:
            if self._is_here(tensor):
                self._note_use(tensor, stream)


def dense_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors that hold a tensor's values, because ``record_stream`` knows no sparse layout."""
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)


def device_of(device: torch.device | str | int) -> torch.device:
    """Return the device of this name, whether it is there or not. Raises ValueError if no device has such a name."""
    try:
        return torch.device(device)
    except RuntimeError as exc:
        raise ValueError(f"device={device!r}: expected 'cpu', 'cuda' or 'cuda:N'") from exc


def lane_to(device: torch.device | str | int) -> Lane:
    """Return the lane to a device. Raises ValueError that says what to do if there is none."""
    chosen = device_of(device)
    if chosen.type == "cpu":
        return HostLane()
    if chosen.type != "cuda":
        raise ValueError(f"device={device!r}: expected 'cpu', 'cuda' or 'cuda:N'")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (chosen.index or 0) >= count:
        raise ValueError(
            f"device={device!r}: torch {torch.version.__version__} sees {count} CUDA devices here: pass device='cpu', "
            "or check nvidia-smi, CUDA_VISIBLE_DEVICES and whether this torch was built with CUDA"
        )
    return CudaLane(chosen)
