"""Steps that make training itself faster, if the host holds the device up or the device is the limit."""

from __future__ import annotations

from collections.abc import Callable

from fastio.doctor.facts import Facts, TraceFacts
from fastio.doctor.findings import Advice

__all__ = ["COMPUTE_RULES", "LAUNCH_RULES", "SYNC_RULES", "TrainingRule"]

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
    on_cpu = " (a CPU needs AVX-512 BF16 or AMX for it)" if device == "cpu" else ""
    return Advice(
        "mixed precision",
        f"parameters and arithmetic are float32{cores}{on_cpu}",
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
