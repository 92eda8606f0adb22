"""From a dataset and options to who does what: which samples, who makes their batches, who brings them to a device."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import dropwhile, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.form import LABEL
from fastio.dataset.record_collate import has_element_rows
from fastio.errors import SampleError, SchemaError
from fastio.loader.batch_steps import BatchSteps
from fastio.loader.device.delivery import Delivery, HostDelivery
from fastio.loader.device.lane import device_of, lane_to
from fastio.loader.list_collate import ListCollate, ListWish
from fastio.loader.options import Layout, LoaderOptions, OnError, PixelOptions, ProducerOptions
from fastio.loader.output import Output
from fastio.loader.producer import Producer, ProducerContext, choose_collate, make_producer, packs_fields
from fastio.loader.producer.cache_contents import CacheContents, cache_contents, check_cache
from fastio.loader.producer.clips import Clips, clips_of
from fastio.loader.producer.field_options import (
    batch_roles,
    by_field_options,
    by_field_roles,
    check_later,
    check_views,
    decodes_pictures,
    field_options,
    fuse,
    has_fields,
    no_place_for_fields,
    row_collates,
    view_roles,
)
from fastio.loader.producer.field_parts import FieldPart, by_field_parts
from fastio.loader.producer.memory_cache import keep_in_memory
from fastio.loader.producer.mosaics import Mosaics
from fastio.loader.producer.tokens import TokenProducer
from fastio.loader.selection.mixture import MemberTransforms
from fastio.loader.selection.selection import Selection, select
from fastio.samplers.pack import PackSampler
from fastio.samplers.shape_bucket import ShapeBucketSampler
from fastio.transforms.batch.batch_transform import BatchTransform
from fastio.transforms.batch.choice import mixes_of
from fastio.transforms.batch.finish import ChannelsLast, Contiguous, Finishing, ToDtype
from fastio.transforms.batch.functions import PerBatch, PerSample
from fastio.transforms.batch.mosaic import Mosaic
from fastio.transforms.batch.program import PixelTransform
from fastio.transforms.batch.recipe import Colours, Recipe, is_geometry, split
from fastio.transforms.bucket import ResizeToBucket
from fastio.transforms.by_field import ByField
from fastio.transforms.canvas import CropRule, GeometryRule, Rule
from fastio.transforms.compiled import Compiled
from fastio.transforms.compose import Compose
from fastio.transforms.crop import CenterCrop, RandomCrop, RandomResizedCrop
from fastio.transforms.patches import Patchify, ResizeToTokens, SmartResize
from fastio.transforms.pick import Pick, picked_schema
from fastio.transforms.resize import Letterbox, Resize
from fastio.transforms.transform import BaseTransform, LoaderTransform, Transform
from fastio.transforms.views import Views, view_seed
from fastio.types.placement import Placement, Stage

__all__ = ["Wiring", "wire"]

_DEPTH = 2  # batches copied ahead to the device
_SIZING = (
    CenterCrop,
    Letterbox,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    ResizeToBucket,
    ResizeToTokens,
    SmartResize,
)


@dataclass(frozen=True, slots=True)
class Wiring:
    """
    What a loader consists of.

    ``reads_store`` is False where batches are made of a cache. ``delivery`` is None where batches stay as they are
    made. ``values`` says, for states, what is done to the values of samples. ``late_crop`` says which crop or resize
    comes too late to make pictures equal, "" if none does. ``views`` are those of each picture, None if it has none.
    ``placement`` says where what of a batch is made: it follows from the producer and the delivery. ``whole`` names the
    payload fields that are read whole, and not in part by a Pick: those that receipts prove.
    """

    selection: Selection
    options: ProducerOptions
    producer: Producer
    reads_store: bool
    delivery: Delivery | HostDelivery | None
    values: Mapping[str, Any]
    late_crop: str
    views: Views | None
    placement: Placement
    whole: tuple[str, ...]
    frames: int = 1  # of a clip, of which batches consist


@dataclass(frozen=True, slots=True)
class _Later:
    """What is done behind the plan of pictures, by numbers of ``seed``; ``native`` of it by native threads."""

    steps: Sequence[Any]
    native: int
    seed: int


@dataclass(frozen=True, slots=True)
class _Stages:
    """
    Which transforms are done where: ``native`` in the pass that decodes the samples of ``source``, ``later`` on the
    device. ``kept`` are the samples that a cache on the device keeps. ``described`` names, for states, all that native
    threads do with a sample, and all that is done later.

    Where pictures have a list of views, ``native`` are the transforms of the first, and ``later`` is empty; where there
    are transforms by field, both are, and ``parts`` has what is done to each.
    """

    source: FastDataset
    native: Sequence[Any]
    later: Sequence[Any]
    kept: CacheContents | None
    described: Mapping[str, Any]
    views: Views | None = None  # with the transforms that native threads run
    later_views: Sequence[_Later] = ()  # of each view
    parts: Mapping[str, FieldPart] | None = None
    later_fields: Sequence[_Later] = ()  # of each picture among ``parts``
    compared: Mapping[str, NDArray[np.uint32]] | None = None  # by a cache in memory, see CacheContents
    cached: Stage | None = None  # what such a cache was filled by
    coloured: int = 0  # how many of ``later`` native threads do, because there is no device
    mosaics: Mosaics | None = None  # made of what native threads decode, before ``later``
    members: MemberTransforms | None = None  # instead of ``native``, what native threads do for each of a mixture
    patches: Patchify | None = None  # how native threads cut pictures, behind ``native`` and the first of ``later``

    @property
    def count(self) -> int:
        """The number of views of each sample."""
        return 1 if self.views is None else self.views.count

    @property
    def is_native(self) -> bool:
        """Whether native threads do all that is to be done."""
        return all(each.native == len(each.steps) for each in self.laters(seed=0))

    @property
    def every_later(self) -> list[Sequence[Any]]:
        """What is done later, of all views and fields."""
        return [each.steps for each in self.laters(seed=0)]

    def laters(self, *, seed: int) -> Sequence[_Later]:
        """Return what is done later, for each view or field, or for all pictures, by numbers of the loader's seed."""
        return self.later_views or self.later_fields or [_Later(self.later, self.coloured, seed)]


