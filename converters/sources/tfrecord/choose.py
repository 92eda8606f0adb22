"""Decides which features of the examples become which fields: those asked for, or all, by their first values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fastio._native import image_kind
from fastio.converters.fields.types import FieldChoice, field_rank, name_from_column, refuse_equal_names
from fastio.converters.labels.columns import ALL_OTHERS
from fastio.converters.sources.columns import SourceColumns
from fastio.converters.sources.kind import SourceOptions
from fastio.converters.sources.tfrecord.records import BYTES_LIST, FLOAT_LIST, KINDS, Feature
from fastio.errors import SourceError
from fastio.types.field_types import FIELD_TYPES
from fastio.types.picture_kinds import UNKNOWN
from fastio.types.schema import COLUMN, RAGGED, Field

__all__ = [
    "FeatureField",
    "SeenFeature",
    "choose_features",
    "feature_named",
    "features_left_out",
]


_LABELS = ("label", "image/class/label", "image/label", "class")
_MASKS = re.compile(r"(?:.*[/_])?(?:masks?|segmentation(?:/class/encoded)?|annotation)\Z")


@dataclass(slots=True)
class SeenFeature:
    """What the first examples say of a feature: its kinds, how many values there are, the first values of bytes."""

    name: str
    kinds: set[int] = field(default_factory=set)
    counts: set[int] = field(default_factory=set)
    values: list[bytes] = field(default_factory=list)

    def see(self, feature: Feature) -> None:
        """Take one more example into account."""
        self.kinds.add(feature.kind)
        self.counts.add(len(feature.parts) if feature.kind == BYTES_LIST else len(feature.numbers()))
        if feature.kind == BYTES_LIST:
            self.values += feature.bytes_values()

    def __str__(self) -> str:
        """Return the feature and its type, in words."""
        kinds = " or ".join(KINDS[kind] for kind in sorted(self.kinds))
        counts = str(*self.counts) if len(self.counts) == 1 else f"{min(self.counts)} to {max(self.counts)}"
        return f"{self.name!r} ({counts} {kinds})"


@dataclass(frozen=True, slots=True)
class FeatureField:
    """
    A field of the samples and the feature that it is read from.

    ``is_label``: whole numbers, or names of classes. ``is_list``: JSON is the list of the values, and not a document
    that the only value holds.
    """

    field: Field
    feature: str
    is_label: bool = False
    is_list: bool = False

    @property
    def choice(self) -> FieldChoice:
        """What the user could have typed for it."""
        return FieldChoice(self.field.name, self.feature, self.field)


def choose_features(place: str, seen: Mapping[str, SeenFeature], options: SourceOptions) -> list[FeatureField]:
    """
    Return the fields of the samples, pictures first and the label last.

    With ``--field`` these are the fields asked for, otherwise all features that are not ignored and not the key or a
    filter. The label is the feature of ``--label-column``, else one called label or image/class/label. Raises
    SourceError, with what to type, for features that are not there or fit no field.
    """
    columns = options.columns
    if not columns.header:
        raise SourceError(f"{place}: its features have names: drop --no-header")
    ignored = set(columns.ignore_columns)  # ``features_left_out`` refuses those that do not exist
    chosen = [_asked(place, seen, choice) for choice in options.fields]
    label = _label_name(place, seen, options, ignored)
    if label is not None:
        chosen.append(_label(place, seen[label]))
    if not options.fields and ALL_OTHERS not in columns.ignore_columns:
        used = ignored | {
            columns.key_column,
            *(name for name, _ in columns.filters),
            *(each.feature for each in chosen),
        }
        chosen = [*_by_rule(place, [each for name, each in sorted(seen.items()) if name not in used]), *chosen]
    if not chosen:
        raise SourceError(f"{place}: no feature is left to pack, of {_listed(seen)}")
    refuse_equal_names(place, "feature", ((each.field.name, each.feature) for each in chosen))
    return sorted(chosen, key=lambda each: field_rank(each.field))


def features_left_out(
    place: str, seen: Mapping[str, SeenFeature], chosen: Sequence[FeatureField], options: SourceOptions
) -> list[str]:
    """Return the features that are not packed. Raises SourceError for those of them that hold pictures."""
    columns = options.columns
    names = sorted(seen)
    selecting = {columns.key_column or "", *(name for name, _ in columns.filters)}
    typed = {choice.where for choice in options.fields if choice.field is not None}
    settled = {each.feature for each in chosen if each.field.traits.is_picture or each.feature in typed}
    return SourceColumns(place, names, lambda name: seen[name].values, columns.ignore_columns, noun="feature").left_out(
        {each.feature for each in chosen} | (selecting & seen.keys()),
        set(names) if options.as_recorded else settled,
    )


def feature_named(place: str, seen: Mapping[str, SeenFeature], name: str, words: str) -> str:
    """Return ``name`` if there is such a feature. Raises SourceError that lists the features; ``words`` were typed."""
    if name not in seen:
        raise SourceError(f"{place}: {words}: there is no such feature among {_listed(seen)}")
    return name


def _listed(seen: Mapping[str, SeenFeature]) -> str:
    return ", ".join(str(each) for _, each in sorted(seen.items())) or "none"


def _asked(place: str, seen: Mapping[str, SeenFeature], choice: FieldChoice) -> FeatureField:
    feature = seen[feature_named(place, seen, choice.where, f"--field {choice}")]
    if choice.field is not None:
        is_label = choice.field == Field("label", *FIELD_TYPES["label"])
        is_list = feature.kinds != {BYTES_LIST} or feature.counts != {1}
        return FeatureField(choice.field, feature.name, is_label=is_label, is_list=is_list)
    return _label(place, feature) if choice.name == "label" else _of_values(place, choice.name, feature)


def _label_name(place: str, seen: Mapping[str, SeenFeature], options: SourceOptions, ignored: set[str]) -> str | None:
    named = options.columns.label_columns
    if len(named) > 1:
        raise SourceError(
            f"{place}: --label-column {','.join(named)}: an example has one label; keep the others as fields: --field "
            f"NAME={named[1]}"
        )
    if any(choice.name == "label" for choice in options.fields):
        return None
    if named:
        return feature_named(place, seen, named[0], f"--label-column {named[0]}")
    if ALL_OTHERS in options.columns.ignore_columns:
        return None
    taken = ignored | {choice.where for choice in options.fields}
    return next((name for name in _LABELS if name in seen and name not in taken and _label_words(seen[name])), None)


def _label_words(feature: SeenFeature) -> str:
    """The type of a label with such values; "" if these are no labels."""
    if feature.counts != {1} or len(feature.kinds) != 1 or _is_picture(feature.values):
        return ""
    return "float" if FLOAT_LIST in feature.kinds else "label"


def _label(place: str, feature: SeenFeature) -> FeatureField:
    words = _label_words(feature)
    if not words:
        raise SourceError(
            f"{place}: feature {feature}: expected one number or name a sample as label: keep it under another name: "
            f"--field NAME={feature.name}"
        )
    return FeatureField(Field("label", *FIELD_TYPES[words]), feature.name, is_label=words == "label")


def _by_rule(place: str, features: Sequence[SeenFeature]) -> list[FeatureField]:
    """All these features under their own names, except that the only picture that is no mask is called image."""
    pictures = [each.name for each in features if _is_picture(each.values) and not _MASKS.match(each.name.lower())]
    return [
        _of_values(place, "image" if [each.name] == pictures else _field_name(place, each.name), each)
        for each in features
    ]


def _of_values(place: str, name: str, feature: SeenFeature) -> FeatureField:
    """A field by the kind and the number of the first values."""
    if len(feature.kinds) != 1:
        raise SourceError(f"{place}: feature {feature}: holds values of several kinds; --without {feature.name}")
    kind, is_single = next(iter(feature.kinds)), feature.counts == {1}
    if kind != BYTES_LIST:
        dtype = "<f4" if kind == FLOAT_LIST else "<i8"
        return FeatureField(
            Field(name, *((COLUMN, dtype, ()) if is_single else (RAGGED, dtype, (None,)))), feature.name
        )
    if not is_single:
        if not all(map(_is_text, feature.values)):
            raise SourceError(
                f"{place}: feature {feature}: holds several values of bytes, which fit no field; --without "
                f"{feature.name} leaves it out"
            )
        return FeatureField(Field(name, *FIELD_TYPES["json"]), feature.name, is_list=True)
    if _is_picture(feature.values):
        return FeatureField(
            Field(name, *FIELD_TYPES["mask" if _MASKS.match(feature.name.lower()) else "image"]), feature.name
        )
    words = "text" if all(map(_is_text, feature.values)) else "bytes"
    return FeatureField(Field(name, *FIELD_TYPES[words]), feature.name)


def _is_picture(values: Sequence[bytes]) -> bool:
    first = next((value for value in values if value), b"")
    return image_kind(np.frombuffer(first, np.uint8)) != UNKNOWN


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in value


def _field_name(place: str, feature: str) -> str:
    name = name_from_column(place, "feature", feature)
    return name if name != "label" else "labels"
