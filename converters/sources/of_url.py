"""Sources whose table was brought here from a URL: they name it, and keep the copy as long as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fastio import _native
from fastio.converters.sources.documents import Documents, Limits, TextSource
from fastio.converters.sources.listed import Indices, ListedSource, Values
from fastio.converters.sources.source import PassedOn

if TYPE_CHECKING:
    from fastio.store.kinds.remote_copy import RemoteCopy

__all__ = ["TextOfUrl", "source_of_url"]


def source_of_url(source: ListedSource, copy: RemoteCopy) -> ListedSource:
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
class TextOfUrl(PassedOn):
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
