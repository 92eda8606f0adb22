"""``open_source`` and ``open_text``: open what a path is, as ``recognise`` answers it, with the user's options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fastio import _native
from fastio.converters.fields.types import FieldChoice
from fastio.converters.labels.file import LABEL_SUFFIXES, LabelFile, LabelOptions
from fastio.converters.sources.documents import Documents, Limits, TextOptions, TextSource
from fastio.converters.sources.listed import Indices, ListedSource, Values
from fastio.converters.sources.options import IdOptions, SourceOptions
from fastio.converters.sources.source import PassedOn, Source
from fastio.errors import SourceError
from fastio.store.files.local import is_local, path_text
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.kinds.names import is_pattern
from fastio.store.kinds.recognise import Recognised, find_text, first_level, recognise
from fastio.store.kinds.registry import SOURCES, SourceKind
from fastio.store.kinds.scan import SourcePath, check_exists

if TYPE_CHECKING:
    from fastio.store.kinds.remote_copy import RemoteCopy

__all__ = ["open_source", "open_text"]


def open_source(  # noqa: PLR0913 - an option each
    path: str | os.PathLike[str] | Recognised,
    *,
    kind: str = "auto",
    labels: str | os.PathLike[str] | None = None,
    label_options: LabelOptions | None = None,
    split: str | None = None,
    fields: Sequence[FieldChoice] = (),
    root: str | os.PathLike[str] | None = None,
    as_recorded: bool = False,
    ids: IdOptions | None = None,
    chat: str | None = None,
    remote: Remote = DEFAULT,
) -> Source:
    """
    Open a dataset to be packed: only names and sizes are scanned.

    ``kind`` is a name in SOURCES, or "auto": decided by what is in ``path``, if only one kind fits. ``labels`` names
    a label file, for kinds that take one. ``split`` is a part of the dataset: one that its kind knows, or a folder in
    ``path``, which then is the source. ``fields``, ``root``, ``as_recorded``, ``ids`` and ``chat`` are described in
    ``SourceOptions``.
    ``path`` may be the URL of a single table, and ``labels`` that of a label file: they are read as ``remote`` says,
    from temporary copies. Raises SourceError if the source is not as expected, holds pictures that would not be packed,
    or could be meant in two ways; it says what was found and what to choose from. Raises StoreError if a URL cannot be
    read.
    """
    found = path
    if not isinstance(found, Recognised):
        has_labels = labels is not None
        found = recognise(
            found,
            kind=kind,
            split=split,
            has_fields=bool(fields),
            has_labels=has_labels,
            has_root=root is not None,
            with_text=False,
            remote=remote,
        )
    place, chosen = found.place, found.kind
    assert chosen.open is not None, "text is opened by open_text"
    label_path = None if labels is None else path_text(labels, "the path of a label file as labels=")
    if label_path is not None and chosen.own_labels:
        path = place.path if found.copy is None else found.copy.url
        raise SourceError(f"{path}: {chosen.own_labels}: drop --labels {label_path}")
    columns = label_options or LabelOptions()
    label_copy = None if label_path is None or is_local(label_path) else _brought(label_path, remote, LABEL_SUFFIXES)
    file = None
    if label_path is not None:
        file = LabelFile(label_path if label_copy is None else label_copy.path, columns)
    files_root = None if root is None else path_text(root, "the folder of the files as root=")
    if files_root is not None and not is_local(files_root):
        raise SourceError(f"{files_root}: expected a folder of this machine for --root, got a URL")
    if files_root is not None and found.copy is not None:
        files_root = os.path.abspath(files_root)  # noqa: PTH100 - nothing is relative to a temporary file
    options = SourceOptions(
        file,
        columns,
        tuple(fields),
        files_root,
        found.split,
        as_recorded=as_recorded,
        ids=ids or IdOptions(),
        chat=chat,
    )
    opener = chosen.open if found.is_named else chosen.open_detected or chosen.open
    with ExitStack() as named:
        for copy in (found.copy, label_copy):
            if copy is not None:
                named.enter_context(copy.named())
        _check_taken(place, chosen, options)
        source: Source = opener(place, options)
        if found.split is not None:
            assert isinstance(source, ListedSource)  # all that find their parts are
            record = {**source.metadata["source"], "part": found.split}
            source = replace(source, metadata={**source.metadata, "source": record})
        if found.copy is None:
            return source
        assert isinstance(source, ListedSource)  # all tables are
        return _source_of_url(source, found.copy)


def _brought(url: str, remote: Remote, suffixes: tuple[str, ...] = ()) -> RemoteCopy:
    from fastio.store.kinds.remote_copy import RemoteCopy

    return RemoteCopy(url, remote, suffixes)


def _check_taken(place: SourcePath, kind: SourceKind, options: SourceOptions) -> None:
    """SourceError for options that the kind would ignore."""
    without = options.columns.ignore_columns
    if without and not (options.labels or kind.takes_columns or kind.takes_without):
        raise SourceError(f"{place.path}: is {kind.what}, which has no columns: drop --without {without[0]}")
    if options.ids != IdOptions() and not kind.takes_ids:
        given = next(name for name in IdOptions.__slots__ if getattr(options.ids, name) is not None)
        raise SourceError(
            f"{place.path}: is {kind.what}: --{given.replace('eos', 'eos-id').replace('_', '-')} is for files of token "
            "ids: drop it, or add --source-kind tokens"
        )
    lists = [choice for choice in options.fields if choice.field is not None and choice.field.is_list]
    if lists and kind.takes_fields and not kind.takes_lists:
        others = ", ".join(each.name for each in SOURCES.values() if each.takes_lists)
        raise SourceError(
            f"{place.path}: is {kind.what}, which has no lists and no missing values: --field {lists[0]} is for "
            f"{others}"
        )
    if options.chat is not None and not (kind.takes_columns and kind.takes_lists):
        raise SourceError(f"{place.path}: is {kind.what}, which holds no chats: --chat {options.chat} is for tables")
    takers = {"fields": "takes_fields", "root": "takes_root"}
    for option, takes in takers.items():
        if getattr(options, option) and not getattr(kind, takes):
            others = ", ".join(each.name for each in SOURCES.values() if getattr(each, takes)) or "no kind"
            raise SourceError(
                f"{place.path}: is {kind.what}, which takes no --{option.removesuffix('s')}; it is for {others}: drop "
                "it, or name another --source-kind"
            )


def open_text(
    path: str | os.PathLike[str] | Recognised,
    *,
    kind: str = "auto",
    options: TextOptions | None = None,
    remote: Remote = DEFAULT,
) -> TextSource:
    """
    Open a source of text, ready to be packed: only names and sizes are read.

    ``auto`` goes by names. The URL of a single table or .txt is read from a temporary copy, as ``remote`` says. Raises
    SourceError if names do not tell, or if the source is not as expected; StoreError if a URL cannot be read.
    """
    copy = None
    if isinstance(path, Recognised):
        copy, path = path.copy, path.place.path
    path = os.fspath(path)
    if not is_local(path):
        copy = _brought(path, remote)
    if copy is not None:
        with copy.named():
            return _TextOfUrl(open_text(copy.path, kind=kind, options=options), copy)
    if not is_pattern(path):
        check_exists(path)
    texts = {each.name: each for each in SOURCES.values() if each.open_text is not None}
    if kind == "auto":
        found = find_text(path)
        if found is None:
            suffixes = ", ".join(suffix for each in texts.values() for suffix in each.suffixes)
            raise SourceError(f"{path}: not text by its name; expected {suffixes}, or a folder of .txt")
        kind = found
        if texts[kind].is_text_file is not None:  # its folders are classes
            from fastio.converters.sources.folders import refuse_splits

            refuse_splits(path, [name.rpartition("/")[2] for name in first_level(path)[1]], kind)
    if kind not in texts:
        raise SourceError(f"kind of text {kind!r}: expected one of auto, {', '.join(texts)}")
    opener = texts[kind].open_text
    assert opener is not None
    source: TextSource = opener(path, options or TextOptions())
    if options is None or options.chat is None:
        return source
    from fastio.converters.sources.text_chats import chats_of
    from fastio.converters.sources.text_table import TextTable

    assert isinstance(source, TextTable), "other kinds refuse the option"
    return chats_of(source)


# What was brought here from a URL: sources name it, and keep the copy as long as they are read.


def _source_of_url(source: ListedSource, copy: RemoteCopy) -> ListedSource:
    """Return the source that was opened from the copy of a table, as that of its URL."""
    files = [copy.url if path == copy.path else path for path in source.files()]

    def begin(indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        with copy.named():
            finish = source.read(indices, pool)

        def finished() -> Values:
            with copy.named():
                return finish()

        return finished

    return replace(source, path=copy.url, metadata=_recorded(source, copy), read=begin, paths=lambda: files)


def _recorded(source: ListedSource | TextSource, copy: RemoteCopy) -> dict[str, Any]:
    return {**source.metadata, "source": {**source.metadata["source"], **copy.record}}


@dataclass(frozen=True, slots=True)
class _TextOfUrl(PassedOn):
    """The documents of a table or text that was brought here. Satisfies ``TextSource``."""

    source: TextSource
    copy: RemoteCopy

    @property
    def path(self) -> str:
        """The URL."""
        return self.copy.url

    @property
    def is_ids(self) -> bool:
        """Whether the documents are token ids."""
        return self.source.is_ids

    @property
    def has_labels(self) -> bool:
        """Whether there is a column of labels."""
        return self.source.has_labels

    def file_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield the URL and the size of the object."""
        for path, size in self.source.file_sizes():
            yield (self.copy.url if path == self.copy.path else path), size

    @property
    def metadata(self) -> Mapping[str, Any]:
        """That of the source, with the URL and the version of the object."""
        return _recorded(self.source, self.copy)

    def read(self, limits: Limits, pool: _native.ThreadPool | None = None) -> Iterator[Documents]:
        """Yield all documents; see ``TextSource``."""
        with self.copy.named(), closing(self.source.read(limits, pool)) as documents:  # type: ignore[type-var]
            yield from documents
