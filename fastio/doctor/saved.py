"""Reads facts that other commands saved: JSON of bench, profile, monitor, doctor and StepTimer, and traces."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fastio.doctor.facts import (
    DiskFacts,
    Facts,
    GpuFacts,
    LoaderFacts,
    MachineFacts,
    MakingFacts,
    ModelFacts,
    ScriptFacts,
    StepFacts,
    TraceFacts,
    TransformFacts,
    WaitFacts,
    merged,
)
from fastio.doctor.gather import trace_facts
from fastio.doctor.surroundings import gpu_facts, machine_facts
from fastio.errors import FastioError
from fastio.measure.machine.gpus import GpuSample
from fastio.measure.machine.monitor import ProcessSample, Sample
from fastio.measure.trace.trace import OperatorTime, StepBreakdown, read_trace

__all__ = ["load_facts"]

_VERSION = "/1"
_Built = TypeVar("_Built")


def load_facts(paths: Sequence[str | Path]) -> Facts:
    """
    Merge what these files say; for a figure in two files, the first counts. Raises FastioError that names the file.
    """
    return merged(*(_of_file(Path(path)) for path in paths))


def _of_file(path: Path) -> Facts:
    objects = _objects(path)
    formats = {said.get("format") if isinstance(said, dict) else None for said in objects}
    name = next(iter(formats)) if len(formats) == 1 else None
    reader = _READERS.get(str(name).removesuffix(_VERSION))
    if reader is None and any(isinstance(said, dict) and "traceEvents" in said for said in objects):
        return Facts(trace=trace_facts(read_trace(path)), sources=(f"{path}: trace",))
    if reader is None or not str(name).endswith(_VERSION):
        expected = ", ".join(f"{known}{_VERSION}" for known in _READERS)
        raise FastioError(f"{path}: its format is {name!r}; expected a trace of torch.profiler, or one of {expected}")
    try:
        facts = reader(objects)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as exc:
        raise FastioError(f"{path}: is not a complete {name} ({exc!r}): write it again with --json") from exc
    return dataclasses.replace(facts, sources=(f"{path}: {name}", *facts.sources))


def _objects(path: Path) -> list[Any]:
    """Read one object, or one per line."""
    if path.name.endswith(".gz"):
        return [{"traceEvents": None}]
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as exc:
        raise FastioError(f"{path}: is not text; expected output of --json, or a trace") from exc
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()] or [None]
    except ValueError as exc:
        raise FastioError(f"{path}: neither JSON nor JSON lines ({exc}); expected output of --json") from exc


def _both(objects: Sequence[Any]) -> Facts:
    said = objects[0]
    rates = StepFacts(io_rate=said["io_samples_per_s"], train_rate=said["training_samples_per_s"])
    return merged(Facts(step=rates), _summary(said["loop"]))


def _steps(objects: Sequence[Any]) -> Facts:
    return _summary(objects[0]["summary"])


def _summary(said: Mapping[str, Any]) -> Facts:
    steps = int(said["steps"])
    return Facts(
        step=StepFacts(
            steps=steps,
            samples_per_step=said["samples"] / steps if steps else None,
            loading_s=said["loading"]["mean_s"],
            training_s=said["training"]["mean_s"],
            epoch_start_s=said["first_batches_s"] / said["epochs"] if said["epochs"] else None,
        )
    )


def _profile(objects: Sequence[Any]) -> Facts:
    traces = objects[0]["traces"]
    if not traces:
        raise ValueError("there is no trace in it")
    said = traces[-1]
    kernels = tuple(_built(OperatorTime, kernel) for kernel in said["kernels"])
    found = _built(StepBreakdown, {**said, "kernels": kernels, "operators": (), "per_step": (), "memory": ()})
    return Facts(trace=trace_facts(found))


def _monitor(objects: Sequence[Any]) -> Facts:
    samples = []
    for said in objects:
        process = None if said["process"] is None else _built(ProcessSample, said["process"])
        gpus = tuple(_built(GpuSample, gpu) for gpu in said["gpus"])
        samples.append(_built(Sample, {**said, "process": process, "gpus": gpus}))
    return Facts(machine=machine_facts(samples), gpus=gpu_facts(samples))


def _disk(objects: Sequence[Any]) -> Facts:
    said = objects[0]
    rate = said["sequential_bytes_per_s"]
    if rate is None:
        return Facts(unknown=(f"the disk under {said['path']}: nothing could be read cold",))
    return Facts(disks=(DiskFacts(path=said["path"], sequential_bytes_per_s=rate, kind=said.get("kind")),))


def _doctor(objects: Sequence[Any]) -> Facts:
    said = objects[0]["facts"]
    loader = said["loader"]
    if loader is not None:
        making = loader["making"]
        script = loader.get("script")
        loader = _built(
            LoaderFacts,
            {
                **loader,
                "making": None if making is None else _making(making),
                "script": None if script is None else _script(script),
                "waits": _waits(loader),
            },
        )
    return Facts(
        step=None if said["step"] is None else _built(StepFacts, said["step"]),
        trace=None if said["trace"] is None else _built(TraceFacts, said["trace"]),
        loader=loader,
        model=None if said["model"] is None else _built(ModelFacts, said["model"]),
        machine=None if said["machine"] is None else _built(MachineFacts, said["machine"]),
        gpus=tuple(_built(GpuFacts, gpu) for gpu in said["gpus"]),
        disks=tuple(_built(DiskFacts, disk) for disk in said["disks"]),
        sources=tuple(said["sources"]),
        unknown=tuple(said["unknown"]),
    )


def _making(said: Mapping[str, Any]) -> MakingFacts:
    """Read the costs of making batches; old files lack ``transforms`` and ``waits``."""
    transforms = tuple(_built(TransformFacts, each) for each in said.get("transforms", ()))
    return _built(MakingFacts, {**said, "transforms": transforms, "waits": _waits(said)})


def _waits(said: Mapping[str, Any]) -> tuple[WaitFacts, ...]:
    return tuple(_built(WaitFacts, each) for each in said.get("waits", ()))


def _script(said: Mapping[str, Any]) -> ScriptFacts:
    arguments = said["arguments"]
    pairs = None if arguments is None else tuple((name, text) for name, text in arguments)
    recipe = None if said["recipe"] is None else tuple(said["recipe"])
    return _built(
        ScriptFacts, {**said, "arguments": pairs, "recipe": recipe, "unknown_steps": tuple(said["unknown_steps"])}
    )


def _built(kind: type[_Built], said: Mapping[str, Any]) -> _Built:
    """Build the dataclass; unknown keys come from a later fastio and are left out."""
    names = {each.name for each in dataclasses.fields(kind)}  # type: ignore[arg-type] # only dataclasses are asked for
    return kind(**{name: value for name, value in said.items() if name in names})


_READERS: dict[str, Callable[[Sequence[Any]], Facts]] = {
    "fastio.bench.both": _both,
    "fastio.bench.disk": _disk,
    "fastio.doctor": _doctor,
    "fastio.monitor": _monitor,
    "fastio.profile": _profile,
    "fastio.steps": _steps,
}
