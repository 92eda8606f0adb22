"""A loader's options: what each may be, checked in one place, before anything is opened."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final, Literal, get_args

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.token_collate import PreferenceCollate, TokenCollate
from fastio.lazy import torch, torch_class
from fastio.loader.output import Output, OutputName
from fastio.machine import available_cpus
from fastio.samplers.batches import BatchSampler
from fastio.samplers.order import Shuffle, Uneven
from fastio.samplers.position import whole
from fastio.samplers.share import Ranks
from fastio.transforms.batch.recipe import AnyTransform, as_list
from fastio.transforms.by_field import ByField, ByFraction
from fastio.transforms.pick import Pick
from fastio.transforms.transform import BaseTransform
from fastio.transforms.views import Views
from fastio.types.options import check_verify, resolve_verify

__all__ = [
    "OPTIONS_ELSEWHERE",
    "PREFETCH_BATCHES",
    "TORCHS_WORDS",
    "Cache",
    "CollateName",
    "CollateWish",
    "Decode",
    "Layout",
    "LoaderOptions",
    "OnError",
    "OrderOptions",
    "PixelOptions",
    "ProducerOptions",
    "Quality",
    "SampleOptions",
    "TransformsWish",
    "ViewsWish",
    "WorkOptions",
    "cannot_be_set",
]


Cache = Literal["ram", "device"]
CollateName = Literal["flat", "list", "pad", "nested", "stack", "pack", "preference"]
CollateWish = TokenCollate | PreferenceCollate | CollateName | Mapping[str, TokenCollate | CollateName] | None
Decode = Literal["cpu", "device"]
Layout = Literal["contiguous", "channels_last"]
OnError = Literal["raise", "skip", "zero"]
Quality = Literal["exact", "fast"]
TransformsWish = (
    Sequence[AnyTransform]
    | AnyTransform
    | ByField
    | Mapping[str | tuple[str, ...], Sequence[AnyTransform] | AnyTransform]
    | None
)
ViewsWish = Views | Sequence[tuple[int, Sequence[AnyTransform]]] | int | None

# Torch's names for these layouts.
_LAYOUTS: Final[Mapping[str, Layout]] = {
    "torch.contiguous_format": "contiguous",
    "torch.channels_last": "channels_last",
}
PREFETCH_BATCHES = 4  # asked for ahead of the loop's, unless the user says otherwise


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """Which samples come, and who decides on their order: see FastLoader."""

    indices: Any
    sampler: Iterable[Any] | None
    batch_sampler: BatchSampler | Iterable[Any] | None
    weights: Any
    samples_per_epoch: int | None
    cost: Any = None


@dataclass(frozen=True, slots=True)
class OrderOptions:
    """
    Batches, their order, and this process's share of them: see FastLoader.

    ``batch_size`` is None where a batch_sampler decides.
    """

    batch_size: int | None
    shuffle: Shuffle
    seed: int
    drop_last: bool
    uneven: Uneven
    ranks: Ranks

    def __post_init__(self) -> None:
        # By identity: 1 and NumPy's True equal True, but would be another configuration in a saved state.
        is_full = isinstance(self.shuffle, str) and self.shuffle == "full"
        if not (self.shuffle is False or self.shuffle is True or is_full):
            raise ValueError(f"shuffle={self.shuffle!r}: expected False, True or 'full'")
        _set(self, seed=whole("seed", self.seed, "0 <= seed < 2**64", least=0, below=1 << 64))


@dataclass(frozen=True, slots=True)
class PixelOptions:
    """
    What is done with the values of samples, and where: see FastLoader. ``transforms`` are those of pictures, and
    ``by_field`` instead those of each field; ``picks``, and whether pictures go ``by_fraction``, are taken out of these
    here.
    """

    transforms: TransformsWish
    collate: CollateWish
    quality: Quality
    layout: Layout
    device: torch.device | str | int | None
    cache: Cache | None
    decode: Decode
    views: ViewsWish = None
    repeats: int = 1
    picks: tuple[Pick, ...] = field(default=(), init=False)
    by_fraction: bool = field(default=False, init=False)
    by_field: ByField | None = field(default=None, init=False)

    @property
    def all_views(self) -> Views | None:
        """The views of each picture; None for pictures that have none."""
        transforms = self.of_all
        if self.repeats > 1:
            return Views.joined(self.repeats, transforms)
        if self.views is None or isinstance(self.views, Views):
            return self.views
        return Views([(self.views, transforms)] if isinstance(self.views, int) else self.views)

    @property
    def every_transform(self) -> list[Any]:
        """The transforms of all views."""
        if self.by_field is not None:
            return list(self.by_field.every)
        views = self.all_views
        return self.of_all if views is None else [step for _, steps in views.groups for step in steps]

    @property
    def of_all(self) -> list[Any]:
        """The transforms of all pictures, unless there are ``views`` or some by field."""
        assert not isinstance(self.transforms, (Mapping, ByField))
        return as_list(self.transforms)

    @property
    def makes_on_device(self) -> bool:
        """Whether batches are made on the device, cached or decoded there, instead of being copied."""
        return "device" in (self.cache, self.decode)

    def __post_init__(self) -> None:
        _check_choice("quality", self.quality, get_args(Quality))
        if isinstance(self.layout, torch_class("memory_format")):
            _set(self, layout=_LAYOUTS.get(str(self.layout), self.layout))
        _check_choice("layout", self.layout, get_args(Layout))
        _check_choice("decode", self.decode, get_args(Decode))
        _check_choice("cache", self.cache, (None, *get_args(Cache)))
        self._take_apart()
        self._check_views()
        if callable(self.collate) and not isinstance(self.collate, (TokenCollate, PreferenceCollate)):
            raise TypeError(
                f"collate={self.collate!r}: it joins samples that differ in length, as 'pad', 'list', ... or a "
                "PadCollate say; for a function of your own, use torch's DataLoader(FastDataset(path), "
                "collate_fn=...), or call it on each batch"
            )
        if self.cache == "device" and self.device is None:
            raise ValueError("cache='device': pass device= too, to say which")
        if self.decode == "device" and self.device is None:
            raise ValueError("decode='device': pass device='cuda' too, to say which")
        if self.decode == "device" and self.cache is not None:
            raise ValueError(
                f"decode='device' with cache={self.cache!r}: a cache is decoded once, by the CPU: drop one of the two"
            )

    def _take_apart(self) -> None:
        """Take what is not done to pictures out of ``transforms``. Raises TypeError if they are no transforms."""
        transforms = self.transforms
        if isinstance(transforms, (Mapping, ByField)):
            by_field = transforms if isinstance(transforms, ByField) else ByField(transforms)
            for own in by_field.lists.values():
                _check_transforms(own)
            picks = tuple(step for step in by_field.every if isinstance(step, Pick))
            by_field = by_field.without(Pick)
            _set(self, transforms=None, picks=picks, by_field=by_field if by_field.lists else None)
            return
        _check_transforms(transforms)
        steps = as_list(transforms)
        others = [step for step in steps if not isinstance(step, (Pick, ByFraction))]
        picks = tuple(step for step in steps if isinstance(step, Pick))
        by_fraction = any(isinstance(step, ByFraction) for step in steps)
        _set(self, transforms=others or None, picks=picks, by_fraction=by_fraction)

    def _check_views(self) -> None:
        """Raise ValueError for views that do not go with other options, TypeError for what are none."""
        _set(self, repeats=whole("repeats", self.repeats, "1 or more", least=1))
        if self.by_field is not None and (self.views is not None or self.repeats > 1):
            raise ValueError("views and repeats with transforms by field: each view has one list for all: drop one")
        if self.all_views is None:
            return
        name = "views" if self.views is not None else "repeats"
        if self.views is not None and self.repeats > 1:
            raise ValueError("repeats and views: both say how many views a picture has: drop one of the two")
        if not isinstance(self.views, (int, type(None))) and self.transforms is not None:
            raise ValueError("transforms and views: each view has a list of its own: drop transforms")
        others = {"quality='fast'": self.quality == "fast", "decode='device'": self.decode == "device"}
        others |= {f"cache={self.cache!r}": self.cache is not None}
        wrong = [other for other, is_asked in others.items() if is_asked]
        if wrong:
            raise ValueError(f"{name} with {wrong[0]}: views share one exact decoding by the CPU: drop {wrong[0]}")


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """How many threads work how far ahead, how carefully, and into which memory: see FastLoader."""

    threads: int
    prefetch_batches: int
    on_error: OnError
    verify: bool | None
    pin_memory: bool | None
    output: OutputName = "torch"

    def __post_init__(self) -> None:
        _check_choice("on_error", self.on_error, get_args(OnError))
        _check_choice("output", self.output, get_args(OutputName))
        if self.pin_memory and self.output == "numpy":
            raise _needs_torch("pin_memory", "pinned memory is torch's")
        if self.verify is not None:
            check_verify(self.verify)
        _set(
            self,
            threads=whole("threads", self.threads, "0 (all available CPUs) or more", least=0),
            prefetch_batches=whole("prefetch_batches", self.prefetch_batches, "1 or more", least=1),
        )

    def for_producer(self, *, dataset_verify: bool) -> ProducerOptions:
        """These options with the defaults of this machine and of the dataset in the place of 0 and None."""
        return ProducerOptions(
            threads=self.threads or available_cpus(),
            depth=self.prefetch_batches,
            on_error=self.on_error,
            verify=resolve_verify(self.verify, dataset_verify=dataset_verify),
            output=self._output(),
        )

    def _output(self) -> Output:
        if self.output == "numpy":
            return Output.ARRAYS
        is_pinned = torch.cuda.is_available() if self.pin_memory is None else self.pin_memory
        return Output.PINNED if is_pinned else Output.TENSORS


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """What a producer works with, nothing left open: ``depth`` batches are asked for ahead of the loop's."""

    threads: int
    depth: int
    on_error: OnError
    verify: bool
    output: Output


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """
    All options of a FastLoader. Raises ValueError for a value that is unknown; those that rule each other out are for
    ``check_exclusive``, because a Mixture rules out others.
    """

    samples: SampleOptions
    order: OrderOptions
    pixels: PixelOptions
    work: WorkOptions

    def __post_init__(self) -> None:
        if self.samples.batch_sampler is None:
            size = whole("batch_size", self.order.batch_size, "a whole number from 1", least=1)
            _set(self, order=replace(self.order, batch_size=size))
        if self.work.output == "numpy":
            self._check_arrays()

    def _check_arrays(self) -> None:
        """Raise ValueError for options that need torch, with output="numpy"."""
        pixels = self.pixels
        if pixels.device is not None:  # without which cache="device" and decode="device" are refused
            raise _needs_torch(f"device={pixels.device!r}", "arrays of NumPy are on the CPU")
        collates = pixels.collate.values() if isinstance(pixels.collate, Mapping) else [pixels.collate]
        if "nested" in [how for how in collates if isinstance(how, str)]:
            raise _needs_torch("collate='nested'", "nested tensors are torch's: write 'list' or 'pad'")

    def check_exclusive(self) -> None:
        """Raise ValueError for options that exclude each other."""
        samples, order = self.samples, self.order
        shuffle = order.shuffle or None
        decided = {
            "batch_sampler": {
                "batch_size": order.batch_size,
                "shuffle": shuffle,
                "drop_last": order.drop_last or None,
                "sampler": samples.sampler,
                "weights": samples.weights,
                "cost": samples.cost,
            },
            "sampler": {"shuffle": shuffle, "weights": samples.weights},
            "weights": {"shuffle": shuffle},
        }
        for name, others in decided.items():
            conflicts = [other for other, value in others.items() if value is not None]
            if getattr(samples, name) is not None and conflicts:
                verb = "decide" if name == "weights" else "decides"
                raise ValueError(f"{', '.join(conflicts)}: the {name} {verb} that: drop it here")