def wire(dataset: object, options: LoaderOptions) -> Wiring:
    """
    Decide who does what, and start it.

    Raises TypeError, ValueError or SchemaError, in one line, for options that do not go with the dataset, and
    MemoryError for a cache that does not fit.
    """
    selection = select(dataset, options)
    base, pixels, seed = selection.base, options.pixels, options.order.seed
    _check_picks(base, pixels)
    _check_lists(base, options)
    _check_blank(base, options.work.on_error)
    _check_fields(base, pixels)
    _check_buckets(base, options)
    check_cache(base, pixels.cache, on_error=options.work.on_error)
    work = options.work.for_producer(dataset_verify=base.verify)
    stages = _stages(selection, pixels, work, seed)
    for later in stages.every_later:
        check_later(base, later, behind=None if stages.mosaics is None else stages.mosaics.mosaic)
    _check_compiled(stages, pixels)
    if work.output is Output.ARRAYS:
        _check_arrays(base, stages)
    clips = clips_of(base, selection.indices, options)
    if clips is not None and stages.patches is not None:
        raise ValueError(f"{stages.patches!r} does not go with clips: frames are cut one by one: drop one")
    _check_functions(base, stages, pixels, work)
    steps, delivery = _steps(pixels, stages, seed, clips, _list_collate(base, pixels, work), work.output)
    _check_stages_of_lists(base, stages, pixels)
    context = _context(stages, options, work, delivery)
    context = replace(context, clips=clips, steps=steps, seed=seed, picks=pixels.picks)
    context = _with_parts(context, selection, options)
    _check_picked_pairs(base, pixels, context.field_options.leaders)
    reads_store = pixels.cache is None
    late_crop = next(filter(None, map(_late_crop, stages.every_later)), "")
    values = {**stages.described, "quality": pixels.quality, **_described(base)}
    if pixels.picks:
        values["picks"] = [_name(pick) for pick in pixels.picks]
    picked = {name for pick in pixels.picks for name in pick.fields}
    producer = make_producer(context)
    placement = _placement(stages, producer, steps, delivery)
    return Wiring(
        selection,
        work,
        producer,
        reads_store,
        delivery,
        values,
        late_crop,
        stages.views,
        placement,
        tuple(name for name in base.readers if name not in picked),
        clips.frames if clips else 1,
    )


def _with_parts(context: ProducerContext, selection: Selection, options: LoaderOptions) -> ProducerContext:
    """Return a context that knows which parts of samples a PackSampler plans. Raises ValueError where none can come."""
    sampler = options.samples.batch_sampler
    if not isinstance(sampler, PackSampler) or sampler.split is None:
        return context
    if context.collate is None or not TokenProducer.accepts(context):
        raise ValueError(
            "the PackSampler splits samples (too_long='split'): expected token ids as they are stored, without a "
            "transform, and collate='pack'"
        )
    lengths = selection.base.lengths
    sampler.check_lengths(lengths if selection.indices is None else lengths[selection.indices])
    return replace(context, split=sampler.split)


def _placement(
    stages: _Stages, producer: Producer, steps: BatchSteps | None, delivery: Delivery | HostDelivery | None
) -> Placement:
    """Return where batches are made: of a cache, if there is one, by the producer, and on the way to the device."""
    dataset, made = stages.source, producer.placement
    main = dataset.reader.field.name
    if stages.cached is not None and main in made.fields:
        made = Placement({**made.fields, main: [stages.cached, *made.fields[main]]}, made.batch)
    is_known = dataset.form.is_joint and not dataset.makes_samples
    pictures = [name for name, reader in dataset.readers.items() if reader.is_picture] if is_known else [main]
    pictures = ["sample", *pictures]
    if steps is not None:
        made = steps.placed(made, pictures=pictures, label=LABEL, device="cpu")
    return made if delivery is None else delivery.placed(made, pictures=pictures, label=LABEL)


