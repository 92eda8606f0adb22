"""Turns facts into a diagnosis: the pattern's name, the figures that show it, the steps to take, and warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastio.measure.doctor.cautions import CAUTION_RULES
from fastio.measure.doctor.facts import (
    Advice,
    Caution,
    Evidence,
    Facts,
    MachineFacts,
    MakingFacts,
    Part,
    StepFacts,
    TraceFacts,
)
from fastio.measure.doctor.loading import LOADING_RULES, part_seconds, slow_part
from fastio.measure.loop.verdict import Bound, Verdict, verdict

__all__ = [
    "Diagnosis",
    "diagnose",
]


# Steps that make training itself faster, if the host holds the device up or the device is the limit.

TrainingRule = Callable[[Facts], Advice | None]

# Share of kernel time on Tensor cores below which mixed precision may help.
_TENSOR_CORES = 0.5


def no_synchronisation(facts: Facts) -> Advice | None:
    """Advise letting the host run ahead of the device."""
    trace = facts.trace or TraceFacts()
    gain = None
    if trace.device is not None and trace.sync is not None:
        cpu = trace.cpu if trace.cpu is not None else max(0.0, 1 - trace.device - trace.sync - (trace.loading or 0.0))
        without = (trace.loading or 0.0) + max(trace.device, cpu)
        gain = 1 / without if 0 < without < 1 else None
    waits = "" if trace.sync is None else f"the host waits for the device for {trace.sync:.0%} of the step; "
    return Advice(
        "no .item(), .cpu(), print or `if` on a tensor in every step",
        f"{waits}meanwhile it launches nothing, and the device becomes idle",
        "if step % 50 == 0:\n    print(loss.item())    # sums up to there: running += loss.detach()",
        gain,
    )


def asynchronous_copies(facts: Facts) -> Advice | None:
    """Advise pinned memory: a copy from pageable memory makes the host wait too."""
    loader = facts.loader
    if loader is None or loader.pin_memory is not False:
        return None
    return Advice(
        "copy from pinned memory, without waiting",
        "batches are not pinned: each copy to the device makes the host wait",
        "DataLoader(..., pin_memory=True)\nimages = images.to(device, non_blocking=True)",
    )


def cuda_graphs(facts: Facts) -> Advice | None:
    """Advise launching a whole step at once."""
    trace = facts.trace or TraceFacts()
    device = facts.shares.device
    loading = facts.shares.loading or 0.0
    gain = 1 / (device + loading) if device is not None and 0 < device + loading < 1 else None
    kernels = ""
    if trace.kernels_per_step is not None and trace.kernel_s is not None:
        kernels = f"{trace.kernels_per_step:,.0f} kernels per step, of {trace.kernel_s * 1e6:.1f} us each; "
    if facts.model is not None and facts.model.is_compiled:
        code = 'model = torch.compile(model, mode="reduce-overhead")    # with CUDA graphs'
    else:
        code = 'model = torch.compile(model, mode="reduce-overhead")    # fuses kernels, and CUDA graphs'
    return Advice(
        "launch less: torch.compile with CUDA graphs",
        f"{kernels}the device waits for the CPU to launch them",
        code,
        gain,
    )


def larger_batch(facts: Facts) -> Advice | None:
    """Advise more work per launch."""
    size = facts.batch_size
    now = "" if size is None else f" than {size} samples"
    return Advice(
        f"a larger batch{now}",
        "each kernel does more, for the same number of launches",
        "DataLoader(..., batch_size=...)    # as much as the device's memory takes",
    )


def fused_optimizer(facts: Facts) -> Advice | None:
    """Advise a fused optimizer."""
    del facts
    return Advice(
        "a fused optimizer",
        "it updates all parameters with a few kernels",
        "torch.optim.AdamW(model.parameters(), fused=True)",
    )


def mixed_precision(facts: Facts) -> Advice | None:
    """Advise mixed precision: half the bytes, and Tensor cores if there are any."""
    model, trace = facts.model, facts.trace or TraceFacts()
    if model is not None and (model.is_autocast or model.dtype != "float32"):
        return None
    if trace.tensor_core_share is not None and trace.tensor_core_share > _TENSOR_CORES:
        return None
    device = "cuda" if model is None else model.device.partition(":")[0]
    cores = (
        "" if trace.tensor_core_share is None else f"; {trace.tensor_core_share:.0%} of kernel time is on Tensor cores"
    )
    precision = "parameters and arithmetic are float32"
    if model is None:  # figures of a file
        precision = f"if {precision}, which the figures do not tell"
    on_cpu = " (a CPU needs AVX-512 BF16 or AMX for it)" if device == "cpu" else ""
    return Advice(
        "mixed precision",
        f"{precision}{cores}{on_cpu}",
        f'with torch.autocast("{device}", dtype=torch.bfloat16):\n    loss = criterion(model(images), labels)',
    )


def channels_last(facts: Facts) -> Advice | None:
    """Advise the memory format in which convolutions are fastest."""
    model = facts.model
    if model is None or not model.has_convolutions or model.is_channels_last:
        return None
    return Advice(
        "channels_last for model and batches",
        "the model has convolutions with weights in contiguous (NCHW) memory",
        "model = model.to(memory_format=torch.channels_last)    # and FastLoader(..., layout='channels_last')",
    )


def compiled(facts: Facts) -> Advice | None:
    """Advise torch.compile."""
    if facts.model is not None and facts.model.is_compiled:
        return None
    return Advice(
        "torch.compile", "it fuses operators, so they read and write memory once", "model = torch.compile(model)"
    )


def gpu(facts: Facts) -> Advice | None:
    """Advise a GPU if training runs on the CPU."""
    if facts.model is None or facts.model.device != "cpu":
        return None
    return Advice(
        "train on a GPU",
        "the model is on the CPU, where it also takes CPUs from the loader",
        'model.to("cuda")',
    )


SYNC_RULES: tuple[TrainingRule, ...] = (no_synchronisation, asynchronous_copies)
LAUNCH_RULES: tuple[TrainingRule, ...] = (cuda_graphs, larger_batch, fused_optimizer)
COMPUTE_RULES: tuple[TrainingRule, ...] = (gpu, mixed_precision, channels_last, compiled)


# Advice with a smaller gain than this is not listed.
_LEAST_GAIN = 1.02
# Share of a batch: leftovers below this get no row of their own.
_LEAST_SHARE = 0.01

_TRAINING_RULES = {
    "sync_bound": SYNC_RULES,
    "launch_bound": LAUNCH_RULES,
    "compute_bound": COMPUTE_RULES,
    "balanced": COMPUTE_RULES,
}

_PARTS: dict[Part, str] = {
    "slow_disk": "waiting for reads from a disk or a network file system",
    "slow_wait": "waiting for something other than a CPU or a disk",
    "slow_decode": "reading and decoding",
    "slow_transform": "transforms",
    "slow_collate": "collating its samples",
}
_SITUATIONS: dict[Part, str] = {
    "slow_handover": "workers are idle while the loop waits: their batches take long to arrive",
    "too_few_workers": "training could use more batches than are made, and there are CPUs left",
    "too_few_cpus": "workers wait for CPUs: other programs use them, or there are more workers than CPUs",
}
_BOUNDS: dict[Bound, str] = {
    "io_bound": "the loop waits for data",
    "compute_bound": "training itself is the limit",
    "launch_bound": "the CPU cannot launch work as fast as the device executes it",
    "sync_bound": "in every step the CPU waits for the device, then the device waits for the CPU",
    "balanced": "loading barely keeps up with training",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """
    What the figures say. ``pattern`` is None if they are not enough for a name; ``summary`` then says so.

    ``part`` names what is slow in loading, if loading is the limit and has been measured inside. ``steps`` come in
    the order of expected gain; those without a known gain follow, in the order of what usually helps.
    """

    pattern: Bound | None
    part: Part | None
    summary: str
    evidence: tuple[Evidence, ...]
    reasons: tuple[str, ...]
    steps: tuple[Advice, ...]
    cautions: tuple[Caution, ...]
    unknown: tuple[str, ...]


def diagnose(facts: Facts, *, ended: str | None = None) -> Diagnosis:
    """
    Apply every rule to the facts. Nothing is measured here.

    ``ended`` says how the training ended before enough was measured, such as the last line of its traceback.
    """
    cautions = tuple(caution for rule in CAUTION_RULES for caution in rule(facts))
    evidence = tuple(_evidence(facts))
    limit = _verdict(facts)
    if limit is None:
        summary = "not enough figures for a verdict: neither waiting for data nor the device's part of a step is known"
        if ended is not None:
            summary = _how_it_ended(facts, ended)
        return Diagnosis(None, None, summary, evidence, (), (), cautions, facts.unknown)
    part = slow_part(facts) if limit.bound == "io_bound" else None
    summary = _BOUNDS[limit.bound] + _how_long(facts, limit.bound)
    if part is not None:
        summary += f": {_where_time_goes(facts, part)}{_what_stands_out(facts, part)}"
    return Diagnosis(
        pattern=limit.bound,
        part=part,
        summary=summary,
        evidence=evidence,
        reasons=_beyond_figures(facts, limit),
        steps=_ordered(_steps(facts, limit.bound, part)),
        cautions=cautions,
        unknown=facts.unknown,
    )


def _how_it_ended(facts: Facts, ended: str) -> str:
    """Return in which step a training ended that was too short for a verdict, and why."""
    if facts.loader is None:
        return f"it ended before a loader gave it a batch: {ended}"
    steps = None if facts.step is None else facts.step.steps
    return f"it ended in step {(steps or 0) + 1}: {ended}; a verdict needs 2 whole steps"


def _how_long(facts: Facts, bound: Bound) -> str:
    """Return in words how much of the time the loop waits, if that is known and belongs to what is said."""
    waits = facts.shares.loading
    if waits is None or bound not in ("io_bound", "balanced"):
        return ""
    share = f"{waits:.0%} of the time"
    return f" {share}" if bound == "io_bound" else f": the loop waits for data {share}"


def _where_time_goes(facts: Facts, part: Part) -> str:
    """
    Return what is slow, with its share of a batch's time if that is known.

    A longer wait for a CPU comes first: it is not the loader's own slowness, but the most that can be seen.
    """
    if part in _SITUATIONS:
        return _SITUATIONS[part]
    making = None if facts.loader is None else facts.loader.making
    if making is None or making.batch_s <= 0:
        return f"most of a batch's time is {_PARTS[part]}"
    own_s, queued_s = part_seconds(making, part), min(making.queued_s, making.samples_s)
    own = f"{_share(making, own_s):.0%}"
    if queued_s <= own_s:
        return f"{own} of a batch's time is {_PARTS[part]}"
    queued = f"{_share(making, queued_s):.0%}"
    return f"{queued} of a batch's time is waiting for a CPU that others use, {own} is {_PARTS[part]}"


def _share(making: MakingFacts, seconds: float) -> float:
    """Return these seconds as a share of a batch's time, at most 1: two clocks of the kernel differ a little."""
    return min(1.0, seconds / making.batch_s)


