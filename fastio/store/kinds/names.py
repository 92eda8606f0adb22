"""What the names of files tell: suffixes of tables and texts, compressions, patterns, and the splits of a dataset."""

from __future__ import annotations

import glob
import os
import re
from typing import Final

__all__ = [
    "ARROW_SUFFIXES",
    "COMPRESSED",
    "METADATA_NAMES",
    "NUMBERED",
    "PARQUET_SUFFIXES",
    "RECORD_SUFFIXES",
    "SPLITS",
    "STREAM_KINDS",
    "TABLE_SUFFIXES",
    "folders_of_pattern",
    "has_columns",
    "is_of_part",
    "is_pattern",
    "is_record_name",
    "is_result",
    "is_table_name",
    "is_there",
    "matching",
    "part_of",
    "plain_name",
    "text_kind",
]


COMPRESSED: Final = (".gz", ".zst")
STREAM_KINDS: Final = ("csv", "tsv", "jsonl", "json")  # tables that keep one row after the other
PARQUET_SUFFIXES: Final = (".parquet",)
ARROW_SUFFIXES: Final = (".arrow", ".feather", ".ipc")
TABLE_SUFFIXES: Final = (*(f".{kind}" for kind in STREAM_KINDS), *PARQUET_SUFFIXES, *ARROW_SUFFIXES)
RECORD_SUFFIXES: Final = (".tfrecords", ".tfrecord", ".tfrec")
METADATA_NAMES: Final = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # of a folder of pictures
SPLITS: Final = frozenset(["train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval"])
NUMBERED: Final = re.compile(r"(?P<part>.*?)[-_.]?(?P<number>[0-9]+)-of-(?P<count>[0-9]+)(?P<rest>(?:\..*)?)\Z")
_RECORD_NAMES = re.compile(r"(?:.*\.tfrec(?:ords?)?(?:-[0-9]+-of-[0-9]+)?(?:\.gz)?|[^.]*-[0-9]+-of-[0-9]+)\Z")
_RESULTS = re.compile(r"cache-[0-9a-f]{16}(?:_[0-9]+_of_[0-9]+)?\.arrow\Z")
_WORDS = re.compile(r"[A-Za-z]+")


def plain_name(name: str) -> str:
    """Return a file's name without the suffix of a compression."""
    stem, dot, suffix = name.rpartition(".")
    return stem if dot + suffix.lower() in COMPRESSED else name


def is_table_name(name: str) -> bool:
    """Return whether a file of this name is a table."""
    return plain_name(name).lower().endswith(TABLE_SUFFIXES)


def has_columns(name: str, suffixes: tuple[str, ...]) -> bool:
    """
    Return whether a file of this name is a table with one of these suffixes.

    What Hugging Face ``datasets`` keeps of ``map`` and ``shuffle`` beside a dataset in its cache is none.
    """
    return plain_name(name).lower().endswith(suffixes) and not name.startswith(".") and not is_result(name)


def is_result(name: str) -> bool:
    """Return whether Hugging Face ``datasets`` keeps results under this name in its cache."""
    return _RESULTS.match(name) is not None


def is_record_name(name: str) -> bool:
    """Return whether a TFRecord file may have this name."""
    return _RECORD_NAMES.match(name) is not None and not name.startswith(".")


def text_kind(name: str) -> int:
    """Return 1 for a name that ends in .txt, 2 for .txt.gz and .txt.zst, 0 for others."""
    plain = plain_name(name)
    if not plain.lower().endswith(".txt") or plain.startswith("."):
        return 0
    return 1 if plain == name else 2


def is_pattern(path: str) -> bool:
    """Return whether a path is a pattern of names such as ``train-*.parquet``, and not a file's name itself."""
    return glob.has_magic(path) and not os.path.lexists(path)


def matching(path: str) -> list[str]:
    """Return the files that a pattern matches, sorted, or the one that a path names."""
    return sorted(glob.glob(path)) if is_pattern(path) else [path]  # noqa: PTH207 - a path with a pattern in it


def is_there(path: str) -> bool:
    """Return whether there is a file or folder at a path, or a file that it matches as a pattern."""
    return os.path.exists(path) or (is_pattern(path) and bool(matching(path)))  # noqa: PTH110 - also for what is no path


def folders_of_pattern(path: str) -> list[str]:
    """Return the folders whose files or folders a pattern is compared with: those that are there, outermost first."""
    folders: list[str] = []
    while glob.has_magic(path):
        path, name = os.path.split(path)
        if glob.has_magic(name):
            above = glob.glob(path or ".")  # noqa: PTH207 - a path with a pattern in it
            folders += sorted((each for each in above if os.path.isdir(each)), reverse=True)  # noqa: PTH112
    return folders[::-1]


def is_of_part(name: str, part: str) -> bool:
    """
    Return whether a file's name speaks of this split; of a file of ``datasets``' cache, of a split of any name.

    >>> is_of_part("imdb-unsupervised-00000-of-00002.arrow", "unsupervised"), is_of_part("test_01.parquet", "train")
    (True, False)
    """
    return (
        part_of(name) == part or re.fullmatch(rf".*-{re.escape(part)}(?:-[0-9]+-of-[0-9]+)?\.arrow", name) is not None
    )


def part_of(name: str) -> str:
    """
    Return the split that a file's name speaks of, "" if it speaks of none.

    >>> part_of("train-00000-of-00005.parquet"), part_of("test_01.parquet"), part_of("part-3.parquet")
    ('train', 'test', '')
    """
    match = NUMBERED.match(name)
    stem = str(match["part"]) if match else name.partition(".")[0]
    words: set[str] = {word for word in _WORDS.findall(stem) if word.lower() in SPLITS}
    if len(words) == 1:
        return words.pop()
    return stem if match else ""
