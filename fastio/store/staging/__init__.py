"""Copies of whole stores on a disk of this machine."""

from __future__ import annotations

from fastio.store.staging.stage import StageReport, stage
from fastio.store.staging.staged import staged_path

__all__ = ["StageReport", "stage", "staged_path"]
