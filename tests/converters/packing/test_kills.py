"""Packers, parts and sealers that are killed, and disks that fill: what is there is whole, and the pack goes on."""

from __future__ import annotations

import re

import pytest

from fastio.converters import pack, seal
from fastio.errors import StoreError
from tests.converters.packing import kill_packing
from tests.converters.packing.sources import PATTERN, SHARD_BYTES, files, packed, source_in
from tests.store.faults import CALLS, fault, full


def test_kills(capsys):
    """A few of the kills that ``python -m tests.converters.packing.kill_packing --count 200`` makes."""
    kill_packing.main(["--count", "6", "--seed", "7"])

    assert re.search(r"\d+ kills, 0 wrong", capsys.readouterr().out)


@pytest.mark.parametrize("call", ["write", "fsync", "link"])
def test_a_disk_that_fills_keeps_what_was_finished(tmp_path, call):
    """Wherever it happens, there are whole shards or none, the error says so, and the pack goes on with room."""
    source = source_in(tmp_path)
    expected = files(packed(tmp_path, "whole", source))
    (tmp_path / "out").mkdir()
    with fault(0, full, calls=(call,)) as calls:
        pack(source, tmp_path / "out" / PATTERN, shard_bytes=SHARD_BYTES)
    for at in range(1, calls.made + 1, max(1, calls.made // 6)):
        for path in (tmp_path / "out").iterdir():
            path.unlink()
        with fault(at, full, calls=(call,), lasting=True), pytest.raises((StoreError, OSError)) as failed:
            pack(source, tmp_path / "out" / PATTERN, shard_bytes=SHARD_BYTES)
        left = files(tmp_path / "out")
        assert left.items() <= expected.items()
        if left and "out.fastio-set" not in left:
            assert any("go on with --resume" in note for note in failed.value.__notes__), (at, left.keys())
        pack(source, tmp_path / "out" / PATTERN, shard_bytes=SHARD_BYTES, resume=True)
        assert expected == files(tmp_path / "out")


def test_a_sealer_that_fails_leaves_the_shards(tmp_path):
    """Any call to the disk that fails while the set is sealed: no set, or the whole one; sealing again makes it."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    expected = files(folder)
    with fault(0, full) as calls:
        (folder / "out.fastio-set").unlink()
        seal(folder / PATTERN)
    for at in range(1, calls.made + 1):
        (folder / "out.fastio-set").unlink(missing_ok=True)
        try:
            with fault(at, full, calls=CALLS):
                seal(folder / PATTERN)
        except (StoreError, OSError):
            pass
        visible = {name: data for name, data in files(folder).items() if not name.startswith(".")}
        assert visible.items() <= expected.items()
        seal(folder / PATTERN)
        assert expected == {name: data for name, data in files(folder).items() if not name.startswith(".")}
