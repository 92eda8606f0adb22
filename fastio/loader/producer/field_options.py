"""What is done with each field: transforms while it is decoded and on the device, and its collate."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.form import LABEL, FieldTransform
from fastio.dataset.record_collate import Rows as Collate
from fastio.dataset.record_collate import RowsWish, choose_rows, preference_of
from fastio.dataset.row_reader import RowReader
from fastio.dataset.token_collate import PackCollate, PadCollate, PreferenceCollate, beside_name
from fastio.errors import SchemaError
from fastio.loader.device.nested import BatchRoles
from fastio.loader.options import CollateWish, Layout, LoaderOptions, PixelOptions, Quality
from fastio.loader.producer.field_parts import FieldPart, first_picture, leaders_of
from fastio.loader.producer.mosaics import Mosaics
from fastio.loader.selection.mixture import MemberTransforms
from fastio.samplers.bucket import LengthBucketSampler
from fastio.samplers.pack import PackSampler
from fastio.transforms.arguments import as_fill, check_mask_fill
from fastio.transforms.batch.batch_transform import BatchTransform
from fastio.transforms.batch.choice import mixes_of
from fastio.transforms.batch.mosaic import Mosaic
from fastio.transforms.batch.program import PixelTransform, Programs
from fastio.transforms.batch.recipe import Colours, is_geometry
from fastio.transforms.fused import Fused, FusedByMember, PicturePass
from fastio.transforms.joint import leaders_of_lists
from fastio.transforms.patches import Patchify
from fastio.transforms.pick import Pick, picked_schema
from fastio.transforms.plain import colour_of
from fastio.transforms.program import Program, joined
from fastio.transforms.transform import KeepsSize, Transform
from fastio.transforms.views import Views, check_fields, view_seed
from fastio.transforms.vision import pictured_text
from fastio.types.schema import Field

__all__ = [
    "FieldOptions",
    "PackedText",
    "batch_roles",
    "by_field_options",
    "by_field_roles",
    "check_later",
    "check_views",
    "decodes_pictures",
    "field_options",
    "fuse",
    "has_fields",
    "no_place_for_fields",
    "row_collates",
    "view_roles",
]


_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True, slots=True)
class PackedText:
    """
    Which fields become packed text: ``ids``, and ``beside`` them those with one value for each id. A ``picture`` has
    a token for each square of ``side`` patches, or if that is None, the ``image_length`` of ``collate``.
    """

    ids: str
    beside: tuple[str, ...]
    picture: str
    collate: PackCollate
    side: int | None

    @property
    def names(self) -> tuple[str, ...]:
        """All fields but the pictures."""
        return self.ids, *self.beside

    def lengths(self, grids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many tokens pictures with these grids of patches have."""
        if self.side is None:
            return np.full(len(grids), self.collate.image_length, np.int64)
        counts: NDArray[np.int64] = (grids // self.side).prod(axis=1)
        return counts


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """
    What a producer does with the fields of samples.

    ``fused`` are the transforms of each picture (None: nothing beyond decoding); with ``is_planar``, pictures are
    (B, C, H, W) in memory. Plans are made from the sizes of leaders: of a sample's first picture, or mask if it has no
    picture, and by field, of the first of those that move together; ``leaders`` has the leader of each field that
    follows one; a leader is its own. Those in ``by_fraction`` may differ in size from theirs. ``collates`` has an entry
    for each field whose values differ in length or count. Batches get the fields that ``adds`` names, from where the
    pictures of ``added_by`` are moved.

    ``others`` are the transforms of the views besides the first, of pictures that have several; ``views`` says how many
    there are, and whether they become a list (None: there are no views). ``mosaics`` are made of the pictures and masks
    of finished rows; None: none are. Pictures are cut into ``patches``, if that says how; a batch has ``most_patches``,
    if its sampler counts them. ``text`` names the fields that are packed with placeholders of pictures, if some are;
    ``collates`` has none of these.
    """

    fused: Mapping[str, PicturePass | None]
    leaders: Mapping[str, str]
    is_planar: bool
    collates: Mapping[str, Collate]
    by_fraction: Collection[str] = ()
    adds: tuple[str, ...] = ()
    added_by: str | None = None
    others: Mapping[str, tuple[PicturePass, ...]] = field(default_factory=dict)
    views: Views | None = None
    mosaics: Mosaics | None = None
    patches: Patchify | None = None
    most_patches: int | None = None
    text: PackedText | None = None

    @property
    def repeats(self) -> int:
        """How often each sample stands in its batch: once, or once for each view that lies behind the first."""
        return 1 if self.views is None or self.views.is_list else self.views.count

    @classmethod
    def of_one(cls, name: str, fused: PicturePass | None, is_planar: bool) -> Self:
        """Return what is done with one field that nothing follows."""
        return cls({name: fused}, leaders={}, is_planar=is_planar, collates={})


def has_fields(dataset: FastDataset) -> bool:
    """
    Whether samples are decoded values, but not just a picture, an array of fixed shape or token ids, with or without
    a label.
    """
    if dataset.transform is not None or dataset.makes_samples:
        return False
    reader = dataset.reader
    return not dataset.is_as_stored or reader.is_mask or not (reader.has_rows or reader.field.traits.is_tokens)


def field_options(
    dataset: FastDataset,
    transforms: Sequence[Any],
    options: LoaderOptions,
    *,
    colours: Sequence[Colours | None] = (None,),
    views: Views | None = None,
    members: MemberTransforms | None = None,
    mosaics: Mosaics | None = None,
    patches: Patchify | None = None,
) -> FieldOptions:
    """
    Return what to do with the fields of ``dataset``.

    ``transforms`` are those that native threads run, and those of the first of ``views``; ``members`` are instead those
    of each member of a mixture; ``colours`` is what they then do to pictures, one for each view; ``mosaics`` are made
    of the results, or ``patches``. Raises SchemaError or ValueError, in one line, for options that no field goes with.
    """
    pixels, seed, sampler = options.pixels, options.order.seed, options.samples.batch_sampler
    leader = first_picture(dataset, dataset.form.names)
    has_transforms = bool(transforms) or members is not None or mosaics is not None or patches is not None
    if has_transforms and leader is None and not any(dataset.readers[name].is_picture for name in dataset.lists):
        raise SchemaError(
            f"{dataset.store.path}: transforms= is for pictures and masks, but the samples have only "
            f"{', '.join(dataset.form.names)}: drop it, or add a picture to the dataset's fields="
        )
    if has_transforms:
        _check_owners(dataset)
    if patches is not None:
        _check_patches(dataset, patches)
    fused: dict[str, PicturePass | None] = {}
    others: dict[str, tuple[PicturePass, ...]] = {}
    for name, reader in dataset.readers.items():
        is_planned = reader.is_picture or (reader.is_mask and name == leader and has_transforms)
        needs_pass = (
            has_transforms
            or views is not None
            or (colours[0] is not None and reader.is_picture)
            or pixels.quality != "exact"
            or pixels.layout == "contiguous"
        )
        if is_planned and needs_pass:
            makers = [
                _pass_of(reader, each, colours[view], pixels, members, seed=view_seed(seed, view), patches=patches)
                for view, each in enumerate([transforms] if views is None else views.each)
            ]
            fused[name], others[name] = makers[0], tuple(makers[1:])
        else:
            fused[name] = None
    if leader is not None:
        _check_boxes(dataset, fused[leader])
    elif has_transforms:
        for name in dataset.lists:
            _check_added(dataset, name, fused[name])
    if mosaics is not None:
        _check_edges(dataset, mosaics.mosaic, fused)
    text = packed_text(dataset, pixels.collate, patches)
    collates = row_collates(dataset, pixels.collate, sampler, pixels.picks)
    if text is not None:
        collates = {name: how for name, how in collates.items() if name not in text.names}
    is_joint = leader is not None and (has_transforms or views is not None)
    leaders = {name: leader for name in dataset.readers if name not in dataset.lists} if leader and is_joint else {}
    if has_transforms:
        leaders |= _leaders_of_lists(dataset, fused)
    return FieldOptions(
        fused,
        leaders,
        is_planar=pixels.layout == "contiguous",
        collates=collates,
        by_fraction=leaders if pixels.by_fraction else (),
        adds=_added(dataset, fused[leader] if leader is not None else None) if has_transforms else (),
        added_by=leader,
        others=others,
        views=views,
        mosaics=mosaics,
        patches=patches,
        most_patches=None if patches is None else _most_patches(dataset, patches, sampler),
        text=text,
    )


def _leaders_of_lists(dataset: FastDataset, fused: Mapping[str, PicturePass | None]) -> dict[str, str]:
    """
    Return which field each list of masks moves with. Raises SchemaError if that is not known, or where transforms do
    not go with lists.
    """
    path, readers = dataset.store.path, dataset.readers
    led = leaders_of_lists((dataset.store.schema[name] for name in dataset.form.names), where=path)
    for name, leader in led.items():
        made = fused[leader]
        if made is not None:
            made.check_masks(readers[name].dtype)
    return led | {leader: leader for leader in led.values()}


def by_field_options(
    dataset: FastDataset, options: LoaderOptions, parts: Mapping[str, FieldPart], colours: Sequence[Colours | None]
) -> FieldOptions:
    """As ``field_options``, for transforms by field; ``colours`` are those of the pictures among ``parts``."""
    pixels, sampler = options.pixels, options.samples.batch_sampler
    _check_owners(dataset)
    fused: dict[str, PicturePass | None] = dict.fromkeys(dataset.readers)
    coloured = dict(zip((name for name in parts if dataset.readers[name].is_picture), colours, strict=True))
    adds: dict[str, tuple[str, ...]] = {}
    for name, part in parts.items():
        reader = dataset.readers[name]
        if reader.is_picture or (reader.is_mask and part.leader == name and part.native):
            made = fused[name] = _pass_of(reader, part.native, coloured.get(name), pixels, seed=part.seed)
            _check_added(dataset, name, made)
            if part.leader == name and part.native:
                follow = [each for each, other in parts.items() if other.leader == name]
                boxes = [dataset.readers[each] for each in follow if dataset.readers[each].field.is_box]
                if made.looks_at_boxes is not None and not boxes:
                    raise SchemaError(
                        f"{dataset.store.path}: {made.looks_at_boxes} looks at boxes, but none move with {name!r}: "
                        "name a field of boxes in its key"
                    )
                adds[name] = _added(dataset, made, [dataset.readers[each] for each in follow])
    added = {name: names for name, names in adds.items() if names}
    if len(added) > 1:
        raise SchemaError(
            f"{dataset.store.path}: transforms of {' and '.join(added)} add fields of one name: keep KeepGeometry or "
            "KeepCrop in one list"
        )
    added_by, names = next(iter(added.items()), (None, ()))
    return FieldOptions(
        fused,
        leaders_of(parts),
        is_planar=pixels.layout == "contiguous",
        collates=row_collates(dataset, pixels.collate, sampler, pixels.picks),
        by_fraction=[name for name, part in parts.items() if part.by_fraction],
        adds=names,
        added_by=added_by,
    )


def _pass_of(
    reader: RowReader,
    transforms: Sequence[Any],
    colours: Colours | None,
    pixels: PixelOptions,
    members: MemberTransforms | None = None,
    *,
    seed: int,
    patches: Patchify | None = None,
) -> PicturePass:
    """Return the pass of a field of pictures, or of masks that others follow."""
    mode = _MODES[reader.row_shape[2]] if reader.row_shape is not None else reader.mode
    return _pass(
        transforms,
        None if reader.is_mask else colours,
        members,
        seed=seed,
        mode=None if reader.is_mask else mode,
        is_raw=reader.row_shape is not None,
        is_fast=pixels.quality == "fast",
        patches=patches,
    )


def _most_patches(dataset: FastDataset, patches: Patchify, sampler: object) -> int | None:
    """Return how many patches a batch may have by its PackSampler; None if that may count other fields: text, ids."""
    if not isinstance(sampler, PackSampler) or not patches.packed:
        return None
    readers = dataset.readers.values()
    countable = [each for each in readers if each.is_picture or not (each.has_rows or _are_numbers(each.field))]
    return sampler.batch_patches if sampler.max_patches is not None or len(countable) == 1 else None


def _are_numbers(field: Field) -> bool:
    return field.traits.is_ragged or field.traits.is_npy


def _check_patches(dataset: FastDataset, patches: Patchify) -> None:
    """Raise SchemaError for samples that cannot be cut into patches as a whole."""
    masks = [name for name, reader in dataset.readers.items() if reader.is_mask]
    if masks or not any(reader.is_picture for reader in dataset.readers.values()):
        what = f"masks, which {', '.join(masks)} are" if masks else f"{', '.join(dataset.form.names)}"
        raise SchemaError(
            f"{dataset.store.path}: {patches!r} cuts pictures, not {what}: choose others by the dataset's fields="
        )


def _check_boxes(dataset: FastDataset, fused: PicturePass | None) -> None:
    """Raise SchemaError for a transform that looks at boxes, of samples without any."""
    looking = None if fused is None else fused.looks_at_boxes
    if looking is not None and not any(reader.field.is_box for reader in dataset.readers.values()):
        raise SchemaError(
            f"{dataset.store.path}: {looking} looks at boxes, but the samples have only "
            f"{', '.join(dataset.form.names)}: drop it, or add a field of boxes to the dataset's fields="
        )


def _check_edges(dataset: FastDataset, mosaic: Mosaic, fused: Mapping[str, PicturePass | None]) -> None:
    """Raise ValueError or SchemaError for a mosaic whose edges do not fit pictures or masks."""
    for name, reader in dataset.readers.items():
        if reader.is_mask:
            check_mask_fill(mosaic.mask_fill, reader.dtype, where=str(mosaic))
        picture = fused[name]
        channels = next((number for number, mode in _MODES.items() if reader.is_picture and mode == reader.mode), None)
        if picture is not None and channels is not None:
            colour_of(as_fill(mosaic.fill), picture.grey or channels)


def check_views(dataset: FastDataset, views: Views) -> None:
    """Raise ValueError or SchemaError for samples whose pictures cannot have views."""
    path, name = dataset.store.path, "views" if views.is_list else "repeats"
    if dataset.transform is not None or dataset.makes_samples:
        raise ValueError(
            f"{path}: {name}= is for pictures that native threads decode, but this dataset has a transform or methods "
            "of its own: FastDataset(path, transform=fastio.transforms.Views([...])) gives views sample by sample"
        )
    pictures = [reader.field.name for reader in dataset.readers.values() if reader.is_picture]
    if not pictures:
        raise SchemaError(f"{path}: {name}= is for pictures, but the samples have only {', '.join(dataset.form.names)}")
    check_fields([reader.field for reader in dataset.readers.values()], where=f"{path}: {name}=")
    others = [other for other in dataset.readers if other not in pictures]
    if others and not views.is_list:
        raise SchemaError(
            f"{path}: repeats= is for pictures and columns, but the samples have {', '.join(others)}: leave "
            f"{'them' if len(others) > 1 else 'it'} out by the dataset's fields=, or pass views="
        )


def view_roles(dataset: FastDataset) -> BatchRoles:
    """Return where batches have the lists of views."""
    form = dataset.form
    names = [name for name, reader in dataset.readers.items() if reader.is_picture]
    if form.kind == "value":
        return BatchRoles((None,), None, views=True, listed=_listed(dataset, names))
    places = tuple(name if form.kind == "dict" else form.names.index(name) for name in names)
    return BatchRoles(places, None, views=True, listed=_listed(dataset, names))


def _listed(dataset: FastDataset, names: Sequence[str]) -> tuple[bool, ...]:
    return tuple(name in dataset.lists for name in names)


def _added(
    dataset: FastDataset, fused: PicturePass | None, readers: Sequence[RowReader] | None = None
) -> tuple[str, ...]:
    """
    Return what transforms add to batches. Raises SchemaError for transforms that do not go with the masks among these
    ``readers``, or among all (None).
    """
    form, path = dataset.form, dataset.store.path
    masks = [reader.dtype for reader in readers or dataset.readers.values() if reader.is_mask]
    if fused is not None and masks:
        fused.check_masks(*masks)
    if fused is None or not fused.adds:
        return ()
    if not form.is_joint:
        raise no_place_for_fields(dataset, fused.adds)
    taken = next((name for name in fused.adds if name in form.names), None)
    if taken is not None:
        raise SchemaError(f"{path}: transforms add a field {taken!r}, but there is one: leave it out by fields=")
    return fused.adds


def _check_added(dataset: FastDataset, name: str, fused: PicturePass | None) -> None:
    """Raise SchemaError for fields of one value a sample that transforms of lists would add."""
    if fused is not None and fused.adds and name in dataset.lists:
        raise SchemaError(
            f"{dataset.store.path}: transforms add {' and '.join(fused.adds)}, but {dataset.store.schema[name]} have "
            "one for each picture: drop KeepGeometry and KeepCrop, or put them into the list of one picture a sample"
        )


def _check_owners(dataset: FastDataset) -> None:
    """Raise SchemaError for rows that go with boxes or points which are not asked for."""
    for name, reader in dataset.readers.items():
        owner = reader.field.owner
        if owner and owner not in dataset.readers:
            raise SchemaError(
                f"{dataset.store.path}: rows of {name!r} are dropped with those of {owner!r} that transforms crop "
                f"away: add {owner!r} to the dataset's fields="
            )


def row_collates(
    dataset: FastDataset, wish: CollateWish, sampler: object, picks: Sequence[Pick] = ()
) -> dict[str, Collate]:
    """
    Return the collate of each field whose values differ in length or count; those of padded token ids have a
    PadCollate, those of prompts and answers together one PreferenceCollate. Fields that ``picks`` draw from are what is
    left of them.
    """
    multiple = sampler.pad_to_multiple if isinstance(sampler, LengthBucketSampler) else 1
    if isinstance(wish, PackCollate) and wish.image_token is not None:
        wish = None  # which is for text beside pictures: see packed_text
    schema = picked_schema(dataset.store.schema, picks)
    collates = choose_rows(schema, dataset.form.names, cast("RowsWish | None", wish), where=dataset.store.path)
    preference = preference_of(collates, wish, dataset)
    if wish == "preference" and preference is not None:
        preference = PreferenceCollate(preference.pad_id, multiple)
    for name, how in collates.items():
        if isinstance(how, PreferenceCollate) and preference is not None:
            collates[name] = preference
        elif how == "pad" and schema[name].traits.is_tokens:
            collates[name] = PadCollate(dataset.pad_id_of(name), pad_to_multiple=multiple)
    return collates


def packed_text(dataset: FastDataset, wish: object, patches: Patchify | None) -> PackedText | None:
    """
    Return which fields of samples a PackCollate with an ``image_token`` packs; None for any other ``wish``.

    Raises SchemaError for samples without token ids or one field of pictures, and ValueError where nothing says how
    many tokens a picture has.
    """
    if not isinstance(wish, PackCollate) or wish.image_token is None:
        return None
    text = pictured_text(dataset)
    if patches is None and wish.image_length is None:
        raise ValueError(
            f"{dataset.store.path}: {wish!r}: expected a Patchify among the transforms, or image_length=, the tokens "
            "of every picture"
        )
    names = [beside_name(dataset.readers[name].field) for name in text.beside]
    others = [name for name in dataset.form.names if name not in (text.ids, *text.beside)]
    taken = next((name for name in [*names, *others] if name in _MADE or (names + others).count(name) > 1), None)
    if taken is not None:
        raise SchemaError(
            f"{dataset.store.path}: a batch has an entry {taken!r} already, so the field of that name has no place: "
            "pack it under another name (rename=)"
        )
    side = None if patches is None or wish.image_length is not None else patches.merged
    return PackedText(text.ids, text.beside, text.picture, wish, side)


_MADE = ("input_ids", "position_ids", "mrope_position_ids", "document_ids", "cu_seqlens", "max_seqlen", "lengths")


# The pass of native threads over pictures: decoding, and the transforms that are done with it.


def decodes_pictures(dataset: FastDataset) -> bool:
    """Whether native threads decode the dataset's samples, and these are pictures."""
    return dataset.is_as_stored and dataset.reader.is_picture


def fuse(
    dataset: FastDataset,
    transforms: Sequence[Any],
    *,
    quality: Quality,
    layout: Layout,
    seed: int,
    colours: Colours | None = None,
    members: MemberTransforms | None = None,
) -> PicturePass | None:
    """
    The transforms of the pass that decodes; None if there is nothing to do beyond decoding.

    ``layout="contiguous"`` counts as a transform of pictures, whose planes the pass takes apart. Raises ValueError or
    SchemaError if there is something to do, but samples are not pictures that native threads decode.
    """
    decoded_layout = "channels_last" if decodes_pictures(dataset) else "contiguous"
    if not transforms and members is None and colours is None and quality == "exact" and layout == decoded_layout:
        return None
    what = (
        "transforms="
        if transforms or members is not None or colours is not None
        else f"quality={quality!r}"
        if quality != "exact"
        else f"layout={layout!r}"
    )
    reader = dataset.reader
    if not dataset.is_as_stored:
        raise ValueError(
            f"{what} is for pictures that native threads decode, but this dataset has a transform or methods of "
            "its own: drop it here and use fastio.transforms there; each of them can be called on a picture"
        )
    if not reader.is_picture:
        raise SchemaError(f"{dataset.store.path}: {what} is for pictures, but the samples are {reader.field}")
    is_raw = reader.row_shape is not None
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[reader.row_shape[2]] if reader.row_shape is not None else reader.mode
    fused = _pass(transforms, colours, members, seed=seed, mode=mode, is_raw=is_raw, is_fast=quality == "fast")
    if fused.adds:
        raise no_place_for_fields(dataset, fused.adds)
    _check_boxes(dataset, fused)
    return fused


_COLOURS_OF_MEMBERS = 0xA0761D6478BD642F  # added to the seed: their numbers are not those of the loader's colours


def _pass(
    transforms: Sequence[Any],
    colours: Colours | None,
    members: MemberTransforms | None,
    *,
    seed: int,
    mode: str | None,
    is_raw: bool,
    is_fast: bool,
    patches: Patchify | None = None,
) -> PicturePass:
    """Return the pass of a picture: by ``transforms``, or by those of its member; then ``colours``."""
    fused = partial(Fused, seed=seed, mode=mode, is_raw=is_raw, is_fast=is_fast)
    if members is None:
        return fused(transforms, colours=colours, patches=patches)
    own_seed, passes = (seed + _COLOURS_OF_MEMBERS) % (1 << 64), {}
    for name, (plan, own) in members.parts().items():
        programs = [each for each in (Colours(own, seed=own_seed) if own else None, colours) if each is not None]
        passes[name] = fused(plan, colours=_InTurn(programs) if programs else None)
    return FusedByMember(passes, members.member_of)


@dataclass(frozen=True, slots=True)
class _InTurn:
    """Programs one after the other: those of a member, then those of all."""

    programs: Sequence[Programs]

    @property
    def transforms(self) -> Sequence[Any]:
        """As Programs.transforms."""
        return [step for each in self.programs for step in each.transforms]

    def program(self, indices: NDArray[np.int64], shapes: NDArray[np.int64], *, epoch: int) -> Program:
        """As Programs.program."""
        return joined([each.program(indices, shapes, epoch=epoch) for each in self.programs], len(indices))


def no_place_for_fields(dataset: FastDataset, adds: Sequence[str]) -> SchemaError:
    """Return the error of transforms that add these fields to samples that are no dict and no tuple."""
    names = dataset.form.names[::-1]
    turned = "in this order they are" if dataset.form.kind == "pair" else "which is"
    return SchemaError(
        f"{dataset.store.path}: transforms add {' and '.join(adds)}, but samples are a {dataset.form.kind} of "
        f"{', '.join(dataset.form.names)}, which has no place for more: pass FastDataset(path, fields={names}): "
        f"{turned} a tuple, to whose end they go"
    )


# What transforms of batches may do to samples of many fields: change pictures, but not where their pixels are.


def by_field_roles(dataset: FastDataset, parts: Mapping[str, FieldPart]) -> BatchRoles:
    """Return where batches have the pictures of these parts, in their order."""
    names = [name for name in parts if dataset.readers[name].is_picture]
    is_dict = dataset.form.kind == "dict"
    places = tuple(name if is_dict else dataset.form.names.index(name) for name in names)
    return BatchRoles(places, None, is_apart=True, listed=_listed(dataset, names))


def batch_roles(dataset: FastDataset) -> BatchRoles | None:
    """Return where batches of dicts or tuples have pictures and label; None for other batches."""
    form = dataset.form
    if form.kind == "value" and dataset.lists and _keeps_fields(dataset):
        return BatchRoles((None,), None, listed=(True,))
    if not (form.is_joint and _keeps_fields(dataset)):
        return None
    keys = {name: name if form.kind == "dict" else position for position, name in enumerate(form.names)}
    names = [name for name, reader in dataset.readers.items() if reader.is_picture]
    is_column = LABEL in keys and LABEL not in dataset.readers
    label = keys[LABEL] if is_column else None
    return BatchRoles(tuple(keys[name] for name in names), label, listed=_listed(dataset, names))


def check_later(dataset: FastDataset, later: Sequence[Any], *, behind: object = None) -> None:
    """
    Raise SchemaError for transforms behind the decoders that have no picture, or that other fields do not follow.

    They come ``behind`` a Mosaic, if one is given.
    """
    ours = [transform for transform in later if isinstance(transform, (Transform, BatchTransform))]
    if not (ours and _keeps_fields(dataset)):
        return
    path, names = dataset.store.path, dataset.form.names
    if not any(reader.is_picture for reader in dataset.readers.values()):
        raise SchemaError(f"{path}: {ours[0]} is for pictures, but the samples have only {', '.join(names)}: drop it")
    targets = [
        n for n, reader in dataset.readers.items() if reader.is_mask or reader.field.geometry or reader.field.owner
    ]
    moving = next((transform for transform in ours if _moves(transform)), None)
    if moving is None or not targets:
        return
    if isinstance(moving, Transform):
        first = later[0] if behind is None else behind
        remedy = f"put it before {type(first).__name__}, where they move together"
    elif any(isinstance(step, KeepsSize) for step in getattr(moving, "transforms", ())):
        remedy = "give flips and rotations a list of their own, apart from colours: what moves alone takes these along"
    else:
        remedy = f"drop it, or leave {' and '.join(targets)} out by fields="
    raise SchemaError(f"{path}: {moving} would change pictures without {', '.join(targets)}: {remedy}")


def _moves(transform: object) -> bool:
    """Whether a transform moves pixels, or mixes those of two pictures."""
    return (
        is_geometry(transform)
        or bool(mixes_of(transform))
        or (isinstance(transform, PixelTransform) and transform.moves)
    )


def _keeps_fields(dataset: FastDataset) -> bool:
    """Whether samples have the fields of the dataset, and no function of the user made something else of them."""
    transform = dataset.transform
    return not dataset.makes_samples and (transform is None or isinstance(transform, FieldTransform))
