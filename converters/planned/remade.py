"""Remade: shards of a set, packed again from their source to the same bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fastio.converters.planned.changed import differences
from fastio.converters.planned.options import PackOptions
from fastio.converters.planned.plan import PackPlan, plan_of
from fastio.converters.planned.planned_set import PlannedSet
from fastio.converters.planned.shards import PlannedShard, open_shard
from fastio.converters.raw import Raw
from fastio.converters.relabelled import relabelled
from fastio.converters.source import Source
from fastio.converters.transcode import Transcode
from fastio.errors import FastioError, StoreError
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.folders import LocalFolder, folder_of
from fastio.store.formats import FORMATS
from fastio.store.jump_tables import JumpRule
from fastio.store.repair import CannotMake, Offer
from fastio.store.set_object import SetMember, SetObject
from fastio.store.write_target import Target

__all__ = ["Remade"]


class Remade:
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
        remote: RemoteOptions = DEFAULT,
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
                        shard = open_shard(*folder_of(path, self._remote), self._format)
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
