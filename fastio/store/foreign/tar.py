"""
Opens tar shards that others wrote (WebDataset, GNU tar, bsdtar) and keeps their index beside them.

Samples are grouped by WebDataset's rule: consecutive members that share the path up to the first dot of the name.
Their extensions name the fields and say what these hold (see ``fields.py``): pictures, masks, text, JSON, arrays,
a label, or bytes. Text and JSON are parsed when they are read: a document that is none is a problem of its sample.
Pictures without companions are plain files: one sample per member, whose key is the whole path. Members that do not
become samples are listed in ``metadata["skipped"]``, members left out of samples in ``metadata["left_out"]``.

The scan's result is kept beside the archive, see ``sidecar.py``.

The identity of the content (``SampleStore.identity``) is computed from all headers of the samples' members, all keys
and labels, and 512 bytes from the middle of up to 256 members. Two archives that differ only in other bytes, with
equal headers down to the members' times, have one identity: telling them apart would require reading them.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fastio._native import checksum, crc32
from fastio.errors import StoreError, StoreIncomplete
from fastio.store.files import ByteSource, files_of
from fastio.store.files.fetch import fetch_pieces
from fastio.store.foreign.fields import (
    HEAD_BYTES,
    LABEL,
    Typed,
    form_of,
    is_picture,
    names_of,
    short_name,
    typed,
    with_equal_types,
)
from fastio.store.foreign.scan import BLOCK, Member, header_starts, scan
from fastio.store.foreign.sidecar import LEDGER, read_sidecar, write_sidecar
from fastio.store.formats.tar_file import INDEX_FOLDER
from fastio.store.index.arrays import Keys
from fastio.store.index.sealed import Shard
from fastio.types.schema import COLUMN, Field, Schema
from fastio.types.spans import Spans, distinct

__all__ = [
    "check_foreign_set",
    "open_foreign",
    "scan_foreign",
]


_SAMPLED_MEMBERS = 256
_SAMPLED_BYTES = 512
_META = re.compile(r"__[^/]*__($|/)")
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)")  # the last number of a name
_MAX_LABEL = 64  # bytes of a .cls member
_LOG = logging.getLogger(__name__)

Skipped = list[dict[str, str]]


@dataclass(slots=True)
class _Group:
    """Members that may become one sample."""

    key: str
    members: dict[str, Member] = field(default_factory=dict)  # by field name
    problem: str = ""


def open_foreign(file: ByteSource) -> Shard:
    """
    Return the index of a tar that fastio did not write, from its sidecar or by scanning it.

    Raises StoreIncomplete if it is one of fastio's that lost its end; StoreError or StoreCorrupt if it is not a tar,
    truncated, damaged, compressed or sparse, or holds no sample.
    """
    if file.size == 0:
        raise StoreIncomplete(f"{file.path}: the file is empty; pack or copy it again")
    kept = read_sidecar(file)
    if kept is not None:
        return kept
    shard = _build(file)
    shard = replace(shard, content_crc=_content_crc(shard))
    if _is_unchanged(file):  # or it was written to meanwhile
        try:
            write_sidecar(shard, file)
        except StoreError as exc:  # the next one scans again
            _LOG.debug("%s: no index is kept beside it: %s", shard.path, exc)
    return shard


def scan_foreign(file: ByteSource, *, path: str | None = None) -> Shard:
    """
    Return the index of a tar that fastio did not write, with the CRC-32 of every value: all of it is read.

    ``path`` is what messages call it. Raises the errors of ``open_foreign``.
    """
    path = path or file.path
    if file.size == 0:
        raise StoreIncomplete(f"{path}: the file is empty; pack or copy it again")
    try:
        shard = _build(file)
        checksums = {name: _checksums(file, starts, shard.sizes[name]) for name, starts in shard.starts.items()}
    except StoreError as exc:
        raise type(exc)(str(exc).replace(file.path, path)) from exc
    return replace(shard, checksums=checksums, content_crc=_content_crc(shard))


def _is_unchanged(file: ByteSource) -> bool:
    try:
        file.check()
    except StoreError:
        return False
    return True


def check_foreign_set(path: str, shards: Sequence[Shard]) -> list[Shard]:
    """
    Return the shards in order of their names, with one ledger and fields of equal types.

    Shards that the numbers of the others count, and that are not there, are in the ledger. Code that only counts
    samples does not see that, so one warning says that there is something in it. Raises StoreError if shards have
    different fields.
    """
    shards = with_equal_types(shards)
    first = shards[0]
    for shard in shards:
        if shard.schema != first.schema:
            names, others = ([f.name for f in s.schema.fields] for s in (first, shard))
            raise StoreError(
                f"{path}: {first.path} has fields {names}, but {shard.path} has {others}: open them one by one"
            )
    ledgers = [json.loads(shard.metadata) for shard in shards]
    merged = {name: [entry for each in ledgers for entry in each[name]] for name in LEDGER}
    merged["skipped"] += _missing([shard.path.rpartition("/")[2] for shard in shards])
    metadata = {**ledgers[0], **merged}
    _warn(path, sum(shard.count for shard in shards), **merged)
    return [replace(first, metadata=json.dumps(metadata).encode("ascii")), *shards[1:]]


def _missing(names: Sequence[str]) -> Skipped:
    """Return the shards between the first and the last number of these names that are not there."""
    numbers: dict[tuple[str, str], dict[int, str]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(name)
        if found is not None:
            numbers.setdefault((found[1], found[3]), {})[int(found[2])] = found[2]
    missing: Skipped = []
    for (before, behind), known in numbers.items():
        lacking = [number for number in range(min(known), max(known)) if number not in known] if _is_row(known) else []
        width = min(map(len, known.values()))
        words = f"is missing: there are shards {known[min(known)]} to {known[max(known)]}"
        missing += [{"key": f"{before}{number:0{width}d}{behind}", "problem": words} for number in lacking]
    return missing


def _is_row(numbers: Collection[int]) -> bool:
    """Whether these numbers count something: most of those between are there, unlike of dates."""
    return max(numbers) - min(numbers) + 1 < 2 * len(numbers)


def _warn(path: str, count: int, *, skipped: Skipped, left_out: Skipped) -> None:
    """Log one line on what the archive holds besides its samples, if anything."""
    said = []
    if skipped:
        said.append(f"no samples: {len(skipped)}, e.g. {skipped[0]['key']!r} {skipped[0]['problem']}")
    if left_out:
        example = next((each for each in left_out if repr(LABEL) in each["problem"]), left_out[0])  # labels first
        said.append(f"members left out: {len(left_out)}, e.g. {example['key']!r} {example['problem']}")
    if said:
        _LOG.warning("%s: samples: %d; %s; `fastio info --skipped` lists all", path, count, "; ".join(said))


# Grouping


def _build(file: ByteSource) -> Shard:
    path, members = file.path, scan(file)
    if any(member.name.startswith(INDEX_FOLDER) for member in members):
        raise StoreIncomplete(f"{path}: packed by fastio, but its seal is missing or damaged: copy or pack again")
    skipped: Skipped = []
    files = list(_files(members, skipped))
    known = {extension for _, _, extension, _ in files}
    if _is_plain(files):
        fields_by_extension = dict.fromkeys(filter(is_picture, known), "image")
        groups = _plain(files, skipped)
    else:
        fields_by_extension = names_of(known)
        groups = list(_grouped(files, fields_by_extension, skipped))
    names = _common_fields(groups)
    samples, labels = _complete(groups, names, file, skipped)
    extensions = {name: sorted(e for e, into in fields_by_extension.items() if into == name) for name in names}
    payload = [name for name in names if name != LABEL]
    fields = _typed(file, payload, extensions, samples)
    bad = {i: sentence for each in fields.values() for i, sentence in each.problems.items()}
    if bad:
        skipped += [{"key": samples[i].key, "problem": sentence} for i, sentence in sorted(bad.items())]
        good = [i for i in range(len(samples)) if i not in bad]
        samples, labels = [samples[i] for i in good], [labels[i] for i in good]
        fields = {name: replace(each, prefixes=each.prefixes[good]) for name, each in fields.items()}
    if not samples:
        why = f"; e.g. {skipped[0]['key']!r} {skipped[0]['problem']}" if skipped else ""
        raise StoreError(f"{path}: no sample in {len(members)} members{why}")
    if not payload:
        raise StoreError(f"{path}: has labels, but nothing that they belong to; check what was packed")
    label = [Field(LABEL, COLUMN, "<i8", ())] if LABEL in names else []
    joined = b"\0".join(group.key.encode("utf-8", "surrogateescape") for group in samples)
    keys = np.frombuffer(joined, np.uint8)
    metadata = {
        "classes": None,
        "extensions": extensions,
        "skipped": skipped,
        "left_out": _left_out(samples, names),
    }
    prefixes = {name: each.prefixes for name, each in fields.items()}
    return Shard(
        path=path,
        data=file,
        schema=Schema((*(fields[name].field for name in payload), *label)),
        count=len(samples),
        starts={n: np.array([g.members[n].start for g in samples], np.int64) + prefixes[n] for n in payload},
        sizes={n: np.array([g.members[n].size for g in samples], np.int64) - prefixes[n] for n in payload},
        checksums={},
        shapes={},
        intervals={},
        columns={LABEL: np.array(labels, np.int64)} if LABEL in names else {},
        keys=Keys.of(keys, len(samples), path=path),
        metadata=json.dumps(metadata).encode("ascii"),
    )


def _typed(
    file: ByteSource, names: Sequence[str], extensions: Mapping[str, Sequence[str]], samples: Sequence[_Group]
) -> dict[str, Typed]:
    """The type of each payload field, by its extensions and, where these do not say it all, the members' beginnings."""
    fields: dict[str, Typed] = {}
    for name in names:
        starts = np.array([group.members[name].start for group in samples], np.int64)
        sizes = np.array([group.members[name].size for group in samples], np.int64)
        heads = (
            view.tobytes() for values in _values(file, starts, np.minimum(sizes, HEAD_BYTES)) for view in values.views()
        )
        fields[name] = typed(name, form_of(extensions[name]), heads, sizes)
    return fields


