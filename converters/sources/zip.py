"""Reads zip archives of others: pictures, class folders, or folders of pictures and their masks or texts."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastio import _native
from fastio.converters.fields.types import FieldChoice
from fastio.converters.sources.files import IMAGE_FIELD, LABEL_FIELD
from fastio.converters.sources.folders import refuse_fields, refuse_splits
from fastio.converters.sources.listed import Indices, ListedSource, Read, Values, names_at, read_together
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.pairs import fitted, is_mask_name, keeps_bytes, stem_of
from fastio.converters.sources.source import joined_checksums
from fastio.converters.sources.tables.names import describe_names
from fastio.converters.sources.zip_members import MemberReader, ZipMember, ZipMembers, inflated, open_members
from fastio.errors import SourceError
from fastio.store.kinds.scan import IMAGES, Problem, SourcePath, is_hidden, is_utf8, junk_reason, shown
from fastio.types.field_types import field_of
from fastio.types.picture_kinds import PNG_SIGNATURE, kind_by_name
from fastio.types.schema import Field, Schema

__all__ = [
    "open_zip",
]


_KIND = "zip"  # of sources
_OURS = "__fastio__/"
_ODD = re.compile(r"[\x00\\]|(?:^|/)\.\.(?:/|$)|^/|^[A-Za-z]:")
_STEM = "{stem}"
_DEPTH_AT = 24  # of a PNG: the bits of a sample


@dataclass(slots=True)
class _ZipTree:
    """The files of an archive by their paths, below the folder that all of them lie in."""

    path: str
    members: ZipMembers
    files: dict[str, ZipMember] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    left_out: list[Problem] = field(default_factory=list)

    @property
    def pictures(self) -> list[str]:
        """Paths that promise a picture, sorted."""
        return sorted(name for name in self.files if kind_by_name(name))

    def refuse(self, names: Iterable[str], sentence: str) -> None:
        """Make these files problems."""
        self.problems += [Problem(shown(name), sentence) for name in names]


def open_zip(place: SourcePath, options: SourceOptions, *, is_named: bool = True) -> ListedSource:
    """
    Open an archive as the folder that was zipped, without unzipping it.

    Pictures in folders have these as their classes; pictures beside each other have no labels. ``--field
    mask=masks/`` names a folder of the archive whose files belong to the pictures of the same stem, and ``--root`` the
    folder of the archive that is meant. Stored members are read where they lie; deflated ones are inflated a piece at
    a time, each into exactly the bytes that the directory promises. Unless the user named the kind (``is_named``),
    folders that are unlikely to be classes are refused.
    """
    if options.columns.names_columns:
        raise SourceError(f"{place.path}: an archive has no columns: drop the options that name some")
    tree = _tree(place.path, options.root)
    if options.fields:
        return _with_fields(place, tree, options)
    names = tree.pictures
    _refuse_others(tree, names)
    tops = {name.partition("/")[0] for name in names if "/" in name}
    if not tops:
        return _source(place, tree, names, None, options)
    if not is_named:
        refuse_splits(place.path, sorted(tops))
    tree.refuse([n for n in names if "/" not in n], "is beside the class folders, so it has no class: move it into one")
    names = [name for name in names if "/" in name]
    if not is_named:
        _refuse_fields(place.path, sorted(tops), names, tree.problems)
    return _source(place, tree, names, sorted(tops), options)


def _refuse_fields(path: str, tops: Sequence[str], names: Sequence[str], problems: Sequence[Problem]) -> None:
    """SourceError for folders that are parts of the samples rather than classes."""
    try:
        refuse_fields(path, tops, names, problems)
    except SourceError as exc:
        raise SourceError(
            f"{path}: {', '.join(tops[:5])}: hold files of the same names: parts of one sample, not classes? Pack them "
            "together, as in --field mask=masks/, or say --source-kind zip if they are classes"
        ) from exc


def _tree(path: str, root: str | None) -> _ZipTree:
    members = open_members(path)
    if any(member.name.startswith(_OURS) for member in members.files):
        raise SourceError(f"{path}: was packed by fastio, but is damaged: pack its source again")
    tree = _ZipTree(path, members)
    times = Counter(member.name for member in members.files)
    names = [member.name for member in members.files if not _ODD.search(member.name)]
    above = _above(path, names, root)
    for member in members.files:
        name = member.name
        key = name.removeprefix(above)
        if not name.startswith(above):
            tree.left_out.append(Problem(shown(name), f"is not in {above}"))
        elif (sentence := _problem(member, times[name])) != "":
            tree.problems.append(Problem(shown(key), sentence))
        elif any(map(is_hidden, key.split("/")[:-1])):
            sentence = f"is {IMAGES.what} in a hidden folder: move it into another one, or remove it"
            if kind_by_name(key) and not key.rpartition("/")[2].startswith("._"):
                tree.problems.append(Problem(shown(key), sentence))
            else:
                tree.left_out.append(Problem(shown(key), "is in a hidden folder"))
        else:
            tree.files[key] = member
    return tree


def _above(path: str, names: Sequence[str], root: str | None) -> str:
    """The folder that holds the dataset: the one asked for, or those that hold nothing but one folder."""
    if root is not None:
        above = os.path.normpath(root).removeprefix(os.path.normpath(path)).strip("/") + "/"
        if not any(name.startswith(above) for name in names):
            raise SourceError(f"{path}: --root {root}: the archive has no such folder")
        return above
    above = ""
    while True:
        below = {name[len(above) :].partition("/")[::2] for name in names if name.startswith(above)}
        tops = {top for top, rest in below if not is_hidden(top) and (rest or not junk_reason(top))}
        if len(tops) != 1 or not any(rest for top, rest in below if top in tops):
            return above
        above += tops.pop() + "/"


def _problem(member: ZipMember, times: int) -> str:
    """What is wrong with a file by its name and its entry; "" if nothing is."""
    if _ODD.search(member.name):
        return "has a name that is no path below a folder"
    if not is_utf8(member.name):
        return "has a name that is not UTF-8: rename it"
    if times > 1:
        return f"is {times} times in the archive"
    if member.is_link:
        return "is a link, expected a regular file"
    return member.problem or ("" if member.size else "is empty (0 bytes)")


def _refuse_others(tree: _ZipTree, names: Sequence[str]) -> None:
    """Files that are no pictures are junk, or problems."""
    for name in sorted(tree.files.keys() - set(names)):
        reason = junk_reason(name.rpartition("/")[2])
        if reason:
            tree.left_out.append(Problem(shown(name), reason))
        else:
            tree.problems.append(Problem(shown(name), f"is not {IMAGES.what} (expected {IMAGES.extensions})"))


def _source(
    place: SourcePath, tree: _ZipTree, names: Sequence[str], classes: Sequence[str] | None, options: SourceOptions
) -> ListedSource:
    fields, columns = [IMAGE_FIELD], {}
    if classes is not None:
        fields.append(LABEL_FIELD)
        number = {name: i for i, name in enumerate(classes)}
        columns["label"] = np.array([number[name.partition("/")[0]] for name in names], np.int64)
    reader = MemberReader.of("image", tree.members.file, tuple(tree.files[name] for name in names))
    metadata = {"classes": None if classes is None else list(map(shown, classes)), "source": _record(place, options)}
    return _listed(place, tree, names, fields, [reader], reader.begin, metadata, columns)


def _listed(
    place: SourcePath,
    tree: _ZipTree,
    names: Sequence[str],
    fields: Sequence[Field],
    readers: Sequence[MemberReader],
    read: Read,
    metadata: dict[str, Any],
    columns: dict[str, Any],
) -> ListedSource:
    return ListedSource(
        path=place.path,
        kind=_KIND,
        schema=Schema(tuple(fields)),
        metadata=metadata,
        keys_at=names_at(names),
        sizes=np.sum([reader.sizes for reader in readers], axis=0, dtype=np.int64),
        read=read,
        disk_bytes=Path(place.path).stat().st_blocks * 512,
        files_opened=1,
        columns=columns,
        problems=tree.problems,
        left_out=tree.left_out,
        checksums_at=lambda indices: joined_checksums([reader.checksums[indices] for reader in readers]),
    )


def _record(place: SourcePath, options: SourceOptions, choices: Sequence[str] = ()) -> dict[str, Any]:
    more: dict[str, Any] = {"fields": list(choices)} if choices else {}
    if options.root is not None:
        more["root"] = os.path.normpath(options.root).removeprefix(os.path.normpath(place.path)).strip("/")
    return source_record(_KIND, place.name, labels=None, **more)


# Fields in folders of their own


@dataclass(frozen=True, slots=True)
class _FieldNames:
    """The files of one field by stem."""

    choice: FieldChoice
    by_stem: dict[str, str]


def _with_fields(place: SourcePath, tree: _ZipTree, options: SourceOptions) -> ListedSource:
    names = [choice.name for choice in options.fields]
    if len(set(names)) < len(names) or "label" in names:
        raise SourceError(f"{place.path}: --field: expected different names other than label, got {', '.join(names)}")
    parts = [_part(tree, choice) for choice in options.fields]
    if "image" not in names:
        taken = {name for part in parts for name in part.by_stem.values()}
        parts.insert(0, _rest(tree, taken))
    parts.sort(key=lambda part: part.choice.name != "image")
    first, *further = parts
    whole = [stem for stem in first.by_stem if all(stem in part.by_stem for part in further)]
    for stem, name in first.by_stem.items():
        missing = next((part for part in further if stem not in part.by_stem), None)
        if missing is not None:
            tree.problems.append(Problem(shown(name), f"has no {missing.choice.name}: none has its stem {stem!r}"))
    for part in further:
        alone = [name for stem, name in part.by_stem.items() if stem not in first.by_stem]
        tree.refuse(alone, "has no image of the same stem")
    used = {name for part in parts for name in part.by_stem.values()}
    known = {problem.key for problem in tree.problems}
    for name in sorted(tree.files.keys() - used):
        if shown(name) not in known:
            tree.left_out.append(Problem(shown(name), "is in none of the folders asked for"))
    if not whole:
        raise SourceError(f"{place.path}: no picture has a file of the same stem in each of the folders asked for")
    return _paired(place, tree, parts, whole, options)


def _paired(
    place: SourcePath, tree: _ZipTree, parts: Sequence[_FieldNames], stems: Sequence[str], options: SourceOptions
) -> ListedSource:
    names = [[part.by_stem[stem] for stem in stems] for part in parts]
    fields = [_field(tree, part.choice, files) for part, files in zip(parts, names, strict=True)]
    readers = [
        MemberReader.of(of.name, tree.members.file, tuple(tree.files[name] for name in files))
        for of, files in zip(fields, names, strict=True)
    ]
    read = read_together([_FittedMembers(of, reader).begin for of, reader in zip(fields, readers, strict=True)])
    choices = [str(FieldChoice(p.choice.name, p.choice.where, of)) for p, of in zip(parts, fields, strict=True)]
    described = {
        part.choice.name: describe_names(names[0], files) for part, files in list(zip(parts, names, strict=True))[1:]
    }
    metadata = {"classes": None, "source": _record(place, options, choices), "files": described}
    return _listed(place, tree, names[0], fields, readers, read, metadata, {})


@dataclass(frozen=True, slots=True)
class _FittedMembers:
    """Members as the field keeps them: text and JSON checked, arrays without the header of their .npy file."""

    of: Field
    reader: MemberReader

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read some members; see ``ListedSource.read``."""
        return fitted(self.of, self.reader.begin(indices, pool))

    def places(self, indices: Indices, *, check: bool) -> Values:
        """Say where members lie that are values as they are; see ``Placer``."""
        if keeps_bytes(self.of):
            return self.reader.places(indices, check=check)
        return self.begin(indices, None)()