def _what_stands_out(facts: Facts, part: Part) -> str:
    """Return the line of code that waits, or the slowest step of the transform, in words."""
    if facts.loader is None:
        return ""
    making = facts.loader.making
    waits = facts.loader.waits if making is None else making.waits
    wait = next((wait for wait in waits if not wait.is_reading), None)
    if part == "slow_wait" and wait is not None:
        return f": {wait.location}" + ("" if wait.source is None else f": {wait.source}")
    if making is None:
        return ""
    slowest = max(making.transforms, key=lambda step: step.seconds, default=None)
    if part == "slow_transform" and slowest is not None:
        return f", {slowest.name} alone {_share(making, slowest.seconds):.0%}"
    return ""


def _verdict(facts: Facts) -> Verdict | None:
    step, shares = facts.step or StepFacts(), facts.shares
    rates = (step.io_rate, step.train_rate)
    if None in rates:
        rates = (None, None)
    if None in rates and shares.loading is None and shares.device is None:
        return None
    return verdict(*rates, shares=shares)


def _beyond_figures(facts: Facts, limit: Verdict) -> tuple[str, ...]:
    """Return what the verdict adds in words: its first sentences, on rates and shares, are rows of evidence here."""
    step, shares = facts.step or StepFacts(), facts.shares
    known = [shares.loading, shares.device, shares.cpu, shares.sync]
    figures = len(known) - known.count(None) + (step.io_rate is not None and step.train_rate is not None)
    return limit.evidence[figures:]


