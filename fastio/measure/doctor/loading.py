"""What loading costs, which part is slow, and rules from figures to steps that make it faster."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from fastio.measure.doctor.facts import (
    Advice,
    Facts,
    LoaderFacts,
    MachineFacts,
    MakingFacts,
    Part,
    ScriptFacts,
    StepFacts,
    TraceFacts,
)
from fastio.measure.doctor.paste import (
    data_loader,
    fast_loader,
    other_dataset,
    pack_command,
    packed_loader,
    reads_packed,
)
from fastio.types.units import counted, percent, size

__all__ = [
    "LOADING_RULES",
    "LoadingRule",
    "part_seconds",
    "slow_part",
]


LoadingRule = Callable[[Facts, LoaderFacts, Part | None], Advice | None]

# The share of a batch's time that a transform or collate must take to be worth a step of its own.
_WORTH = 0.10
# The share of an epoch that its start must take.
_EPOCH_START = 0.05
# The share of a step in which the device only copies.
_COPYING = 0.05
# Pixels to which larger pictures are advised to be packed.
_SHORT_SIDE = 256
_BOUND = "the gain is an upper bound: the step without"


def pack(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise packing files that are read one by one and decoded in Python."""
    script = loader.script or ScriptFacts()
    if loader.kind != "DataLoader" or loader.dataset == "FastDataset" or part == "slow_handover":
        return None
    if loader.data_path is None or script.data_kind is None:
        if part not in ("slow_decode", "slow_disk"):
            return None
        return Advice(
            "pack the files, and let native threads decode",
            "the dataset names no folder or file of pictures or text, so there are no lines to paste: see "
            "`fastio pack --help`",
            "",
        )
    command = pack_command(loader, script)
    if script.data_kind == "text":
        return Advice(
            "pack the text",
            "one file is read in order; with `--tokenizer FILE`, tokens are made once, when packing, not in "
            "every epoch",
            f"{command}\n{reads_packed(script, loader)}",
        )
    making = loader.making
    read_wait_s, decode_s = (0.0, 0.0) if making is None else (making.read_wait_s, making.decode_s)
    native = packed_loader(facts, loader, script)
    if native is not None:
        return Advice(
            "pack the files, and let native threads decode and transform",
            f"fastio has the whole transform; {_BOUND} reading, decoding and transforms, which native threads "
            "do alongside the loop",
            f"{command}\n{native}",
            _gain_without(facts, loader, work_s=math.inf, wait_s=read_wait_s),
        )
    missing = f"; unknown to fastio: {', '.join(script.unknown_steps)}" if script.unknown_steps else ""
    return Advice(
        "pack the files, and keep your own transform",
        f"one file is read in order, and pictures decode only what is used{missing}; {_BOUND} reading and "
        "decoding, some of which remains",
        f"{command}\n{reads_packed(script, loader)}",
        _gain_without(facts, loader, work_s=decode_s, wait_s=read_wait_s),
    )


