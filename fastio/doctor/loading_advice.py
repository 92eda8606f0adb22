"""Steps that make loading faster, each a small rule from figures to advice, or to None where it does not fit."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from fastio.doctor.facts import Facts, LoaderFacts, MachineFacts, StepFacts, TraceFacts
from fastio.doctor.findings import Advice, Part
from fastio.doctor.loading import SATURATED_PERCENT, pace
from fastio.units import counted, size

__all__ = ["LOADING_RULES", "LoadingRule"]

LoadingRule = Callable[[Facts, LoaderFacts, Part | None], Advice | None]

# What the transform or the collate must take of a batch before it is worth a step of its own.
_WORTH = 0.10
# The part of an epoch that its start must take.
_EPOCH_START = 0.05
# The part of a step in which the device does nothing but copy.
_COPYING = 0.05


def pack(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Files one by one, decoded in Python: read sequentially and decode natively instead."""
    if loader.kind != "DataLoader" or loader.dataset == "FastDataset" or part == "slow_handover":
        return None
    source = "DIR" if loader.data_path is None else shlex.quote(loader.data_path)
    found = pace(facts)
    gain = None
    if found is not None:
        left_s = (found.making.transform_s or 0.0) + found.making.collate_s
        gain = found.gain(batch_s=left_s, workers=max(1, found.workers))  # native threads work beside the loop
    reason = "one file is read sequentially, and native threads decode without the GIL"
    if gain is not None:
        reason += "; the gain is that of a step without reading and decoding"
    return Advice(
        "pack the files, and let native threads decode",
        reason,
        f"$ fastio pack {source} train.lmdb    # --labels FILE for a flat folder\n"
        f'loader = FastLoader("train.lmdb", batch_size={facts.batch_size or 256}, shuffle=True)',
        gain,
    )


