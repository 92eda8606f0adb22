"""Folders of fields: pictures and, by the same stem, their masks, texts or arrays in folders of their own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.headers import read_headers
from fastio.converters.fields.arrays import common_shape
from fastio.converters.fields.types import FieldChoice
from fastio.converters.fields.values import encode_values
from fastio.converters.sources.files import FileReader, paths_below
from fastio.converters.sources.listed import Indices, ListedSource, Values, names_at, read_together
from fastio.converters.sources.npy import parse_npy, read_numbers_header
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.tables.names import describe_names
from fastio.errors import SourceError
from fastio.store.kinds.scan import (
    IMAGES,
    Folder,
    Problem,
    SourcePath,
    Wanted,
    is_hidden,
    names_in,
    scan_root,
    scan_tree,
    shown,
)
from fastio.types.bfloat16 import dtype_name
from fastio.types.field_types import field_of
from fastio.types.picture_kinds import kind_by_name
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "FieldFiles",
    "fitted",
    "is_mask_name",
    "keeps_bytes",
    "open_pairs",
    "stem_of",
    "suggested_field",
]


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
            listed={path: stamp for each in self.folders for path, stamp in each.scan.listed.items()},
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


# The folders of files that ``--field NAME=FOLDER`` asks for: where they lie, and what is in them by stem.

_STEM = "{stem}"
_SYSTEM_FILES = frozenset([".ds_store", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"])
_FILES = {  # by trait of the field: the extension of its files, and what they are
    "is_text": (".txt", "a text file"),
    "is_json": (".json", "a JSON file"),
    "is_plain": (".npy", "a NumPy array"),
    "is_npy": (".npy", "a NumPy array"),
}


@dataclass(frozen=True, slots=True)
class FieldFolder:
    """
    The files of one field: those below ``path`` whose names are ``prefix``, a stem and ``suffix``.

    ``suffix`` is "" if any extension will do. ``scan`` holds the files; those of other names belong to nothing.
    """

    name: str
    path: str
    prefix: str = ""
    suffix: str = ""
    field: Field | None = None
    scan: Folder = dataclass_field(default_factory=Folder)

    @property
    def has_pattern(self) -> bool:
        """Whether names have more than a stem and an extension."""
        return bool(self.prefix or self.suffix)

    def stem_of(self, key: str) -> str | None:
        """Return the stem of a file below the folder, with the folders above it; None if it is not of this field."""
        if not self.has_pattern:
            return stem_of(key)
        above, slash, name = key.rpartition("/")
        long_enough = len(name) > len(self.prefix) + len(self.suffix)
        if not (long_enough and name.startswith(self.prefix) and name.endswith(self.suffix)):
            return None
        return above + slash + name[len(self.prefix) : len(name) - len(self.suffix)]


def stem_of(key: str) -> str:
    """
    Return a path without the extension of its file.

    >>> stem_of("town/a.b.png"), stem_of("v1.0/a")
    ('town/a.b', 'v1.0/a')
    """
    above, slash, name = key.rpartition("/")
    return above + slash + (name.rpartition(".")[0] or name)


_MOST_SEEN = 1000  # entries of a folder among which one of nearly the same name is looked for


def find_folder(choice: FieldChoice, bases: Sequence[str]) -> FieldFolder:
    """
    Return the folder that ``choice.where`` names in exactly one of the folders ``bases``.

    ``masks/`` stands for all files in it, ``masks/{stem}_mask.png`` for those of such names. Raises SourceError if
    there is no such folder, or if there are several.
    """
    folder, prefix, suffix = choice.where, "", ""
    if _STEM in choice.where:
        folder, _, pattern = choice.where.rpartition("/")
        prefix, found, suffix = pattern.partition(_STEM)
        if not found or _STEM in suffix:
            raise SourceError(f"--field {choice}: expected {_STEM} once, in the name of the files")
        bases = bases if folder else bases[:1]
    paths = [Path(base, folder) for base in bases]
    places = {os.path.realpath(path): str(path) for path in paths if path.is_dir()}
    if len(places) == 1:
        return FieldFolder(choice.name, next(iter(places)), prefix, suffix, choice.field)
    if places:
        both = " or ".join(repr(path) for path in places.values())
        raise SourceError(f"--field {choice}: could be {both}: write the whole path, or add --root DIR")
    tried: dict[str, str] = {}
    for base in bases:
        tried.setdefault(os.path.realpath(base), os.path.relpath(base) if base != "." else "the current folder")
    there = sorted({f"{name}/" for base in tried for name in names_in(base, _MOST_SEEN)[0] if not is_hidden(name)})
    near = get_close_matches(folder, there, n=1)
    hint = f": did you mean {near[0]!r}?" if near else "; expected NAME=FOLDER"
    raise SourceError(f"--field {choice}: there is no folder {folder!r} in {' or '.join(tried.values())}{hint}")


def scan_files(folder: FieldFolder, *, without: Sequence[str] = ()) -> FieldFolder:
    """
    Return the folder with its files, sorted by path, links followed; ``without`` are folders that are not looked into.

    Files that cannot be of the field are problems or left out by the rules of pictures, of text, ...
    """
    wanted = _wanted(folder)
    top = scan_root(folder.path, wanted)
    found = Folder(disk_bytes=0)
    found.add(top)
    for key in top.folders:
        if os.path.realpath(f"{folder.path}/{key}") not in without:
            found.add(scan_tree(folder.path, key, wanted))
    return replace(folder, scan=found)


def _wanted(folder: FieldFolder) -> Wanted:
    """The files of the field's type; without a type, those of pictures if there are any, otherwise all."""
    suffix = folder.suffix
    if folder.field is None and not suffix:
        return IMAGES if _has_pictures(folder.path) else _anything("", "a file of this field")
    if folder.field is None:
        return IMAGES if kind_by_name(suffix) else _anything(suffix, f"a {suffix} file")
    if folder.field.traits.is_picture:
        return IMAGES
    of_field = ("", f"a file of the field {folder.name!r}")
    extension, what = next((each for trait, each in _FILES.items() if getattr(folder.field.traits, trait)), of_field)
    return _anything(suffix or extension, what)