def native_transforms(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise FastLoader to a DataLoader of a packed store, in the place of both the DataLoader and the transform."""
    script = loader.script or ScriptFacts()
    if loader.kind != "DataLoader" or script.packed is None:
        return None
    making, native = loader.making, packed_loader(facts, loader, script)
    steps = " and ".join(script.pixel_steps)
    if native is None:
        if not script.unknown_steps:
            return None
        unknown = " and ".join(script.unknown_steps)
        return Advice(
            "find another way to do what keeps the transform in Python",
            f"fastio has no {unknown}, so the whole transform runs in Python, one picture at a time; FastLoader takes "
            "PerSample(f) for a function of one picture, a uint8 tensor (C, H, W), beside its own transforms",
            "",
        )
    spent_s = (
        0.0
        if making is None
        else sum(step.seconds for step in making.transforms if step.name.partition(" (")[0] in script.pixel_steps)
    )
    share = "" if making is None or spent_s <= 0 else f" for {making.share(spent_s):.0%} of a batch's time"
    forced = f"{steps} forces pixels into Python, one picture at a time{share}; " if steps else ""
    forced = forced.replace("forces", "force") if len(script.pixel_steps) > 1 else forced
    return Advice(
        "FastLoader in the place of the DataLoader and its transform",
        f"{forced}fastio has the whole transform, and native threads do it alongside the loop; {_BOUND} reading, "
        "decoding and transforms",
        native,
        _gain_without(facts, loader, work_s=math.inf, wait_s=0.0 if making is None else making.read_wait_s),
    )


def slow_line(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise on a line of code that waits for neither a CPU nor a disk."""
    wait = None if loader.making is None else next((w for w in loader.making.waits if not w.is_reading), None)
    if part != "slow_wait" or loader.making is None:
        return None
    if wait is None:
        title, where = "find what the samples wait for", "each wait was too short to see where in the code"
    else:
        title = f"wait less in {wait.location}"
        where = f"{wait.file}:{wait.line}" + ("" if wait.source is None else f": {wait.source}")
        where += "" if wait.call is None else f" (in {wait.call})"
    share = loader.making.share(loader.making.other_wait_s)
    return Advice(
        title,
        f"{share:.0%} of a batch's time, not counting the queue for CPUs, is waiting for something other "
        f"than a CPU or a disk (sleep, a lock, the network, another process): {where}; {_BOUND} it",
        "",
        _gain_without(facts, loader, wait_s=loader.making.other_wait_s if wait is None else wait.seconds),
    )


def slow_step(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise on the slowest step of a transform, if FastLoader would not take it over."""
    making, script = loader.making, loader.script or ScriptFacts()
    if making is None or not making.transforms or script.recipe is not None:
        return None
    slowest = max(making.transforms, key=lambda step: step.seconds)
    share = making.share(slowest.seconds)
    if share < _WORTH:
        return None
    is_own = slowest.name in script.unknown_steps
    cure = "fastio has no replacement: make it cheaper, or do it once before packing" if is_own else "make it cheaper"
    return Advice(
        f"{slowest.name} takes {share:.0%} of a batch",
        f"{slowest.seconds / making.samples * 1e3:.2f} ms of CPU per sample; {cure}; {_BOUND} it",
        "",
        _gain_without(facts, loader, work_s=slowest.seconds),
    )


def more_workers(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise as many workers as keep up with training, within the available CPUs; more if they only wait."""
    known = pace(facts)
    machine = facts.machine or MachineFacts()
    if known is None or loader.kind != "DataLoader" or part in ("slow_handover", "too_few_cpus"):
        return None
    if (machine.cpu_percent or 0.0) >= SATURATED_PERCENT:
        return None
    most = 4 * known.cpus if part in ("slow_disk", "slow_wait") else known.cpus
    workers = min(known.needed_workers, most)
    if workers <= known.workers:
        return None
    batch_s = max(known.making.batch_s, known.needed_cpus * known.training_s * workers / known.cpus)
    gain = known.gain(batch_s=batch_s, workers=workers)
    times = (
        f"a batch takes {known.making.batch_s * 1e3:,.1f} ms to make, a training step {known.training_s * 1e3:,.1f} ms"
    )
    return Advice(
        f"num_workers={workers} instead of {known.workers}",
        f"{times}; this process may use {known.cpus} CPUs",
        _data_loader(loader, num_workers=workers, persistent_workers=True),
        gain,
        is_bound=False,
    )


def fewer_workers(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise fewer workers: more processes than CPUs get in each other's way."""
    cpus = (facts.machine or MachineFacts()).cpus
    if part != "too_few_cpus" or cpus is None or loader.making is None or (loader.workers or 0) <= cpus:
        return None
    share = loader.making.queued_s / loader.making.batch_s
    return Advice(
        f"num_workers={cpus} instead of {loader.workers}",
        f"{share:.0%} of a batch's time is waiting for one of the {cpus} CPUs that this process may use",
        _data_loader(loader, num_workers=cpus, persistent_workers=True),
    )


def more_threads(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise native threads for all available CPUs, by number if the loader, left to choose, took fewer."""
    cpus = (facts.machine or MachineFacts()).cpus
    if loader.kind != "FastLoader" or cpus is None or loader.threads is None or loader.threads >= cpus:
        return None
    if loader.is_tuned:
        return Advice(
            f"threads={cpus} instead of the {loader.threads} that threads=0 chose",
            "with threads=0, the loader looks for a second how many threads the loop needs; now the loop waits, and "
            "a number stays",
            _fast_loader(loader, threads=str(cpus)),
        )
    return Advice(
        f"decode on all {cpus} CPUs instead of {loader.threads}",
        "the loop waits, and threads=0 uses all CPUs that this process may use",
        _fast_loader(loader, threads="0"),
    )


def jump_tables(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise start points for a packed store of JPEGs whose crops are the limit: the store's files do not change."""
    if loader.dataset != "FastDataset" or part != "slow_decode" or loader.data_path is None:
        return None
    if loader.jump_percent is None:
        return None
    command = shlex.join(["fastio", "index", loader.data_path, *(loader.unpacked or ())])
    if loader.unpacked is not None:
        return Advice(
            "decode only what crops need: add start points to the index of the files",
            "decoding is the limit, and where a crop begins in a JPEG is known then, as in a packed store; files are "
            f"read once and stay as they are: checksums and {percent(loader.jump_percent, 1)} of the pictures' bytes "
            "are put into the index beside them",
            f"$ {command}    # used from then on, whenever the path is opened",
        )
    return Advice(
        "decode only what crops need: add start points to the store",
        "decoding is the limit, and where a crop begins in a JPEG is known then; the store stays as it is, and "
        f"{percent(loader.jump_percent, 1)} of its pictures' bytes are put beside it",
        f"$ {command}    # used from then on, whenever the store is opened",
    )


def smaller_pictures(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise smaller pictures for a packed store whose decoding is the limit."""
    if loader.dataset != "FastDataset" or part != "slow_decode":
        return None
    if loader.data_path is None or (loader.picture_side is not None and loader.picture_side <= _SHORT_SIDE):
        return None
    return Advice(
        "decode less: pack smaller pictures",
        "decoding is the limit, and large pictures can be shrunk once, when packing, which loses detail",
        _packed_again(loader, "small.lmdb", f"--short-side {_SHORT_SIDE}"),
    )


def decoded_once(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise keeping samples decoded in memory, for a packed store that is decoded in every epoch, or waited for."""
    if loader.kind != "FastLoader" or part not in ("slow_decode", "slow_disk"):
        return None
    return Advice(
        "keep the samples in memory, decoded",
        "samples are then read and decoded only once; MemoryError says so if they do not fit",
        _fast_loader(loader, cache='"ram"'),
    )


def normalise_on_device(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise doing ToTensor and Normalize on the GPU for whole batches; files stay as they are."""
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
        f"ToTensor and Normalize take {spent_s / making.batch_s:.0%} of a batch's time on the CPU, and "
        f"uint8 takes a quarter of the bytes to copy; {_BOUND} them",
        "from fastio import DevicePrefetcher\nfrom fastio.transforms import Normalize\n"
        "from torchvision.transforms import PILToTensor\n\n"
        f"{script.transform}.transforms[-2:] = [PILToTensor()]    # before the loop: the dataset gives uint8\n"
        f'{name} = DevicePrefetcher({name}, "cuda", transforms=[{normalize}])',
        _gain_without(facts, loader, work_s=spent_s),
    )


def transforms_off_the_loop(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise moving transforms of batches off the loop's own thread."""
    if loader.kind != "FastLoader" or part != "slow_transform" or loader.own_cpu is None:
        return None
    waiting = facts.shares.loading or 0.0
    return Advice(
        "move transforms from the loop to native threads or the model",
        f"the loop's own thread computes for {loader.own_cpu:.0%} of the wait: transforms of batches on a "
        "CPU run there. Crops, resizes and flips run in native threads, and layers of the model on its "
        f"device; {_BOUND} that work",
        "",
        1 / (1 - waiting * loader.own_cpu) if waiting * loader.own_cpu < 1 else None,
    )


def faster_collate(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise a collate_fn that copies only once."""
    making = loader.making
    if making is None or part != "slow_collate":
        return None
    known = pace(facts)
    share = making.share(making.collate_s)
    is_own = loader.script is not None and loader.script.collate_fn is not None
    return Advice(
        "make collate_fn a single copy: torch.stack of tensors, no loop over values",
        f"collating takes {share:.0%} of a batch's time"
        + ("; torch's default does so for samples of one shape and type" if is_own else ""),
        _data_loader(loader, collate_fn=None) if is_own else "",
        None if known is None else known.gain_without(making.collate_s),
    )


def lighter_handover(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise on workers that are idle because their batches take long to arrive."""
    if part != "slow_handover" or loader.making is None or loader.making.busy is None:
        return None
    return Advice(
        "return batches as tensors, few and no larger than needed",
        f"workers make batches only {loader.making.busy:.0%} of the time: the loop waits while batches are "
        "transferred. Tensors travel in shared memory, everything else is pickled, and uint8 is a quarter "
        "of float32: let collate_fn return torch.stack(images) of uint8, and normalise on the device",
        "",
    )


def local_disk(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise on reads as the limit: measure the disk, or avoid it."""
    if part != "slow_disk":
        return None
    path = "." if loader.data_path is None else shlex.quote(loader.data_path)
    making = loader.making
    if making is None:
        reason = "the loop waits, and this process uses no CPU"
    else:
        share = making.share(making.read_wait_s)
        reason = (
            f"{share:.0%} of a batch's time is waiting for reads; {size(making.read_bytes)} per batch came from "
            "this machine's disks"
        )
    return Advice(
        "measure the disk; copy the data to a local one, or keep it in memory",
        reason,
        f"$ fastio bench disk --path {path}",
    )


def keep_workers(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise persistent workers if starting them costs time in each epoch."""
    step = facts.step or StepFacts()
    if not loader.workers or loader.persistent_workers or step.epoch_start_s is None or not step.step_s:
        return None
    if not step.steps_per_epoch:
        return None
    epoch_s = step.epoch_start_s + step.step_s * step.steps_per_epoch
    if step.epoch_start_s < _EPOCH_START * epoch_s:
        return None
    return Advice(
        "keep workers between epochs",
        f"an epoch of {step.steps_per_epoch} steps starts with {step.epoch_start_s:.1f} s of waiting for new workers",
        _data_loader(loader, persistent_workers=True),
        epoch_s / (epoch_s - step.epoch_start_s),
    )


def deeper_prefetch(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise deeper prefetch if workers keep up on average, but the loop waits now and then."""
    known = pace(facts)
    if known is None or not known.workers or known.needed_workers > known.workers or part == "slow_handover":
        return None
    factor = 2 * (loader.prefetch_factor or 2)
    return Advice(
        f"prefetch_factor={factor}",
        f"{counted(known.workers, 'worker')} would keep up on average, but the loop still waits: batches "
        "arrive unevenly",
        _data_loader(loader, prefetch_factor=factor),
        known.step_s / known.training_s if known.training_s > 0 else None,
    )


def pinned_copies(facts: Facts, loader: LoaderFacts, part: Part | None) -> Advice | None:
    """Advise pinned memory if copies hold the device up."""
    trace = facts.trace or TraceFacts()
    on_gpu = facts.model is not None and facts.model.device.startswith("cuda")
    if not on_gpu or loader.pin_memory or (trace.memcpy or 0.0) < _COPYING:
        return None
    name = (loader.script or ScriptFacts()).loader or "loader"
    pinned = f"{_data_loader(loader, pin_memory=True)}\n" if loader.kind == "DataLoader" else ""
    return Advice(
        "copy from pinned memory, ahead of the loop",
        f"the device only copies for {trace.memcpy:.0%} of a step, from pageable memory",
        f'from fastio import DevicePrefetcher\n{pinned}{name} = DevicePrefetcher({name}, "cuda")',
        1 / (1 - (trace.memcpy or 0.0)) if (trace.memcpy or 0.0) < 1 else None,
    )


def _gain_without(facts: Facts, loader: LoaderFacts, *, work_s: float = 0.0, wait_s: float = 0.0) -> float | None:
    """
    Return the most that a step can gain if a batch takes this much less CPU work and waiting to make.

    Less work also means less queueing for a CPU, in proportion.
    """
    known, making = pace(facts), loader.making
    if known is None or making is None:
        return None
    all_s = min(making.cpu_s, making.samples_s)
    work_s = min(work_s, all_s)
    queued_s = making.queued_s * work_s / all_s if all_s > 0 else 0.0
    return known.gain_without(work_s + wait_s + queued_s)


def _packed_again(loader: LoaderFacts, out: str, options: str) -> str:
    """Return the command that packs the loader's store into another one, and what then reads that."""
    assert loader.data_path is not None
    script = loader.script or ScriptFacts()
    code = fast_loader(script, out) if loader.kind == "FastLoader" else other_dataset(script, out)
    command = f"$ {shlex.join(['fastio', 'pack', loader.data_path, out, *(loader.unpacked or ())])} {options}"
    return command + "\n" + (code or f'# then "{out}" in your FastLoader')


def _data_loader(loader: LoaderFacts, **changes: object) -> str:
    return data_loader(loader, loader.script or ScriptFacts(), changes)


def _fast_loader(loader: LoaderFacts, **changes: str) -> str:
    """Return the call with the changes; if the call is unknown, only the changes."""
    text = fast_loader(loader.script or ScriptFacts(), **changes)
    return text or "# in your FastLoader(...): " + ", ".join(f"{name}={value}" for name, value in changes.items())


# In the order of what usually helps most; it decides if figures do not tell.
LOADING_RULES: tuple[LoadingRule, ...] = (
    faster_collate,
    lighter_handover,
    fewer_workers,
    slow_line,
    pack,
    native_transforms,
    slow_step,
    more_workers,
    more_threads,
    jump_tables,
    smaller_pictures,
    decoded_once,
    local_disk,
    normalise_on_device,
    transforms_off_the_loop,
    deeper_prefetch,
    keep_workers,
    pinned_copies,
)


# What loading costs: which part is slow, and how long a step would take without it.

# A part that takes more than half of a batch's time is named.
_MOST = 0.5
# If the loop waits, but workers make batches less than this share of the time, the loop does not wait for them.
_IDLE_WORKERS = 0.5
# Native threads that compute for this share of the time are busy; the rest is starting and ending a batch.
_BUSY_THREADS = 0.6
# Disks that deliver less than this are not what a loop waits for.
_READS_PER_S = 1e6
# Parts of a batch's time; of equal ones, the first is named.
_PARTS: tuple[Part, ...] = ("slow_decode", "slow_transform", "slow_collate", "slow_disk", "slow_wait")
# Above this share, all CPUs of the machine are busy.
SATURATED_PERCENT = 95.0


@dataclass(frozen=True, slots=True)
class Pace:
    """A loop whose batches are made by ``workers`` processes on ``cpus``: times in seconds per batch and step."""

    training_s: float
    step_s: float
    making: MakingFacts
    workers: int
    cpus: int

    @property
    def needed_workers(self) -> int:
        """The workers needed to make batches as fast as training uses them, counting both CPU work and waiting."""
        needed = self.making.batch_s / self.training_s if self.training_s > 0 else math.inf
        return math.ceil(needed) if math.isfinite(needed) else self.cpus + 1

    @property
    def needed_cpus(self) -> float:
        """The CPUs needed to make batches at the pace of training, however many workers there are."""
        work_s = min(self.making.cpu_s, self.making.samples_s) + self.making.collate_s
        return work_s / self.training_s if self.training_s > 0 else math.inf

    def gain(self, *, batch_s: float, workers: int | None = None) -> float:
        """Return the gain in rate if a batch took ``batch_s`` to make; waiting is never predicted below zero."""
        step_s = self._predicted_s(batch_s, self.workers if workers is None else workers)
        return self.step_s / step_s if step_s > 0 else 1.0

    def gain_without(self, seconds: float) -> float:
        """
        Return the gain in rate if a batch took this much less to make: a ratio of two predictions with the same
        error.
        """
        now_s = self._predicted_s(self.making.batch_s, self.workers)
        then_s = self._predicted_s(max(0.0, self.making.batch_s - seconds), self.workers)
        return now_s / then_s if then_s > 0 else 1.0

    def _predicted_s(self, batch_s: float, workers: int) -> float:
        """Return the length of a step if this many workers took this long for a batch."""
        return batch_s + self.training_s if workers == 0 else max(self.training_s, batch_s / workers)


def pace(facts: Facts) -> Pace | None:
    """Return the figures for predictions, None if one is missing."""
    step, loader, machine = facts.step or StepFacts(), facts.loader, facts.machine or MachineFacts()
    if loader is None or loader.making is None or loader.workers is None:
        return None
    if step.training_s is None or step.step_s is None or machine.cpus is None:
        return None
    return Pace(step.training_s, step.step_s, loader.making, loader.workers, machine.cpus)


def slow_part(facts: Facts) -> Part | None:
    """
    Return the slowest part of loading in a loop that waits for data; None if the loader was not measured inside.

    Checked in this order: queueing for a CPU, if batches would come fast enough without it or there are more workers
    than CPUs; idle workers; whatever takes more than half of a batch's time, of collating and of waiting without a
    CPU (for a disk or for something else, whichever is more); more workers, if there are CPUs left for them; the
    largest part of a batch's time, without the queue for a CPU.
    """
    loader = facts.loader
    if loader is None:
        return None
    if loader.making is None:
        return _seen_from_outside(loader, facts.machine or MachineFacts())
    making = loader.making
    if making.queued_s > making.batch_s * _MOST and _keeps_up_without_queueing(facts, loader):
        return "too_few_cpus"
    if loader.workers and making.busy is not None and making.busy < _IDLE_WORKERS:
        return "slow_handover"
    most = making.unqueued_s * _MOST
    if making.collate_s > most:
        return "slow_collate"
    if making.blocked_s > most:
        return "slow_disk" if making.read_wait_s >= making.other_wait_s else "slow_wait"
    if _has_room_for_workers(facts):
        return "too_few_workers"
    return max(_PARTS, key=lambda part: part_seconds(making, part))


def part_seconds(making: MakingFacts, part: Part) -> float:
    """Return the seconds of a batch that a slow part takes; 0.0 for a part that is not one of a batch's time."""
    seconds = {
        "slow_decode": making.decode_s,
        "slow_transform": making.transform_s or 0.0,
        "slow_collate": making.collate_s,
        "slow_disk": making.read_wait_s,
        "slow_wait": making.other_wait_s,
    }
    return seconds.get(part, 0.0)


def _kind_of_wait(loader: LoaderFacts, machine: MachineFacts) -> Part:
    """Decide by what the loop's thread was seen waiting for; if it was not seen, by whether disks read anything."""
    reading_s = sum(wait.seconds for wait in loader.waits if wait.is_reading)
    if loader.waits:
        return "slow_disk" if 2 * reading_s >= sum(wait.seconds for wait in loader.waits) else "slow_wait"
    rate = machine.disk_read_bytes_per_s
    return "slow_wait" if rate is not None and rate < _READS_PER_S else "slow_disk"


def _keeps_up_without_queueing(facts: Facts, loader: LoaderFacts) -> bool:
    """Return whether batches lack CPUs, by the figures or by how many workers share the CPUs."""
    known, cpus = pace(facts), (facts.machine or MachineFacts()).cpus
    if not loader.workers:
        return False
    if cpus is not None and loader.workers > cpus:
        return True
    return known is not None and known.making.batch_s - known.making.queued_s <= known.workers * known.training_s


def _has_room_for_workers(facts: Facts) -> bool:
    known = pace(facts)
    machine = facts.machine or MachineFacts()
    if known is None or (machine.cpu_percent or 0.0) >= SATURATED_PERCENT:
        return False
    return known.workers < known.needed_workers <= known.cpus


def _seen_from_outside(loader: LoaderFacts, machine: MachineFacts) -> Part | None:
    """Decide by who works while the loop waits: its own thread, other threads of its process, or nobody."""
    if loader.own_cpu is not None and loader.own_cpu > _MOST:
        # FastLoader decodes in native threads: only transforms of batches are left for the loop's thread.
        return "slow_transform" if loader.kind == "FastLoader" else "slow_decode"
    if machine.process_cpus is None or machine.cpus is None:
        return None
    if loader.kind != "FastLoader" or loader.threads is None:
        return _kind_of_wait(loader, machine) if machine.process_cpus < _MOST else None
    if (machine.cpu_percent or 0.0) >= SATURATED_PERCENT:
        return "slow_decode"
    busy = _BUSY_THREADS * min(loader.threads, machine.cpus)
    if machine.process_cpus < busy:
        # If other programs left too few CPUs for busy threads, it is unknown whether threads waited for reads or
        # CPUs.
        left = machine.cpus * (1 - (machine.cpu_percent or 0.0) / 100)
        return "slow_disk" if machine.process_cpus + left >= busy else None
    return "too_few_workers" if loader.threads < machine.cpus else "slow_decode"
