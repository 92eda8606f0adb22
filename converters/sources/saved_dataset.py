"""Folders of Hugging Face's ``datasets.save_to_disk``, whose columns are the fields of samples."""

from __future__ import annotations

from pathlib import Path

from fastio.converters.arrow.saved import saved_features, saved_names
from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource
from fastio.converters.shard_files import FileSet

__all__ = ["KIND", "open_saved"]


def open_saved(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open what ``datasets.Dataset.save_to_disk`` wrote; of a dictionary of splits, one of its folders."""
    from fastio.converters.arrow.source import table_source

    names = saved_names(place.path)
    status = [Path(place.path, name).stat() for name in names]
    sizes = sum(each.st_size for each in status), sum(each.st_blocks * 512 for each in status)
    files = FileSet(place.path, names, *sizes)
    return table_source(KIND.name, "arrow", place, files, options, features=saved_features(place.path))


def _signs(place: SourcePath) -> str:
    """Whether there is the state of a dataset, or a dictionary of them."""
    if not place.is_folder:
        return ""
    is_one = Path(place.path, "state.json").is_file() and Path(place.path, "dataset_info.json").is_file()
    return "a saved dataset" if is_one or Path(place.path, "dataset_dict.json").is_file() else ""


def _has_pictures(place: SourcePath) -> bool:
    """Whether the data hold pictures, or those of the first split do."""
    if not _signs(place):
        return False
    if Path(place.path, "dataset_dict.json").is_file():
        below = sorted(f"{place.path}/{name}" for name in place.top.folders)
        return any(_has_pictures(SourcePath(folder)) for folder in below[:1])
    from fastio.converters.arrow.source import holds_pictures

    return holds_pictures("arrow", f"{place.path}/{saved_names(place.path)[0]}")


KIND = SourceKind(
    name="datasets",
    what="a dataset saved by Hugging Face datasets",
    signs=_signs,
    open=open_saved,
    own_labels="its columns hold the labels (--label-column names one)",
    takes_fields=True,
    takes_columns=True,
    covers=("arrow", "imagefolder"),
    text_kinds=("datasets",),
    has_more_than_text=_has_pictures,
)
