"""FieldCollate: samples of many fields become a batch; what differs in count is joined, listed, padded or nested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.dataset.bfloat16 import array_of, sample_value, tensor_of
from fastio.dataset.form import FieldTransform
from fastio.dataset.token_collate import PadCollate, PreferenceCollate, answers_of
from fastio.dataset.tv_values import picture_tensor
from fastio.errors import SchemaError, UnequalSizesError
from fastio.lazy import torch
from fastio.store.index.seal import counts_name
from fastio.types.field_types import type_of
from fastio.types.options import explains_names
from fastio.types.schema import Field, Schema

if TYPE_CHECKING:
    from fastio.dataset.fast_dataset import FastDataset

__all__ = [
    "FieldCollate",
    "ListsName",
    "Rows",
    "RowsWish",
    "choose_rows",
    "collate_arrays",
    "collate_elements",
    "collate_rows",
    "has_element_rows",
    "is_padded",
    "list_entries",
    "mask_name",
    "nest_rows",
    "pad_array",
    "pad_rows",
    "preference_of",
    "split_rows",
]

RowsName = Literal["list", "pad", "nested"]
ListsName = Literal["flat", "list", "pad", "nested"]
ArraysName = Literal["list", "pad", "stack"]
Rows = ListsName | ArraysName | PadCollate | PreferenceCollate
RowsWish = Rows | Literal["preference"] | Mapping[str, Rows]


def split_rows(rows: torch.Tensor, counts: NDArray[np.int64]) -> list[torch.Tensor]:
    """Return the rows of each sample, views of ``rows`` ``(N, ...)``, which has them one after the other."""
    return list(torch.split_with_sizes(rows, counts.tolist()))


def pad_rows(rows: torch.Tensor, counts: NDArray[np.int64], *, fill: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Fill the rows of each sample up to the largest count.

    ``rows`` ``(N, ...)`` has those of B samples one after the other. Returns ``(B, M, ...)`` of its dtype, and which
    of these rows are a sample's, bool ``(B, M)``; M is 0 if no sample has any.
    """
    longest = int(counts.max(initial=0))
    mask = torch.arange(longest, device=rows.device) < torch.from_numpy(counts).to(rows.device)[:, None]
    padded = rows.new_full((len(counts), longest, *rows.shape[1:]), fill)
    for row, own in zip(padded, split_rows(rows, counts), strict=True):
        row[: len(own)] = own  # indexing by the mask is not implemented for uint16 to uint64
    return padded, mask


