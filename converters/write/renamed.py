"""Gives fields of a dataset's samples other names before anything else looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastio.converters.write.dataset_samples import DatasetSamples, Unreadable
from fastio.errors import SchemaError

__all__ = ["renamed_samples"]


def renamed_samples(samples: DatasetSamples, new_names: Mapping[str, str]) -> DatasetSamples:
    """
    Return the samples of a dataset with new names for some fields, ``{old: new}``; the names of classes go with them.

    Samples that lack such a field, that have a field of the new name already, or that are no dicts come as Unreadable.
    Raises SchemaError if the dataset's own description says so of all of them, or if two new names are the same.
    """
    if not isinstance(new_names, Mapping):
        raise SchemaError(f"rename={new_names!r}: expected old and new names, as in rename={{'img': 'image'}}")
    if len(set(new_names.values())) < len(new_names):
        raise SchemaError(f"rename={dict(new_names)!r}: expected different new names")
    renaming = _Renaming(new_names)
    read, iterate, choose = samples.read, samples.iterate, samples.choose
    return replace(
        samples,
        read=lambda indices: renaming.samples(read(indices)),
        iterate=lambda: renaming.samples(iterate()),
        fields=None if samples.fields is None else renaming.named(samples.fields),
        metadata=renaming.metadata(samples.metadata),
        choose=None if choose is None else lambda names: _chosen(choose, names, new_names),
    )


def _chosen(
    choose: Callable[[Sequence[str]], DatasetSamples], names: Sequence[str], new_names: Mapping[str, str]
) -> DatasetSamples:
    """
    Some fields, by their new names; of them alone those that have new names are renamed.

    Raises SchemaError for the old name of a field: it means nothing any more.
    """
    old_names = {new: old for old, new in new_names.items()}
    for name in names:
        if name in new_names and name not in old_names:
            raise SchemaError(f"there is no field {name!r}: rename= calls it {new_names[name]!r}")
    chosen = choose([old_names.get(name, name) for name in names])
    return renamed_samples(chosen, {old: new for old, new in new_names.items() if new in names})


@dataclass(frozen=True, slots=True)
class _Renaming:
    new_names: Mapping[str, str]

    def samples(self, samples: Iterator[Any]) -> Iterator[Any]:
        """Samples with their new names."""
        for sample in samples:
            renamed = sample
            if not isinstance(sample, Unreadable):
                try:
                    renamed = self.named(_as_mapping(sample))
                except SchemaError as exc:
                    renamed = Unreadable(exc)
            yield renamed

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values under their new names, in the same order."""
        missing = [name for name in self.new_names if name not in values]
        if missing:
            raise SchemaError(f"rename: there is no field {missing[0]!r}; the fields are {', '.join(values)}")
        result = {self.new_names.get(name, name): value for name, value in values.items()}
        if len(result) < len(values):
            twice = next(new for old, new in self.new_names.items() if new in values and new not in self.new_names)
            raise SchemaError(f"rename: there is a field {twice!r} already: give that one another name, too")
        return result

    def metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """
        The names of classes under the new names of their fields.

        Those of the field "label" stand by themselves, as "classes".
        """
        classes = dict(metadata.get("field_classes") or {})
        if metadata.get("classes"):
            classes["label"] = metadata["classes"]
        classes = {self.new_names.get(name, name): names for name, names in classes.items()}
        others = {name: value for name, value in metadata.items() if name not in ("classes", "field_classes")}
        if "label" in classes:
            others["classes"] = classes.pop("label")
        return others | ({"field_classes": classes} if classes else {})


def _as_mapping(sample: Any) -> Mapping[str, Any]:
    if isinstance(sample, Mapping):
        return sample
    if isinstance(sample, tuple) and hasattr(sample, "_asdict"):
        named: Mapping[str, Any] = sample._asdict()
        return named
    raise SchemaError(f"rename: expected samples as dicts, got {type(sample).__name__}: name their values with fields=")