def _needs_torch(option: str, why: str) -> ValueError:
    return ValueError(f"{option} with output='numpy': {why}: drop one of the two")


def _check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """ValueError unless ``value`` is one of the choices; None among them is named last."""
    if value not in choices:
        names = ", ".join(repr(choice) for choice in choices if choice is not None)
        raise ValueError(f"{name}={value!r}: expected one of {names}{' or None' if None in choices else ''}")


def _check_transforms(transforms: object) -> None:
    """Raise TypeError for what is no list of transforms and functions."""
    if transforms is None:
        return
    if isinstance(transforms, str):
        raise TypeError(
            f"transforms={transforms!r}: expected a list, such as [RandomResizedCrop(224), RandomHorizontalFlip()], or "
            "a dict of fields and lists"
        )
    for step in transforms if isinstance(transforms, Sequence) else [transforms]:
        if isinstance(step, type):
            raise TypeError(f"transforms has the class {step.__name__}: write {step.__name__}(...)")
        if not (isinstance(step, BaseTransform) or callable(step)):
            raise TypeError(f"transforms: expected transforms of fastio or functions in a list, got {step!r} in it")


def _set(options: object, **values: Any) -> None:
    """Give the fields of a frozen dataclass their normal form, as long as it is being made."""
    for name, value in values.items():
        object.__setattr__(options, name, value)


