"""``fastio stage``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.store import open_store
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from tests.servers.fixtures import Bucket
from tests.store.build import make_samples, write


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A store."""
    return write(tmp_path / "train.tar", make_samples(20))


def test_stage(source: str, tmp_path: Path) -> None:
    """A line says what was copied, what was compared, and what was trusted."""
    command = ["stage", source, str(tmp_path / "copy")]
    first, second, third = (CliRunner().invoke(cli, [*command, *more]) for more in ([], [], ["--check"]))
    copy = tmp_path / "copy" / "train.tar"

    assert (0, 0, 0) == (first.exit_code, second.exit_code, third.exit_code)
    assert f"{copy}: 1 file, " in first.output
    assert "every checksum compared" in first.output
    assert "was there already, and not compared again: --check does" in second.output
    assert "were there already, every checksum compared" in third.output
    with open_store(copy) as store:
        assert 20 == len(store)


def test_a_damaged_copy(source: str, tmp_path: Path) -> None:
    """``verify`` names the command that mends it, and that says what it has mended."""
    command = ["stage", source, str(tmp_path / "copy")]
    CliRunner().invoke(cli, command)
    copy = tmp_path / "copy" / "train.tar"
    content = bytearray(copy.read_bytes())
    content[5000] ^= 1
    copy.write_bytes(content)
    found = CliRunner().invoke(cli, ["verify", str(copy)])
    again = CliRunner().invoke(cli, command)
    mended = CliRunner().invoke(cli, ["stage", "--check", source, str(tmp_path / "copy")])

    assert f"{copy}: fastio stage --check {source} {tmp_path / 'copy'} mends this copy" in found.output
    assert "not compared again: --check does" in again.output
    assert "1 file had been damaged and was copied again" in mended.output
    assert 0 == CliRunner().invoke(cli, ["verify", str(copy)]).exit_code


def test_errors_are_one_line(source: str, tmp_path: Path) -> None:
    """A file in the way of the copy is named."""
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "train.tar").write_text("mine")
    result = CliRunner().invoke(cli, ["stage", source, str(tmp_path / "copy")])

    assert 1 == result.exit_code
    assert [f"error: {tmp_path}/copy/train.tar: exists, and is not a copy that fastio made of {source}"] == [
        line.partition(": choose")[0] for line in result.output.splitlines()
    ]


def test_a_mistyped_folder_is_not_made(source: str, tmp_path: Path) -> None:
    """Neither is the folder of a disk that is not mounted: the copy would fill another one."""
    result = CliRunner().invoke(cli, ["stage", source, str(tmp_path / "scrach" / "copy")])

    assert 1 == result.exit_code
    assert (
        f"error: {tmp_path}/scrach/copy: the folder {tmp_path}/scrach does not exist: check the name, mount its disk, "
        "or create it first\n"
    ) == result.output
    assert ["train.tar"] == [path.name for path in tmp_path.iterdir()]


def test_from_an_object_store(bucket: Bucket, source: str, tmp_path: Path) -> None:
    """With the options of its client."""
    folder, name = folder_of(f"{bucket.url}/train.tar", Remote(bucket.options))
    folder.put(name, Path(source), replace=False)
    options = [word for key, value in bucket.options.items() for word in ("--storage-option", f"{key}={value}")]
    result = CliRunner().invoke(cli, ["stage", f"{bucket.url}/train.tar", str(tmp_path / "copy"), *options])

    assert (0, "") == (result.exit_code, result.stderr)
    assert Path(source).read_bytes() == (tmp_path / "copy" / "train.tar").read_bytes()
