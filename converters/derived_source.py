"""DerivedSource: what a source made of another one passes on from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastio.converters.source import Problem, Source

__all__ = ["DerivedSource"]


class DerivedSource:
    """Whatever of ``Source`` is that of ``source``; a subclass adds what it changes."""

    __slots__ = ()

    source: Source

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def kind(self) -> str:
        return self.source.kind

    @property
    def problems(self) -> Sequence[Problem]:
        return self.source.problems

    @property
    def left_out(self) -> Sequence[Problem]:
        return self.source.left_out

    @property
    def size_bytes(self) -> int:
        return self.source.size_bytes

    @property
    def disk_bytes(self) -> int:
        return self.source.disk_bytes

    @property
    def files_opened(self) -> int:
        return self.source.files_opened

    @property
    def is_stored(self) -> bool:
        return self.source.is_stored

    def files(self) -> Iterable[str]:
        return self.source.files()

    def __len__(self) -> int:
        return len(self.source)

    def chunks(self, max_bytes: int, max_samples: int) -> Sequence[range]:
        return self.source.chunks(max_bytes, max_samples)
