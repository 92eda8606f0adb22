"""What loading costs: which part is slow, and how long a step would take without it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fastio.doctor.facts import Facts, LoaderFacts, MachineFacts, MakingFacts, StepFacts
from fastio.doctor.findings import Part

__all__ = ["Pace", "pace", "part_seconds", "slow_part"]

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