def _steps(facts: Facts, bound: Bound, part: Part | None) -> Iterator[Advice]:
    advices: list[Advice | None] = []
    if bound in ("io_bound", "balanced") and facts.loader is not None:
        advices += [rule(facts, facts.loader, part) for rule in LOADING_RULES]
    advices += [rule(facts) for rule in _TRAINING_RULES.get(bound, ())]
    for advice in advices:
        if advice is not None and (advice.gain is None or advice.gain >= _LEAST_GAIN):
            yield advice


def _ordered(steps: Iterator[Advice]) -> tuple[Advice, ...]:
    """Sort by gain; the sort is stable, so equal and unknown gains keep the order of their rules."""
    return tuple(sorted(steps, key=lambda advice: -1.0 if advice.gain is None else -advice.gain))


def _evidence(facts: Facts) -> Iterator[Evidence]:
    yield from _of_step(facts)
    if facts.loader is not None and facts.loader.making is not None:
        yield from _of_making(facts.loader.making)
    elif facts.loader is not None and facts.loader.own_cpu is not None:
        yield Evidence("waiting", "the loop's own thread computes", 100 * facts.loader.own_cpu, "%")
    if facts.loader is not None and facts.loader.threads is not None:
        yield Evidence("waiting", "native threads", facts.loader.threads, "")
    yield from _of_trace(facts.trace or TraceFacts())
    yield from _of_machine(facts)


