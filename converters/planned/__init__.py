"""Packing by plan: a source is divided into shards before anything is packed, and each shard can be made alone."""

from __future__ import annotations

from fastio.converters.planned.options import PackOptions, Progress
from fastio.converters.planned.pack_set import pack_set, plan_for
from fastio.converters.planned.part import Part
from fastio.converters.planned.plan import PackPlan, plan_of
from fastio.converters.planned.planned_set import PlannedSet
from fastio.converters.planned.seal import seal

__all__ = ["PackOptions", "PackPlan", "Part", "PlannedSet", "Progress", "pack_set", "plan_for", "plan_of", "seal"]