# Options that FastLoader does not have, attributes that cannot be set, and what to write instead.

_NO_WORKERS = "leave it out: native threads make the batches, and there are no worker processes"
# Options of FastDataset and of torch's DataLoader, and other names that people try first: what to write instead.
OPTIONS_ELSEWHERE: Final[Mapping[str, str]] = {
    **{
        name: f"FastDataset has it: pass FastLoader(FastDataset(path, {name}=...), ...)"
        for name in inspect.signature(FastDataset).parameters
    },
    "num_workers": "pass threads=N, or leave it out for all CPUs: native threads make the batches, and there are no "
    "worker processes",
    "workers": "pass threads=N, or leave it out for all CPUs",
    "prefetch_factor": "pass prefetch_batches=N, counted in batches for all threads together",
    "persistent_workers": "leave it out: threads live as long as the loader",
    "multiprocessing_context": _NO_WORKERS,
    "worker_init_fn": _NO_WORKERS,
    "timeout": _NO_WORKERS,
    "generator": "pass seed=N: order and random numbers depend on it and on the epoch alone",
    "pin_memory_device": 'pass device="cuda", which also copies the batches there',
    "in_order": "leave it out: batches always come in order",
    "path": "the dataset comes first: FastLoader(path, batch_size)",
    "transform": "pass transforms=[...] of fastio.transforms, or FastDataset(path, transform)",
}
# Torch's words for options of FastLoader.
TORCHS_WORDS: Final[Mapping[str, str]] = {"collate_fn": "collate", "memory_format": "layout"}
_ATTRIBUTES: Final[Mapping[str, str]] = {
    "weights": "call set_weights(w), which draws by them from the next epoch on, or pass weights=f, a function of the "
    "epoch",
    "epoch": "call set_epoch(n)",
    "rank": "call set_ranks(rank, world_size)",
    "world_size": "call set_ranks(rank, world_size)",
}


def cannot_be_set(name: str, loader: type) -> str:
    """Return why an attribute of a loader cannot be set, and what to do instead, in one line."""
    options = [option for option in inspect.signature(loader).parameters if option != "dataset"]
    read = [known for known, value in vars(loader).items() if isinstance(value, property)]
    if name in _ATTRIBUTES:
        advice = _ATTRIBUTES[name]
    elif name in options:
        advice = f"a loader keeps what it was built with: build another one with {name}=..."
    elif name in OPTIONS_ELSEWHERE:
        advice = OPTIONS_ELSEWHERE[name]
    elif name in ("dataset", "base", *read):
        advice = "it can only be read: build another loader"
    else:
        near = get_close_matches(name, [*options, *_ATTRIBUTES], n=1)
        if not near:
            return f"FastLoader has no attribute {name}: nothing would read it: keep your own values elsewhere"
        return f"FastLoader has no attribute {name}: did you mean {near[0]}? Even so, build another loader to change it"
    return f"{name} of a FastLoader cannot be set: {advice}"
