"""A store that is cut off is called so in the same words by info, verify and FastDataset."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fastio import FastDataset, StoreError
from fastio.cli import cli
from tests.conftest import SUFFIXES, encode, pictures, write_store


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("part", [0, 0.6, 0.999])
def test_a_cut_store_is_explained_alike(tmp_path: Path, suffix: str, part: float) -> None:
    """Whether all of it, a part or the last bytes are missing: one line says to copy it again."""
    path = write_store(tmp_path / f"a.{suffix}", [encode(pixels) for pixels in pictures(20)])
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    results = [CliRunner().invoke(cli, [command, str(path)]) for command in ("info", "verify")]

    assert results[0].stderr == results[1].stderr
    assert results[0].stderr.startswith(f"error: {path}: ")
    assert "copy" in results[0].stderr
    assert [1, 1] == [result.exit_code for result in results]
    with pytest.raises(StoreError) as caught:
        FastDataset(path)
    assert f"error: {caught.value}\n" == results[0].stderr
    size = path.stat().st_size
    expected = {
        "lmdb": f"is cut off at {size:,} of {len(content):,} bytes: copy it again",
        "zip": f"is cut off at {size:,} bytes, within the list of its members or before it: copy it again",
    }
    assert not part or expected.get(suffix, "") in str(caught.value)


def test_another_suffix_is_named_by_both(tmp_path: Path) -> None:
    """A whole store under another format's name is not called a source of another library."""
    path = write_store(tmp_path / "a.lmdb", [encode(pixels) for pixels in pictures(2)]).rename(tmp_path / "a.h5")
    results = [CliRunner().invoke(cli, [command, str(path)]) for command in ("info", "verify")]

    assert ["give it the right suffix\n"] * 2 == [result.stderr[-25:] for result in results]
