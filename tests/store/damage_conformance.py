"""What every format must do with damage: a store that is cut off, changed or of another format is refused by name."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete, StoreNotFound
from fastio.store import FORMATS, format_of, open_store
from fastio.store.index.seal import SEAL_SIZE
from fastio.store.index.verify import verify_store
from tests.store.build import write
from tests.store.format_case import FormatCase


class DamageConformance(FormatCase):
    """What StoreConformance inherits about damage."""

    def test_missing(self, path: str) -> None:
        """A missing store is StoreNotFound, and FileNotFoundError to those who know only that."""
        with pytest.raises(StoreNotFound, match="no such file"):
            open_store(path)

    @pytest.mark.parametrize("content", [b"", b"short", bytes(5000), random.Random(1).randbytes(10_000)])
    def test_not_sealed(self, path: str, content: bytes) -> None:
        """What is not sealed is refused by name."""
        Path(path).write_bytes(content)
        with pytest.raises(StoreError, match="out"):
            open_store(path)

    def test_newer_version(self, path: str) -> None:
        """A newer version of the format is refused as that."""
        write(path, {"a": b"1"})
        data = bytearray(Path(path).read_bytes())
        at = self.seal_start(bytes(data))
        body = bytearray(data[at : at + SEAL_SIZE - 4])
        struct.pack_into("<I", body, 8, 3)
        data[at : at + SEAL_SIZE] = body + struct.pack("<I", zlib.crc32(body))
        Path(path).write_bytes(data)
        with pytest.raises(StoreError, match=r"version 3.*upgrade fastio") as caught:
            open_store(path)
        assert not isinstance(caught.value, StoreIncomplete | StoreCorrupt)

    def test_other_format_under_this_suffix(self, path: str, tmp_path: Path) -> None:
        """A store under another format's suffix is refused, not misread."""
        for other in FORMATS.values():
            if other.name == format_of(path):
                continue
            written = write(tmp_path / f"other{other.suffixes[0]}", {"a": b"1"})
            Path(path).write_bytes(Path(written).read_bytes())
            with pytest.raises(StoreError, match="out"):
                open_store(path)

    def test_truncations(self, path: str, samples: dict[str, bytes]) -> None:
        """A store cut off anywhere is refused by name."""
        data = Path(write(path, samples)).read_bytes()
        rng = random.Random(2)
        for size in [*(rng.randrange(len(data)) for _ in range(100)), 0, 1, 128, len(data) - 1, len(data) - 1024]:
            Path(path).write_bytes(data[:size])
            with pytest.raises(StoreError, match="out"):
                open_store(path)

    def test_grown(self, path: str, samples: dict[str, bytes]) -> None:
        """A store with something behind its end is refused by name."""
        data = Path(write(path, samples)).read_bytes()
        for more in (b"\0", bytes(512), bytes(4096), data):
            Path(path).write_bytes(data + more)
            with pytest.raises(StoreError, match="out"):
                open_store(path)

    def test_every_flipped_bit_is_seen(self, path: str, samples: dict[str, bytes]) -> None:
        """Any single flipped bit, in whatever part of the file, is seen by opening or verifying."""
        data = bytearray(Path(write(path, samples)).read_bytes())
        rng = random.Random(3)
        places = [*(rng.randrange(len(data)) for _ in range(300)), *self.regions(bytes(data))]
        silent = []
        for place in places:
            bit = 1 << rng.randrange(8)
            data[place] ^= bit
            Path(path).write_bytes(data)
            if not self.seen(path):
                silent.append(place)
            data[place] ^= bit
        assert silent == []

    def test_damaged_sample_is_named(self, path: str, samples: dict[str, bytes]) -> None:
        """Verifying names key, field and bytes of a damaged sample, and of no other."""
        write(path, samples)
        with open_store(path) as store:
            spans = store.spans("image", np.array([12]))
            start, size, key = int(spans.starts[0]), int(spans.sizes[0]), store.keys([12])[0]
        _flip(path, start + size // 2)
        with open_store(path) as store:
            (damage,) = verify_store(store)
        found = (damage.shard, damage.key, damage.field, damage.start, damage.stop)
        assert found == (path, key, "image", start, start + size)
        assert repr(key) in str(damage)

    def test_damage_outside_of_samples(self, path: str) -> None:
        """Damaged padding is reported as such."""
        write(path, {"a": b"1" * 2500, "b": b"2" * 2500})
        with open_store(path) as store:
            place = self.padding(store.spans("image", np.array([0, 1])))
        if place is None:
            pytest.skip("this format has no padding between samples")
        _flip(path, place)
        with open_store(path) as store:
            (damage,) = verify_store(store)
        assert damage.key is None
        assert "padding or structure" in str(damage)


def _flip(path: str, place: int) -> None:
    with Path(path).open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
