"""What a GPU shows with networks: the small CNN from a store and from files, ResNet-50 between its limits, decoding.

``python -m benchmarks.gpu`` runs these cases behind its own.
"""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks.gpu_sizes import Sizes, finish
from benchmarks.peers import files_pil
from benchmarks.synthetic import make_photos, make_pngs
from fastio import FastLoader, StepTimer
from fastio.converters import Transcode, open_source, pack
from fastio.measure import MockLoader, MockTrainer
from fastio.measure.machine.gpus import Gpus
from fastio.measure.trainer.run import MODELS
from fastio.measure.trainer.step import StepOptions, TrainStep, Workload
from fastio.transforms import RandomHorizontalFlip, RandomResizedCrop

__all__ = ["cifar_cnn", "decoding", "resnet"]

WARM_UP = 5
_LOOK_EVERY_S = 0.1
_SETTLED_S = 1.0  # NVML's figure is a mean of up to the last second
_LEAST, _MOST = 2, 5_000  # steps of a case


def cifar_cnn(device: torch.device, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """The course's CNN: a step's milliseconds, its share of waiting and the GPU's use, by where pictures come from."""
    labels = make_pngs(folder / "pngs", sizes.pngs)
    store = folder / "pngs.lmdb"
    if not store.exists():
        pack(open_source(folder / "pngs", labels=labels), store)
    workload, options = MODELS["cifar10cnn"], StepOptions(device=device)
    transforms = [*workload.task.transforms(options.dtype, channels_last=options.channels_last)]
    seen: dict[str, list[dict[str, Any]]] = {}
    for number in range(sizes.rounds):
        with FastLoader(
            store, sizes.batch, shuffle=True, seed=number, drop_last=True, device=device, transforms=transforms
        ) as loader:
            case = "store, FastLoader, normalised on the device"
            seen.setdefault(case, []).append(_trained(loader, workload, options, sizes.seconds))
        for workers in sizes.workers:
            files = files_pil.loader(
                folder / "pngs", labels, batch_size=sizes.batch, workers=workers, shuffle=True
            )  # fmt: skip
            case = f"files, PIL, DataLoader, {workers} {'worker' if workers == 1 else 'workers'}"
            seen.setdefault(case, []).append(_trained(files, workload, options, sizes.seconds))
    return {"cases": {case: _medians(runs) for case, runs in seen.items()}}


def resnet(device: torch.device, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Images per second of ResNet-50 with AMP from photos, of the network alone, and of the loader alone."""
    store = folder / "photos-short.lmdb"
    if not store.exists():
        pack(open_source(_photos(folder, sizes)), store, pictures=Transcode(short_side=sizes.short_side))
    amp = "fp16" if device.type == "cuda" else "off"
    workload, options = MODELS["resnet50"], StepOptions(device=device, amp=amp, channels_last=True)
    transforms = [
        RandomResizedCrop(sizes.crop),
        RandomHorizontalFlip(),
        *workload.task.transforms(options.dtype, channels_last=True),
    ]
    seen: dict[str, list[float]] = {"loader and network": [], "network alone": [], "loader alone": []}
    waiting = []
    for _ in range(sizes.rounds):
        with FastLoader(
            store, sizes.photo_batch, shuffle=True, drop_last=True, device=device, transforms=transforms
        ) as loader:
            both = _trained(loader, workload, options, sizes.seconds)
            alone = _trained(MockLoader(loader, device), workload, options, sizes.seconds)
            seen["loader and network"].append(both["images_per_s"])
            seen["network alone"].append(alone["images_per_s"])
            seen["loader alone"].append(_loaded(loader, device))
            waiting.append(both["loading_share"])
    medians = {case: statistics.median(values) for case, values in seen.items()}
    return {
        "amp": amp,
        "images_per_s": seen,
        "medians": medians,
        "of_limit": medians["loader and network"] / min(medians["network alone"], medians["loader alone"]),
        "loading_share": statistics.median(waiting),
    }


def _photos(folder: Path, sizes: Sizes) -> Path:
    """Class folders of as many photos as there shall be entries, some of which are links to the same file."""
    photos, many = make_photos(folder / "photos", sizes.photos), folder / "entries"
    originals = sorted(photos.glob("*/*.jpg"))
    for number in range(sizes.entries):
        original = originals[number % len(originals)]
        link = many / original.parent.name / f"{number:06d}.jpg"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            os.link(original, link)
    return many


def decoding(device: torch.device, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Images per second of crops from whole photos, decoded by the CPU and by the GPU, and how far pixels differ."""
    store = folder / "photos.lmdb"
    if not store.exists():
        pack(open_source(_photos(folder, sizes)), store)
    transforms = [RandomResizedCrop(sizes.crop), RandomHorizontalFlip()]

    def loader(decode: Any) -> FastLoader:
        return FastLoader(
            store, sizes.photo_batch, shuffle="full", drop_last=True, device=device, transforms=transforms,
            decode=decode,
        )  # fmt: skip

    try:
        loader("device").close()
    except (ImportError, ValueError) as exc:
        return {"left_out": str(exc)}
    seen: dict[str, list[float]] = {"cpu": [], "device": []}
    for _ in range(sizes.rounds):
        for decode, rates in seen.items():
            with loader(decode) as batches:
                rates.append(_loaded(batches, device))
    medians = {decode: statistics.median(rates) for decode, rates in seen.items()}
    return {"images_per_s": seen, "medians": medians, **_difference(loader("cpu"), loader("device"))}


def _difference(plain: FastLoader, other: FastLoader) -> dict[str, Any]:
    """Levels between the same pixels of an epoch's first batches."""
    means, most = [], 0
    with plain, other:
        for (images, labels), (others, own) in islice(zip(plain, other, strict=True), 8):
            assert torch.equal(labels, own)
            apart = (images.int() - others.int()).abs()
            means.append(float(apart.float().mean()))
            most = max(most, int(apart.max()))
        share = other.stats.decoded_on_device / max(1, other.stats.samples)
    return {"levels_apart": {"mean": statistics.mean(means), "most": most}, "decoded_on_device": share}


def _loaded(loader: FastLoader, device: torch.device) -> float:
    """Images per second of an epoch without a network, behind its first batch."""
    for _ in islice(loader, 2):
        pass
    result = MockTrainer().run(loader)
    finish(device)
    return result.steady_samples_per_s


def _trained(loader: Iterable[Any], workload: Workload, options: StepOptions, seconds: float) -> dict[str, Any]:
    """
    About so many seconds of steps, over as many epochs as that takes.

    ``step_ms`` is what the stream took for each, the beginnings of epochs among them; ``images_per_s`` and
    ``loading_share`` leave those out, for an epoch here is shorter than a real one.
    """
    step, timer = TrainStep(workload, options), StepTimer()
    steps, done = _steps_in(seconds, loader, step), 0
    with _Use(options.device) as use:
        while done < steps:
            before = done
            for batch in timer(islice(loader, steps - done)):
                step(batch)
                done += 1
            if done == before:
                raise ValueError("an epoch without a batch: there are fewer samples than one batch takes")
        finish(options.device)
    summary = timer.summary()
    return {
        "steps": steps,
        "step_ms": summary.seconds / summary.steps * 1e3,
        "images_per_s": summary.steady_samples_per_s,
        "loading_share": summary.loading_share,
        "gpu_use_percent": use.percent,
    }


def _steps_in(seconds: float, loader: Iterable[Any], step: TrainStep) -> int:
    """How many steps take so long, by some that are not counted."""
    begun, counted = perf_counter(), 0
    for number, batch in enumerate(islice(loader, 3 * WARM_UP)):
        step(batch)
        counted += 1
        if number == WARM_UP - 1:  # what is slow once is behind
            finish(step.options.device)
            begun, counted = perf_counter(), 0
    finish(step.options.device)
    return min(_MOST, max(_LEAST, round(seconds / (perf_counter() - begun) * counted)))


@dataclass
class _Use:
    """Looks at the GPU while a case runs: the mean of what NVML says, None where nobody says anything."""

    device: torch.device
    _seen: list[float] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> _Use:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        gpus = Gpus()
        self._over.wait(_SETTLED_S)
        while not self._over.wait(_LOOK_EVERY_S):
            for sample in gpus.sample()[: 1 if self.device.type == "cuda" else 0]:
                if sample.utilization_percent is not None:
                    self._seen.append(sample.utilization_percent)
        gpus.close()

    @property
    def percent(self) -> float | None:
        return statistics.mean(self._seen) if self._seen else None


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each figure the median over the rounds, and the fastest and slowest step."""

    def median(name: str) -> float | None:
        values = [run[name] for run in runs if run[name] is not None]
        return statistics.median(values) if values else None

    steps = [run["step_ms"] for run in runs]
    return {name: median(name) for name in runs[0]} | {"step_ms_range": [min(steps), max(steps)]}