def nest_rows(rows: torch.Tensor, counts: NDArray[np.int64]) -> torch.Tensor:
    """Return the rows of each sample as a nested tensor of the layout ``torch.jagged`` over ``rows`` ``(N, ...)``."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return torch.nested.nested_tensor_from_jagged(rows, torch.from_numpy(offsets).to(rows.device))


def collate_rows(rows: torch.Tensor, counts: NDArray[np.int64], how: RowsName, *, fill: int = 0) -> Any:
    """Return what ``split_rows``, ``pad_rows`` (a pair) or ``nest_rows`` makes of them, by name."""
    if how == "pad":
        return pad_rows(rows, counts, fill=fill)
    return split_rows(rows, counts) if how == "list" else nest_rows(rows, counts)


def pad_array(
    values: NDArray[Any], counts: NDArray[np.int64], *, fill: int = 0
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """As ``pad_rows``, of arrays."""
    longest = int(counts.max(initial=0))
    mask = np.arange(longest) < counts[:, None]
    shape = (len(counts), longest, *values.shape[1:])
    rows = np.full(shape, fill, values.dtype) if fill else np.zeros(shape, values.dtype)
    rows[mask] = values
    return rows, mask


def collate_elements(rows: Any, counts: NDArray[np.int64], how: ListsName, *, is_optional: bool) -> Any:
    """
    Return how a batch has the elements of lists, ``(N, ...)``, an array or a tensor with those of B samples one after
    the other.

    "flat": ``(rows, counts)``, both arrays or both tensors. "pad": ``(B, M, ...)``, and bool ``(B, M)`` as
    ``pad_rows``. "list": one array or tensor for each sample. "nested": a nested tensor. Of values that may be missing
    (``is_optional``), "pad" has ``(B, ...)`` and ``(B,)``, with zeros where there is none, and "list" None there.
    """
    is_array = isinstance(rows, np.ndarray)
    if how == "flat":
        return rows, counts if is_array else torch.from_numpy(counts)
    if how == "nested":
        return nest_rows(rows, counts)
    if how == "list":
        parts = np.split(rows, counts.cumsum()[:-1]) if is_array else split_rows(rows, counts)
        return [part[0] if len(part) else None for part in parts] if is_optional else parts
    padded, mask = pad_array(rows, counts) if is_array else pad_rows(rows, counts)
    if not is_optional:
        return padded, mask
    if padded.shape[1] == 0:  # no sample has a value
        shape = (len(counts), *rows.shape[1:])
        return (np.zeros(shape, rows.dtype) if is_array else rows.new_zeros(shape)), mask.any(1)
    return padded[:, 0], mask[:, 0]


def collate_arrays(
    arrays: Sequence[NDArray[Any]], field: Field, how: ArraysName, *, key_of: Callable[[int], str]
) -> Any:
    """
    Return how a batch has arrays of a field that differ in other sizes than the first.

    "list": the arrays. "stack": ``(B, ...)``; UnequalSizesError that names two samples, by their position in
    ``key_of``, if they differ. "pad": ``(B, ...)``, each size as large as that of the largest array, filled with 0; and
    which of these values are a sample's, bool ``(B, ...)`` over the sizes that may differ.
    """
    if how == "list":
        return list(arrays)
    if how == "stack":
        other = next((at for at, array in enumerate(arrays) if array.shape != arrays[0].shape), 0)
        if other:
            sizes = ["x".join(map(str, arrays[at].shape)) for at in (0, other)]
            raise UnequalSizesError(
                f"field {field.name!r}: arrays of different shapes in one batch: {key_of(0)} is {sizes[0]}, "
                f"{key_of(other)} is {sizes[1]}",
                f"collate={{{field.name!r}: 'pad'}} or 'list' takes them, and a ShapeBucketSampler makes batches of "
                "one shape",
            )
        return np.stack(arrays)
    shapes = np.array([array.shape for array in arrays])
    most = shapes.max(axis=0)
    free = [axis for axis, size in enumerate(field.shape) if size is None]
    padded, mask = np.zeros((len(arrays), *most), arrays[0].dtype), np.zeros((len(arrays), *most[free]), np.bool_)
    for row, its, array, shape in zip(padded, mask, arrays, shapes, strict=True):
        row[tuple(map(slice, shape))] = array
        its[tuple(map(slice, shape[free]))] = True
    return padded, mask


def list_entries(field: str, how: ListsName, collated: Any) -> dict[str, Any]:
    """Return what ``collate_elements`` made of a field as the entries of a batch that is a dict."""
    if how == "flat":
        return {field: collated[0], counts_name(field): collated[1]}
    return {field: collated[0], mask_name(field): collated[1]} if how == "pad" else {field: collated}


def mask_name(field: str) -> str:
    """Return the name under which a batch says which rows of a padded field are a sample's."""
    return f"{field}_mask"


