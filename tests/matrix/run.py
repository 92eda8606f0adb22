"""Installs each wheel with the oldest and the newest libraries that it allows, and runs the suite's core there.

``make test-matrix`` runs all; ``run.py --python 3.12 --edge oldest`` one. The wheels lie in ``dist/``. Everything else
goes below ``build/matrix``: an environment for each run, removed after it, and pip's cache (torch for CUDA takes
gigabytes; ``PIP_EXTRA_INDEX_URL`` may name an index of CPU builds).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from packaging.requirements import Requirement

__all__ = ["main", "oldest_versions"]

TOP = Path(__file__).parents[2]
FOLDER = TOP / "build" / "matrix"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
EDGES = ("oldest", "newest")
EXTRAS = ("interop", "metrics", "numba", "remote", "text")  # whose libraries the core's tests use
TOOLS = ("hypothesis>=6.100", "pytest>=8", "pytest-timeout>=2.3", "pytest-xdist>=3.5")
SHOWN = ("torch", "numpy", "pillow", "h5py")
# What needs none of the other extras, no server and no other process's speed.
CORE = ("types", "native", "codec", "store", "converters", "samplers", "transforms", "dataset", "loader", "cli")
# What is left out of these: it needs what a build or a trainer needs, or looks into the source, which does not lie
# beside the suite.
LEFT_OUT = (
    "converters/sources/test_pictured_chats.py::test_batches_are_those_of_transformers",
    "converters/sources/test_sources.py::test_package_refuses_its_other_name",
    "loader/test_forks.py::test_no_other_module_asks",
    "loader/test_vision.py",
    "native/test_missing_codecs.py",
    "native/test_stub.py",
    "samplers/test_bucket_trainer.py",
    "transforms/test_patches.py",
    "types/test_picture_kinds.py",
    "types/test_traits.py",
    # Kills, races and orders of indices: long, and the same with any version.
    "cli/test_html_option.py",
    "cli/test_profile.py",
    "converters/packing/test_kills.py",
    "loader/producer/test_read_ahead.py",
    "loader/test_killed_training.py",
    "loader/test_threads.py",
    "samplers/test_planned.py",
    "samplers/test_lanes.py",
    "samplers/test_mixture.py",
    "store/write/test_atomic.py",
)


@dataclass
class Outcome:
    """How one run went: the installed versions, and how many tests passed, failed and were skipped."""

    python: str
    edge: str
    versions: dict[str, str] = field(default_factory=dict)
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    problem: str = ""


def oldest_versions(project: dict[str, object], python: str, extras: Sequence[str] = EXTRAS) -> Iterator[str]:
    """Yields ``name==version`` for the lower bound of each dependency that applies to this Python."""
    dependencies = list(project["dependencies"])
    for extra in extras:
        dependencies += project["optional-dependencies"][extra]
    for requirement in map(Requirement, dependencies):
        environment = {"python_version": python, "python_full_version": f"{python}.0"}
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        bounds = [bound.version for bound in requirement.specifier if bound.operator == ">="]
        if len(bounds) != 1:
            raise ValueError(f"pyproject.toml, {requirement}: expected one lower bound, as in {requirement.name}>=1.2")
        yield f"{requirement.name}=={bounds[0]}"


def main() -> int:
    """Runs what the options name, prints the table; 1 where anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", choices=PYTHONS, action="append", help="only this version")
    parser.add_argument("--edge", choices=EDGES, action="append", help="only the oldest or the newest libraries")
    parser.add_argument("--keep", action="store_true", help="keep the environments, and use those that were kept")
    options = parser.parse_args()
    copy_suite()
    outcomes = []
    for python in options.python or PYTHONS:
        for edge in options.edge or EDGES:
            print(f"Python {python}, {edge} libraries", flush=True)
            outcomes.append(run(python, edge, keep=options.keep))
    print(table(outcomes))
    return int(any(outcome.problem or outcome.failed for outcome in outcomes))


def copy_suite() -> None:
    """Lays the tests where no source of ``fastio`` lies beside them, so that they import the installed one."""
    suite = FOLDER / "suite"
    shutil.rmtree(suite, ignore_errors=True)
    for name in ("tests", "benchmarks"):
        shutil.copytree(TOP / name, suite / name, ignore=shutil.ignore_patterns("__pycache__", ".*", "results"))
    shutil.copy(TOP / "pyproject.toml", suite)
    guide = suite / "fastio" / "guide"  # which tests compare with; folders without Python files hide no package
    guide.mkdir(parents=True)
    for page in (TOP / "fastio" / "guide").glob("*.md"):
        shutil.copy(page, guide)


