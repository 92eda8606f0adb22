"""What a run of the benchmarks leaves: medians, the machine, a file of results."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Summary", "machine", "result_path", "summary", "write_result"]

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Summary:
    """One case over all rounds: medians, and its slowest and fastest round; rates are samples a (CPU-)second."""

    per_cpu_second: float
    slowest: float
    fastest: float
    per_second: float
    first_batch_s: float | None
    peak_rss_mb: float | None

    @property
    def cpu_us(self) -> float:
        """CPU time of one sample, in microseconds."""
        return 1e6 / self.per_cpu_second


def summary(runs: Sequence[dict[str, Any]]) -> Summary:
    """The summary of a case's rounds, of which there is at least one."""
    cpu = sorted(run["samples"] / run["cpu_s"] for run in runs)
    return Summary(
        per_cpu_second=statistics.median(cpu),
        slowest=cpu[0],
        fastest=cpu[-1],
        per_second=statistics.median(run["samples"] / run["wall_s"] for run in runs),
        first_batch_s=_median(runs, "first_batch_s"),
        peak_rss_mb=_median(runs, "peak_rss_mb"),
    )


def _median(runs: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if name in run]
    return statistics.median(values) if values else None


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    return {"cpu": model, "cores": str(len(os.sched_getaffinity(0))), "system": platform.platform()}


def result_path(*parts: str) -> Path:
    """``results/<date>-<machine>[-<part>...].json``: a part of the cases must not replace all of them."""
    names = [re.sub("[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts if part]
    return RESULTS / f"{'-'.join([datetime.date.today().isoformat(), platform.node() or 'machine', *names])}.json"


def write_result(path: Path, result: dict[str, Any]) -> dict[str, Any]:
    """Write a result with the date and the machine before it; the whole is returned."""
    path.parent.mkdir(exist_ok=True)
    whole = {"date": datetime.date.today().isoformat(), "machine": machine(), **result}
    path.write_text(json.dumps(whole, indent=1) + "\n")
    return whole
