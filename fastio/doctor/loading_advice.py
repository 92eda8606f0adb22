"""Steps that make loading faster, each a small rule from figures to advice, or to None where it does not fit."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable

from fastio.doctor.facts import Facts, LoaderFacts, MachineFacts, ScriptFacts, StepFacts, TraceFacts
from fastio.doctor.findings import Advice, Part
from fastio.doctor.loading import SATURATED_PERCENT, pace
from fastio.doctor.paste import data_loader, fast_loader, pack_command, packed_loader, reads_packed, small_dataset
from fastio.types.units import counted, size

__all__ = ["LOADING_RULES", "LoadingRule"]

LoadingRule = Callable[[Facts, LoaderFacts, Part | None], Advice | None]

# What the transform or the collate must take of a batch before it is worth a step of its own.
_WORTH = 0.10
# The part of an epoch that its start must take.
_EPOCH_START = 0.05
# The part of a step in which the device does nothing but copy.
_COPYING = 0.05
_BOUND = "the gain is an upper bound, that of a step without"


def pack(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Files one by one, decoded in Python: read sequentially and decode natively instead."""
    script = loader.script or ScriptFacts()
    if loader.kind != "DataLoader" or loader.dataset == "FastDataset" or part == "slow_handover":
        return None
    if loader.data_path is None or script.data_kind is None:
        if part not in ("slow_decode", "slow_disk"):
            return None
        return Advice(
            "pack the files, and let native threads decode",
            "the dataset names no folder or file of pictures or text, so that there are no lines to paste: see `fastio "
            "pack --help`",
            "",
        )
    command = pack_command(loader, script)
    if script.data_kind == "text":
        return Advice(
            "pack the text",
            "one file is read sequentially; with `--tokenizer FILE` tokens are made once, while packing, and not in "
            "each epoch",
            f"{command}\n{reads_packed(script, loader)}",
        )
    making = loader.making
    read_wait_s, decode_s = (0.0, 0.0) if making is None else (making.read_wait_s, making.decode_s)
    native = packed_loader(facts, loader, script)
    if native is not None:
        return Advice(
            "pack the files, and let native threads decode and transform",
            f"the whole transform is known here; {_BOUND} reading, decoding and transforms, which native threads do "
            "beside the loop",
            f"{command}\n{native}",
            _gain_without(facts, loader, work_s=math.inf, wait_s=read_wait_s),
        )
    missing = f"; not known here: {', '.join(script.unknown_steps)}" if script.unknown_steps else ""
    return Advice(
        "pack the files, and keep your own transform",
        f"one file is read sequentially, and pictures decode only what is looked at{missing}; {_BOUND} reading and "
        "decoding, of which some stays",
        f"{command}\n{reads_packed(script, loader)}",
        _gain_without(facts, loader, work_s=decode_s, wait_s=read_wait_s),
    )