def _context(
    stages: _Stages, options: LoaderOptions, work: ProducerOptions, delivery: Delivery | HostDelivery | None
) -> ProducerContext:
    """Return what the producer works with. Raises ValueError or SchemaError for what does not go with the samples."""
    source, pixels, seed, sampler = stages.source, options.pixels, options.order.seed, options.samples.batch_sampler
    laters = stages.laters(seed=seed)
    if stages.views is not None and not stages.later_views:  # repeats, whose views get the same
        laters = [replace(laters[0], seed=view_seed(seed, view)) for view in range(stages.count)]
    colours = [Colours(each.steps[: each.native], seed=each.seed) if each.native else None for each in laters]
    has_several = stages.views is not None or stages.mosaics is not None or stages.patches is not None
    has_several = has_several or bool(pixels.picks)
    if stages.parts is not None:
        return ProducerContext(source, work, fields=by_field_options(source, options, stages.parts, colours))
    if (has_fields(source) and not packs_fields(source, pixels.collate)) or has_several:
        fields = field_options(
            source,
            stages.native,
            options,
            colours=colours,
            views=stages.views,
            members=stages.members,
            mosaics=stages.mosaics,
            patches=stages.patches,
        )
        return ProducerContext(source, work, fields=fields)
    fused = fuse(
        source,
        stages.native,
        quality=pixels.quality,
        layout=pixels.layout,
        seed=seed,
        colours=colours[0],
        members=stages.members,
    )
    collate = choose_collate(source, pixels.collate, sampler)
    if pixels.decode == "device" and not stages.native and stages.members is None:
        fused = None  # the device decides the layout there
    return ProducerContext(
        source,
        work,
        fused=fused,
        is_planar=pixels.layout == "contiguous" and decodes_pictures(source),
        collate=collate,
        device=delivery.device if pixels.makes_on_device and isinstance(delivery, Delivery) else None,
        kept=stages.kept,
        rows={} if collate or source.token_reader is not None else row_collates(source, pixels.collate, sampler),
        compared=stages.compared,
    )


def _stages(selection: Selection, pixels: PixelOptions, work: ProducerOptions, seed: int) -> _Stages:
    """Divide the transforms; a cache is filled, or what it is to hold decided, here."""
    base = selection.base
    _check_made(selection, pixels)
    if pixels.by_field is not None:
        return _field_stages(selection, pixels, pixels.by_field, seed)
    if selection.member_transforms is not None:
        return _member_stages(selection, pixels, work, selection.member_transforms, seed)
    if pixels.all_views is not None:
        return _view_stages(base, pixels, pixels.all_views, seed)
    every, patches, finishing = _cut(pixels.of_all)
    transforms, mosaics, behind = Mosaics.taken(every, seed=seed)
    adding: list[Any] = [step for step in transforms if isinstance(step, (GeometryRule, CropRule))]
    adds = [name for step in adding for name in step.adds]
    if pixels.cache == "device" and adds:
        raise no_place_for_fields(base, adds)
    if mosaics is not None and adding:
        raise ValueError(
            f"{adding[0]!r} with {mosaics.mosaic!r}: a mosaic has the geometries of four pictures: drop it"
        )
    native, later = split(transforms, resident=pixels.cache == "device")
    if patches is not None:
        return _patch_stages(base, selection, pixels, work, seed, (native, later, patches, finishing))
    made = [] if mosaics is None else [mosaics.mosaic, *mosaics.flips.transforms]
    ours = [_name(step) for step in (*made, *later, *behind) if isinstance(step, BaseTransform)]
    described = {"transforms": _name(Compose(native)) if native else None, "batch_transforms": ours}
    if mosaics is not None:
        return _Stages(base, native, behind, None, described, mosaics=mosaics)
    if pixels.cache is None:
        return _Stages(base, native, later, None, described, coloured=_coloured(base, later, pixels))
    first = native if pixels.cache == "ram" else _leading(later)
    kept = cache_contents(base, selection.indices, first, quality=pixels.quality, seed=seed)
    if pixels.cache == "device":
        return _Stages(base, native, later[len(first) - len(kept.rest) :], kept, described)
    source = keep_in_memory(kept, threads=work.threads, verify=work.verify)
    coloured = _coloured(source, later, pixels)
    cached = Stage("cache in memory", ("decode", *(() if kept.first is None else kept.first.steps)))
    return _Stages(
        source, list(kept.rest), later, None, described, compared=kept.compared, coloured=coloured, cached=cached
    )


