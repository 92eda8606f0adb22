"""What a URL given by a user means: a set object, one file, or shards named by a range of numbers or a listing."""

from __future__ import annotations

import fnmatch
import re

from fastio.errors import StoreError, StoreNotFound
from fastio.store import formats
from fastio.store.files.remote_options import RemoteOptions
from fastio.store.folders import folder_of
from fastio.store.format import Format
from fastio.store.set_names import SET_SUFFIX, set_path
from fastio.store.set_object import SetObject
from fastio.store.target import number_pattern, ranged

__all__ = ["check_named", "set_of_url", "shards_of_url"]

_WEB = ("http://", "https://")  # servers that cannot be asked for the names in a folder
_WILDCARD = re.compile(r"[*?\[]")
_WEB_WILDCARD = re.compile(r"[*\[]")  # "?" begins a query there


def set_of_url(url: str, options: RemoteOptions) -> str | None:
    """
    Return the set object that makes a store of what a URL names, or None if no set object is meant.

    That of a pattern need not exist. A folder is listed: its only set object is meant. Raises StoreError if there are
    several.
    """
    if url.endswith(SET_SUFFIX):
        return url
    if _is_pattern(url):
        return set_path(url)
    if formats.named(url) is not None:
        return None
    folder = url.rstrip("/")
    objects = [name for name in _names(folder, url, options) if name.endswith(SET_SUFFIX)]
    if len(objects) > 1:
        raise StoreError(f"{url}: holds {len(objects)} sets: name one of {', '.join(objects)}")
    return f"{folder}/{objects[0]}" if objects else None


def shards_of_url(url: str, options: RemoteOptions) -> tuple[Format, list[str]]:
    """
    Return the files that a URL names where no set object lists them, in the order of their names, and their format.

    Raises StoreNotFound if there are none; those of a range of numbers are not looked for.
    """
    form, shards = formats.named(url), ranged(url)
    if form is None:
        folder = url.rstrip("/")
        if _is_pattern(url):
            raise StoreError(f"{url}: expected a name that ends in one of {formats.suffixes()}")
        names = _names(folder, url, options)
        if not names:
            raise StoreNotFound(
                f"{url}: holds nothing: check the name; a store there is named by its file or its folder"
            )
        form = formats.of_names(url, names)
        return form, [f"{folder}/{name}" for name in names if form.is_name(name)]
    if shards is not None or not _is_pattern(url):
        return form, [url] if shards is None else shards
    folder, _, name = url.rpartition("/")
    if _WILDCARD.search(folder):
        raise StoreError(f"{url}: only the last part of a URL may hold a pattern: name the folder")
    pattern = number_pattern(name) or re.compile(fnmatch.translate(name))
    names = [each for each in _names(folder, url, options) if pattern.fullmatch(each)]
    if not names:
        raise StoreNotFound(f"{url}: no such shards: check the name, or pack the dataset first")
    return form, [f"{folder}/{each}" for each in names]


def check_named(url: str, set_object: SetObject) -> None:
    """
    Raise StoreError if the shards that a URL names are not those of the set object beside them: if they are of another
    format, or a range of numbers names others.
    """
    form, shards = formats.named(url), ranged(url)
    if form is not None and form.name != set_object.format:
        raise StoreError(f"{url}: {set_object.path} is a set of {set_object.format} shards: open it by that name")
    if shards is None:
        return
    names = {shard.rpartition("/")[2] for shard in shards}
    listed = {member.name.rpartition("/")[2] for member in set_object.members}
    if names != listed:
        raise StoreError(
            f"{url}: names {len(names)} shards, of which {len(names & listed)} are among the {len(listed)} of the set "
            f"{set_object.path}: open the set by that name"
        )


def _is_pattern(url: str) -> bool:
    """Whether a URL names shards by ``{000000..000009}``, ``%06d`` or wildcards."""
    wildcard = _WEB_WILDCARD if url.startswith(_WEB) else _WILDCARD
    has_number = number_pattern(url.rpartition("/")[2]) is not None
    return has_number or wildcard.search(url) is not None or ranged(url) is not None


def _names(folder: str, url: str, options: RemoteOptions) -> list[str]:
    """Return the names of the objects in the folder that this URL means, sorted."""
    if folder.startswith(_WEB):
        raise StoreError(
            f"{url}: a web server does not list its files: name the set object (name{SET_SUFFIX}), one file, or the "
            "shards by a range, name-{000000..000009}.tar"
        )
    return list(folder_of(f"{folder}/", options)[0].entries())