def _part(tree: _ZipTree, choice: FieldChoice) -> _FieldNames:
    """The files that ``masks/`` or ``masks/{stem}_mask.png`` stands for; several of one stem are problems."""
    folder, _, pattern = choice.where.rpartition("/") if _STEM in choice.where else (choice.where.strip("/"), "", "")
    above = f"{folder}/" if folder and folder != "." else ""
    by_stem: dict[str, str] = {}
    before, _, after = pattern.partition(_STEM)
    for name in sorted(tree.files):
        last = name.rpartition("/")[2]
        if not name.startswith(above) or (not pattern and junk_reason(last) and not _is_value(last)):
            continue
        stem = stem_of(name[len(above) :])
        if pattern:
            if not (last.startswith(before) and last.endswith(after) and len(last) > len(before) + len(after)):
                continue
            stem = name[len(above) :].removesuffix(last) + last[len(before) : len(last) - len(after)]
        if stem in by_stem:
            tree.refuse([name], f"has the same stem as {shown(by_stem[stem])}: remove one")
        else:
            by_stem[stem] = name
    if not by_stem:
        raise SourceError(f"{tree.path}: --field {choice}: the archive has no such file")
    return _FieldNames(choice, by_stem)


def _is_value(name: str) -> bool:
    return name.endswith(".txt") and not name.startswith(".")