def _cut(transforms: Sequence[Any]) -> tuple[Sequence[Any], Patchify | None, Sequence[Any]]:
    """
    Take a Patchify out of a list: return what stands before it and all rules, it, and what follows. Without one, all
    stands before it. Raises ValueError for two, and for what changes pictures behind it.
    """
    places = [place for place, step in enumerate(transforms) if isinstance(step, Patchify)]
    if not places:
        return transforms, None, ()
    patches, behind = transforms[places[0]], transforms[places[0] + 1 :]
    if len(places) > 1:
        raise ValueError(f"{patches!r} and {transforms[places[1]]!r} in one list: pictures are cut once: keep one")
    rules = [step for step in behind if isinstance(step, Rule)]
    later = [step for step in behind if not isinstance(step, Rule)]
    known = (Finishing, PerBatch)
    late = next((step for step in later if isinstance(step, BaseTransform) and not isinstance(step, known)), None)
    if late is not None:
        raise ValueError(f"{late!r} behind {patches!r}: it is for pictures, not for patches: put it before")
    if any(isinstance(step, ChannelsLast) for step in later):
        raise ValueError(f"ChannelsLast behind {patches!r}: patches have no such layout: drop it")
    return [*transforms[: places[0]], *rules], patches, later


def _patch_stages(
    base: FastDataset,
    selection: Selection,
    pixels: PixelOptions,
    work: ProducerOptions,
    seed: int,
    parts: tuple[Sequence[Any], Sequence[Any], Patchify, Sequence[Any]],
) -> _Stages:
    """
    Divide transforms of which native threads run all that stands before the Patchify. Raises ValueError for what they
    do not run.
    """
    native, colours, patches, finishing = parts
    count = Colours.leading(colours)
    if count < len(colours):
        raise ValueError(
            f"{colours[count]!r} before {patches!r}: native threads do not run it, but they cut the pictures: put it "
            "behind, or drop it"
        )
    ours = [_name(step) for step in (*colours, patches, *finishing) if isinstance(step, BaseTransform)]
    described = {"transforms": _name(Compose(native)) if native else None, "batch_transforms": ours}
    later = [*colours, *finishing]
    if pixels.cache is None:
        return _Stages(base, native, later, None, described, coloured=count, patches=patches)
    kept = cache_contents(base, selection.indices, native, quality=pixels.quality, seed=seed)
    return _Stages(
        keep_in_memory(kept, threads=work.threads, verify=work.verify),
        list(kept.rest),
        later,
        None,
        described,
        compared=kept.compared,
        coloured=count,
        cached=Stage("cache in memory", ("decode", *(() if kept.first is None else kept.first.steps))),
        patches=patches,
    )


def _check_made(selection: Selection, pixels: PixelOptions) -> None:
    """
    Raise ValueError for a Mosaic or Patchify where batches are not made of fields that the loader's threads decode.
    """
    made = [step for step in pixels.every_transform if isinstance(step, LoaderTransform)]
    base = selection.base
    if not made:
        return
    patches = next((step for step in made if isinstance(step, Patchify)), None)
    step, is_patches = patches or made[0], patches is not None
    others = {
        "a Mosaic": is_patches and any(isinstance(other, Mosaic) for other in made),
        "views= and repeats=": pixels.all_views is not None,
        "a Mixture whose members have transforms of their own": selection.member_transforms is not None,
        f"cache={pixels.cache!r}": pixels.cache == "device" if is_patches else pixels.cache is not None,
        f"decode={pixels.decode!r}": pixels.decode != "cpu",
        "a dataset with a transform or methods of its own": base.transform is not None or base.makes_samples,
    }
    for name, is_asked in others.items():
        if is_asked:
            raise ValueError(f"{step!r} does not go with {name}: native threads make it of what they decode: drop one")


def _member_stages(
    selection: Selection, pixels: PixelOptions, work: ProducerOptions, members: MemberTransforms, seed: int
) -> _Stages:
    """Divide the transforms behind those of a mixture's members."""
    base = selection.base
    if pixels.cache == "device":
        raise ValueError(
            "cache='device': not for a Mixture whose members have transforms of their own, which run on the CPU: pass "
            "cache='ram', or drop it"
        )
    views = pixels.all_views
    stages = None if views is None else _view_stages(base, pixels, views, seed)
    lists = [pixels.of_all] if views is None else [transforms for _, transforms in views.groups]
    early = [step for transforms in lists for step in split(transforms, resident=False)[0]]
    native = next((step for step in early if not isinstance(step, Rule)), None)
    if native is not None:
        raise ValueError(
            f"{'transforms' if views is None else 'views'}: {native!r} runs where pictures are decoded, but there the "
            "members of the Mixture have transforms of their own: put it into their lists"
        )
    members = members.after(early)
    if stages is not None:
        described = {**stages.described, "transforms": f"{stages.described['transforms']}; {_name(members)}"}
        return replace(stages, native=[], described=described, members=members)
    later = split(lists[0], resident=False)[1]
    ours = [_name(step) for step in later if isinstance(step, BaseTransform)]
    described = {"transforms": _name(members), "batch_transforms": ours}
    if pixels.cache is None:
        return _Stages(base, [], later, None, described, coloured=_coloured(base, later, pixels), members=members)
    kept = cache_contents(base, selection.indices, [], quality=pixels.quality, seed=seed)
    source = keep_in_memory(replace(kept, rest=[members]), threads=work.threads, verify=work.verify)
    return _Stages(
        source,
        [],
        later,
        None,
        described,
        compared=kept.compared,
        coloured=_coloured(source, later, pixels),
        cached=Stage("cache in memory", ("decode",)),
        members=members,
    )