def _files(members: Sequence[Member], skipped: Skipped) -> Iterator[tuple[str, str, str, Member]]:
    """Yield regular members as (name, stem, extension, member); others except folders go to the ledger."""
    for member in members:
        name = member.name.removeprefix("./")
        if member.kind == "a directory":
            continue
        found = _split(name)
        if member.kind:
            skipped.append({"key": name, "problem": f"is {member.kind}"})
        elif _META.match(name):
            skipped.append({"key": name, "problem": "has a name that WebDataset reserves"})
        elif found is None or "\0" in name:
            skipped.append({"key": name, "problem": "has no extension"})
        else:
            yield name, found[0], found[1].lower(), member


def _split(name: str) -> tuple[str, str] | None:
    """
    Return stem and extension: the path up to the first dot of its last part, which must leave a name; None without a
    dot.
    """
    folder, slash, last = name.rpartition("/")
    plain, dot, extension = last.partition(".")
    owner = plain or folder.rstrip("/").rpartition("/")[2]  # WebDataset reads "a/.png" as a sample "a/"
    return (folder + slash + plain, extension) if dot and owner and "." not in owner else None


def _is_plain(files: Sequence[tuple[str, str, str, Member]]) -> bool:
    """
    Return whether all are plain picture files: none has a companion, such as a label, with its stem, other than views
    of it.
    """
    views: dict[str, set[str]] = {}
    for _, stem, extension, _ in files:
        views.setdefault(stem, set()).add(extension)
    pictures = [each for each in views.values() if any(map(is_picture, each))]
    if not pictures or not all(is_picture(extension) for each in pictures for extension in each):
        return False
    several = len({short_name(extension) for extension in pictures[0]}) > 1  # .left.png beside .right.png
    return not (several and all(each == pictures[0] for each in pictures))