def slow_line(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """A line that waits for neither a CPU nor a disk."""
    wait = None if loader.making is None else next((w for w in loader.making.waits if not w.is_reading), None)
    if part != "slow_wait" or loader.making is None:
        return None
    if wait is None:
        title, where = "find what the samples wait for", "it was too short to be seen in the code"
    else:
        title = f"wait less in {wait.place}"
        where = f"{wait.file}:{wait.line}" + ("" if wait.source is None else f": {wait.source}")
        where += "" if wait.call is None else f" (in {wait.call})"
    share = loader.making.share(loader.making.other_wait_s)
    return Advice(
        title,
        f"{share:.0%} of a batch's time, queueing for CPUs aside, is a wait for neither a CPU nor a disk (sleep, a "
        f"lock, the network, another process): {where}; {_BOUND} it",
        "",
        _gain_without(facts, loader, wait_s=loader.making.other_wait_s if wait is None else wait.seconds),
    )


def slow_step(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """The step of a transform that takes most, where it is none of those that FastLoader would do."""
    making, script = loader.making, loader.script or ScriptFacts()
    if making is None or not making.transforms or script.recipe is not None:
        return None
    slowest = max(making.transforms, key=lambda step: step.seconds)
    share = making.share(slowest.seconds)
    if share < _WORTH:
        return None
    is_own = slowest.name in script.unknown_steps
    cure = "nothing here replaces it: make it cheaper, or do it once before packing" if is_own else "make it cheaper"
    return Advice(
        f"{slowest.name} takes {share:.0%} of a batch",
        f"{slowest.seconds / making.samples * 1e3:.2f} ms of CPU a sample; {cure}; {_BOUND} it",
        "",
        _gain_without(facts, loader, work_s=slowest.seconds),
    )


def more_workers(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """As many workers as keep up with training, within the CPUs at hand; more where they only wait."""
    found = pace(facts)
    machine = facts.machine or MachineFacts()
    if found is None or loader.kind != "DataLoader" or part in ("slow_handover", "too_few_cpus"):
        return None
    if (machine.cpu_percent or 0.0) >= SATURATED_PERCENT:
        return None
    most = 4 * found.cpus if part in ("slow_disk", "slow_wait") else found.cpus
    workers = min(found.needed_workers, most)
    if workers <= found.workers:
        return None
    batch_s = max(found.making.batch_s, found.needed_cpus * found.training_s * workers / found.cpus)
    gain = found.gain(batch_s=batch_s, workers=workers)
    each = f"a batch takes {found.making.batch_s * 1e3:,.1f} ms to make, training {found.training_s * 1e3:,.1f} ms"
    return Advice(
        f"num_workers={workers} instead of {found.workers}",
        f"{each}; this process may use {found.cpus} CPUs",
        _data_loader(loader, num_workers=workers, persistent_workers=True),
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
        _data_loader(loader, num_workers=cpus, persistent_workers=True),
    )


def more_threads(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Native threads for all CPUs at hand."""
    cpus = (facts.machine or MachineFacts()).cpus
    if loader.kind != "FastLoader" or cpus is None or loader.threads is None or loader.threads >= cpus:
        return None
    return Advice(
        f"all {cpus} CPUs for decoding, instead of {loader.threads}",
        "the loop waits, and threads=0 takes as many as this process may use",
        _fast_loader(loader, threads="0"),
    )


def smaller_pictures(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """A packed store whose decoding is the limit."""
    if loader.dataset != "FastDataset" or part != "slow_decode":
        return None
    if loader.data_path is None:
        return None
    commands = (
        f"$ fastio unpack {shlex.quote(loader.data_path)} pictures\n"
        "$ fastio pack pictures small.lmdb --short-side 256\n"
    )
    script = loader.script or ScriptFacts()
    code = fast_loader(script, "small.lmdb") if loader.kind == "FastLoader" else small_dataset(script)
    return Advice(
        "less to decode: pack smaller pictures",
        "decoding is the limit; larger pictures can be shrunk once, while they are packed",
        commands + (code or '# then "small.lmdb" in your FastLoader'),
    )


def decoded_once(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """A packed store that is decoded anew in each epoch, or waited for."""
    if loader.kind != "FastLoader" or part not in ("slow_decode", "slow_disk"):
        return None
    return Advice(
        "keep the samples in memory, decoded",
        "samples that fit into memory are then read and decoded once; MemoryError says if they do not",
        _fast_loader(loader, cache='"ram"'),
    )


def normalise_on_device(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Files stay, and ToTensor and Normalize are done with whole batches on the GPU."""
    making, script = loader.making, loader.script or ScriptFacts()
    on_gpu = facts.model is not None and facts.model.device.startswith("cuda")
    normalize = next((step for step in script.recipe or () if step.startswith("Normalize(")), None)
    if making is None or not on_gpu or normalize is None or script.transform is None or loader.kind != "DataLoader":
        return None
    spent_s = sum(step.seconds for step in making.transforms if step.name in ("ToTensor", "Normalize"))
    if [step.name for step in making.transforms][-2:] != ["ToTensor", "Normalize"] or spent_s < _WORTH * making.batch_s:
        return None
    name = script.loader or "loader"
    return Advice(
        "normalise batches on the device",
        f"ToTensor and Normalize take {spent_s / making.batch_s:.0%} of a batch on the CPU, and uint8 is a quarter of "
        f"the bytes on the way; {_BOUND} them",
        "from fastio import DevicePrefetcher\nfrom fastio.transforms import Normalize\n"
        "from torchvision.transforms import PILToTensor\n\n"
        f"{script.transform}.transforms[-2:] = [PILToTensor()]    # before the loop: the dataset gives uint8\n"
        f'{name} = DevicePrefetcher({name}, "cuda", transforms=[{normalize}])',
        _gain_without(facts, loader, work_s=spent_s),
    )


def transforms_off_the_loop(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Transforms of batches that the loop's own thread does on a CPU."""
    if loader.kind != "FastLoader" or part != "slow_transform" or loader.own_cpu is None:
        return None
    waiting = facts.shares.loading or 0.0
    return Advice(
        "let native threads or the model transform, not the loop",
        f"the loop's own thread works for {loader.own_cpu:.0%} of the wait: transforms of batches on a CPU run there, "
        "while crops, resizes and flips run in native threads, and what the model does is training on any device; "
        f"{_BOUND} that work",
        "",
        1 / (1 - waiting * loader.own_cpu) if waiting * loader.own_cpu < 1 else None,
    )


def faster_collate(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Collating should be one copy."""
    making = loader.making
    if making is None or part != "slow_collate":
        return None
    found = pace(facts)
    share = making.share(making.collate_s)
    is_own = loader.script is not None and loader.script.collate_fn is not None
    return Advice(
        "make the collate_fn one copy: torch.stack of tensors, no loop over values",
        f"putting samples together takes {share:.0%} of a batch"
        + ("; torch's own, for samples of one shape and type, copies once" if is_own else ""),
        _data_loader(loader, collate_fn=None) if is_own else "",
        None if found is None else found.gain_without(making.collate_s),
    )


def lighter_handover(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Workers stand idle: what they made is long on its way."""
    if part != "slow_handover" or loader.making is None or loader.making.busy is None:
        return None
    return Advice(
        "hand batches over as tensors, fewer and not larger than needed",
        f"workers make batches for {loader.making.busy:.0%} of the time only: the loop waits for batches on their way. "
        f"Tensors travel in shared memory, everything else is pickled; uint8 is a quarter of float32: let collate_fn "
        "return torch.stack(images) of uint8, and normalise on the device",
        "",
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
        share = making.share(making.read_wait_s)
        reason = (
            f"{share:.0%} of the time for a batch is waiting for reads; {size(making.read_bytes)} of a batch came from "
            "this machine's disks"
        )
    return Advice(
        "measure the disk; copy the data to a local one, or keep it in memory",
        reason,
        f"$ fastio bench disk --path {path}",
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
        _data_loader(loader, persistent_workers=True),
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
        _data_loader(loader, prefetch_factor=factor),
        found.step_s / found.training_s if found.training_s > 0 else None,
    )


def pinned_copies(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Copies that hold the device up."""
    trace = facts.trace or TraceFacts()
    on_gpu = facts.model is not None and facts.model.device.startswith("cuda")
    if not on_gpu or loader.pin_memory or (trace.memcpy or 0.0) < _COPYING:
        return None
    name = (loader.script or ScriptFacts()).loader or "loader"
    pinned = f"{_data_loader(loader, pin_memory=True)}\n" if loader.kind == "DataLoader" else ""
    return Advice(
        "copy from pinned memory, ahead of the loop",
        f"the device does nothing but copy for {trace.memcpy:.0%} of a step, from pageable memory",
        f'from fastio import DevicePrefetcher\n{pinned}{name} = DevicePrefetcher({name}, "cuda")',
        1 / (1 - (trace.memcpy or 0.0)) if (trace.memcpy or 0.0) < 1 else None,
    )


def _gain_without(facts: Facts, loader: LoaderFacts, *, work_s: float = 0.0, wait_s: float = 0.0) -> float | None:
    """
    The most that a step can gain from a batch that takes so much less work on a CPU, and less waiting, to make.

    Who works less queues less for a CPU, in proportion.
    """
    found, making = pace(facts), loader.making
    if found is None or making is None:
        return None
    all_s = min(making.cpu_s, making.samples_s)
    work_s = min(work_s, all_s)
    queued_s = making.queued_s * work_s / all_s if all_s > 0 else 0.0
    return found.gain_without(work_s + wait_s + queued_s)


def _data_loader(loader: LoaderFacts, **changes: object) -> str:
    return data_loader(loader, loader.script or ScriptFacts(), changes)


def _fast_loader(loader: LoaderFacts, **changes: str) -> str:
    """The call with what changes; where it is not known in words, that alone."""
    text = fast_loader(loader.script or ScriptFacts(), **changes)
    return text or "# in your FastLoader(...): " + ", ".join(f"{name}={value}" for name, value in changes.items())


# In the order of what usually helps most, which counts where figures do not tell.
LOADING_RULES: tuple[LoadingRule, ...] = (
    faster_collate,
    lighter_handover,
    fewer_workers,
    slow_line,
    pack,
    slow_step,
    more_workers,
    more_threads,
    smaller_pictures,
    decoded_once,
    local_disk,
    normalise_on_device,
    transforms_off_the_loop,
    deeper_prefetch,
    keep_workers,
    pinned_copies,
)
