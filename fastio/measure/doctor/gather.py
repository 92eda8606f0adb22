"""Turns what a run has shown into facts."""

from __future__ import annotations

import linecache
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from fastio.converters.pictures.jumps import evenly_spaced, jump_fields, jump_growth, picture_sizes
from fastio.dataset.fast_dataset import FastDataset, sample_placement
from fastio.errors import FastioError
from fastio.loader.fast_loader import FastLoader
from fastio.loader.prefetch import DevicePrefetcher
from fastio.machine import available_cpus
from fastio.measure.doctor.facts import (
    Facts,
    GpuFacts,
    LoaderFacts,
    MachineFacts,
    MakingFacts,
    ModelFacts,
    ScriptFacts,
    StepFacts,
    TraceFacts,
    TransformFacts,
    WaitFacts,
)
from fastio.measure.doctor.probe import CAN_WATCH, BatchCost, Wait, read_costs
from fastio.measure.doctor.script import data_path, fast_loader_script, script_of
from fastio.measure.doctor.session import Observation
from fastio.measure.doctor.transform_timers import transform_of
from fastio.measure.doctor.watch import LoaderWatch
from fastio.measure.machine.disk_kind import disk_kind
from fastio.measure.trace.trace import StepBreakdown
from fastio.store import open_store
from fastio.store.files.local import is_local
from fastio.store.index.store import unpacked_of
from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked
from fastio.store.protocol import IN_PLACE
from fastio.types.metrics import OpensGain
from fastio.types.units import counted

__all__ = [
    "facts_of",
    "look_at_pictures",
    "trace_facts",
]


log = logging.getLogger(__name__)

_MOST_WAITS = 5  # lines of code that are listed
_BATCHES_OF_WORKER = 5  # with fewer batches, it is unknown how busy a worker is
_STEPS_OF_RUN = 20  # steps for which --seconds suffices: warm-up, 5 timed ones, 2 profiled ones, each in its share


def facts_of(observation: Observation) -> Facts:
    """Return everything that was measured; ``unknown`` says what was not."""
    model = observation.model.facts
    trace = (
        None if observation.trace is None else trace_facts(observation.trace, has_loader=observation.watch is not None)
    )
    surroundings = observation.surroundings
    return Facts(
        step=_step(observation),
        trace=trace,
        loader=None if observation.watch is None else _loader(observation, observation.watch),
        model=model,
        machine=MachineFacts(cpus=available_cpus()) if surroundings is None else surroundings.machine,
        gpus=() if surroundings is None else _own(surroundings.gpus, model),
        sources=("times from StepTimer", *(() if surroundings is None else surroundings.sources)),
        unknown=tuple(_unknown(observation)),
    )


def trace_facts(breakdown: StepBreakdown, *, has_loader: bool = True) -> TraceFacts:
    """Return the parts of a profiled step. Without a loader that marks its waits, no waits are known."""
    shares = breakdown.shares
    kernels = sum(kernel.calls for kernel in breakdown.kernels)
    has_device = shares.device is not None
    return TraceFacts(
        loading=shares.loading if has_loader else None,
        device=shares.device,
        cpu=shares.cpu,
        sync=shares.sync,
        memcpy=breakdown.rows_us["Memcpy"] / breakdown.total_us if has_device else None,
        kernels_per_step=kernels / breakdown.steps if has_device else None,
        kernel_s=sum(kernel.total_us for kernel in breakdown.kernels) / kernels / 1e6 if kernels else None,
        tensor_core_share=breakdown.tensor_core_share,
    )