def _plain(files: Sequence[tuple[str, str, str, Member]], skipped: Skipped) -> list[_Group]:
    groups: dict[str, _Group] = {}
    for name, _, extension, member in files:
        if not is_picture(extension):
            skipped.append({"key": name, "problem": "is not a picture, among plain picture files"})
            continue
        group = groups.setdefault(name, _Group(name))
        group.problem = "comes twice" if group.members else ""
        group.members["image"] = member
    return list(groups.values())


def _grouped(
    files: Sequence[tuple[str, str, str, Member]], fields_by_extension: Mapping[str, str], skipped: Skipped
) -> Iterator[_Group]:
    seen: set[str] = set()
    group: _Group | None = None
    at = ""
    for name, stem, extension, member in files:
        if group is None or at != stem:
            if group is not None:
                yield group
            at, group = stem, _Group(stem)
            if stem in seen:  # the ledger names the member, because the sample itself exists
                group = _Group(name, problem=f"comes again as part of {stem!r}, after other samples")
            seen.add(stem)
        into = fields_by_extension[extension]
        if into in group.members:
            group.problem = group.problem or f"has two members for the field {into!r}, {name!r} is the second"
        group.members[into] = member
    if group is not None:
        yield group


def _common_fields(groups: Sequence[_Group]) -> list[str]:
    """Return fields that at least half of the samples have, the image first, the others by name."""
    good = [group for group in groups if not group.problem]
    counts = Counter(name for group in good for name in group.members)
    common = (name for name, count in counts.items() if 2 * count >= len(good))
    return sorted(common, key=lambda name: (name != "image", name))