def run(python: str, edge: str, *, keep: bool) -> Outcome:
    """One row of the table."""
    outcome = Outcome(python, edge)
    environment = FOLDER / f"{python}-{edge}"
    try:
        install(python, edge, environment, keep=keep)
        outcome.versions = installed_versions(environment)
        run_tests(environment, edge, outcome)
    except (OSError, subprocess.CalledProcessError) as error:
        outcome.problem = str(error)
    if not keep:
        shutil.rmtree(environment, ignore_errors=True)
    return outcome


def install(python: str, edge: str, environment: Path, *, keep: bool) -> None:
    """Makes the environment and installs the wheel for this Python into it."""
    processor = os.uname().machine
    tag = "cp311-cp311" if python == "3.11" else "cp312-abi3"
    wheels = sorted((TOP / "dist").glob(f"fastio-*-{tag}-*_{processor}.whl"))
    if not wheels:
        raise FileNotFoundError(f"no dist/fastio-*-{tag}-*.whl: make wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    pip += ["--python", environment / "bin" / "python"]
    if keep and environment.exists():
        subprocess.run([*pip, "uninstall", "--yes", "fastio"], check=True)  # pip keeps what has the same version
    else:
        shutil.rmtree(environment, ignore_errors=True)
        command = [TOP / "native" / "python_for.sh", processor, python]
        interpreter = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
        if not interpreter:
            raise FileNotFoundError(f"no Python {python} here (PYTHON{python.replace('.', '')}=... names one)")
        subprocess.run([interpreter, "-m", "venv", "--without-pip", environment], check=True)
    constraints = environment / "constraints.txt"
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    constraints.write_text("\n".join(oldest_versions(project, python) if edge == "oldest" else ()))
    subprocess.run(
        [
            *(*pip, "install"),
            *("--only-binary", ":all:", "--cache-dir", FOLDER / "cache", "--constraint", constraints),
            "--no-compile",  # all of torch takes a minute, and the tests import little of it
            *(f"{wheels[-1]}[{','.join(EXTRAS)}]", *TOOLS),
        ],
        check=True,
    )


def installed_versions(environment: Path) -> dict[str, str]:
    """The versions of the libraries that the table shows."""
    script = "import importlib.metadata, sys; print(*map(importlib.metadata.version, sys.argv[1:]))"
    command = [environment / "bin" / "python", "-c", script, *SHOWN]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(zip(SHOWN, printed.split(), strict=True))


def run_tests(environment: Path, edge: str, outcome: Outcome) -> None:
    """Runs the core's tests and counts."""
    report = environment / "report.xml"
    report.unlink(missing_ok=True)  # that of an environment that was kept
    command = [environment / "bin" / "python", "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider"]
    command += ["--dist", "worksteal", "--junit-xml", report]
    command += [f"--{'deselect' if '::' in name else 'ignore'}=tests/{name}" for name in LEFT_OUT]
    command += [f"tests/{name}" for name in CORE]
    if edge == "oldest":
        command += ["-o", "filterwarnings=default"]  # what old versions warn of is settled in later ones
    status = subprocess.run(command, cwd=FOLDER / "suite", check=False).returncode
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    outcome.failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    outcome.skipped = int(suite.attrib["skipped"])
    outcome.passed = int(suite.attrib["tests"]) - outcome.failed - outcome.skipped
    if status not in (0, 1) or not outcome.passed:  # 1: some failed, which the counts say
        outcome.problem = f"pytest ended with status {status}"


def table(outcomes: Sequence[Outcome]) -> str:
    """One line a run."""
    rows = [("Python", *SHOWN, "passed", "failed", "skipped")]
    for outcome in outcomes:
        versions = [outcome.versions.get(name, "-") for name in SHOWN]
        counts = map(str, (outcome.passed, outcome.failed, outcome.skipped))
        rows.append((outcome.python, *versions, *counts))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    for outcome in outcomes:
        if outcome.problem:
            lines.append(f"{outcome.python}, {outcome.edge} libraries: {outcome.problem}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
