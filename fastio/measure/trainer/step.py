"""Workload and TrainStep: a network, its task, how it is trained, and one step of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import distributed

from fastio.errors import FastioError
from fastio.measure.loop.batch import move
from fastio.transforms.batch.batch_transform import BatchTransform

__all__ = [
    "Amp",
    "StepOptions",
    "Task",
    "TrainStep",
    "Workload",
]


class Task(Protocol):
    """
    What a network's batch is, and what it learns from it.

    ``shape`` is that of one sample, ``outputs`` the number of classes or of token ids.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def outputs(self) -> int: ...

    def prepared(self, batch: Any, layout: torch.memory_format) -> Any:
        """Return a loader's batch as ``loss`` takes it; unchanged if it already is."""
        ...

    def loss(self, network: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> torch.Tensor:
        """Return the mean loss of a batch, a tensor without dimensions."""
        ...

    def random_batch(self, batch_size: int, generator: torch.Generator) -> Any:
        """Return random numbers in the form of a loader's batch."""
        ...

    def transforms(self, dtype: torch.dtype, *, channels_last: bool) -> Sequence[BatchTransform]:
        """Return what ``prepared`` does as transforms, for code that brings batches to the device ahead of the step."""
        ...

    def check(self, batch: Any, where: str) -> None:
        """Raise FastioError, naming the source ``where``, if nothing can be learned from such batches."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """
    A network and how it is trained.

    ``build`` makes it, for so many outputs; ``optimizer`` takes its parameters; ``batch_size`` is the usual one.
    """

    name: str
    task: Task
    batch_size: int
    build: Callable[[int], torch.nn.Module]
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]


# TrainStep: one training step of a workload, step(batch), as `bench` takes it.

Amp = Literal["off", "fp16", "bf16"]

_DTYPES = {"off": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """
    How a step computes.

    ``amp`` runs the step under autocast, with a GradScaler for "fp16"; "off" is float32. ``tf32`` lets convolutions
    and matrix products of float32 use a GPU's Tensor cores, with 10 bits of mantissa. ``compiled`` uses
    torch.compile. ``seed`` is for the network's initial weights.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    amp: Amp = "off"
    tf32: bool = False
    channels_last: bool = False
    compiled: bool = False
    seed: int = 0

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the network computes."""
        return _DTYPES[self.amp]

    @property
    def layout(self) -> torch.memory_format:
        """The memory format of weights and pictures."""
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def autocast(self) -> torch.autocast:
        """Return the context in which the network runs."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.amp != "off")


class TrainStep:
    """
    ``loss = step(batch)``: forward, backward, optimizer. ``loss`` is a tensor; nothing waits for the device.

    A batch that is not on the device of ``options`` is copied there. The first batch is checked: FastioError, naming
    its source ``where``, is raised if the network cannot learn from it. In a process group, gradients are averaged
    over all ranks (DistributedDataParallel). TF32 is torch's switch for the whole process: the latest TrainStep on
    CUDA sets it.
    """

    def __init__(self, workload: Workload, options: StepOptions, *, where: str = "the batch") -> None:
        self.workload = workload
        self.options = options
        self.where = where
        if options.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.tf32
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            network = workload.build(workload.task.outputs)
        self.network = network.to(options.device, memory_format=options.layout)  # type: ignore[call-overload] # torch takes both
        self.optimizer = workload.optimizer(self.network.parameters())
        self._run = _wrapped(self.network, options)
        self._scaler = _scaler(options)
        self._is_first = True

    @property
    def parameters(self) -> int:
        """The number of learned parameters."""
        return sum(part.numel() for part in self.network.parameters())

    def __call__(self, batch: Any) -> torch.Tensor:
        """Train on the batch; return its loss before the update."""
        if self._is_first:
            self.workload.task.check(batch, self.where)
            self._is_first = False
        options = self.options
        batch = self.prepared(batch)
        with options.autocast():
            loss = self._loss(batch)
        if self._scaler is None:
            loss.backward()  # type: ignore[no-untyped-call] # torch's
            self.optimizer.step()
        else:
            self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call] # torch's
            self._scaler.step(self.optimizer)
            self._scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def prepared(self, batch: Any) -> Any:
        """Return the batch on the device, in the form that the network takes; unchanged if it already is."""
        on_device = move(batch, self.options.device, non_blocking=True)
        return self.workload.task.prepared(on_device, self.options.layout)

    def _loss(self, batch: Any) -> torch.Tensor:
        if not self.options.compiled:
            return self.workload.task.loss(self._run, batch)
        # The import takes a second, and the class has no public name.
        from torch._dynamo.exc import TorchDynamoException

        try:
            return self.workload.task.loss(self._run, batch)
        except TorchDynamoException as exc:
            reason = str(exc).partition("\n")[0]
            raise FastioError(
                f"--compile: torch.compile failed ({reason}); it needs a C++ compiler, and on a GPU Triton"
            ) from exc


def _wrapped(network: torch.nn.Module, options: StepOptions) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the network as it runs: averaged over ranks, compiled."""
    run: Callable[[torch.Tensor], torch.Tensor] = network
    if distributed.is_available() and distributed.is_initialized():
        devices = [options.device] if options.device.type == "cuda" else None
        run = torch.nn.parallel.DistributedDataParallel(network, device_ids=devices)
    return torch.compile(run) if options.compiled else run


def _scaler(options: StepOptions) -> torch.amp.GradScaler | None:
    """Return the scaler that keeps small float16 gradients from becoming 0."""
    return torch.amp.GradScaler(options.device.type) if options.amp == "fp16" else None
