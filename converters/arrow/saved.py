"""What ``datasets.Dataset.save_to_disk`` leaves in a folder: which files hold the data, and the notes on columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastio.errors import SourceError

__all__ = ["SAVED_MARKS", "saved_features", "saved_names"]

SAVED_MARKS = frozenset(["dataset_info.json", "dataset_dict.json"])  # one of them is in such a folder


def saved_names(path: str) -> list[str]:
    """
    Return the names of the data files in ``path``, in order.

    Raises SourceError for a dictionary of splits, for rows chosen by indices beside the data, and for missing files.
    """
    splits = Path(path, "dataset_dict.json")
    if splits.is_file():
        ways = ", ".join(f"{path}/{name}" for name in _json(splits).get("splits") or ())
        raise SourceError(f"{path}: holds several splits: pack one of them, {ways}, or choose it with --split")
    state = _json(Path(path, "state.json"))
    if state.get("_indices_data_files"):
        raise SourceError(f"{path}: holds indices beside its data: save it again after flatten_indices()")
    entries = state.get("_data_files") or ()
    names = [str(entry.get("filename")) for entry in entries if isinstance(entry, Mapping)]
    if not names or len(names) != len(entries):
        raise SourceError(f"{path}: state.json names no data files; expected a folder of save_to_disk")
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise SourceError(f"{path}: state.json names {outside[0]!r:.80}, which is not a file in this folder")
    missing = [name for name in names if not Path(path, name).is_file()]
    if missing:
        raise SourceError(f"{path}: {missing[0]}, which state.json names, is missing: copy the whole folder")
    return names


def saved_features(path: str) -> Mapping[str, Any]:
    """Return what ``dataset_info.json`` says of the columns, {} if nothing. Raises SourceError if it cannot be read."""
    features = _json(Path(path, "dataset_info.json")).get("features")
    return features if isinstance(features, Mapping) else {}


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        raise SourceError(f"{path}: cannot be read as JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise SourceError(f"{path}: expected a JSON object")
    return document
