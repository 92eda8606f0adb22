"""Loaders side by side: which take part in which training, their interleaved rounds, tables of them, what is kept."""

from __future__ import annotations

import importlib.metadata
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.peer_report import case_name
from benchmarks.peers.environments import interpreter, process_environment, versions
from benchmarks.report import result_path, write_result
from benchmarks.rounds import Results, interleaved, run_process

__all__ = ["Comparison", "Heading"]

Measure = Callable[[str, str], dict[str, Any]]

_HERE = ("fastio", "torch", "torchvision", "timm", "pillow", "numpy", "tokenizers", "transformers")


class Heading(Protocol):
    """
    What a table says of its training: ``unit`` is what a sample is.

    ``figures`` are columns that a check gives as shares; rates are by CPU time, or by the clock if ``by_clock``.
    """

    @property
    def title(self) -> str: ...

    @property
    def unit(self) -> str: ...

    @property
    def figures(self) -> Sequence[str]: ...

    @property
    def by_clock(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """
    The trainings of a package, such as ``benchmarks.text``, whose ``measure`` runs a loader in a process of its own.

    ``loaders`` has the file of each loader, by its name in the tables, and its environment in ``benchmarks/peers``
    ("" is this one). ``cases`` has the loaders of each training; the others are compared with the first. ``absent``
    says why a loader is in no case of a training: {loader: {training: why}}.
    """

    package: str
    loaders: Mapping[str, tuple[str, str]]
    cases: Mapping[str, Sequence[str]]
    absent: Mapping[str, Mapping[str, str]]

    def run(
        self, name: str, action: str, *arguments: str, variables: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """What ``measure ACTION MODULE ARGUMENTS`` of a loader gives; CaseError says why it gives nothing."""
        module, environment = self.loaders[name]
        home = process_environment(environment) if environment else {}
        command = [interpreter(environment), "-m", f"{self.package}.measure", action, module, *arguments]
        return run_process(command, environment={**home, "PYTHONWARNINGS": "ignore", **(variables or {})})

    def rounds(
        self, measure: Measure, *, chosen: Mapping[str, Sequence[str]], failed: Mapping[str, str], rounds: int
    ) -> Results:
        """Interleaved rounds of ``measure(training, name)``; ``failed`` says of cases why they are not tried."""
        cases = {case_name(training, name): (training, name) for training, names in chosen.items() for name in names}
        tried = [case for case in cases if case not in failed]
        results = interleaved(tried, lambda case: measure(*cases[case]), rounds=rounds)
        results.failed |= failed
        return results

    def table(self, training: str, heading: Heading, results: Results) -> str:
        """Markdown: medians and range, and how many times the rate of each other the first loader's is, by rounds."""
        cases = {name: case_name(training, name) for name in self.cases[training]}
        names = [name for name, case in cases.items() if case in results.runs or case in results.failed]
        by = "second" if heading.by_clock else "CPU-second"
        rows = [[heading.title, f"{heading.unit} per {by}", f"{names[0]} is", *heading.figures]]
        rows.append(["---", *["---:"] * (2 + len(heading.figures))])
        runs = {name: results.runs.get(cases[name], []) for name in names}
        first = _rates(runs[names[0]], heading)
        for name in names:
            rates = _rates(runs[name], heading)
            if not rates:
                rows.append([name, results.failed[cases[name]]])
                continue
            ratios = [] if name == names[0] else [ours / theirs for ours, theirs in zip(first, rates, strict=False)]
            figures = (runs[name][0].get(figure) for figure in heading.figures)
            rows.append([name, _range(rates), _range(ratios), *map(_share, figures)])
        rows += [[name, reasons[training]] for name, reasons in self.absent.items() if training in reasons]
        return "\n".join(f"| {' | '.join(row + [''] * (len(rows[0]) - len(row)))} |" for row in rows)

    def keep(self, results: Results, *parts: str, settings: Mapping[str, Any]) -> Path:
        """Write all runs into ``benchmarks/results``, with versions of all environments; ``parts`` are in its name."""
        found = {distribution.name.lower() for distribution in importlib.metadata.distributions()}
        here = [f"{package}=={importlib.metadata.version(package)}" for package in _HERE if package in found]
        others = {environment for _, environment in self.loaders.values() if environment}
        path = result_path(*parts)
        write_result(
            path,
            {
                "settings": dict(settings),
                "versions": {"this one": here} | {environment: versions(environment) for environment in sorted(others)},
                "runs": results.runs,
                "failed": results.failed,
            },
        )
        return path


def _rates(runs: Iterable[Mapping[str, Any]], heading: Heading) -> list[float]:
    return [run["samples"] / run["wall_s" if heading.by_clock else "cpu_s"] for run in runs]


def _range(values: Sequence[float]) -> str:
    """The median, least and most; nothing of nothing."""
    if not values:
        return ""
    middle, least, most = map(_number, (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least}-{most})"


def _number(value: float) -> str:
    """Whole, or with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"