def _coloured(dataset: FastDataset, later: Sequence[Any], pixels: PixelOptions) -> int:
    """
    Return how many of the transforms of batches native threads run on the pictures that they decode: all colours and
    flips without a device, and with one, those up to the last compiled function.
    """
    device = _device(pixels)
    if device is None or pixels.makes_on_device or not (decodes_pictures(dataset) or has_fields(dataset)):
        return 0
    leading = Colours.leading(later)
    if _is_cpu(device):
        return leading
    compiled = [place for place, step in enumerate(later[:leading]) if isinstance(step, Compiled)]
    return compiled[-1] + 1 if compiled else 0


def _field_stages(selection: Selection, pixels: PixelOptions, by_field: ByField, seed: int) -> _Stages:
    """Divide the transforms of each field. Raises ValueError or SchemaError where they do not go with the rest."""
    base, path = selection.base, selection.base.store.path
    if base.transform is not None or base.makes_samples:
        raise ValueError(
            f"{path}: transforms by field are for what native threads decode, but this dataset has a transform or "
            "methods of its own: pass FastDataset(path, transform=fastio.transforms.ByField({...})) instead"
        )
    others = {
        "a Mixture whose members have transforms of their own": selection.member_transforms is not None,
        f"cache={pixels.cache!r}": pixels.cache is not None,
        f"decode={pixels.decode!r}": pixels.decode != "cpu",
    }
    wrong = next((name for name, is_asked in others.items() if is_asked), None)
    if wrong is not None:
        raise ValueError(f"{path}: transforms by field with {wrong}, which knows one list for all pictures: drop one")
    if not base.form.is_joint and not base.lists:
        raise ValueError(
            f"{path}: transforms by field, but samples are a {base.form.kind} of {', '.join(base.form.names)}: pass a "
            "list of transforms"
        )
    parts = by_field_parts(base, by_field, seed=seed)
    pictures = [part for name, part in parts.items() if base.readers[name].is_picture]
    later = [_Later(part.later, _coloured(base, part.later, pixels), part.later_seed) for part in pictures]
    lists = {", ".join(key): steps for key, steps in by_field.lists.items()}
    native = "; ".join(f"{names}: {_name(Compose(split(steps, resident=False)[0]))}" for names, steps in lists.items())
    behind = [
        [names, *(_name(step) for step in split(steps, resident=False)[1] if isinstance(step, BaseTransform))]
        for names, steps in lists.items()
    ]
    described = {"transforms": f"by field: {native}", "batch_transforms": behind}
    return _Stages(base, [], [], None, described, parts=parts, later_fields=later)


def _view_stages(base: FastDataset, pixels: PixelOptions, views: Views, seed: int) -> _Stages:
    """Divide the transforms of each view."""
    check_views(base, views)
    parts = [(count, *split(transforms, resident=False)) for count, transforms in views.groups]
    for transform in (step for _, _, later in parts for step in later):
        if views.is_list and mixes_of(transform):
            raise ValueError(
                f"{transform!r} in views: it mixes labels, which come once for all views: drop it, or use repeats="
            )
    native = Views([(count, first) for count, first, _ in parts])
    for step in pixels.every_transform:
        if isinstance(step, (GeometryRule, CropRule)):
            raise ValueError(f"{step!r} with views: a sample has one geometry: drop it")
    described = {
        "transforms": _in_words(views, [(count, first) for count, first, _ in parts]),
        "batch_transforms": [[_name(step) for step in later if isinstance(step, BaseTransform)] for *_, later in parts],
    }
    if not views.is_list:
        native, later = Views.joined(views.count, native.groups[0][1]), parts[0][2]
        coloured = _coloured(base, later, pixels)
        return _Stages(base, native.each[0], later, None, described, views=native, coloured=coloured)
    each = [later for count, _, later in parts for _ in range(count)]
    every = [_Later(later, _coloured(base, later, pixels), view_seed(seed, view)) for view, later in enumerate(each)]
    return _Stages(base, native.each[0], [], None, described, views=native, later_views=every)


def _in_words(views: Views, parts: Sequence[tuple[int, Sequence[Any]]]) -> str:
    """Return what a state says of the views that native threads make."""
    kind = "views" if views.is_list else "repeats"
    return f"{kind}: {', '.join(f'{count} x {_name(Compose(steps))}' for count, steps in parts)}"


def _described(dataset: FastDataset) -> dict[str, Any]:
    """Return what a state says about the values that a dataset gives; functions of the user's have no stable name."""
    transform = dataset.transform
    return {
        "fields": list(dataset.form.names),
        "mode": dataset.mode,
        "transform": _name(transform) if isinstance(transform, BaseTransform) else None,
    }