def more_workers(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """As many workers as keep up with training, within the CPUs at hand; more where they only wait."""
    found = pace(facts)
    machine = facts.machine or MachineFacts()
    if found is None or loader.kind != "DataLoader" or part in ("slow_handover", "too_few_cpus"):
        return None
    if (machine.cpu_percent or 0.0) >= SATURATED_PERCENT:
        return None
    most = found.cpus if part != "slow_disk" else 4 * found.cpus
    workers = min(found.needed_workers, most)
    if workers <= found.workers:
        return None
    batch_s = max(found.making.batch_s, found.needed_cpus * found.training_s * workers / found.cpus)
    gain = found.gain(batch_s=batch_s, workers=workers)
    each = f"a batch takes {found.making.batch_s * 1e3:,.1f} ms to make, training {found.training_s * 1e3:,.1f} ms"
    return Advice(
        f"num_workers={workers} instead of {found.workers}",
        f"{each}; this process may use {found.cpus} CPUs",
        f"DataLoader(..., num_workers={workers}, persistent_workers=True)",
        gain,
        is_bound=False,
    )


def fewer_workers(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """More processes than CPUs stand in each other's way."""
    cpus = (facts.machine or MachineFacts()).cpus
    if part != "too_few_cpus" or cpus is None or loader.making is None or (loader.workers or 0) <= cpus:
        return None
    share = loader.making.queued_s / loader.making.batch_s
    return Advice(
        f"num_workers={cpus} instead of {loader.workers}",
        f"{share:.0%} of the time for a batch is waiting for one of the {cpus} CPUs that this process may use",
        f"DataLoader(..., num_workers={cpus}, persistent_workers=True)",
    )


def more_threads(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Native threads for all CPUs at hand."""
    cpus = (facts.machine or MachineFacts()).cpus
    if loader.kind != "FastLoader" or cpus is None or loader.threads is None or loader.threads >= cpus:
        return None
    return Advice(
        f"all {cpus} CPUs for decoding, instead of {loader.threads}",
        "the loop waits, and threads=0 takes as many as this process may use",
        "FastLoader(..., threads=0)",
    )


def smaller_pictures(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """A packed store whose decoding is the limit."""
    if loader.dataset != "FastDataset" or part != "slow_decode":
        return None
    source = "DIR" if loader.data_path is None else shlex.quote(loader.data_path)
    return Advice(
        "less to decode: smaller pictures, or none",
        "decoding is the limit; pictures of one size can be packed as pixels, larger ones shrunk once while packing or "
        "while they are decoded, and samples that fit into memory are decoded once",
        f"$ fastio pack {source} raw.lmdb --raw\n$ fastio pack {source} small.lmdb --short-side 256\n"
        'FastLoader(..., quality="fast")\nFastLoader(..., cache="ram")',
    )


def transform_on_device(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Normalising, flipping and changing colours of whole batches on the device."""
    making = loader.making
    if making is None or making.transform_s is None or making.transform_s < _WORTH * making.batch_s:
        return None
    found = pace(facts)
    share = making.transform_s / making.batch_s
    gain = None if found is None else found.gain(batch_s=making.batch_s - making.transform_s)
    reason = f"the dataset's transform takes {share:.0%} of a batch, on the CPU, picture by picture"
    imports = "from fastio.transforms import Normalize, RandomHorizontalFlip, ToDtype\n"
    recipe = "[RandomHorizontalFlip(), Normalize(MEAN, STD), ToDtype(torch.float32)]"
    if facts.model is not None and facts.model.device == "cpu":
        size = facts.batch_size or 256
        code = f'loader = FastLoader("train.lmdb", batch_size={size}, transforms={recipe}, device="cpu")'
        return Advice("transform batches, not pictures", reason, imports + code, gain)
    code = f'loader = DevicePrefetcher(loader, "cuda", transforms={recipe})    # the dataset then gives uint8'
    return Advice("normalise and augment batches on the device", reason, imports + code, gain)


def transforms_off_the_loop(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Transforms of batches that the loop's own thread does on a CPU."""
    if loader.kind != "FastLoader" or part != "slow_transform" or loader.own_cpu is None:
        return None
    waiting = facts.shares.loading or 0.0
    return Advice(
        "let native threads or the model transform, not the loop",
        f"the loop's own thread works for {loader.own_cpu:.0%} of the wait: transforms of batches on a CPU run there, "
        "while crops, resizes and flips run in native threads, and what the model does is training on any device",
        "FastLoader(..., transforms=[RandomCrop(32, padding=4), RandomHorizontalFlip()])    # uint8 comes out\n"
        "images = (images.float() - MEAN) / STD    # in the model",
        1 / (1 - waiting * loader.own_cpu) if waiting * loader.own_cpu < 1 else None,
    )


def faster_collate(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Collating should be one copy."""
    making = loader.making
    if making is None or part != "slow_collate":
        return None
    found = pace(facts)
    share = making.collate_s / making.batch_s
    return Advice(
        "make the collate_fn one copy: torch.stack of tensors, no loop over values",
        f"putting samples together takes {share:.0%} of a batch; FastLoader decodes straight into the batch",
        "DataLoader(..., collate_fn=None)    # torch's own: samples of one shape and type",
        None if found is None else found.gain(batch_s=making.samples_s),
    )


def lighter_handover(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Workers stand idle: what they made is long on its way."""
    if part != "slow_handover" or loader.making is None or loader.making.busy is None:
        return None
    return Advice(
        "hand batches over as tensors, fewer and not larger than needed",
        f"workers make batches for {loader.making.busy:.0%} of the time only: the loop waits for batches on their way. "
        f"Tensors travel in shared memory, everything else is pickled; uint8 is a quarter of float32",
        "return torch.stack(images), torch.tensor(labels)    # in collate_fn: uint8, normalised on the device",
    )


def local_disk(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Reads are the limit: measure the disk, or leave it."""
    if part != "slow_disk":
        return None
    path = "." if loader.data_path is None else shlex.quote(loader.data_path)
    making = loader.making
    if making is None:
        reason = "the loop waits, and this process's CPUs do not work"
    else:
        share = making.blocked_s / making.batch_s
        reason = (
            f"{share:.0%} of the time for a batch is waiting, not for a CPU: for a disk, the network or a lock; "
            f"{size(making.read_bytes)} of a batch came from this machine's disks"
        )
    return Advice(
        "measure the disk; copy the data to a local one, or keep it in memory",
        reason,
        f'$ fastio bench disk --path {path}\nFastLoader("train.lmdb", ..., cache="ram")',
    )


def keep_workers(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Workers that are started anew for each epoch."""
    step = facts.step or StepFacts()
    if not loader.workers or loader.persistent_workers or step.epoch_start_s is None or not step.step_s:
        return None
    if not step.steps_per_epoch:
        return None
    epoch_s = step.epoch_start_s + step.step_s * step.steps_per_epoch
    if step.epoch_start_s < _EPOCH_START * epoch_s:
        return None
    return Advice(
        "keep the workers between epochs",
        f"an epoch of {step.steps_per_epoch} steps begins with {step.epoch_start_s:.1f} s of waiting for new workers",
        "DataLoader(..., persistent_workers=True)",
        epoch_s / (epoch_s - step.epoch_start_s),
    )


def deeper_prefetch(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Workers that keep up on average, and a loop that waits now and then."""
    found = pace(facts)
    if found is None or not found.workers or found.needed_workers > found.workers or part == "slow_handover":
        return None
    factor = 2 * (loader.prefetch_factor or 2)
    return Advice(
        f"prefetch_factor={factor}",
        f"{counted(found.workers, 'worker')} would keep up on average, and the loop waits all the same: batches come "
        "unevenly",
        f"DataLoader(..., prefetch_factor={factor})",
        found.step_s / found.training_s if found.training_s > 0 else None,
    )


def pinned_copies(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Copies that hold the device up."""
    trace = facts.trace or TraceFacts()
    on_gpu = facts.model is not None and facts.model.device.startswith("cuda")
    if not on_gpu or loader.pin_memory or (trace.memcpy or 0.0) < _COPYING:
        return None
    return Advice(
        "copy from pinned memory, ahead of the loop",
        f"the device does nothing but copy for {trace.memcpy:.0%} of a step, from pageable memory",
        'DataLoader(..., pin_memory=True)\nfor batch in DevicePrefetcher(loader, "cuda"):',
        1 / (1 - (trace.memcpy or 0.0)) if (trace.memcpy or 0.0) < 1 else None,
    )


# In the order of what usually helps most, which counts where figures do not tell.
LOADING_RULES: tuple[LoadingRule, ...] = (
    faster_collate,
    lighter_handover,
    fewer_workers,
    pack,
    more_workers,
    more_threads,
    smaller_pictures,
    local_disk,
    transform_on_device,
    transforms_off_the_loop,
    deeper_prefetch,
    keep_workers,
    pinned_copies,
)