def _step(observation: Observation) -> StepFacts | None:
    summary, watch = observation.summary, observation.watch
    if summary is None or watch is None:
        return None
    if summary.steps < 2:  # too few for means
        first_s = summary.first_batches_s if summary.steps else watch.waited_s
        return StepFacts(steps=summary.steps, epoch_start_s=None if watch.batch_bytes is None else first_s)
    epochs = summary.epochs - 1 if observation.is_warm else summary.epochs  # timing begins in the middle of an epoch
    return StepFacts(
        steps=summary.steps,
        samples_per_step=summary.samples / summary.steps,
        loading_s=summary.loading.mean_s,
        training_s=summary.training.mean_s,
        epoch_start_s=summary.first_batches_s / epochs if epochs > 0 else None,
        steps_per_epoch=_length(watch.loader),
    )


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _loader(observation: Observation, watch: LoaderWatch) -> LoaderFacts:
    inner = (watch.inner or watch).loader
    source = inner.batches if isinstance(inner, DevicePrefetcher) else inner
    name = type(watch.loader).__name__
    # Two clocks of the kernel differ a little: never use more than the whole.
    own_cpu = min(1.0, observation.own_cpu_s / observation.waited_s) if observation.waited_s > 0 else None
    picture_side, jump_percent = _packed_pictures(watch.inner or watch)
    if isinstance(source, FastLoader):
        return LoaderFacts(
            kind="FastLoader",
            name=name,
            dataset=type(source.dataset).__name__,
            data_path=str(source.base.store.path),
            batch_size=source.batch_size,
            data_disk=disk_kind(source.base.store.shard_paths[0]),
            threads=source.stats.threads,
            is_tuned=_is_tuned(watch.inner or watch),
            batch_bytes=watch.batch_bytes,
            own_cpu=own_cpu,
            script=_fast_script(watch.inner or watch),
            picture_side=picture_side,
            jump_percent=jump_percent,
            placement=(*source.placement.lines, *source.stats.pictures.lines),
            opens=_opens(source),
            unpacked=_unpacked_words(source.base),
        )
    if not isinstance(source, DataLoader):
        blocked_s = max(0.0, observation.waited_s - observation.own_cpu_s) / max(1, watch.timer.steps)
        waits, _ = _waits(watch.waits, blocked_s)
        return LoaderFacts(kind="other", name=name, batch_bytes=watch.batch_bytes, own_cpu=own_cpu, waits=waits)
    of_source = watch.inner or watch
    making, transform_input = _making(observation, of_source.number, source.num_workers)
    path = data_path(_innermost(source.dataset))
    return LoaderFacts(
        kind="DataLoader",
        name=name,
        dataset=type(_innermost(source.dataset)).__name__,
        batch_size=source.batch_size,
        data_path=path,
        data_disk=None if path is None else disk_kind(path),
        workers=source.num_workers,
        prefetch_factor=source.prefetch_factor,
        persistent_workers=source.persistent_workers,
        pin_memory=source.pin_memory,
        batch_bytes=watch.batch_bytes,
        own_cpu=own_cpu,
        making=making,
        script=_script(source, of_source, watch, transform_input),
        picture_side=picture_side,
        jump_percent=jump_percent,
        placement=_samples_placement(source),
        unpacked=_unpacked_words(_innermost(source.dataset)),
    )


def _opens(loader: FastLoader) -> OpensGain | None:
    """Return what files in place have cost since the first was read; None for a packed store."""
    opens = loader.stats.opens
    return None if opens is None or not opens.files else opens.gain(time.perf_counter() - opens.begun_s)


def _unpacked_words(dataset: Any) -> tuple[str, ...] | None:
    """Return what ``fastio pack`` is told of the files that a FastDataset reads in place; None for all else."""
    store = dataset.store if isinstance(dataset, FastDataset) else None
    return None if store is None or store.format != IN_PLACE else tuple(unpacked_of(store).words())


def _samples_placement(source: DataLoader[Any]) -> tuple[str, ...] | None:
    """Return where the samples of a DataLoader are made, if they are a FastDataset's; None for other datasets."""
    dataset = _innermost(source.dataset)
    if not isinstance(dataset, FastDataset):
        return None
    return tuple(sample_placement(dataset, "workers" if source.num_workers else "the loop's thread").lines)


def _script(
    source: DataLoader[Any], of_source: LoaderWatch, watch: LoaderWatch, transform_input: str | None
) -> ScriptFacts | None:
    """
    Return the script's facts; None if the user's dataset raises when examined, so there is a diagnosis without lines
    to paste.
    """
    try:
        return script_of(source, of_source.names or {}, of_source.form or watch.form, transform_input)
    except Exception:
        log.exception("no lines to paste: %s cannot be examined", type(source.dataset).__name__)
        return None


def _fast_script(watch: LoaderWatch) -> ScriptFacts | None:
    return None if watch.arguments is None else fast_loader_script(watch.arguments, (watch.names or {}).get("loader"))


