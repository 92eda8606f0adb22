"""What a GPU shows with networks: the small CNN from a store and from files, ResNet-50 between its limits, decoding.

``python -m benchmarks.gpu`` runs these cases behind its own.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import files_pil
from benchmarks.synthetic import make_photos, make_pngs
from fastio import FastLoader, MockLoader, MockTrainer, StepTimer
from fastio.converters import Transcode, open_source, pack
from fastio.measure.gpus import Gpus
from fastio.trainer import MODELS, StepOptions, TrainStep, Workload
from fastio.transforms import RandomHorizontalFlip, RandomResizedCrop

__all__ = ["Sizes", "cifar_cnn", "decoding", "resnet"]

WARM_UP = 5
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True)
class Sizes:
    """How much is measured: ``steps`` of each case in each of ``rounds``, after the warm-up."""

    rounds: int = 5
    steps: int = 100
    pngs: int = 20_000
    photos: int = 4_000
    batch: int = 128  # of the small CNN
    photo_batch: int = 256
    crop: int = 224
    short_side: int = 256
    workers: tuple[int, ...] = (1, 3)


def cifar_cnn(device: torch.device, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """The course's CNN: a step's milliseconds, its share of waiting and the GPU's use, by where pictures come from."""
    labels = make_pngs(folder / "pngs", sizes.pngs)
    store = folder / "pngs.lmdb"
    pack(open_source(folder / "pngs", labels=labels), store, overwrite=True)
    workload, options = MODELS["cifar10cnn"], StepOptions(device=device)
    seen: dict[str, list[dict[str, Any]]] = {}
    for number in range(sizes.rounds):
        with _from_store(store, sizes.batch, workload, options, seed=number) as loader:
            seen.setdefault("store, FastLoader, normalised on the device", []).append(
                _trained(loader, workload, options, sizes.steps)
            )
        for workers in sizes.workers:
            files = files_pil.loader(folder / "pngs", labels, batch_size=sizes.batch, workers=workers)
            case = f"files, PIL, DataLoader, {workers} {'worker' if workers == 1 else 'workers'}"
            seen.setdefault(case, []).append(_trained(files, workload, options, sizes.steps))
    return {case: _medians(runs) for case, runs in seen.items()}


@contextmanager
def _from_store(
    store: Path, batch: int, workload: Workload, options: StepOptions, *, seed: int
) -> Iterator[FastLoader]:
    transforms = [*workload.task.transforms(options.dtype, channels_last=options.channels_last)]
    with FastLoader(
        store, batch, shuffle=True, seed=seed, drop_last=True, device=options.device, transforms=transforms
    ) as loader:
        yield loader


def resnet(device: torch.device, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Images per second of ResNet-50 with AMP from photos, of the network alone, and of the loader alone."""
    photos = make_photos(folder / "photos", sizes.photos)
    store = folder / "photos-short.lmdb"
    pack(open_source(photos), store, pictures=Transcode(short_side=sizes.short_side), overwrite=True)
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
            both = _trained(loader, workload, options, sizes.steps)
            alone = _trained(MockLoader(loader, device), workload, options, sizes.steps)
            seen["loader and network"].append(both["images_per_s"])
            seen["network alone"].append(alone["images_per_s"])
            seen["loader alone"].append(_loaded(loader))
            waiting.append(both["loading_share"])
    rates = {case: statistics.median(values) for case, values in seen.items()}
    limit = min(rates["network alone"], rates["loader alone"])
    return {
        "amp": amp,
        "images_per_s": seen,
        "of_limit": rates["loader and network"] / limit,
        "loading_share": statistics.median(waiting),
    }


def decoding(device: torch.device, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Images per second of crops from whole photos, decoded by the CPU and by the GPU, and how far pixels differ."""
    photos = make_photos(folder / "photos", sizes.photos)
    store = folder / "photos.lmdb"
    pack(open_source(photos), store, overwrite=True)
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
                rates.append(_loaded(batches))
    return {"images_per_s": seen, **_difference(loader("cpu"), loader("device"))}


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


def _loaded(loader: FastLoader) -> float:
    """Images per second of an epoch without a network, behind its first batch."""
    for _ in islice(loader, 2):
        pass
    result = MockTrainer().run(loader)
    _finish(torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu"))
    return result.steady_samples_per_s


def _trained(loader: Iterable[Any], workload: Workload, options: StepOptions, steps: int) -> dict[str, Any]:
    """So many steps over as many epochs as that takes, the first ones not counted."""
    step, timer = TrainStep(workload, options), StepTimer()
    batches = _endless(loader)
    for batch in islice(batches, WARM_UP):
        step(batch)
    _finish(options.device)
    with _Use(options.device) as use:
        for batch in timer(islice(batches, steps)):
            step(batch)
        _finish(options.device)
    batches.close()
    summary = timer.summary()
    return {
        "step_ms": (summary.loading.total_s + summary.training.total_s) / max(1, summary.steps) * 1e3,
        "images_per_s": summary.steady_samples_per_s,
        "loading_share": summary.loading_share,
        "gpu_use_percent": use.percent,
    }


def _endless(loader: Iterable[Any]) -> Any:
    while True:
        yield from loader


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