def _complete(
    groups: Sequence[_Group], names: Sequence[str], file: ByteSource, skipped: Skipped
) -> tuple[list[_Group], list[int]]:
    """Return the samples that have all fields, and their labels; the others go to the ledger."""
    samples, labels = [], []
    labelled = [group.members[LABEL] for group in groups if LABEL in group.members] if LABEL in names else []
    texts = _label_texts(file, labelled)
    for group in groups:
        missing = [name for name in names if name not in group.members]
        label = 0
        if missing and not group.problem:
            group.problem = f"lacks {', '.join(missing)}"
        if LABEL in names and not group.problem:
            member = group.members[LABEL]
            text = texts[member.start]
            if member.size <= _MAX_LABEL and re.fullmatch(rb"-?\d{1,18}", text):
                label = int(text)
            else:
                group.problem = f"has the label {text[:40]!r}, expected an integer"
        if group.problem:
            skipped.append({"key": group.key, "problem": group.problem})
            continue
        samples.append(group)
        labels.append(label)
    return samples, labels


def _label_texts(file: ByteSource, members: Sequence[Member]) -> dict[int, bytes]:
    """The beginning of each of these members, by its place in the file."""
    starts = np.array([member.start for member in members], np.int64)
    sizes = np.array([min(member.size, _MAX_LABEL) for member in members], np.int64)
    texts: list[bytes] = []
    for values in _values(file, starts, sizes):
        texts += [view.tobytes().strip() for view in values.views()]
    return dict(zip(starts.tolist(), texts, strict=True))


def _left_out(samples: Sequence[_Group], names: Sequence[str]) -> Skipped:
    """Return members of kept samples that are left out: fields that most samples lack."""
    return [
        {"key": group.key, "problem": f"has a field {name!r} that most samples lack"}
        for group in samples
        for name in group.members
        if name not in names
    ]


# The identity of the content


def _content_crc(shard: Shard) -> int:
    """Return the CRC-32 of what tells this archive from others: see the top of this file."""
    crc = crc32(shard.keys.array)
    for column in shard.columns.values():
        crc = crc32(column, crc)
    for name, starts in shard.starts.items():
        sizes = shard.sizes[name]
        crc = crc32(_checksums(shard.data, header_starts(starts), np.full(len(starts), BLOCK, np.int64)), crc)
        chosen = distinct(np.linspace(0, len(starts) - 1, _SAMPLED_MEMBERS).astype(np.int64))
        skipped = np.maximum(0, sizes[chosen] - _SAMPLED_BYTES) // 2
        sampled = np.minimum(sizes[chosen], _SAMPLED_BYTES)
        crc = crc32(_checksums(shard.data, starts[chosen] + skipped, sampled), crc)
    return crc


def _checksums(file: ByteSource, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the CRC-32 of each span."""
    sums = [np.empty(0, np.uint32)]
    for values in _values(file, starts, sizes):
        sums.append(np.empty(len(values), np.uint32))
        checksum(values, sums[-1]).wait()
    return np.concatenate(sums)


def _values(file: ByteSource, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[Spans]:
    """These bytes of the file in memory, piece by piece. Raises StoreError if they cannot be read."""
    files = files_of([file])
    every = Spans(files.buffers, np.zeros(len(starts), np.int32), starts, sizes)
    for part, spans, status in fetch_pieces(files, every):
        if status is not None:
            at = starts[part][int(status.astype(bool).argmax())]
            raise StoreError(f"{file.path}: cannot be read at byte {at}; check the disk, or copy it again")
        yield spans