def _name(transform: object) -> str:
    """Return a transform with its arguments, as the next process names it too: without an address in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(transform))


def _list_collate(dataset: FastDataset, pixels: PixelOptions, work: ProducerOptions) -> ListCollate | None:
    """Return what makes of flat elements what collate= asks for; None if that is how batches have them."""
    if not (dataset.lists and has_fields(dataset)):
        return None
    schema = picked_schema(dataset.store.schema, pixels.picks)
    wishes = {
        name: ListWish(how, schema[name].is_optional)
        for name, how in row_collates(dataset, pixels.collate, None, pixels.picks).items()
        if has_element_rows(schema[name]) and how in ("list", "pad", "nested")
    }
    cut = next((step for step in pixels.every_transform if isinstance(step, Patchify)), None)
    if wishes and cut is not None:
        raise SchemaError(
            f"{dataset.store.path}: collate={pixels.collate!r} with {cut!r}: patches of lists come one behind the "
            "other: drop collate="
        )
    return ListCollate(dataset.form, wishes, work.output) if wishes else None


def _steps(
    pixels: PixelOptions,
    stages: _Stages,
    seed: int,
    clips: Clips | None,
    lists: ListCollate | None,
    output: Output,
) -> tuple[BatchSteps | None, Delivery | HostDelivery | None]:
    """
    Return what a producer does to its batches, up to the last function of single pictures, which may find samples bad
    (None: there is none), and the way to the device with the rest; None if batches stay as they are made.
    """
    device, are_arrays = _device(pixels), output is Output.ARRAYS
    if device is None or (pixels.device is None and stages.is_native):
        untouched = Recipe([], seed=seed)
        steps = BatchSteps([untouched], are_arrays=are_arrays, lists=lists)
        return None, None if lists is None else HostDelivery(steps)
    lane = None if are_arrays else lane_to(device)  # arrays stay on the host, where torch need not be
    is_host = lane is None or lane.is_immediate
    repeats = 1 if stages.later_views else stages.count
    divided = [_recipes(stages, pixels, each, repeats=repeats, stays=is_host) for each in stages.laters(seed=seed)]
    roles = view_roles(stages.source) if stages.later_views else batch_roles(stages.source)
    if stages.parts is not None:
        roles = by_field_roles(stages.source, stages.parts)
    make = partial(BatchSteps, roles=roles, frames=None if clips is None else clips.frames, are_arrays=are_arrays)
    rest = make([recipe for _, recipe in divided], lists=lists)
    first = rest if is_host else make([recipe for recipe, _ in divided])
    has_functions = any(map(_functions, stages.every_later)) and not pixels.makes_on_device
    if is_host and has_functions:
        return first, None
    if lane is None or (is_host and not pixels.makes_on_device):
        return None, HostDelivery(rest)
    delivery = Delivery(lane, depth=_DEPTH, is_made_there=pixels.makes_on_device, steps=rest)
    return first if has_functions else None, delivery


def _recipes(
    stages: _Stages, pixels: PixelOptions, later: _Later, *, repeats: int, stays: bool
) -> tuple[Recipe, Recipe]:
    """
    Return what is done where batches are made, and what on the device, of what native threads have not done; with
    ``stays``, the device is where batches are made.
    """
    transforms, native = later.steps, later.native
    make = partial(
        Recipe, seed=later.seed, repeats=repeats, named=partial(_sample_error, stages.source), patches=stages.patches
    )
    laid_out = list(transforms) if stages.patches is not None else _laid_out(transforms, pixels.layout)
    count = _functions(transforms)
    whole = make(laid_out, native=native)
    if pixels.makes_on_device or (not count and not stays):
        return make([]), whole
    if stays:
        return whole, whole
    first = make(laid_out[:count], native=native)
    return first, make(laid_out[count:], first=first.end)


def _functions(transforms: Sequence[Any]) -> int:
    """Return how many transforms there are up to the last function of single pictures; 0 if there is none."""
    return max((place + 1 for place, step in enumerate(transforms) if isinstance(step, PerSample)), default=0)


def _check_functions(dataset: FastDataset, stages: _Stages, pixels: PixelOptions, work: ProducerOptions) -> None:
    """Raise ValueError for functions of pictures that a GPU decodes, with an on_error that they could not follow."""
    if not pixels.makes_on_device or work.on_error == "raise":
        return
    step = next((step for later in stages.every_later for step in later if isinstance(step, PerSample)), None)
    if step is not None:
        raise ValueError(
            f"{dataset.store.path}: {step!r} with decode={pixels.decode!r} and on_error={work.on_error!r}: its "
            "pictures are on the device, where a sample that it fails for cannot be left out: drop decode= or on_error="
        )


def _sample_error(dataset: FastDataset, index: int) -> SampleError:
    """Return an error whose message begins with the names of a sample, and says nothing else."""
    path, key = dataset.store.path, dataset.store.keys([index])[0]
    return SampleError(f"{path}[{index}] ({key!r})", path=path, index=index, key=key)


def _device(pixels: PixelOptions) -> Any:
    """The device that was named; the CPU where something is done behind the decoders and none was."""
    if pixels.device is None and not all(
        isinstance(step, LoaderTransform) or is_geometry(step) for step in pixels.every_transform
    ):
        return "cpu"
    return pixels.device


def _is_cpu(device: Any) -> bool:
    return device == "cpu" or device_of(device).type == "cpu"


def _leading(transforms: Sequence[Any]) -> list[Any]:
    """Return the leading crops, resizes and flips."""
    return list(takewhile(is_geometry, transforms))


def _check_arrays(dataset: FastDataset, stages: _Stages) -> None:
    """Raise ValueError for what only torch does behind the decoders, with output="numpy"."""
    for each in stages.laters(seed=0):
        coloured, later = each.native, each.steps
        for step in later[coloured:]:
            if isinstance(step, ToDtype) and step.name == "bfloat16":
                raise ValueError(f"{dataset.store.path}: output='numpy': {step!r}: NumPy has no bfloat16: use another")
            if isinstance(step, (Transform, PixelTransform)) and not mixes_of(step):
                first = later[coloured]
                remedy = f"put it before {first!r}" if first is not step else "leave it out, and do it in your program"
                raise ValueError(
                    f"{dataset.store.path}: output='numpy': {step!r} needs torch, because native threads do not run it "
                    f"where they decode: {remedy}"
                )


def _late_crop(later: Sequence[Any]) -> str:
    """Say which transform of batches stands before the first crop or resize; "" if none does."""
    batches = list(dropwhile(is_geometry, later))
    crop = next((type(step).__name__ for step in batches if isinstance(step, _SIZING)), "")
    if not crop:
        return ""
    first = type(batches[0]).__name__
    return (
        f"{crop} comes after {first}, which works on whole batches, whose pictures must have one size already: put "
        f"{crop} before {first}"
    )


def _check_compiled(stages: _Stages, pixels: PixelOptions) -> None:
    """Raise SchemaError for a compiled function behind what runs on a GPU."""
    device = _device(pixels)
    if device is None or _is_cpu(device):
        return
    for each in stages.laters(seed=0):
        coloured, later = each.native, each.steps
        compiled = next((step for step in later[coloured:] if isinstance(step, Compiled)), None)
        if compiled is not None:
            first = later[coloured]
            remedy = f"put it before {first!r}" if first is not compiled else f"drop cache= or decode={pixels.decode!r}"
            raise SchemaError(f"{compiled!r} runs on the CPU, but pictures are on {device} by then: {remedy}")


def _laid_out(transforms: Sequence[Any], layout: Layout) -> list[Any]:
    """Return the transforms on a device, the last of fastio's followed by the layout asked for."""
    ours = [place for place, step in enumerate(transforms) if isinstance(step, (Transform, BatchTransform))]
    if not ours or layout == "channels_last" or any(isinstance(step, ChannelsLast) for step in transforms):
        return list(transforms)
    return [*transforms[: ours[-1] + 1], Contiguous(), *transforms[ours[-1] + 1 :]]


