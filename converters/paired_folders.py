"""Reads folders of fields: files of one stem are the fields of one sample."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastio.converters.field_files import FieldFiles, suggested_field
from fastio.converters.field_folders import FieldFolder, find_folder, scan_files, stem_of
from fastio.converters.fields_asked import FieldChoice
from fastio.converters.file_names import describe_names
from fastio.converters.files import paths_below
from fastio.converters.kind import SourceOptions, SourcePath, source_record
from fastio.converters.listed import ListedSource, names_at
from fastio.converters.parts import read_together
from fastio.converters.scan import shown
from fastio.converters.source import Problem
from fastio.errors import SourceError
from fastio.types.field_types import field_of
from fastio.types.schema import Schema

__all__ = ["open_pairs"]

_KIND = "pairs"  # of sources


def open_pairs(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a folder of pictures and one folder for each ``--field``, or a folder that holds all of them.

    Files belong together whose paths below their folders are the same but for the extension. A sample is named after
    its first file. If "image" is among the fields, ``path`` holds all folders, and its other content is left out;
    otherwise ``path`` is the folder of the pictures. A missing partner, a second file of one stem and a file without a
    sample are problems.
    """
    _check(place, options)
    bases = [place.path, str(Path(os.path.realpath(place.path)).parent), "."]
    if options.root is not None:
        bases = [options.root]
    folders = [find_folder(choice, bases) for choice in options.fields]
    here = os.path.realpath(place.path)
    others = [each.path for each in folders if each.path != here]
    if all(each.name != "image" for each in folders):
        folders.insert(0, FieldFolder("image", here))
    else:
        folders.sort(key=lambda each: each.name != "image")
    return _Pairs(place, here, _scanned(folders, others)).source()


def _check(place: SourcePath, options: SourceOptions) -> None:
    if not place.is_folder:
        raise SourceError(f"{place.path}: expected a folder, for fields that are folders beside it")
    if not options.fields:
        raise SourceError(f"{place.path}: name the folders of the other fields, as in --field mask=masks/")
    if options.columns.names_columns:
        raise SourceError(f"{place.path}: folders have no columns: drop the options that name some")
    names = [choice.name for choice in options.fields]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise SourceError(f"--field {twice}: comes twice")
    if "label" in names:
        raise SourceError(
            "--field label=...: 'label' is the number of a class; call a field of files mask, or otherwise"
        )


def _scanned(folders: Sequence[FieldFolder], others: Sequence[str]) -> list[FieldFolder]:
    """The folders with their files. Of those that share one, files of a pattern are not those of the field without."""
    scanned = [scan_files(each, without=others) for each in folders]
    for i, one in enumerate(scanned):
        sharing = [other for other in scanned if other is not one and other.path == one.path]
        if sharing:
            _keep_own(one, sharing, is_last=all(other in scanned[:i] for other in sharing))
    for each in folders:
        if sum(other.path == each.path and not other.has_pattern for other in folders) > 1:
            raise SourceError(f"--field {each.name}: another field has the same files: say which, as in {{stem}}.txt")
    return scanned


