"""Warnings about what is near a limit: small rules, each with its limit, and where the figure comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastio.measure.doctor.facts import Caution, Facts, GpuFacts, MachineFacts, ScriptFacts
from fastio.measure.doctor.loading import SATURATED_PERCENT
from fastio.measure.doctor.paste import pack_command
from fastio.measure.machine.disk import EXPECTED_DISK, EXPECTED_NVME, expected_rate
from fastio.measure.machine.disk_kind import DiskKind, kind_in_words
from fastio.store.kinds.recognise import pack_command as packing_command
from fastio.types.metrics import MUCH
from fastio.types.units import percent

__all__ = [
    "CAUTION_RULES",
]


_SMALL_SHM_BYTES = 64 << 20  # what Docker gives a container by default
# A course on training performance asks for 90 % of a GPU, and not to max out CPUs, memory, the network or a GPU's
# memory; what that means in percent is our choice, as are the other limits.
_GPU_PERCENT = 90.0
_MEMORY_PART = 0.90
_NETWORK_PART = 0.90
_GPU_MEMORY_PART = 0.95
_SHM_PART = 0.5
_QUEUED = 0.25
_IOWAIT_PERCENT = 20.0
_FAULTS_PER_S = 100.0


def small_shm(facts: Facts) -> Iterator[Caution]:
    """Warn if /dev/shm, through which workers pass batches, is too small."""
    machine, loader = facts.machine or MachineFacts(), facts.loader
    if loader is None or not loader.workers or machine.shm_free_bytes is None or machine.shm_total_bytes is None:
        return
    free, total = _mb(machine.shm_free_bytes), _mb(machine.shm_total_bytes)
    cure = "start the container with --shm-size=8g or --ipc=host, or use FastLoader, which needs no /dev/shm"
    if loader.batch_bytes is not None:
        needed = loader.workers * (loader.prefetch_factor or 2) * loader.batch_bytes
        if needed > _SHM_PART * machine.shm_free_bytes:
            batches = f"{loader.workers} workers x {loader.prefetch_factor or 2} batches of {_mb(loader.batch_bytes)}"
            yield Caution(
                f"{free} of {total} are free in /dev/shm, but the loader may need {_mb(needed)}",
                f"{batches} are kept there; a full /dev/shm kills workers (bus error): {cure}",
                "limit: half of what is free",
            )
            return
    if machine.shm_total_bytes <= _SMALL_SHM_BYTES:
        yield Caution(
            f"only {total} in /dev/shm",
            f"a full /dev/shm kills workers (bus error): {cure}",
            "limit: 64 MiB, Docker's default",
        )


def too_many_workers(facts: Facts) -> Iterator[Caution]:
    """Warn if there are more workers than CPUs."""
    cpus, loader = (facts.machine or MachineFacts()).cpus, facts.loader
    if cpus is not None and loader is not None and (loader.workers or 0) > cpus:
        yield Caution(
            f"{loader.workers} workers on {cpus} CPUs",
            f"more of them only cost memory and start time: set num_workers={cpus} at most",
            "affinity, cgroup quota, SLURM_CPUS_PER_TASK and LOCAL_WORLD_SIZE of this process",
        )


def saturated_cpus(facts: Facts) -> Iterator[Caution]:
    """Warn if all CPUs are busy, with this training or with others."""
    machine = facts.machine or MachineFacts()
    if machine.cpu_percent is not None and machine.cpu_percent >= SATURATED_PERCENT:
        own = "" if machine.process_cpus is None else f"; this training uses {machine.process_cpus:.1f} CPUs of them"
        yield Caution(
            f"the machine's CPUs are {percent(machine.cpu_percent)} busy{own}",
            f"more workers or threads will not help: {', or '.join(_less_for_cpus(facts))}",
            f"limit: {percent(SATURATED_PERCENT)}",
        )


def _less_for_cpus(facts: Facts) -> Iterator[str]:
    """Yield what would leave CPUs more time."""
    loader = facts.loader
    yield "stop other programs"
    if loader is not None and loader.kind == "DataLoader" and loader.dataset != "FastDataset":
        script = loader.script or ScriptFacts()
        if loader.data_path is not None and script.data_kind is not None:
            command = pack_command(loader, script).removeprefix("$ ").partition("    #")[0]
            yield f"pack the files (`{command}`)"
    if facts.model is not None and facts.model.device.startswith("cuda"):
        yield "transform on the device"


def queueing(facts: Facts) -> Iterator[Caution]:
    """Warn if the processes that make batches wait for CPUs."""
    making = None if facts.loader is None else facts.loader.making
    if making is not None and making.batch_s > 0 and making.queued_s > _QUEUED * making.batch_s:
        share = making.queued_s / making.batch_s
        yield Caution(
            f"{share:.0%} of the time to make a batch is spent waiting for a CPU",
            "other programs use the same CPUs; on a quiet machine the figures would be better",
            f"limit: {_QUEUED:.0%}; measured by the kernel's schedstat",
        )


def full_memory(facts: Facts) -> Iterator[Caution]:
    """Warn if the machine's memory is nearly full."""
    machine = facts.machine or MachineFacts()
    if machine.memory_used_bytes is None or not machine.memory_total_bytes:
        return
    part = machine.memory_used_bytes / machine.memory_total_bytes
    if part >= _MEMORY_PART:
        yield Caution(
            f"{part:.0%} of {_mb(machine.memory_total_bytes)} of memory are in use",
            "data that no longer fits in the page cache is read again in every epoch: use fewer workers or "
            "less prefetch",
            f"limit: {_MEMORY_PART:.0%}",
        )


