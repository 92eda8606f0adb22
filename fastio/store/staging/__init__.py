"""Copies of whole stores on a disk of this machine."""

from __future__ import annotations

from fastio.store.staging.stage import StageReport, stage
from fastio.store.staging.staged import StageInUse, staged_path

__all__ = ["StageInUse", "StageReport", "stage", "staged_path"]
