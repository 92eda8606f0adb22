"""verdict: names what limits a training, from the rates of its halves and the parts of its step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastio.types.options import explains_fields, explains_names

__all__ = ["Bound", "StepShares", "Verdict", "headroom_in_words", "verdict"]

Bound = Literal["io_bound", "compute_bound", "launch_bound", "sync_bound", "balanced"]

# Waiting for data for more than this share of the step is io_bound: the courses ask for 90 % of device utilisation,
# which is then out of reach. The same tenth separates "balanced" from the rest if only rates are known.
_LOADING_HIGH = 0.10
# Below this share, the loader keeps up: without any waiting, the training would gain less than a twentieth. The courses
# say loading << training, and their repaired run waits 0.23 %; where the line lies in between is our choice.
_LOADING_LOW = 0.05
# A device that is busy for this share of the step is the limit. The courses' repaired run has 86.84 % and is limited
# by its kernels, the mean of a real cluster is 52 %; our choice lies in between.
_DEVICE_BUSY = 0.80
# How much stopping synchronisation must gain before it is named as the limit: the same tenth.
_SYNC_GAIN = 0.10

_NEXT = {
    "io_bound": "make loading faster: pack the files, use more threads or workers, prefetch, transform on the "
    "device; `fastio tune DATA` tries settings",
    "compute_bound": "make the step faster: mixed precision, channels_last, torch.compile, a larger batch; a faster "
    "loader would not help",
    "launch_bound": "give the device more work per call: a larger batch, torch.compile or CUDA graphs, fused "
    "optimizers; mixed precision makes kernels shorter and would make this worse",
    "sync_bound": "let the host run ahead: no .item(), .cpu(), print of a tensor or unpinned copy in every step; log "
    "every 50 steps",
    "balanced": "prefetch and threads can save the few percent of waiting (`fastio tune DATA` tries settings); to gain "
    "more, make both loading and the step faster",
}

# io_bound, although loading alone is faster than training alone.
_NEXT_WITH_CPUS = (
    "leave loading more CPUs: end other programs, give the training fewer threads (torch.set_num_threads), transform "
    "on the device; then measure again"
)


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class StepShares:
    """
    Parts of a step, each from 0 to 1 of its wall time; None if not measured.

    ``loading``: the loop waits for its batch. ``device``: the device computes, copies or sets memory. ``cpu``: the
    host executes operators and runtime calls, without waiting for the device. ``sync``: the host waits for the
    device. They overlap, so they do not add up to 1.
    """

    loading: float | None = None
    device: float | None = None
    cpu: float | None = None
    sync: float | None = None

    def __post_init__(self) -> None:
        for name in ("loading", "device", "cpu", "sync"):
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:
                raise ValueError(f"{name}={share}: expected a share of the step from 0 to 1")


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What limits the training, why, and what to do next.

    ``headroom`` is how much faster loading is than training: 0.0 for equal rates, -0.75 if the loader reaches a
    quarter of what training could use; None if unknown. ``print`` shows all of it.
    """

    bound: Bound
    headroom: float | None
    evidence: tuple[str, ...]
    next_step: str

    def __str__(self) -> str:
        headroom = "" if self.headroom is None else f", {headroom_in_words(self.headroom)}"
        evidence = [f"  {line}" for line in self.evidence]
        return "\n".join([f"{self.bound}{headroom}", *evidence, f"next: {self.next_step}"])


def headroom_in_words(headroom: float) -> str:
    """
    Return how fast loading alone is, compared with training alone.

    >>> headroom_in_words(-0.25)
    'loading alone has 0.75 times the rate of training alone'
    """
    return f"loading alone has {1 + headroom:.2f} times the rate of training alone"