def full_network(facts: Facts) -> Iterator[Caution]:
    """Warn if the fastest network interface is at its limit."""
    machine = facts.machine or MachineFacts()
    rate, limit = machine.network_bytes_per_s, machine.network_limit_bytes_per_s
    if rate is not None and limit and rate >= _NETWORK_PART * limit:
        yield Caution(
            f"the network carries {_mb(rate)}/s of {_mb(limit)}/s",
            "copy the data to a local disk (`fastio stage`), or pack smaller pictures (`fastio pack --short-side 256`)",
            f"limit: {_NETWORK_PART:.0%} of the interface's rate",
        )


def waiting_for_disks(facts: Facts) -> Iterator[Caution]:
    """Warn if CPUs are idle because they wait for reads."""
    machine = facts.machine or MachineFacts()
    if machine.iowait_percent is not None and machine.iowait_percent >= _IOWAIT_PERCENT:
        rate = machine.disk_read_bytes_per_s
        read = "" if rate is None else f", while disks deliver {_mb(rate)}/s"
        asked = _asked_of(None if facts.loader is None else facts.loader.data_disk)
        yield Caution(
            f"CPUs are idle and wait for disks {percent(machine.iowait_percent)} of the time{read}",
            f"{asked}: `fastio bench disk` measures yours",
            f"limit: {percent(_IOWAIT_PERCENT)}; measured by the kernel's iowait",
        )


def cold_cache(facts: Facts) -> Iterator[Caution]:
    """Warn if pages are read one by one as they are accessed."""
    making = None if facts.loader is None else facts.loader.making
    if making is not None and making.batch_s > 0 and making.major_faults / making.batch_s >= _FAULTS_PER_S:
        yield Caution(
            f"{making.major_faults / making.batch_s:,.0f} page faults a second are read from a disk",
            "mapped data is not in memory yet (cold), or does not stay there; if it is only cold, the second "
            "epoch will be faster",
            f"limit: {_FAULTS_PER_S:.0f} a second; measured by getrusage",
        )


def files_in_place(facts: Facts) -> Iterator[Caution]:
    """Warn if a FastLoader waits for files that it opens one by one."""
    loader = facts.loader
    if loader is not None and loader.opens is not None and loader.opens.is_much and loader.data_path is not None:
        yield Caution(
            loader.opens.words(),
            f"packed into one file, none is opened: `{packing_command(loader.data_path, *(loader.unpacked or ()))}`",
            f"limit: {MUCH:.0%} of the time; measured where files are read",
        )


def slow_disks(facts: Facts) -> Iterator[Caution]:
    """Warn if sequential reads are slower than the course expects of this kind of disk, or of any disk."""
    for disk in facts.disks:
        expected = expected_rate(disk.kind) or EXPECTED_DISK
        if disk.sequential_bytes_per_s < expected:
            yield Caution(
                f"{disk.path}: {_mb(disk.sequential_bytes_per_s)}/s sequentially",
                f"{_asked_of(disk.kind)}; keep the data on a faster disk, or in memory",
                f"limit: {_mb(expected)}/s",
            )


def _asked_of(kind: DiskKind | None) -> str:
    if kind is None:
        return f"any disk should give {_mb(EXPECTED_DISK)}/s, an NVMe drive {_mb(EXPECTED_NVME)}/s"
    return f"{kind_in_words(kind)} should give {_mb(expected_rate(kind) or EXPECTED_DISK)}/s"


def idle_gpus(facts: Facts) -> Iterator[Caution]:
    """Warn if utilisation is below what the course asks for."""
    for gpu in facts.gpus:
        if gpu.utilization_percent is not None and gpu.utilization_percent < _GPU_PERCENT:
            yield Caution(
                f"{gpu.name}: {percent(gpu.utilization_percent)} utilisation",
                "expected 90% or more; NVML counts any running kernel, so the real use may be even lower",
                f"limit: {percent(_GPU_PERCENT)}; measured by NVML",
            )


def full_gpus(facts: Facts) -> Iterator[Caution]:
    """Warn if a GPU's memory is nearly full."""
    for gpu in facts.gpus:
        part = _gpu_memory(gpu)
        if part is not None and part >= _GPU_MEMORY_PART:
            yield Caution(
                f"{gpu.name}: {part:.0%} of its memory in use",
                "one larger batch would end the run: use smaller batches, mixed precision, or activation checkpointing",
                f"limit: {_GPU_MEMORY_PART:.0%}",
            )


def _gpu_memory(gpu: GpuFacts) -> float | None:
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    return gpu.memory_used_bytes / gpu.memory_total_bytes


def _mb(count: float) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e8 else f"{count / 1e6:,.0f} MB"


CAUTION_RULES: tuple[Callable[[Facts], Iterator[Caution]], ...] = (
    small_shm,
    too_many_workers,
    saturated_cpus,
    queueing,
    waiting_for_disks,
    cold_cache,
    files_in_place,
    slow_disks,
    full_memory,
    full_network,
    idle_gpus,
    full_gpus,
)