def choose_rows(schema: Schema, names: Sequence[str], wish: RowsWish | None, *, where: str) -> dict[str, Rows]:
    """
    Return how the fields among ``names`` whose values differ in length or count become batches.

    ``wish`` is one way for all of them, or some by field; a PadCollate is for token ids. Without a wish, token ids
    are padded, other rows stay a list, and elements of lists are "flat". Raises ValueError for an unknown way,
    SchemaError for a field that has no such choice; ``where`` begins the message.
    """
    fields = {name: schema[name] for name in names}
    chosen: dict[str, Rows] = {
        name: "pad" if field.traits.is_tokens else "flat" if field.is_list else "list"
        for name, field in fields.items()
        if _has_rows(field) or has_element_rows(field)
    }
    if wish is None:
        return _unlike_fields(chosen, fields, where)
    if isinstance(wish, PreferenceCollate) or wish == "preference":
        answers = _answers(fields, where)
        wish = wish if isinstance(wish, PreferenceCollate) else PreferenceCollate()
        return _unlike_fields({**chosen, **dict.fromkeys(("prompt", *answers), wish)}, fields, where)
    if not chosen:
        raise SchemaError(
            f"{where}: collate= is for token ids, arrays of different lengths and lists of pictures or arrays, but "
            f"samples have {', '.join(f'{name} ({type_of(field)})' for name, field in fields.items())}: drop it"
        )
    if isinstance(wish, Mapping):
        wishes = wish
    else:  # a PadCollate for all says nothing about lists
        meant = [name for name in chosen if not (isinstance(wish, PadCollate) and fields[name].is_list)]
        wishes = dict.fromkeys(meant, wish)
    unfit = [name for name in wishes if name not in chosen]
    if unfit:
        raise SchemaError(
            f"{where}: collate= names {', '.join(map(repr, unfit))}; fields of token ids or of arrays of different "
            f"lengths, and of lists of pictures or arrays, are {', '.join(chosen)}"
        )
    for name, how in wishes.items():
        is_tokens = fields[name].traits.is_tokens
        is_npy = fields[name].traits.is_npy
        known = get_args(ListsName if fields[name].is_list else ArraysName if is_npy else RowsName)
        if how not in known and not (is_tokens and isinstance(how, PadCollate)):
            own = " or a PadCollate" if is_tokens else ""
            expected = ", ".join(map(repr, known))
            raise ValueError(f"{where}: collate={how!r} for {name!r}: expected {expected}{own}")
    chosen.update(wishes)
    return _unlike_fields(chosen, fields, where)


def _unlike_fields(chosen: dict[str, Rows], fields: Mapping[str, Field], where: str) -> dict[str, Rows]:
    """Return ``chosen``. Raises SchemaError if an entry that a batch gets besides is called as a field."""
    for name, how in chosen.items():
        made = mask_name(name) if is_padded(how) else counts_name(name) if how == "flat" else None
        if made in fields:
            raise SchemaError(
                f"{where}: collate={how!r} of {name!r} makes an entry {made!r}, which is a field: collate it as 'list' "
                "or 'nested', or leave one of the two out by fields="
            )
    return chosen


def _answers(fields: Mapping[str, Field], where: str) -> tuple[str, ...]:
    """The fields of the answers. Raises SchemaError for samples that are no preferences."""
    answers = answers_of(fields)
    unfit = [name for name in ("prompt", *answers) if name in fields and not fields[name].traits.is_tokens]
    if unfit or not answers:
        found = ", ".join(f"{name} ({type_of(field)})" for name, field in fields.items())
        raise SchemaError(
            f"{where}: collate='preference' is for token ids named 'prompt' with 'chosen' and 'rejected', or with "
            f"'completion', but samples have {found}: fastio pack --chat prompt makes them"
        )
    types = {name: type_of(fields[name]) for name in ("prompt", *answers)}
    if len({*types.values()}) > 1:
        listed = ", ".join(f"{name} is {each}" for name, each in types.items())
        raise SchemaError(f"{where}: prompts and answers share rows, so they need ids of one type, but {listed}")
    return answers


def preference_of(chosen: Mapping[str, Rows], wish: object, dataset: FastDataset) -> PreferenceCollate | None:
    """
    Return the collate of the fields that are collated together, None if there are none; by name, with the tokenizer's
    id for padding. Raises SchemaError for samples that are no dicts.
    """
    found = next((how for how in chosen.values() if isinstance(how, PreferenceCollate)), None)
    if found is None:
        return None
    if dataset.form.kind != "dict":
        raise SchemaError(
            f"{dataset.store.path}: collate='preference' makes entries of other names, but samples are a "
            f"{dataset.form.kind}: leave out the dataset's fields="
        )
    return found if isinstance(wish, PreferenceCollate) else PreferenceCollate(dataset.pad_id_of("prompt"))