def _packed_pictures(watch: LoaderWatch) -> tuple[float | None, float | None]:
    """Return what ``look_at_pictures`` says of a loader's store; nothing of start points if nothing crops on a CPU."""
    loader = watch.loader.batches if isinstance(watch.loader, DevicePrefetcher) else watch.loader
    dataset = _innermost(getattr(loader, "dataset", None))
    if not isinstance(dataset, FastDataset):
        return None, None
    arguments = watch.arguments or {}
    transform = arguments.get("transforms") or transform_of(dataset)[2]
    store = dataset.store
    side, jump_percent = look_at_pictures(store.path, unpacked_of(store))
    is_cropped = (
        any("Crop" in type(step).__name__ for step in _steps(transform)) and arguments.get("decode") != "device"
    )
    return side, jump_percent if is_cropped else None


def _steps(transform: Any) -> Iterator[Any]:
    """Yield the steps of a transform: of a list, of a Compose, or itself."""
    held = transform if isinstance(transform, (list, tuple)) else getattr(transform, "transforms", None)
    if isinstance(held, (list, tuple)):
        for step in held:
            yield from _steps(step)
    else:
        yield transform


def _is_tuned(watch: LoaderWatch) -> bool | None:
    return None if watch.arguments is None else watch.arguments.get("threads", 0) == 0


def _innermost(dataset: Any) -> Any:
    """Return the dataset behind Subsets."""
    while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):
        dataset = dataset.dataset
    return dataset


def _making(observation: Observation, number: int, workers: int) -> tuple[MakingFacts | None, str | None]:
    """
    Return means of the batches begun while steps were timed, or of all if there were none, and what transforms got.
    """
    every = read_costs(observation.folder, number)
    begun, ended = observation.window or (0.0, float("inf"))
    costs = [cost for cost in every if begun <= cost.begun_s < ended] or every
    if not costs:
        return None, None

    def mean(name: str) -> float:
        return float(sum(getattr(cost, name) for cost in costs) / len(costs))

    known = MakingFacts(
        batches=len(costs),
        samples=mean("samples"),
        samples_s=mean("samples_s"),
        cpu_s=mean("cpu_s"),
        queued_s=mean("queued_s"),
        collate_s=mean("collate_s"),
        transform_s=None if costs[0].transform_s is None else mean("transform_s"),
        read_bytes=mean("read_bytes"),
        major_faults=mean("major_faults"),
        busy=_busy(every, workers, observation),
    )
    seen_waiting: Counter[Wait] = Counter()
    for cost in costs:
        seen_waiting.update(dict(cost.waits))
    waits, reading_s = _waits(seen_waiting, known.blocked_s)
    known = replace(known, transforms=_transforms(costs), waits=waits, reading_s=reading_s)
    return known, costs[0].transform_input


def _transforms(costs: Sequence[BatchCost]) -> tuple[TransformFacts, ...]:
    """Return means of the steps of the transform; steps of equal name get numbers."""
    steps = [cost.steps_s for cost in costs]
    names = [name for name, _ in steps[0]]
    if any([name for name, _ in step] != names for step in steps):  # a worker with another dataset
        return ()
    shown = [
        f"{name} ({names[:number].count(name) + 1})" if names.count(name) > 1 else name
        for number, name in enumerate(names)
    ]
    return tuple(
        TransformFacts(name=name, seconds=sum(step[number][1] for step in steps) / len(steps))
        for number, name in enumerate(shown)
    )


def _waits(looks_at: Counter[Wait], blocked_s: float) -> tuple[tuple[WaitFacts, ...], float | None]:
    """
    Split ``blocked_s`` of waiting among lines of code, by how often each was seen, and return how much was for reads.

    Nothing is returned if the wait was too short to be seen.
    """
    looks = looks_at.total()
    if looks == 0:
        return (), None
    reading = sum(count for wait, count in looks_at.items() if wait.is_reading)
    places = tuple(
        WaitFacts(
            **wait._asdict(),
            seconds=blocked_s * count / looks,
            source=linecache.getline(wait.file, wait.line).strip() or None,
        )
        for wait, count in looks_at.most_common(_MOST_WAITS)
    )
    return places, blocked_s * reading / looks


def _busy(costs: list[BatchCost], workers: int, observation: Observation) -> float | None:
    """
    Return the share of the workers' time in which they made batches; starts of epochs do not count as time.

    None for so few batches that those at the edges of the time would decide.
    """
    summary = observation.summary
    steady_s = 0.0 if summary is None else summary.loading.total_s + summary.training.total_s
    begun, ended = observation.window or (0.0, float("inf"))
    inside = [min(cost.begun_s + cost.total_s, ended) - max(cost.begun_s, begun) for cost in costs]
    made = [seconds for seconds in inside if seconds > 0]
    if workers == 0 or steady_s <= 0 or len(made) < _BATCHES_OF_WORKER * workers:
        return None
    return min(1.0, sum(made) / (workers * steady_s))