def _check_picks(dataset: FastDataset, pixels: PixelOptions) -> None:
    """ValueError or SchemaError for a Pick of fields that it cannot pick from, or that the loader does not read."""
    path, schema = dataset.store.path, dataset.store.schema
    picked: dict[str, Pick] = {}
    for pick in pixels.picks:
        if dataset.transform is not None or dataset.makes_samples or pixels.cache is not None or pixels.decode != "cpu":
            raise ValueError(
                f"{path}: {pick!r} picks where the loader reads samples from the store, without cache=, decode= and a "
                "dataset's own transform or methods: pass FastDataset(path, transform=Pick(...)), or drop them"
            )
        pick.check({name: schema[name] for name in dataset.form.names}, where=path)
        taken = next((name for name in pick.fields if name in picked), None)
        if taken is not None:
            raise ValueError(f"{path}: {picked[taken]!r} and {pick!r} both pick {taken!r}: drop one")
        picked |= dict.fromkeys(pick.fields, pick)
        counts = {name: _element_counts(dataset, name) for name in pick.fields}
        first = counts[pick.fields[0]]
        for name, own in counts.items():
            unlike = np.flatnonzero(own != first)
            if len(unlike):
                index = int(unlike[0])
                raise SchemaError(
                    f"{path}: {pick!r} draws one number for all its fields, but {dataset.store.keys([index])[0]!r} has "
                    f"{first[index]} in {pick.fields[0]!r} and {own[index]} in {name!r}: write a Pick for each"
                )


def _check_picked_pairs(dataset: FastDataset, pixels: PixelOptions, leaders: Mapping[str, str]) -> None:
    """Raise SchemaError for a Pick of a list without that whose elements it moves with, or the other way round."""
    picks = {name: pick for pick in pixels.picks for name in pick.fields}
    for name, leader in leaders.items():
        if not {name, leader} <= {*dataset.lists} or picks.get(name) is picks.get(leader):
            continue
        pick = picks.get(name) or picks.get(leader)
        raise SchemaError(
            f"{dataset.store.path}: each element of {name!r} moves with {leader!r}, but {pick!r} picks from one of the "
            f"two: write Pick({leader!r}, {name!r})"
        )