def _has_pictures(path: str) -> bool:
    """Whether one of the files below a folder is a picture by its name."""
    for _, folders, files in os.walk(path, followlinks=False):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        if any(map(kind_by_name, files)):
            return True
    return False


def _anything(suffix: str, what: str) -> Wanted:
    """Files whose names end so, but for those of the operating system."""

    def kind_of(name: str) -> int:
        is_ours = not name.startswith(".") and name.lower() not in _SYSTEM_FILES
        return int(is_ours and name.lower().endswith(suffix.lower()))

    def leaves_out(name: str) -> str:
        if name.lower() in _SYSTEM_FILES:
            return "is a file of the operating system"
        return "is a hidden file" if name.startswith(".") else ""

    return Wanted(kind_of, what, suffix or "any extension", leaves_out)


# FieldFiles: files that hold one field of the samples, such as masks; what type names and content suggest.

_MASK_NAMES = re.compile(r"mask|label|seg|annot|panoptic|ground_?truth|(?:\A|_)gts?(?:_|\Z)|trimap")
_BY_EXTENSION = {"txt": "text", "json": "json"}
_LOOKED_AT = 16  # arrays whose headers tell whether their shapes are equal


@dataclass(frozen=True, slots=True)
class FieldFiles:
    """The files of one field below ``root``, one per sample: their names, and their sizes ``(n,)`` in bytes."""

    field: Field
    root: str
    names_at: Callable[[Indices], list[str]]
    sizes: NDArray[np.int64]

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read some files; see ``ListedSource.read``. Content that does not fit the field is a problem."""
        reader = FileReader(self.field, self.root, self.names_at, self.sizes)
        return fitted(self.field, reader.begin(indices, pool))


def fitted(field: Field, wait: Callable[[], Values]) -> Callable[[], Values]:
    """Return how to wait for the contents of whole files, and make the values of ``field`` of them."""
    return wait if keeps_bytes(field) else lambda: _encoded(field, wait())


def keeps_bytes(field: Field) -> bool:
    """Return whether the content of a file is a value of the field as it is."""
    traits = field.traits
    return traits.is_picture or not (traits.is_plain or traits.is_npy or traits.is_json)


def is_mask_name(name: str) -> bool:
    """Whether a field of pictures is called as masks are: "mask", "labels", "seg"."""
    return _MASK_NAMES.search(name) is not None


def _encoded(field: Field, values: Values) -> Values:
    """The same values as the field keeps them: text and JSON checked, arrays without the header of their .npy file."""
    problems = dict(values.problems)
    contents: list[Any] = []
    for i, data in enumerate(values.spans[field.name].views()):
        content: Any = data.tobytes()
        if not (field.traits.is_text or field.traits.is_json) and i not in problems:
            try:
                content = parse_npy(content)
            except ValueError as exc:
                problems[i] = f"has a field {field.name!r} that is not a .npy file: {exc}"
        contents.append(content)
    encoded = encode_values(field, contents)
    problems = {**encoded.problems, **problems}
    if encoded.spans is None:
        assert encoded.column is not None
        return Values({}, problems, {field.name: encoded.column})
    return Values({field.name: encoded.spans}, problems)


def suggested_field(name: str, root: str, files: Sequence[str]) -> Field:
    """
    Return the field that files with these names seem to hold; the first of them are looked into.

    Pictures are masks if ``name`` says so ("mask", "labels", "seg"), with the bits and channels of the first;
    .txt is text, .json JSON, .npy an array, of any size where the first ones differ. All others are bytes. Raises
    SourceError for arrays that have no dtype or number of axes in common, and if pictures and other files are mixed.
    """
    extensions = {Path(file).suffix.lower().removeprefix(".") for file in files}
    are_pictures = {bool(kind_by_name(file)) for file in files}
    if are_pictures == {True}:
        if not is_mask_name(name):
            return field_of(name, "image")
        return field_of(name, _mask_type(root, files[0]))
    if extensions == {"npy"}:
        return _array_field(name, root, files[:_LOOKED_AT])
    if len(extensions) > 1:
        kinds = ", ".join(f".{each}" for each in sorted(extensions)[:5])
        raise SourceError(
            f"{root}: --field {name}: files of different kinds ({kinds}): name the type, as in --field {name}=...:bytes"
        )
    return field_of(name, _BY_EXTENSION.get(extensions.pop(), "bytes"))


def _mask_type(root: str, name: str) -> str:
    """The type of the first mask. One that cannot be read has any: packing it says why."""
    from fastio.codec.mask import with_mask_form  # imports Pillow

    try:
        data = np.fromfile(Path(root, name), np.uint8)
    except OSError:
        return "mask"
    spans = Spans.joined(data, np.array([len(data)]))
    headers = with_mask_form(read_headers(spans), spans)
    assert headers.bits is not None
    channels = int(headers.channels[0])
    if channels > 1:
        return f"mask[{channels}]"
    return "mask16" if headers.bits[0] > 8 else "mask"


def _array_field(name: str, root: str, files: Sequence[str]) -> Field:
    """An array of the sizes that all have, of any size where these differ."""
    shapes, dtypes = set[tuple[int, ...]](), set[str]()
    for each in files:
        try:
            with Path(root, each).open("rb") as file:
                shape, _, dtype = read_numbers_header(file)
        except (OSError, ValueError):
            continue  # a problem of that sample, when it is read
        shapes.add(shape)
        dtypes.add(dtype_name(dtype))
    if len(dtypes) != 1 or len({len(shape) for shape in shapes}) != 1:
        what = f"{len(dtypes)} dtypes and {len(shapes)} shapes" if shapes else "nothing that can be read"
        raise SourceError(
            f"{root}: --field {name}: the first arrays have {what}: name the type, as in {name}=...:float32[512]"
        )
    return field_of(name, (dtypes.pop(), common_shape(shapes)))
