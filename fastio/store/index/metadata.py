"""What the metadata of several stores says of all of them: classes, tokenizer, what was skipped, and where from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastio.errors import SchemaError

__all__ = [
    "Described",
    "DescribedSamples",
    "beside_metadata",
    "common_metadata",
    "merged_metadata",
]


_COUNTS = (
    "documents",
    "cut",
    "split",
    "decoded",
)  # of a tokenizer's options: what it did, and not what it makes of text
_NAMED = 3  # sources named by a merged set
# Lists of samples, files, or lines of files.
_LEDGERS = ("skipped", "skipped_before", "left_out", "left_aside", "misnamed", "blank_lines", "cut")
# Of one source: where its samples lie in its files and in their order.
_OF_ONE = frozenset(("shuffle", "text_source", "packing", "packing_before", "jpegs", "merged", "plan"))


class Described(Protocol):
    """What is to be joined: a store, or a part of one."""

    @property
    def path(self) -> str: ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class DescribedSamples:
    """Samples that are to become a part of a store; see Described."""

    path: str
    metadata: Mapping[str, Any]
    samples: int

    def __len__(self) -> int:
        return self.samples


def common_metadata(stores: Sequence[Described], *, has_classes: bool = True) -> dict[str, Any]:
    """
    Return what reading needs: class names and the tokenizer, whose counts are added.

    Raises SchemaError if numbers of classes or ids mean different things in two stores; ``has_classes=False`` drops
    the names of ``label`` instead of comparing them.
    """
    common: dict[str, Any] = {}
    own = _common_classes(stores) if has_classes else None
    if own is not None:
        common["classes"] = own
    names = [store.metadata.get("field_classes") for store in stores]
    for store, classes in zip(stores, names, strict=True):
        if classes != names[0]:
            raise SchemaError(
                f"{store.path}: field_classes={classes!r}, but {stores[0].path} has {names[0]!r}, so numbers of "
                "classes mean other names: pack it with the same ones"
            )
    if names[0] is not None:
        common["field_classes"] = names[0]
    tokenizers = [store.metadata.get("tokenizer") or {} for store in stores]
    for store, tokenizer in zip(stores, tokenizers, strict=True):
        if _without_counts(tokenizer) != _without_counts(tokenizers[0]):
            raise SchemaError(
                f"{store.path}: was packed with another tokenizer than {stores[0].path}, so its ids mean other "
                "words: pack it with the same one"
            )
    if tokenizers[0]:
        common["tokenizer"] = _with_counts_of(tokenizers)
    return common


def beside_metadata(stores: Sequence[tuple[Described, Mapping[str, str]]]) -> dict[str, Any]:
    """
    Return what is known of samples whose fields lie in several stores: the first store's metadata, and of the others
    the tokenizer and the names of classes. Each store comes with the names of its fields that count, as they are called
    together, and its own name of each.

    ``beside`` lists what each further store brings. Raises SchemaError if ids would mean other words in two of them.
    """
    (first, _), *others = stores
    joined = dict(first.metadata)
    classes = dict(joined.get("field_classes") or {})
    tokenizer, with_ids = joined.get("tokenizer") or {}, first.path
    for store, names in others:
        metadata = store.metadata
        own_classes = metadata.get("field_classes") or {}
        classes |= {name: own_classes[own] for name, own in names.items() if own in own_classes}
        if "label" in names.values() and _has_classes(metadata):
            label = next(name for name, own in names.items() if own == "label")
            if label == "label":
                joined["classes"] = metadata["classes"]
            else:
                classes[label] = metadata["classes"]
        theirs = metadata.get("tokenizer") or {}
        if theirs and tokenizer and _without_counts(theirs) != _without_counts(tokenizer):
            raise SchemaError(
                f"{store.path}: was packed with another tokenizer than {with_ids}, so its ids mean other words: "
                "pack it with the same one"
            )
        if theirs and not tokenizer:
            tokenizer, with_ids = theirs, store.path
    if classes:
        joined["field_classes"] = classes
    if tokenizer:
        joined["tokenizer"] = tokenizer
    joined["beside"] = [{"store": store.path, "fields": list(names), "samples": len(store)} for store, names in others]
    return joined


def merged_metadata(stores: Sequence[Described]) -> dict[str, Any]:
    """
    Return the metadata of one set that has the samples of these stores, in this order.

    What is equal in all of them stays, and lists of what was skipped or left out are joined. What differs stands
    under ``merged``, where each store keeps its own. Raises SchemaError as ``common_metadata``, and if only some of
    the stores name their classes.
    """
    _check_all_named(stores)
    all_metadata = [store.metadata for store in stores]
    sources = [metadata.get("source") or {} for metadata in all_metadata]
    source = {**_equal(sources), "name": _joined_names([str(source.get("name")) for source in sources])}
    source.pop("between", None)  # of the documents of one file, by their numbers
    kept = _equal(all_metadata)
    result = {name: value for name, value in kept.items() if name not in _OF_ONE}
    result |= {"classes": None, **common_metadata(stores), "source": source}
    for ledger in _LEDGERS:
        lists = [metadata[ledger] for metadata in all_metadata if ledger in metadata]
        if lists:
            result[ledger] = [entry for entries in lists for entry in entries]
    documents = [metadata.get("document_counts") for metadata in all_metadata]
    if all(documents):
        result["document_counts"] = _sums(documents)
    packings = [packing for metadata in all_metadata for packing in _packings(metadata)]
    if packings:
        result["packing_before"] = packings
    result["merged"] = [entry for store in stores for entry in _history(store, result)]
    return result


def _history(store: Described, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a store alone says; of one that was merged itself, what its parts say."""
    earlier: list[dict[str, Any]] | None = store.metadata.get("merged")
    if earlier is not None:
        return earlier
    told = {"classes", "field_classes", "tokenizer", "packing", "packing_before", "plan", *_LEDGERS}
    own = {name: value for name, value in store.metadata.items() if name not in told and result.get(name) != value}
    name = store.path.rstrip("/").rpartition("/")[2]
    return [{"set": name, "samples": len(store), "metadata": own}]