def _element_counts(dataset: FastDataset, name: str) -> NDArray[np.int64]:
    """Return how many elements each sample has in a field: one, if it is none of lists."""
    return dataset.lists[name].counts if name in dataset.lists else np.ones(len(dataset.store), np.int64)


def _check_lists(dataset: FastDataset, options: LoaderOptions) -> None:
    """SchemaError for what does not go with fields of lists, whose pictures are transformed each by itself."""
    schema, pixels = dataset.store.schema, options.pixels
    lists = [schema[name] for name in dataset.form.names if schema[name].is_list]
    if not lists or dataset.makes_samples:
        return
    steps = [step for step in pixels.every_transform if isinstance(step, Mosaic)]
    one = "it is for one picture a sample"
    unfit = {
        "cache=": (pixels.cache is not None, one),
        "decode=": (pixels.decode != "cpu", one),
        str(steps[0] if steps else ""): (bool(steps), "its pieces are of one picture a sample each"),
    }
    reason, why = next(((what, why) for what, (is_there, why) in unfit.items() if is_there), (None, ""))
    if reason is not None:
        others = tuple(name for name in dataset.form.names if not schema[name].is_list)
        leave = f", or leave the lists out: FastDataset(path, fields={others})" if others else ""
        raise SchemaError(
            f"{dataset.store.path}: {reason} does not go with {lists[0]} yet, because {why}: drop it{leave}"
        )


def _check_stages_of_lists(dataset: FastDataset, stages: _Stages, pixels: PixelOptions) -> None:
    """SchemaError for mixes, functions of single pictures and transforms of members, which know one a sample."""
    if not dataset.lists or dataset.makes_samples:
        return
    path, name = dataset.store.path, next(iter(dataset.lists))
    later = [step for each in stages.laters(seed=0) for step in each.steps[each.native :]]
    unfit = next((step for step in later if mixes_of(step) or isinstance(step, PerSample)), None)
    if unfit is not None or stages.members is not None:
        what = "transforms of a Mixture's members" if unfit is None else repr(unfit)
        raise SchemaError(
            f"{path}: {what} with pictures of lists, such as {name!r}: mixes, PerSample and transforms of members know "
            "one picture a sample: give them to the batch in the loop, as PerBatch(function)"
        )
    picked = next((field for pick in pixels.picks for field in pick.fields if field in dataset.lists), None)
    late = next((step for step in later if getattr(step, "draws", 0)), None)
    if picked is not None and late is not None and dataset.readers[picked].is_picture:
        raise SchemaError(
            f"{path}: {late!r} runs behind what native threads do to pictures, where it is not known which of "
            f"{picked!r} was picked: put it before what they do not run, or drop device="
        )


def _check_fields(dataset: FastDataset, pixels: PixelOptions) -> None:
    """ValueError for a cache or a decoder that takes pictures or arrays alone, or with labels."""
    if not has_fields(dataset) or (pixels.cache is None and pixels.decode == "cpu"):
        return
    option = "decode='device'" if pixels.cache is None else f"cache={pixels.cache!r}"
    path, names, schema = dataset.store.path, dataset.form.names, dataset.store.schema
    if len(names) == 1 and dataset.reader.has_rows and not dataset.reader.is_mask and LABEL in schema:
        wish = (*names, LABEL)
        raise ValueError(f"{path}: {option} needs the labels too: drop it, or pass FastDataset(..., fields={wish})")
    raise ValueError(
        f"{path}: {option} is for one picture or array a sample, alone or with its label, but the samples have "
        f"{', '.join(names)}: drop it"
    )


def _check_buckets(dataset: FastDataset, options: LoaderOptions) -> None:
    """ValueError for a ResizeToBucket whose batches would have pictures of several shapes."""
    sampler = options.samples.batch_sampler
    for step in options.pixels.every_transform:
        if not isinstance(step, ResizeToBucket) or len(step.buckets.pairs) == 1:
            continue
        if sampler is None:
            raise ValueError(
                f"{dataset.store.path}: ResizeToBucket makes pictures of {len(step.buckets.pairs)} shapes, which no "
                "batch can have together: pass batch_sampler=ShapeBucketSampler(dataset.sizes(), ...) of the same "
                "shapes, and no batch_size"
            )
        if isinstance(sampler, ShapeBucketSampler) and sampler.shapes != step.buckets.pairs:
            raise ValueError(
                f"{dataset.store.path}: ResizeToBucket and the ShapeBucketSampler have different shapes: write "
                "ResizeToBucket(sampler)"
            )


def _check_blank(dataset: FastDataset, on_error: OnError) -> None:
    """ValueError where "zero" would take the store's labels for those of samples that a subclass makes."""
    path, name = dataset.store.path, type(dataset).__name__
    if on_error == "zero" and dataset.makes_samples and not dataset.makes_blanks:
        raise ValueError(
            f"{path}: on_error='zero' does not know the label of a sample that {name} makes itself: use "
            f"on_error='skip' or 'raise', or give {name} its own blank(index)"
        )
