"""Commands that write files do not take a URL for a folder: a local one called ``s3:`` would be made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.store.files.remote_options import Remote
from tests.conftest import encode, pictures, write_store


@pytest.mark.parametrize("words", [["stage", "x.tar", "s3://bucket/st"], ["unpack", "x.tar", "s3://bucket/un"]])
def test_commands(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what is expected, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    write_store(tmp_path / "x.tar", [encode(pixels) for pixels in pictures(3)], np.zeros(3, np.int64))
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 1
    assert f"{words[-1]}: expected a folder of this machine, got a URL" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar"]


@pytest.mark.parametrize("name", ["cache_dir", "stage"])
def test_options(name: str) -> None:
    """So do the options of FastDataset."""
    with pytest.raises(ValueError, match=rf"{name}='s3://bucket/c': expected a folder of this machine"):
        Remote(**{name: "s3://bucket/c"})
