"""Reads facts that other commands saved: JSON of bench, profile, monitor, doctor and StepTimer, and traces."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fastio.errors import FastioError
from fastio.measure.doctor.facts import (
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
from fastio.measure.doctor.gather import trace_facts
from fastio.measure.doctor.surroundings import gpu_facts, machine_facts
from fastio.measure.machine.gpus import GpuSample
from fastio.measure.machine.monitor import ProcessSample, Sample
from fastio.measure.trace.trace import OperatorTime, StepBreakdown, read_trace
from fastio.types.metrics import OpensGain

__all__ = [
    "load_facts",
]


_VERSION = "/1"
_Built = TypeVar("_Built")


def load_facts(paths: Sequence[str | Path]) -> Facts:
    """
    Merge what these files say; for a figure in two files, the first counts. Raises FastioError that names the file.
    """
    return merged(*(_of_file(Path(path)) for path in paths))


def _of_file(path: Path) -> Facts:
    objects = _objects(path)
    formats = {document.get("format") if isinstance(document, dict) else None for document in objects}
    name = next(iter(formats)) if len(formats) == 1 else None
    reader = _READERS.get(str(name).removesuffix(_VERSION))
    if reader is None and any(isinstance(document, dict) and "traceEvents" in document for document in objects):
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
    document = objects[0]
    rates = StepFacts(io_rate=document["io_samples_per_s"], train_rate=document["training_samples_per_s"])
    return merged(Facts(step=rates), _summary(document["loop"]))


def _steps(objects: Sequence[Any]) -> Facts:
    return _summary(objects[0]["summary"])


def _summary(summary: Mapping[str, Any]) -> Facts:
    steps = int(summary["steps"])
    return Facts(
        step=StepFacts(
            steps=steps,
            samples_per_step=summary["samples"] / steps if steps else None,
            loading_s=summary["loading"]["mean_s"],
            training_s=summary["training"]["mean_s"],
            epoch_start_s=summary["first_batches_s"] / summary["epochs"] if summary["epochs"] else None,
        )
    )


def _profile(objects: Sequence[Any]) -> Facts:
    traces = objects[0]["traces"]
    if not traces:
        raise ValueError("there is no trace in it")
    trace = traces[-1]
    kernels = tuple(_built(OperatorTime, kernel) for kernel in trace["kernels"])
    breakdown = _built(StepBreakdown, {**trace, "kernels": kernels, "operators": (), "per_step": (), "memory": ()})
    return Facts(trace=trace_facts(breakdown))


def _monitor(objects: Sequence[Any]) -> Facts:
    samples = []
    for line in objects:
        process = None if line["process"] is None else _built(ProcessSample, line["process"])
        gpus = tuple(_built(GpuSample, gpu) for gpu in line["gpus"])
        samples.append(_built(Sample, {**line, "process": process, "gpus": gpus}))
    return Facts(machine=machine_facts(samples), gpus=gpu_facts(samples))


def _disk(objects: Sequence[Any]) -> Facts:
    document = objects[0]
    rate = document["sequential_bytes_per_s"]
    if rate is None:
        return Facts(unknown=(f"the disk under {document['path']}: nothing could be read cold",))
    return Facts(disks=(DiskFacts(path=document["path"], sequential_bytes_per_s=rate, kind=document.get("kind")),))


def _doctor(objects: Sequence[Any]) -> Facts:
    facts = objects[0]["facts"]
    loader = facts["loader"]
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
                "opens": None if loader.get("opens") is None else _built(OpensGain, loader["opens"]),
                "unpacked": None if loader.get("unpacked") is None else tuple(loader["unpacked"]),
            },
        )
    return Facts(
        step=None if facts["step"] is None else _built(StepFacts, facts["step"]),
        trace=None if facts["trace"] is None else _built(TraceFacts, facts["trace"]),
        loader=loader,
        model=None if facts["model"] is None else _built(ModelFacts, facts["model"]),
        machine=None if facts["machine"] is None else _built(MachineFacts, facts["machine"]),
        gpus=tuple(_built(GpuFacts, gpu) for gpu in facts["gpus"]),
        disks=tuple(_built(DiskFacts, disk) for disk in facts["disks"]),
        sources=tuple(facts["sources"]),
        unknown=tuple(facts["unknown"]),
    )


def _making(making: Mapping[str, Any]) -> MakingFacts:
    """Read the costs of making batches; old files lack ``transforms`` and ``waits``."""
    transforms = tuple(_built(TransformFacts, transform) for transform in making.get("transforms", ()))
    return _built(MakingFacts, {**making, "transforms": transforms, "waits": _waits(making)})


def _waits(making: Mapping[str, Any]) -> tuple[WaitFacts, ...]:
    return tuple(_built(WaitFacts, wait) for wait in making.get("waits", ()))


def _script(script: Mapping[str, Any]) -> ScriptFacts:
    arguments = script["arguments"]
    pairs = None if arguments is None else tuple((name, text) for name, text in arguments)
    recipe = None if script["recipe"] is None else tuple(script["recipe"])
    steps = {name: tuple(script.get(name, ())) for name in ("unknown_steps", "pixel_steps")}
    return _built(ScriptFacts, {**script, "arguments": pairs, "recipe": recipe, **steps})


def _built(kind: type[_Built], values: Mapping[str, Any]) -> _Built:
    """Build the dataclass; unknown keys come from a later fastio and are left out."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type] # only dataclasses are asked for
    return kind(**{name: value for name, value in values.items() if name in names})


_READERS: dict[str, Callable[[Sequence[Any]], Facts]] = {
    "fastio.bench.both": _both,
    "fastio.bench.disk": _disk,
    "fastio.doctor": _doctor,
    "fastio.monitor": _monitor,
    "fastio.profile": _profile,
    "fastio.steps": _steps,
}