def _rest(tree: _ZipTree, taken: set[str]) -> _FieldNames:
    """The pictures that no field asked for, which lie in one folder."""
    names = [name for name in tree.pictures if name not in taken]
    tops = sorted({name.partition("/")[0] if "/" in name else "" for name in names})
    if len(tops) != 1:
        where = ", ".join(top or "." for top in tops) or "none"
        raise SourceError(f"{tree.path}: which pictures are meant? ({where}): name them, as in --field image=images/")
    return _part(tree, FieldChoice("image", f"{tops[0] or '.'}/"))


def _field(tree: _ZipTree, choice: FieldChoice, names: Sequence[str]) -> Field:
    """The field asked for, or the one that the extensions suggest."""
    if choice.field is not None:
        return choice.field
    if choice.name == "image":
        return IMAGE_FIELD
    extensions = {Path(name).suffix.lower() for name in names}
    if all(kind_by_name(name) for name in names):
        if not is_mask_name(choice.name):
            return field_of(choice.name, "image")
        head = b"".join(inflated(tree.members.file, tree.files[names[0]]))[: _DEPTH_AT + 1]
        is_deep = head.startswith(PNG_SIGNATURE) and head[_DEPTH_AT:] == b"\x10"
        return field_of(choice.name, "mask16" if is_deep else "mask")
    types = {".txt": "text", ".json": "json"}
    if len(extensions) == 1 and extensions <= types.keys():
        return field_of(choice.name, types[extensions.pop()])
    kinds = ", ".join(sorted(extensions))
    raise SourceError(f"{tree.path}: --field {choice}: is {kinds}: name the type, as in {choice}:float32[512]")
