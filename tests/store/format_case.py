"""FormatCase: what the conformance tests of a format share, and what a format may say otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastio.errors import StoreError
from fastio.store import FORMATS, format_of, open_store
from fastio.store.index.seal import SEAL_SIZE
from fastio.store.index.verify import verify_store
from fastio.types.spans import Spans
from tests.store.build import make_samples


class FormatCase:
    """One format, by its suffix."""

    suffix = ""

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        """Where a store of this format may be written."""
        return str(tmp_path / f"out{self.suffix}")

    @pytest.fixture
    def samples(self) -> dict[str, bytes]:
        """Sixty samples of awkward sizes."""
        return make_samples(60)

    @staticmethod
    def prepare() -> None:
        """Runs in each new process, for a format that only tests know."""

    def seal_start(self, data: bytes) -> int:
        """Where the seal of a file lies."""
        seal_at = FORMATS[format_of(f"x{self.suffix}")].seal_at
        return seal_at(len(data), lambda start, size: data[start : start + size])

    def regions(self, data: bytes) -> list[int]:
        """Places in each part of a file: every byte of the seal, the first and last bytes, and the format's own."""
        seal = self.seal_start(data)
        return [*range(seal, seal + SEAL_SIZE), *range(64), *range(len(data) - 64, len(data))]

    def padding(self, spans: Spans) -> int | None:
        """A byte between two samples that belongs to none; None where a format has no such byte."""
        end = int(spans.starts[0] + spans.sizes[0])
        return end if end < spans.starts[1] else None

    def seen(self, path: str) -> bool:
        """Whether opening or verifying notices damage."""
        try:
            with open_store(path) as store:
                return bool(verify_store(store))
        except StoreError:
            return True