def _own(gpus: tuple[GpuFacts, ...], model: ModelFacts | None) -> tuple[GpuFacts, ...]:
    """Return the GPU that is trained on, if its NVML number is known; otherwise all GPUs."""
    if model is not None and not model.device.startswith("cuda"):
        return ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    named = [name.strip() for name in visible.split(",") if name.strip()]
    index = 0 if model is None or ":" not in model.device else int(model.device.rpartition(":")[2])
    if named and not all(name.isdecimal() for name in named):
        return gpus
    number = named[index] if index < len(named) else str(index)
    return tuple(gpu for gpu in gpus if gpu.name.startswith((f"GPU {number} ", f"GPU {number},"))) or gpus


def _unknown(observation: Observation) -> list[str]:
    lines: list[str] = []
    watch = observation.watch
    steps = 0 if observation.summary is None else observation.summary.steps
    if observation.failure is not None and steps < 2:
        return lines  # how the training ended says why
    if watch is None:
        lines.append(
            "waiting for data: the loop's batches do not come from a DataLoader or FastLoader in this thread; "
            "name a MODULE:FUNCTION that returns your loader and step(batch)"
            if observation.optimizer_steps
            else "any step: no optimizer ran, and no loader of this thread gave batches"
        )
    elif not observation.optimizer_steps and not watch.is_training:
        lines.append(
            "training: no torch optimizer ran; the figures are of the loop over the "
            f"{type(watch.loader).__name__}"
            + ("; raise --seconds if training starts later" if observation.is_warm else "")
        )
    if watch is not None and not observation.is_warm:
        ended, more = f"it ended after {counted(steps, 'step')}", ""
        if observation.is_stopped:
            ended = f"--seconds {observation.plan.seconds:g} ended after {counted(steps, 'step')}"
            more = f"; {_longer(observation)} would show more"
        lines.append(f"a steady loop: {ended}, so the figures are those of the start{more}")
    if observation.trace is None and observation.optimizer_steps:
        lines.append(f"the parts of a step: {_why_no_trace(observation)}")
    if watch is not None and not CAN_WATCH:
        lines.append("how batches are made: fastio does not find the fetchers of this version of torch")
    if observation.trace is not None and observation.trace.idle_us is None:
        lines.append("launching and synchronising: nothing ran on a GPU")
    return lines


def _why_no_trace(observation: Observation) -> str:
    plan = observation.plan
    if plan.profiled == 0:
        return "--profiled 0 asks for none"
    if observation.is_stopped:
        return f"--seconds {plan.seconds:g} left no time to profile 2 steps; {_longer(observation)} would"
    return "the training ended before any step was profiled"


def _longer(observation: Observation) -> str:
    """Return the option that gives such a training enough time, with a number if the length of its steps is known."""
    step = _step(observation)
    if step is None or step.loading_s is None or step.training_s is None:
        return "a higher --seconds"
    seconds = _STEPS_OF_RUN * (step.loading_s + step.training_s)
    return f"--seconds {10 * math.ceil(max(seconds, 2 * observation.plan.seconds) / 10)}"


# Looks at some pictures of a packed store: how large they are, and whether start points would help.

_LOOKED_AT = 16  # pictures


def look_at_pictures(path: str | os.PathLike[str], unpacked: Unpacked = AS_IT_IS) -> tuple[float | None, float | None]:
    """
    Return the median short side of a store's pictures, in pixels, and how many percent of their bytes start points
    would add; ``unpacked`` is what was said of files that are read in place.

    The side is None without pictures whose size is known, the percentage if start points would not help. Both are None
    for a store that is behind a URL, or that cannot be read.
    """
    if not is_local(str(path)):
        return None, None
    try:
        with open_store(path, unpacked=unpacked) as store:
            fields = jump_fields(store.schema) if len(store) else []
            rows = evenly_spaced(len(store), _LOOKED_AT)
            shorter = [picture_sizes(store, field.name, rows).min(axis=1) for field in fields]
            sides = [float(np.median(pixels[pixels > 0])) for pixels in shorter if pixels.any()]  # 0: unknown
            return max(sides, default=None), max(jump_growth(store).values(), default=None)
    except (FastioError, OSError):
        return None, None
