"""What is known about a training, each figure with its unit, and what rules return: evidence, steps, warnings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fastio.measure.loop.verdict import StepShares
from fastio.measure.machine.disk_kind import DiskKind
from fastio.types.metrics import OpensGain

__all__ = [
    "Advice",
    "Caution",
    "DiskFacts",
    "Evidence",
    "Facts",
    "GpuFacts",
    "LoaderFacts",
    "MachineFacts",
    "MakingFacts",
    "ModelFacts",
    "Part",
    "ScriptFacts",
    "StepFacts",
    "TraceFacts",
    "TransformFacts",
    "WaitFacts",
    "merged",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """
    The loop, step by step: means of ``steps`` steps, in seconds.

    ``loading_s`` is the wait for the batch, ``training_s`` the rest of the step. ``epoch_start_s`` is the mean wait
    for the first batch of an epoch of ``steps_per_epoch`` steps. ``io_rate`` and ``train_rate`` are samples/s of
    loading alone and of training alone, which only `fastio bench both` measures.
    """

    steps: int | None = None
    samples_per_step: float | None = None
    loading_s: float | None = None
    training_s: float | None = None
    epoch_start_s: float | None = None
    steps_per_epoch: int | None = None
    io_rate: float | None = None
    train_rate: float | None = None

    @property
    def step_s(self) -> float | None:
        """Loading and training together."""
        if self.loading_s is None or self.training_s is None:
            return None
        return self.loading_s + self.training_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """
    A profiled step: its parts from 0 to 1, as in StepShares, and what ran on the device.

    ``memcpy`` is the part in which the device only copies. ``kernel_s`` is the mean length of a kernel.
    """

    loading: float | None = None
    device: float | None = None
    cpu: float | None = None
    sync: float | None = None
    memcpy: float | None = None
    kernels_per_step: float | None = None
    kernel_s: float | None = None
    tensor_core_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFacts:
    """
    Where in the code a batch waits, and for how many ``seconds``: the innermost line of the dataset's own code.

    ``source`` is the text of that line. ``call`` is the library function that the line waits in, None if it waits
    itself. ``is_reading`` means that it waits for a disk or a network file system.
    """

    file: str
    line: int
    function: str
    call: str | None
    is_reading: bool
    seconds: float
    source: str | None = None

    @property
    def location(self) -> str:
        """The position in words: ``train.py:31 in Photos.__getitem__``."""
        return f"{Path(self.file).name}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformFacts:
    """One step of the dataset's transform: its name, and its CPU seconds per batch, without decoding."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MakingFacts:
    """
    How one batch is made, in a worker or in the loop: means of ``batches`` batches, in seconds.

    ``samples_s`` is the time to get all samples. Of it, ``cpu_s`` is work on a CPU and ``queued_s`` is waiting for a
    CPU; the rest is waiting for something else: ``reading_s`` of it for reads, None if unknown. ``transform_s`` is
    the part of ``cpu_s`` in the dataset's ``transform``, None if it has none that could be timed; ``transforms`` are
    its steps. ``waits`` are the lines that wait longest. ``collate_s`` puts the samples together, without waiting for
    a CPU. ``read_bytes`` came from disks; ``major_faults`` are pages that had to be read. ``busy`` is the share of
    time in which workers made batches.
    """

    batches: int
    samples: float
    samples_s: float
    cpu_s: float
    queued_s: float
    collate_s: float
    transform_s: float | None = None
    read_bytes: float = 0.0
    major_faults: float = 0.0
    busy: float | None = None
    reading_s: float | None = None
    transforms: tuple[TransformFacts, ...] = ()
    waits: tuple[WaitFacts, ...] = ()

    @property
    def batch_s(self) -> float:
        """The whole time for a batch."""
        return self.samples_s + self.collate_s

    @property
    def unqueued_s(self) -> float:
        """The time without waiting for a CPU: that wait shows who else is running, not what a batch costs."""
        return max(self.batch_s - min(self.queued_s, self.samples_s), 0.0)

    def share(self, seconds: float) -> float:
        """Return these seconds as a share of ``unqueued_s``, from 0 to 1."""
        return min(1.0, seconds / self.unqueued_s) if self.unqueued_s > 0 else 0.0

    @property
    def blocked_s(self) -> float:
        """Time neither on a CPU nor in the queue for one."""
        return max(0.0, self.samples_s - self.cpu_s - self.queued_s)

    @property
    def read_wait_s(self) -> float:
        """The part of ``blocked_s`` spent waiting for reads; if unknown, all of it if anything was read."""
        if self.reading_s is not None:
            return min(self.reading_s, self.blocked_s)
        return self.blocked_s if self.read_bytes or self.major_faults else 0.0

    @property
    def other_wait_s(self) -> float:
        """The part of ``blocked_s`` that is not for a disk: sleep, locks, sockets, other processes."""
        return self.blocked_s - self.read_wait_s

    @property
    def decode_s(self) -> float:
        """CPU time for the samples, without their transform."""
        return max(0.0, min(self.cpu_s, self.samples_s) - (self.transform_s or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFacts:
    """
    What lines to paste into the user's script are made of; None if unknown.

    ``loader`` is the variable of the loader. ``dataset``, ``transform`` (the dataset's, which gets Pillow's
    pictures), ``collate_fn``, ``sampler``, ``batch_sampler`` and ``subset`` (the indices of a Subset) are
    expressions, None for torch's default. ``is_part`` means that the dataset is a Subset. ``arguments`` are those of
    a FastLoader, as code.

    ``recipe`` is the dataset's transform as code of ``fastio.transforms``, None unless FastLoader with it gives
    batches of the same type and shape from the same files. ``unknown_steps`` are steps that fastio does not have,
    ``pixel_steps`` those that need a picture's pixels in Python: colours, rotations and whatever is unknown.
    ``packed`` is an expression for the store of a FastDataset, for FastLoader; None if files are not packed yet.

    ``data_kind`` is what the files contain. ``is_flat`` means no class folders; ``labels_path`` is a file of labels
    beside them. ``reads`` is the position of the dataset's ``__getitem__``.
    """

    loader: str | None = None
    dataset: str | None = None
    transform: str | None = None
    collate_fn: str | None = None
    sampler: str | None = None
    batch_sampler: str | None = None
    subset: str | None = None
    is_part: bool = False
    arguments: tuple[tuple[str, str], ...] | None = None
    shuffle: bool = False
    drop_last: bool = False
    recipe: tuple[str, ...] | None = None
    unknown_steps: tuple[str, ...] = ()
    pixel_steps: tuple[str, ...] = ()
    packed: str | None = None
    gives_pairs: bool = False
    data_kind: Literal["pictures", "text"] | None = None
    is_flat: bool = False
    labels_path: str | None = None
    reads: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFacts:
    """
    The loader of the loop and its settings.

    ``own_cpu`` is the share of the waiting in which the loop's thread computed, without queueing for a CPU.
    ``threads`` are native threads of a FastLoader; ``is_tuned`` means that it chose them itself (``threads=0``).
    ``waits`` are lines at which the loop's thread waits in a loader
    that is neither torch's nor fastio's. ``batch_size`` is that setting, None with a sampler of batches.
    ``data_path`` is a file or folder that the dataset names, ``data_disk`` the kind of disk below it, None if
    unknown. ``picture_side`` is the median short side of some pictures of a packed store, in pixels, ``jump_percent``
    how many percent of its pictures' bytes start points would add, None if the loader's crops would not decode faster.
    ``placement`` says in lines where the fields of batches of a FastLoader, or samples of a FastDataset, are made.
    ``opens`` is what files that a FastLoader reads in place cost; None for others. ``unpacked`` are the options of
    ``fastio pack`` that say what files are which a FastDataset reads in place, None for a packed store and for others.
    """

    kind: Literal["DataLoader", "FastLoader", "other"]
    name: str
    dataset: str | None = None
    data_path: str | None = None
    batch_size: int | None = None
    data_disk: DiskKind | None = None
    workers: int | None = None
    threads: int | None = None
    is_tuned: bool | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None
    pin_memory: bool | None = None
    batch_bytes: int | None = None
    own_cpu: float | None = None
    making: MakingFacts | None = None
    script: ScriptFacts | None = None
    waits: tuple[WaitFacts, ...] = ()
    picture_side: float | None = None
    jump_percent: float | None = None
    placement: tuple[str, ...] | None = None
    opens: OpensGain | None = None
    unpacked: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """
    What is trained: the device and dtype of the parameters, and which of the usual optimisations are already in use.
    """

    device: str
    dtype: str
    has_convolutions: bool
    is_channels_last: bool
    is_autocast: bool
    is_compiled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """
    The machine during the run: means, in percent of the whole machine, bytes and bytes per second.

    ``cpus`` are those that this process may use, ``process_cpus`` those that it and its children used.
    ``iowait_percent`` is CPU time in which nothing ran because of pending reads or writes.
    """

    cpus: int | None = None
    cpu_percent: float | None = None
    iowait_percent: float | None = None
    process_cpus: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    shm_total_bytes: int | None = None
    disk_read_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    network_limit_bytes_per_s: float | None = None
    major_faults_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU during the run: mean utilisation by NVML (any kernel running), highest memory in use."""

    name: str
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """A disk as `fastio bench disk` measured it: sequential reads with a cold cache. ``kind`` is None if unknown."""

    path: str
    sequential_bytes_per_s: float
    kind: DiskKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that rules may use; ``unknown`` says in sentences what could not be measured, and why."""

    step: StepFacts | None = None
    trace: TraceFacts | None = None
    loader: LoaderFacts | None = None
    model: ModelFacts | None = None
    machine: MachineFacts | None = None
    gpus: tuple[GpuFacts, ...] = ()
    disks: tuple[DiskFacts, ...] = ()
    sources: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def batch_size(self) -> int | None:
        """The loader's batch size, or else samples per step: less if the last batch of an epoch is smaller."""
        if self.loader is not None and self.loader.batch_size is not None:
            return self.loader.batch_size
        samples = None if self.step is None else self.step.samples_per_step
        return round(samples) if samples else None

    @property
    def shares(self) -> StepShares:
        """
        The parts of a step. Waiting is the loop's own figure without a profiler, if there is one.

        The device's part comes from the trace, or else from the utilisation of the busiest GPU.
        """
        trace, step = self.trace or TraceFacts(), self.step or StepFacts()
        loading = trace.loading
        if step.loading_s is not None and step.step_s:
            loading = step.loading_s / step.step_s
        device = trace.device
        used = [gpu.utilization_percent for gpu in self.gpus if gpu.utilization_percent is not None]
        if device is None and used:
            device = max(used) / 100
        return StepShares(loading=loading, device=device, cpu=trace.cpu, sync=trace.sync)


def merged(*every: Facts) -> Facts:
    """Merge facts; for a figure that is known twice, the first one counts."""
    together = Facts()
    for facts in every:
        together = Facts(
            step=_filled(together.step, facts.step),
            trace=_filled(together.trace, facts.trace),
            loader=_filled(together.loader, facts.loader),
            model=_filled(together.model, facts.model),
            machine=_filled(together.machine, facts.machine),
            gpus=together.gpus or facts.gpus,
            disks=(*together.disks, *facts.disks),
            sources=(*together.sources, *facts.sources),
            unknown=(*together.unknown, *facts.unknown),
        )
    return together


def _filled(known: Any, more: Any) -> Any:
    """Return ``known``, completed from ``more``."""
    if known is None or more is None:
        return more if known is None else known
    lacking = [name for name in known.__slots__ if getattr(known, name) is None]
    return replace(known, **{name: getattr(more, name) for name in lacking})


# What rules return: rows of evidence, steps to take, warnings.

# The slow part of loading.
Part = Literal[
    "slow_disk",
    "slow_wait",
    "slow_decode",
    "slow_transform",
    "slow_collate",
    "slow_handover",
    "too_few_workers",
    "too_few_cpus",
]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One figure: its name, value and unit; ``share`` is its part of the step or of the batch, 0 to 1."""

    group: str
    name: str
    value: float
    unit: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """
    A step to take: why, what it would gain, and the line or command to paste.

    ``gain`` is the future rate over the current one, computed from measured figures, None if they do not tell. With
    ``is_bound`` it is an upper bound; otherwise it is what the figures predict.
    """

    title: str
    reason: str
    code: str
    gain: float | None = None
    is_bound: bool = True


@dataclass(frozen=True, slots=True)
class Caution:
    """Something near a limit: what it is, why that matters and what to do, and in ``source`` the limit."""

    title: str
    reason: str
    source: str