def _of_step(facts: Facts) -> Iterator[Evidence]:
    step = facts.step or StepFacts()
    if step.loading_s is not None and step.training_s is not None and step.step_s:
        yield Evidence("step", "waiting for data", step.loading_s, "s", step.loading_s / step.step_s)
        yield Evidence("step", "training", step.training_s, "s", step.training_s / step.step_s)
        if step.samples_per_step:
            yield Evidence("step", "rate", step.samples_per_step / step.step_s, "samples/s")
    if step.epoch_start_s is not None:
        yield Evidence("step", "first batch of an epoch", step.epoch_start_s, "s")
    if step.io_rate is not None:
        yield Evidence("step", "loading alone", step.io_rate, "samples/s")
    if step.train_rate is not None:
        yield Evidence("step", "training alone", step.train_rate, "samples/s")


def _of_making(making: MakingFacts) -> Iterator[Evidence]:
    if making.batch_s <= 0:
        return
    parts: list[tuple[str, float]] = [
        ("waiting for reads", making.read_wait_s),
        *_other_waits(making),
        ("waiting for a CPU", min(making.queued_s, making.samples_s)),
        ("reading and decoding, on a CPU", making.decode_s),
        *_transforms(making),
        ("collate", making.collate_s),
    ]
    for name, seconds in parts:
        yield Evidence("batch", name, seconds, "s", _share(making, seconds))
    if making.busy is not None:
        yield Evidence("batch", "workers at work", 100 * making.busy, "%")
    if making.read_bytes:
        yield Evidence("batch", "read from disks", making.read_bytes, "bytes")


def _other_waits(making: MakingFacts) -> Iterator[tuple[str, float]]:
    """Yield each line of code that waits for neither a CPU nor a disk, and the rest."""
    least_s = _LEAST_SHARE * making.batch_s
    places = [wait for wait in making.waits if not wait.is_reading and wait.seconds > least_s]
    for wait in places:
        yield f"waiting, {wait.location}", wait.seconds
    left_s = making.other_wait_s - sum(wait.seconds for wait in places)
    if left_s > least_s:
        yield "waiting for something else", left_s


def _transforms(making: MakingFacts) -> Iterator[tuple[str, float]]:
    """Yield each step, and the rest of the transform: its own work, and steps that could not be timed."""
    if making.transform_s is None:
        return
    for step in making.transforms:
        yield f"transform, {step.name}", step.seconds
    left_s = making.transform_s - sum(step.seconds for step in making.transforms)
    if not making.transforms:
        yield "transform", making.transform_s
    elif left_s > _LEAST_SHARE * making.batch_s:
        yield "transform, the rest", left_s


def _of_trace(trace: TraceFacts) -> Iterator[Evidence]:
    parts = (
        ("device busy", trace.device),
        ("device only copies", trace.memcpy),
        ("CPU executes and launches", trace.cpu),
        ("CPU waits for the device", trace.sync),
        ("kernel time on Tensor cores", trace.tensor_core_share),
    )
    for name, share in parts:
        if share is not None:
            yield Evidence("profiled step", name, 100 * share, "%")
    if trace.kernels_per_step is not None:
        yield Evidence("profiled step", "kernels", trace.kernels_per_step, "a step")
    if trace.kernel_s is not None:
        yield Evidence("profiled step", "mean kernel", trace.kernel_s, "s")


def _of_machine(facts: Facts) -> Iterator[Evidence]:
    machine = facts.machine or MachineFacts()
    figures = (
        ("all CPUs", machine.cpu_percent, "%"),
        ("CPUs idle, waiting for disks", machine.iowait_percent, "%"),
        ("CPUs used by this training", machine.process_cpus, f"of {machine.cpus}" if machine.cpus else ""),
        ("memory", machine.memory_used_bytes, "bytes"),
        ("disks read", machine.disk_read_bytes_per_s, "bytes/s"),
        ("network", machine.network_bytes_per_s, "bytes/s"),
    )
    for name, value, unit in figures:
        if value is not None:
            yield Evidence("machine", name, value, unit)
    for gpu in facts.gpus:
        if gpu.utilization_percent is not None:
            yield Evidence("machine", f"{gpu.name}, utilisation", gpu.utilization_percent, "%")
        if gpu.memory_used_bytes is not None:
            yield Evidence("machine", f"{gpu.name}, memory", gpu.memory_used_bytes, "bytes")