def _sums(counts: Iterable[Any]) -> dict[str, Any]:
    """
    Add counts, also those in mappings of counts.

    >>> _sums([{"a": 1, "b": {"c": 2}}, {"a": 3, "b": {"d": 4}}])
    {'a': 4, 'b': {'c': 2, 'd': 4}}
    """
    total: dict[str, Any] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = _sums([total.get(name, {}), count]) if isinstance(count, dict) else total.get(name, 0) + count
    return total


def _joined_names(names: Sequence[str]) -> str:
    """
    Join the names of sources for people.

    >>> _joined_names(["a", "b", "a"]), _joined_names(["a", "b", "c", "d", "e"])
    ('a + b', 'a + b + c and 2 more')
    """
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - _NAMED} more" if len(unique) > _NAMED else ""
    return " + ".join(unique[:_NAMED]) + more


def _packings(metadata: Mapping[str, Any]) -> list[Any]:
    """How the pictures of a store were changed, first to last."""
    return [*(metadata.get("packing_before") or ()), *([metadata["packing"]] if metadata.get("packing") else ())]


def _equal(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries that are the same in all mappings."""
    first, others = mappings[0], mappings[1:]
    return {
        name: value for name, value in first.items() if all(name in other and other[name] == value for other in others)
    }


def _without_counts(tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: value for name, value in (tokenizer.get("options") or {}).items() if name not in _COUNTS}
    return {**tokenizer, "options": options}


def _with_counts_of(tokenizers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the first with the counts of all."""
    options = [tokenizer.get("options") or {} for tokenizer in tokenizers]
    if not options[0]:
        return tokenizers[0]
    counts = {name: _sum([each[name] for each in options]) for name in _COUNTS if all(name in each for each in options)}
    return {**tokenizers[0], "options": {**options[0], **counts}}


def _sum(counts: Sequence[Any]) -> Any:
    """Add numbers, or mappings of numbers."""
    if isinstance(counts[0], Mapping):
        return {name: _sum([each[name] for each in counts]) for name in counts[0]}
    return sum(counts)


def _common_classes(stores: Sequence[Described]) -> list[str] | None:
    """Return the longest list of names; every other list must be its beginning."""
    known: list[tuple[Described, list[str]]] = [
        (store, [str(name) for name in store.metadata["classes"]]) for store in stores if _has_classes(store.metadata)
    ]
    if not known:
        return None
    longest, names = max(known, key=lambda each: len(each[1]))
    for store, own in known:
        at = next((place for place, name in enumerate(own) if name != names[place]), None)
        if at is not None:
            raise SchemaError(
                f"label {at} is {names[at]!r} in {longest.path} but {own[at]!r} in {store.path}: pack both with "
                "the same classes, or, for one loader over both, give each FastDataset a target_transform that makes "
                "them agree"
            )
    return names


def _check_all_named(stores: Sequence[Described]) -> None:
    named = [store for store in stores if _has_classes(store.metadata)]
    other = next((store for store in stores if not _has_classes(store.metadata)), None)
    if named and other is not None:
        names = [str(name) for name in named[0].metadata["classes"]]
        raise SchemaError(
            f"{other.path}: its labels are numbers, those of {named[0].path} are names (0 is {names[0]!r}), so nothing "
            "says that they mean the same: pack both with names, or both with numbers"
        )


def _has_classes(metadata: Mapping[str, Any]) -> bool:
    return metadata.get("classes") is not None