def is_padded(how: Rows | None) -> bool:
    """Whether a batch has a mask of such rows."""
    return how == "pad" or isinstance(how, PadCollate)


class FieldCollate:
    """
    Makes a batch of a FastDataset's samples: a ``collate_fn`` for torch's DataLoader::

        DataLoader(dataset, 32, collate_fn=FieldCollate(dataset, {"boxes": "pad"}))

    A batch is a dict or tuple as the samples are. Pictures become uint8 ``(B, C, H, W)``, masks ``(B, H, W)``; arrays
    and numbers are stacked as ``default_collate`` does; text, JSON and bytes are lists. Token ids and arrays of
    different lengths (boxes, points) are collated as ``collate`` says, for all or by field:

    * "list" (the default for arrays): a list of tensors
    * "pad" (the default for token ids): ``(B, M, ...)`` filled up with 0 or the tokenizer's id for padding, and bool
      ``(B, M)``, True for what is a sample's: in a dict under ``<field>_mask``, in a tuple the pair of both; for token
      ids also a ``PadCollate``, whose ``input_ids`` and ``attention_mask`` these are
    * "nested": a nested tensor of the layout ``torch.jagged``

    Arrays that differ in other sizes than the first (``float16[16,*,*]``) are a "list", too, or

    * "stack": ``(B, ...)``, where all of a batch have one shape, as those of a ShapeBucketSampler; UnequalSizesError
      if not
    * "pad": ``(B, ...)``, each size as large as the largest, filled up with 0, and a bool mask over the sizes that may
      differ, ``(B, H, W)`` of ``float16[16,*,*]``

    Lists of pictures, masks or arrays of one shape (``image[*]``, ``image?``) have these three, too, and by default

    * "flat": the elements of all samples as one tensor ``(N, ...)``, and int64 ``(B,)``, how many each sample has: in a
      dict under ``<field>_counts``, in a tuple the pair of both

    Of values that may be missing (``image?``), "pad" makes ``(B, ...)`` with zeros where there is none and bool
    ``(B,)``, "list" a list with None. Other lists stay lists.

    "preference", or a ``PreferenceCollate``, is for prompts and answers together, and for dicts alone.

    What a transform makes of a field is collated the same way if it is of the same kind. Anything else, and values
    under other names, are collated as ``default_collate`` does.
    """

    @explains_names()
    def __init__(self, dataset: FastDataset, collate: RowsWish | None = None) -> None:
        schema, self._form = dataset.store.schema, dataset.form
        names = self._form.names
        self._rows = choose_rows(schema, names, collate, where=dataset.store.path)
        self._fills = {name: dataset.pad_id_of(name) for name in self._rows}
        self._preference = preference_of(self._rows, collate, dataset)
        self._elements = {name: schema[name] for name in names if has_element_rows(schema[name])}
        self._arrays = {name: schema[name] for name in names if schema[name].traits.is_npy}
        others = [name for name in names if name not in self._elements]
        self._lists = {name: _listed_types(schema[name]) for name in others if _is_listed(schema[name])}
        self._masks = {name for name in names if schema[name].traits.is_mask}
        # Transforms that know the fields leave them in place, and may add one behind them.
        self._lengths = (len(names), len(names) + isinstance(dataset.transform, FieldTransform))

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Collate the samples. Exceptions of torch get a note that names the field."""
        return self.collate([self.decoded(sample) for sample in samples])

    def decoded(self, sample: Any) -> Any:
        """Return a sample with tensors in place of PIL images. Raises SampleError for a picture that is bad."""
        form = self._form
        if form.kind == "dict" and isinstance(sample, Mapping):
            return {name: self._decoded(name, value) for name, value in sample.items()}
        if form.kind == "value":
            return self._decoded(form.names[0], sample)
        if self._is_tuple(sample):
            return tuple(map(self._decoded, self._names_of(sample), sample))
        return self._plain(sample)

    def collate(self, samples: Sequence[Any]) -> Any:
        """Collate decoded samples."""
        form, first = self._form, samples[0]
        if form.kind == "dict" and isinstance(first, Mapping):
            return self._dict({name: [sample[name] for sample in samples] for name in first})
        if form.kind == "value":
            return self._collated(form.names[0], samples)
        if not self._is_tuple(first):
            return self._stacked(samples)  # a transform made something else
        columns = zip(self._names_of(first), zip(*samples, strict=True), strict=True)
        batch = [self._collated(name, values) for name, values in columns]
        return batch if form.kind == "pair" else tuple(batch)  # a list, as default_collate makes of pairs

    def _is_tuple(self, sample: Any) -> bool:
        return type(sample) is tuple and len(sample) in self._lengths

    def _names_of(self, sample: tuple[Any, ...]) -> tuple[str, ...]:
        """Return the names of a tuple's fields; "" for what a transform added."""
        names = self._form.names
        return (*names, *[""] * (len(sample) - len(names)))

    def _decoded(self, name: str, value: Any) -> Any:
        if name in self._elements and type(value) is list:
            return [self._decoded(name, element) for element in value]  # perhaps of views, which are lists again
        if name in self._elements and isinstance(value, Image.Image):
            return self._pixels(value, is_mask=self._elements[name].element.traits.is_mask)
        if name in self._masks and isinstance(value, Image.Image):
            return self._pixels(value, is_mask=True)
        return value if name in self._lists else self._plain(value)

    def _plain(self, value: Any) -> Any:
        """Return a PIL image as a tensor, and those in containers likewise; anything else as it is."""
        if isinstance(value, Image.Image):
            return self._pixels(value)
        if type(value) is dict:
            return {name: self._plain(part) for name, part in value.items()}
        if type(value) is tuple:
            return tuple(map(self._plain, value))
        return list(map(self._plain, value)) if type(value) is list else value

    # What makes tensors, for a loader whose batches have something else.

    def _pixels(self, image: Image.Image, *, is_mask: bool = False) -> Any:
        return picture_tensor(image, is_mask=is_mask)

    def _listed(self, value: Any) -> Any:
        """Return a value of a list with tensors in the place of arrays."""
        if isinstance(value, np.ndarray):
            return tensor_of(value)
        return list(map(self._listed, value)) if type(value) is list else value

    def _of(self, array: NDArray[Any]) -> Any:
        return tensor_of(array)

    def _stacked(self, values: Sequence[Any]) -> Any:
        return torch.utils.data.default_collate(list(values))

    def _preferences(self, collate: PreferenceCollate, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return collate(samples)

    def _joined_rows(self, values: Sequence[Any], how: Rows, fill: int) -> Any:
        """Return values of different lengths, as ``how`` says, by name or by a PadCollate."""
        return _collated_rows(values, how, fill)

    def _dict(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = {}
        if self._preference is not None:
            ours = [name for name in columns if isinstance(self._rows.get(name), PreferenceCollate)]
            rows = zip(*(columns[name] for name in ours), strict=True)
            batch = self._preferences(self._preference, [dict(zip(ours, row, strict=True)) for row in rows])
            columns = {name: values for name, values in columns.items() if name not in ours}
        for name, values in columns.items():
            collated, how = self._collated(name, values), self._rows.get(name)
            if self._are_elements(name, values):
                batch |= list_entries(name, cast("ListsName", how), collated)
            elif is_padded(how):
                batch[name], batch[mask_name(name)] = collated
            else:
                batch[name] = collated
        return batch

    def _are_elements(self, name: str, values: Sequence[Any]) -> bool:
        """Whether values are lists whose elements become rows, and nothing that a transform made of them."""
        field = self._elements.get(name)
        if field is None:
            return False
        return field.is_optional or all(type(value) is list for value in values)

    def _joined_elements(self, name: str, values: Sequence[Any]) -> Any:
        field, how = self._elements[name], self._rows[name]
        if _are_views(field, values):
            views = [self._joined_elements(name, view) for view in zip(*values, strict=True)]
            return ([rows for rows, _ in views], views[0][1]) if how in ("flat", "pad") else views
        lists = [[] if value is None else [value] for value in values] if field.is_optional else values
        counts = np.array([len(each) for each in lists], np.int64)
        every = list(chain.from_iterable(lists))
        rows = self._stacked(every) if every else self._stacked([_any_element(field.element)])[:0]
        return collate_elements(rows, counts, cast("ListsName", self._rows[name]), is_optional=field.is_optional)

    def _joined_arrays(self, name: str, values: Sequence[Any]) -> Any:
        arrays, how = list(map(array_of, values)), cast("ArraysName", self._rows[name])
        made = collate_arrays(arrays, self._arrays[name], how, key_of="sample {} of the batch".format)
        if how == "stack":
            return self._of(made)
        return tuple(map(self._of, made)) if how == "pad" else list(map(self._of, made))

    def _collated(self, name: str, values: Sequence[Any]) -> Any:
        try:
            if self._are_elements(name, values):
                return self._joined_elements(name, values)
            if name in self._arrays and np.ndim(values[0]) == len(self._arrays[name].shape):
                return self._joined_arrays(name, values)
            if name in self._rows and name not in self._elements and np.ndim(values[0]) > 0:
                return self._joined_rows(values, self._rows[name], self._fills[name])
            is_listed = isinstance(values[0], self._lists.get(name, ()))
            return list(map(self._listed, values)) if is_listed else self._stacked(values)
        except Exception as exc:
            exc.add_note(f"in a batch of {len(values)} samples, field {name!r}")
            raise


def _has_rows(field: Field) -> bool:
    return field.traits.is_ragged or field.traits.is_tokens or field.traits.is_npy


def has_element_rows(field: Field) -> bool:
    """Whether values are lists of pictures, masks or arrays of one shape, which become rows."""
    return field.is_list and field.element.traits.has_rows


def _are_views(field: Field, values: Sequence[Any]) -> bool:
    """Whether each of these values of samples is a list of its views."""
    return all(type(v) is list and bool(v) and (field.is_optional or type(v[0]) is list) for v in values)


def _any_element(field: Field) -> Any:
    """Return zeros of the shape of an element; of a picture or mask, of one pixel."""
    if not field.traits.is_picture:
        return sample_value(np.zeros([size or 0 for size in field.shape], field.dtype))
    return np.zeros((1, 1) if field.traits.is_mask else (3, 1, 1), np.uint8)


def _is_listed(field: Field) -> bool:
    """Whether values are objects of Python, which no tensor holds."""
    return not field.is_column and not field.traits.has_rows and not _has_rows(field)


def _listed_types(field: Field) -> tuple[type, ...]:
    """Return the types of the field's values; a transform may make others of them, which can be stacked."""
    if field.is_list:
        return (object,)
    if field.traits.is_json:
        return (dict, list, str, int, float, type(None))
    return (str,) if field.traits.is_text else (bytes,)


def _collated_rows(values: Sequence[Any], how: Rows, fill: int) -> Any:
    tensors = [torch.as_tensor(value) for value in values]
    if isinstance(how, PadCollate):
        batch = how(tensors)
        return batch["input_ids"], batch["attention_mask"]
    if how == "list":
        return tensors
    assert not isinstance(how, PreferenceCollate), "which is for several fields at once"
    assert how != "flat", "which is for lists"
    assert how != "stack", "which is for arrays that differ in several sizes"
    counts = np.array([len(tensor) for tensor in tensors], np.int64)
    return collate_rows(torch.cat(tensors), counts, how, fill=fill)
