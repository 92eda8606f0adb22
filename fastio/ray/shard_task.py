"""What one Ray task of ``pack`` does: opens the source as the driver did, and makes one shard of its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastio.converters.planned.options import PackOptions
from fastio.converters.planned.pack_set import plan_for
from fastio.converters.planned.plan import PackPlan
from fastio.converters.planned.planned_set import PlannedSet
from fastio.converters.raw import Raw
from fastio.converters.scan import shown
from fastio.converters.source import Source
from fastio.converters.transcode import Transcode
from fastio.errors import SourceError
from fastio.store.folders import folder_of
from fastio.store.jump_tables import JumpRule
from fastio.store.target import target_format
from fastio.store.write_target import Target

__all__ = ["FinishedShard", "OpenSource", "PackWork", "make_shard"]

OpenSource = Callable[[], Source]


@dataclass(frozen=True, slots=True)
class PackWork:
    """What is the same for all tasks of a pack; ``run`` tells it from every other one."""

    run: str
    open_source: OpenSource
    out: str
    pictures: Transcode | Raw | None
    options: PackOptions
    digest: int  # of the driver's plan
    record: Mapping[str, Any]  # of the driver's plan
    base: int


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """What a task tells the driver of its shard."""

    number: int
    samples: int
    payload_bytes: int


# A process packs many shards of a source, which is scanned and planned once a run.
_opened: tuple[str, Source, PackPlan] | None = None


def make_shard(work: PackWork, number: int, *, replaces: bool) -> FinishedShard:
    """
    Make shard ``number``. If an earlier attempt has finished it, it is left as it is, unless it ``replaces`` what the
    driver has seen there.

    Raises SourceError for a bad sample, and if this process sees another source than the driver.
    """
    source, plan = _planned(work)
    folder, _ = folder_of(work.out, work.options.remote)
    target = Target(work.out, target_format(work.out), work.options.overwrite)
    planned = PlannedSet(plan, source, target, folder, work.base, None, frozenset(), work.options)
    name = planned.name(number)
    is_there = folder.etag(name) is not None
    planned = replace(planned, present=frozenset([name] if is_there else []))
    if is_there and not replaces:
        shard = planned.existing([number]).get(number)
        if shard is not None:
            return FinishedShard(number, shard.member.count, int(shard.packed["payload_bytes"]))
    done = [0, 0]

    def progress(samples: int, size_bytes: int) -> None:
        done[0] += samples
        done[1] += size_bytes

    for _ in planned.pack([number], progress):
        pass
    return FinishedShard(number, *done)


def _planned(work: PackWork) -> tuple[Source, PackPlan]:
    global _opened  # noqa: PLW0603 - one source a process
    if _opened is not None and _opened[0] == work.run:
        return _opened[1:]
    source = work.open_source()
    plan = plan_for(source, work.out, work.pictures, work.options).with_jump(JumpRule.from_json(work.record))
    if plan.digest != work.digest or not plan.has_contents_of(work.record):
        names = {*work.record, *plan.record}
        differing = sorted(name for name in names if work.record.get(name) != plan.record.get(name))
        raise SourceError(
            f"{shown(source.path)}: another node sees another source than the driver: {', '.join(differing)} differ: "
            "copy the source completely to where all nodes see it, and do not change it while it is packed"
        )
    _opened = (work.run, source, plan)
    return source, plan
