"""Interleaved rounds of fresh processes: what both ``run`` and ``run_peers`` are made of."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks.process_tree import peak_memory

__all__ = ["CaseError", "Results", "interleaved", "reason_in", "run_process"]

ROOT = Path(__file__).parent.parent


class CaseError(Exception):
    """A case could not be run; the message is one line that says why."""


@dataclass(slots=True)
class Results:
    """All runs of all cases, and why a case has none."""

    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def interleaved(names: Iterable[str], measure: Callable[[str], dict[str, Any]], *, rounds: int) -> Results:
    """
    Measure every case once, then every case again: a machine that slows down slows all of them.

    A case that raises CaseError is not tried again, its earlier runs are dropped and its reason is kept.
    """
    results = Results({name: [] for name in names})
    for _ in track(range(rounds), description="rounds", console=Console(stderr=True)):
        for name in list(results.runs):
            try:
                results.runs[name].append(measure(name))
            except CaseError as exc:
                del results.runs[name]
                results.failed[name] = str(exc)
    return results


def run_process(
    command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None, timeout_s: float = 600
) -> dict[str, Any]:
    """
    The JSON object on the last line that a fresh process prints, with ``peak_rss_mb`` of it and its children.

    CaseError when it ends with an error, prints no such line or takes longer than ``timeout_s``; then all of its
    session is killed.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    with peak_memory(process.pid) as peak:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as exc:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise CaseError(f"did not end within {timeout_s:g} s") from exc
    lines = out.splitlines()
    if process.returncode != 0 or not lines or not lines[-1].startswith("{"):
        raise CaseError(reason_in(err or out, status=process.returncode))
    return {**json.loads(lines[-1]), "peak_rss_mb": round(peak.mb, 1)}


def reason_in(text: str, *, status: int) -> str:
    """The line of an output that says why a process failed: the last that names an error, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return f"ended with status {status} without a word"
    # pip ends with advice on its own version; Python ends with the exception.
    named = [line for line in lines if "error" in line.lower() or line.split(":")[0].endswith(("Exception", "Output"))]
    return (named or lines)[-1][:300]