def _keep_own(folder: FieldFolder, sharing: Sequence[FieldFolder], *, is_last: bool) -> None:
    """Drop the files that other fields take from the same folder; what none of them takes stays in the last one."""
    patterns = [each for each in sharing if each.has_pattern]
    is_rest_taken = folder.has_pattern and (len(patterns) < len(sharing) or not is_last)

    def is_own(key: str) -> bool:
        if folder.has_pattern and folder.stem_of(key) is not None:
            return True
        return not is_rest_taken and all(each.stem_of(key) is None for each in patterns)

    scan = folder.scan
    scan.keep(list(map(is_own, scan.keys)))
    scan.problems = [each for each in scan.problems if is_own(each.key)]
    scan.left_out = [each for each in scan.left_out if is_own(each.key)]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The folders of all fields; the first one's files name the samples."""

    place: SourcePath
    here: str  # the source's path, links resolved
    folders: Sequence[FieldFolder]

    def source(self) -> ListedSource:
        """Return the samples, and a problem for everything that is not in one."""
        stems = [self._by_stem(each) for each in self.folders]
        problems = [each for _, more in stems for each in more]
        first, *further = self.folders
        (keys, _), *partners = stems
        unfit = [{stem_of(problem.key): problem for problem in each.scan.problems} for each in further]
        whole: list[str] = []
        for stem, key in keys.items():
            missing = [i for i, (names, _) in enumerate(partners) if stem not in names]
            if missing:
                sentence = self._missing(further[missing[0]], stem, unfit[missing[0]])
                problems.append(self._problem(first, key, sentence))
            else:
                whole.append(stem)
        problems += self._extra(further, [names for names, _ in partners], keys)
        if not whole:
            what = " and ".join(each.path for each in self.folders)
            raise SourceError(
                f"{self.place.path}: no sample has a file of the same stem in each of {what}; {_first_words(problems)}"
            )
        names = [[by_stem[stem] for stem in whole] for by_stem, _ in stems]
        return self._source(names, problems)

    def _source(self, names: Sequence[Sequence[str]], problems: Sequence[Problem]) -> ListedSource:
        prefixes = [self._prefix(each) for each in self.folders]
        keys = [prefixes[0] + name for name in names[0]]
        parts = [self._files(each, files) for each, files in zip(self.folders, names, strict=True)]
        described = {
            each.name: describe_names(keys, [prefix + name for name in files])
            for each, prefix, files in list(zip(self.folders, prefixes, names, strict=True))[1:]
        }
        choices = [
            str(FieldChoice(each.name, self._where(each), of.field))
            for each, of in zip(self.folders, parts, strict=True)
            if each.path != self.here or each.has_pattern
        ]
        record = source_record(_KIND, self.place.name, labels=None, fields=choices, root=".")
        return ListedSource(
            path=self.place.path,
            kind=_KIND,
            schema=Schema(tuple(each.field for each in parts)),
            metadata={"classes": None, "source": record, "files": described},
            keys_at=names_at(keys),
            sizes=np.sum([each.sizes for each in parts], axis=0, dtype=np.int64),
            read=read_together([each.begin for each in parts]),
            disk_bytes=sum(each.scan.disk_bytes for each in self.folders),
            files_opened=len(keys) * len(parts),
            problems=problems,
            left_out=self._left_out(),
            paths=lambda: (
                path for each, files in zip(self.folders, names, strict=True) for path in paths_below(each.path, files)
            ),
        )

    def _files(self, folder: FieldFolder, names: Sequence[str]) -> FieldFiles:
        """The files of one field, in the order of the samples."""
        size_of = dict(zip(folder.scan.keys, folder.scan.sizes, strict=True))
        field = folder.field or (
            field_of("image", "image") if folder.name == "image" else suggested_field(folder.name, folder.path, names)
        )
        sizes = np.fromiter(map(size_of.__getitem__, names), np.int64, len(names))
        return FieldFiles(field, folder.path, names_at(names), sizes)

    def _by_stem(self, folder: FieldFolder) -> tuple[dict[str, str], list[Problem]]:
        """The files of a folder by stem. Several with one stem are problems, since only one can be meant."""
        names: dict[str, str] = {}
        problems = [Problem(self._prefix(folder) + each.key, each.problem) for each in folder.scan.problems]
        twice: dict[str, str] = {}
        for name in folder.scan.keys:
            stem = folder.stem_of(name)
            if stem is None:
                words = f"is not called {folder.prefix}{{stem}}{folder.suffix}, as the field {folder.name!r} asks for"
                problems.append(self._problem(folder, name, words))
            elif names.setdefault(stem, name) != name:
                twice.setdefault(stem, names[stem])
                problems.append(self._problem(folder, name, f"has the same stem as {shown(names[stem])}: remove one"))
        for stem, name in twice.items():
            problems.append(self._problem(folder, name, "has the same stem as another file: remove one"))
            del names[stem]
        return names, problems

    def _missing(self, folder: FieldFolder, stem: str, unfit: Mapping[str, Problem]) -> str:
        """What to say of a sample without its file in a folder; ``unfit`` are files there that cannot be packed."""
        other = unfit.get(stem)
        if other is not None:
            return f"has no {folder.name}: {self._prefix(folder)}{other.key} {other.problem}"
        expected = shown(f"{self._prefix(folder)}{folder.prefix}{stem}{folder.suffix or '.*'}")
        return f"has no {folder.name}: expected {expected}"

    def _extra(
        self, folders: Sequence[FieldFolder], partners: Sequence[Mapping[str, str]], keys: Mapping[str, str]
    ) -> list[Problem]:
        """Files of further fields that belong to no sample."""
        what = f"has no {self.folders[0].name} of the same stem"
        return [
            self._problem(folder, name, what)
            for folder, names in zip(folders, partners, strict=True)
            for stem, name in names.items()
            if stem not in keys
        ]

    def _left_out(self) -> list[Problem]:
        """Junk in the folders, and what lies in the source but in none of them."""
        left_out = [
            Problem(self._prefix(each) + problem.key, problem.problem)
            for each in self.folders
            for problem in each.scan.left_out
        ]
        if any(each.path == self.here for each in self.folders):
            return left_out
        top, sentence = self.place.top, "is in none of the folders that are packed"
        names = [*map(shown, top.keys), *(each.key for each in (*top.problems, *top.left_out))]
        names += [
            f"{shown(name)}/"
            for name in top.folders
            if not any(_is_within(each.path, os.path.realpath(f"{self.here}/{name}")) for each in self.folders)
        ]
        return left_out + [Problem(name, sentence) for name in names]

    def _problem(self, folder: FieldFolder, name: str, sentence: str) -> Problem:
        return Problem(shown(self._prefix(folder) + name), sentence)

    def _prefix(self, folder: FieldFolder) -> str:
        """What stands before the names of a folder's files: its path in the source, or its name beside it."""
        if folder.path == self.here:
            return ""
        if _is_within(folder.path, self.here):
            return f"{os.path.relpath(folder.path, self.here)}/"
        return f"{Path(folder.path).name}/"

    def _where(self, folder: FieldFolder) -> str:
        """The folder from the source on, with the pattern of its files."""
        path = os.path.relpath(folder.path, self.here)
        return f"{path}/{folder.prefix}{{stem}}{folder.suffix}" if folder.has_pattern else path


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _first_words(problems: Sequence[Problem]) -> str:
    if not problems:
        return "they are empty"
    first = min(problems, key=lambda each: each.key)
    return f"{first.key} {first.problem}"