@explains_names()
def verdict(
    io_rate: float | None = None, train_rate: float | None = None, *, shares: StepShares | None = None
) -> Verdict:
    """
    Name the limit of a training from rates (samples/s), from the parts of its step, or from both.

    ``io_rate`` is loading alone (MockTrainer), ``train_rate`` training alone (MockLoader). Measurements of the real
    loop count more than those of its halves. The rules, in this order:

    1. ``io_bound``: the loop waits for data for more than 10 % of the step; if that is unknown, the loader alone is
       more than 10 % slower than training alone.
    2. The device is known to be busy for less than 80 % of the step: ``sync_bound`` if the host waits for the device
       and the step would be at least 10 % shorter without that; ``launch_bound`` if the host is busy for longer than
       the device. If the host's part is unknown, it is what loading, waiting and device leave over.
    3. ``balanced``: loading barely keeps up with training. The loop waits for 5 to 10 % of the step; if that is
       unknown, the two rates are within 10 %.
    4. ``compute_bound``: training itself is the limit.

    The thresholds and their sources are at the top of this module. Raises ValueError unless it gets both rates, or a
    share of loading or of the device.
    """
    shares = shares or StepShares()
    if (io_rate is None) != (train_rate is None):
        raise ValueError("verdict: io_rate and train_rate belong together: give both or neither")
    if io_rate is None and shares.loading is None and shares.device is None:
        raise ValueError("verdict: expected both rates, or StepShares with loading or device")
    ratio = None
    if io_rate is not None and train_rate is not None:
        if io_rate < 0 or train_rate <= 0:
            raise ValueError(f"io_rate={io_rate}, train_rate={train_rate}: expected samples/s above 0")
        ratio = io_rate / train_rate
    bound = _bound(ratio, shares)
    evidence = (*_rates_in_words(io_rate, train_rate), *_shares_in_words(shares))
    if bound == "compute_bound" and shares.device is None:
        evidence = (*evidence, "it was not measured whether kernels or the host limit the step")
    next_step = _NEXT[bound]
    if bound == "io_bound" and ratio is not None and ratio > 1:
        next_step = _NEXT_WITH_CPUS
        evidence = (
            *evidence,
            "loading alone would keep up; in the loop, it lacks CPUs, which training or other programs use",
        )
    return Verdict(bound, None if ratio is None else ratio - 1, evidence, next_step)


def _bound(ratio: float | None, shares: StepShares) -> Bound:
    waits = shares.loading
    if waits is None and ratio is not None:
        waits = max(0.0, 1 - ratio)
    if waits is not None and waits > _LOADING_HIGH:
        return "io_bound"
    if shares.device is not None and shares.device < _DEVICE_BUSY:
        host_or_sync = _host_bound(shares.device, shares)
        if host_or_sync is not None:
            return host_or_sync
    if shares.loading is not None:
        return "balanced" if shares.loading >= _LOADING_LOW else "compute_bound"
    return "balanced" if ratio is not None and ratio <= 1 + _LOADING_HIGH else "compute_bound"


def _host_bound(device: float, shares: StepShares) -> Bound | None:
    """Return whether an idle device waits for the host, and why."""
    loading, sync = shares.loading or 0.0, shares.sync or 0.0
    cpu = shares.cpu if shares.cpu is not None else max(0.0, 1 - device - loading - sync)
    without_sync = loading + max(device, cpu)  # both run at the same time if neither waits
    if sync >= _SYNC_GAIN and without_sync <= 1 - _SYNC_GAIN:
        return "sync_bound"
    return "launch_bound" if cpu > device else None


def _rates_in_words(io_rate: float | None, train_rate: float | None) -> tuple[str, ...]:
    if io_rate is None or train_rate is None:
        return ()
    rates = f"loading alone: {io_rate:,.0f} samples/s, training alone: {train_rate:,.0f} samples/s"
    return (f"{rates}, ratio {io_rate / train_rate:.2f}",)


def _shares_in_words(shares: StepShares) -> tuple[str, ...]:
    words = {
        "loading": "of the step waits for data",
        "device": "of the step the device is busy",
        "cpu": "of the step the host executes operators and launches",
        "sync": "of the step the host waits for the device",
    }
    known = ((getattr(shares, name), text) for name, text in words.items())
    return tuple(f"{share:.1%} {text}" for share, text in known if share is not None)
