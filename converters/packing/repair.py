"""Mends a set from another copy of it or from its source: shards packed again to the same bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from fastio.converters.packing.append import relabelled
from fastio.converters.packing.options import PackOptions
from fastio.converters.packing.plan import PackPlan, plan_of
from fastio.converters.packing.planned_set import PlannedSet
from fastio.converters.packing.shards import PlannedShard, differences, open_shard
from fastio.converters.pictures.raw import Raw
from fastio.converters.pictures.transcode import Transcode
from fastio.converters.sources.origin import reopen_source
from fastio.converters.sources.record import recorded_kind
from fastio.converters.sources.source import Source
from fastio.errors import FastioError, SourceError, StoreCorrupt, StoreError
from fastio.store.address import Address
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.folders import LocalFolder, folder_of
from fastio.store.formats import FORMATS, holds_shards
from fastio.store.jump_tables import JumpRule
from fastio.store.sets.names import SET_SUFFIX
from fastio.store.sets.repair import CannotMake, Copies, Maker, Offer, Progress, RepairReport, repair_set
from fastio.store.sets.seal import ShardFiles
from fastio.store.sets.set_object import SetMember, SetObject, read_set
from fastio.store.write.target import Target

__all__ = [
    "repair",
]


def repair(
    path: str,
    against: str,
    *,
    kind: str = "auto",
    labels: str | None = None,
    meter: Callable[[int], AbstractContextManager[Progress]] | None = None,
    remote: Remote = DEFAULT,
) -> RepairReport:
    """
    Check every byte of the set ``path``, and write missing and damaged shards again, from ``against``: another copy of
    the set, as a path or URL, or the source that it was packed from (of ``kind``, with the label file ``labels``).

    ``meter(samples)`` yields what is called with the samples and bytes of each shard checked. Raises StoreError if
    there is no such set, or if a shard cannot be read or written; see ``repair_set``.
    """
    repaired = _set(path, remote)
    makers = _makers(repaired, against, kind, labels, remote)
    with nullcontext() if meter is None else meter(len(repaired)) as progress:
        return repair_set(repaired, makers, remote=remote, progress=progress)


def _set(path: str, remote: Remote) -> SetObject:
    set_object = Address.parse(path, remote).set_object()
    if set_object is None:
        raise StoreError(
            f"{path}: has no set object (name{SET_SUFFIX}), which alone knows what every shard must be: "
            "pack it again; if only the set object is missing, fastio seal makes it anew"
        )
    folder, name = folder_of(set_object, remote)
    return read_set(folder.open(name))


def _makers(repaired: SetObject, against: str, kind: str, labels: str | None, remote: Remote) -> list[Maker]:
    metadata = _metadata(repaired)
    makers: list[Maker] = []
    if labels is None and kind == "auto" and _may_be_copy(repaired, against):
        makers.append(Copies(against, repaired, remote=remote))
    if not makers or (is_local(against) and recorded_kind(metadata.get("source") or {}) == "store"):

        def open_source() -> Source:
            if "document_counts" in metadata:
                raise SourceError(
                    f"{against}: {repaired.path} was packed from text: `fastio pack` with --resume and the options of "
                    "before makes its shards again"
                )
            source = reopen_source(metadata, against, kind=kind, labels=labels)
            seed = metadata.get("shuffle")
            return source if seed is None else source.shuffled(seed)

        makers.append(RepackedShards(open_source, repaired, remote=remote))
    return makers


def _may_be_copy(repaired: SetObject, against: str) -> bool:
    """Whether a path or URL may hold shards of this set."""
    if not is_local(against) or against.endswith(SET_SUFFIX) or FORMATS[repaired.format].is_name(against):
        return True
    return Path(against).is_dir() and holds_shards(against)


def _metadata(repaired: SetObject) -> dict[str, Any]:
    try:
        return dict(json.loads(repaired.metadata))
    except (ValueError, TypeError) as exc:
        raise StoreCorrupt(f"{repaired.path}: the metadata is not JSON ({exc}): pack again") from exc


# Remade: shards of a set, packed again from their source to the same bytes.


class RepackedShards:
    """
    The shards that a source gives; see ``repair.Maker``.

    A set was packed by one plan, or by several if it grew or was merged: each shard knows the options of its plan. The
    source must have that plan still: the same keys, sizes and labels in the same order.
    """

    def __init__(
        self,
        open_source: Callable[[], Source],
        repaired: SetObject,
        *,
        jobs: int | None = None,
        remote: Remote = DEFAULT,
    ) -> None:
        self._open_source = open_source
        self._set = repaired
        self._format = FORMATS[repaired.format]
        self._options = PackOptions(jobs=jobs, on_error="skip")  # what comes out is compared anyway
        self._remote = remote
        self._source: Source | None = None
        self._known: dict[int, tuple[int, PlannedShard]] = {}
        self._plans: dict[int, tuple[Source, PackPlan]] = {}
        self._classes = json.loads(repaired.metadata).get("classes")

    def offers(self, number: int, member: SetMember) -> Iterator[Offer]:
        """See ``repair.Maker``."""
        at, shard = self._known_shard(member)
        source, plan = self._planned(shard)
        own, known = plan.record.get("contents"), shard.plan.get("contents")
        # A shard keeps what was known of the contents when it was made. Older versions of fastio kept nothing, and may
        # have made a part of the set.
        for contents in dict.fromkeys((known, own if known is None else None)):
            made = plan.with_contents(contents)
            yield Offer(source.path, partial(self._write, source, made, shard.number + number - at))

    def check(self) -> None:
        """See ``repair.Maker``: there must be a source. What it has is known once its plan is made."""
        self._source = self._source or self._open_source()

    def _known_shard(self, member: SetMember) -> tuple[int, PlannedShard]:
        """Return a shard of the same plan that can be opened, and its number in the set. Raises CannotMake."""
        if not member.plan:
            raise CannotMake("it was packed without a plan, as streams are: only a copy of it can be taken")
        if member.plan not in self._known:
            folder, _ = folder_of(self._set.path, self._remote)
            for number, other in enumerate(self._set.members):
                if other.plan == member.plan:
                    path = folder.full(other.name)
                    try:
                        home, name = folder_of(path, self._remote)
                        shard = open_shard(ShardFiles(home, self._format), name)
                    except StoreError:
                        continue  # missing or damaged, too
                    if shard.member.plan == member.plan:
                        self._known[member.plan] = number, shard
                        break
            else:
                raise CannotMake("no shard of its plan can be opened, which would tell the options: pack all again")
        return self._known[member.plan]

    def _planned(self, shard: PlannedShard) -> tuple[Source, PackPlan]:
        """Return the source and its plan, made as that of a shard was. Raises CannotMake if it is another one now."""
        self._source = self._source or self._open_source()
        digest = shard.member.plan
        if digest not in self._plans:
            # What was appended has the class numbers of the set.
            same, renumbered = self._source, relabelled(self._source, self._classes)
            for source in (same, renumbered) if renumbered is not same else (same,):
                plan = plan_of(
                    source,
                    self._format,
                    shard_bytes=shard.plan["shard_size"],
                    pictures=_pictures(shard.plan["pictures"]),
                ).with_jump(JumpRule.from_json(shard.plan))
                self._plans[digest] = source, plan
                if plan.digest == digest:
                    break
        source, plan = self._plans[digest]
        if plan.digest != digest:
            words = "; ".join(differences(shard, plan, source))
            raise CannotMake(f"{source.path} is not what it was packed from: {words}")
        return source, plan

    def _write(self, source: Source, plan: PackPlan, number: int, file: Path) -> None:
        folder = file.with_name(f"{file.name}.again")
        folder.mkdir()
        try:
            target = Target(str(folder / f"%d{self._format.suffixes[0]}"), self._format, overwrite=False)
            planned = PlannedSet(
                plan=plan,
                source=source,
                target=target,
                folder=LocalFolder(str(folder)),
                base=0,
                current=None,
                present=frozenset(),
                options=self._options,
            )
            for _ in planned.pack([number]):
                pass
            (folder / planned.name(number)).rename(file)
        except StoreError:
            raise
        except FastioError as exc:
            raise CannotMake(str(exc)) from exc
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _pictures(record: Mapping[str, Any] | None) -> Transcode | Raw | None:
    if record is None:
        return None
    return Raw.from_json(record) if record.get("raw") else Transcode.from_json(record)
