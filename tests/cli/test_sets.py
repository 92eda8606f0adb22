"""The commands that make and mend sets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastio.cli import cli
from tests.cli.test_json_form import check
from tests.conftest import encode, pictures, write_store
from tests.store.small_set import write_set


def test_merge(tmp_path: Path) -> None:
    """`merge` says what was merged, and that nothing was copied."""
    first, second = write_set(tmp_path / "a", ["a", "b"]), write_set(tmp_path / "b", ["c"])
    out = tmp_path / "all.fastio-set"
    result = CliRunner().invoke(cli, ["merge", first, second, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"{first}: 2 samples in 2 shards, 25.6 kB",
        f"{second}: 1 sample in 1 shard, 12.8 kB",
        f"{out}: 3 samples in 3 shards, 38.4 kB; nothing was copied",
    ]


def test_merge_json(tmp_path: Path) -> None:
    """The keys of the JSON are in the guide."""
    paths = [write_set(tmp_path / name, [name]) for name in "ab"]
    result = CliRunner().invoke(cli, ["merge", *paths, "--out", str(tmp_path / "all.fastio-set"), "--json"])
    report = json.loads(result.stdout)
    assert report["samples"] == 2
    check("fastio.merge/1", report)


def test_info_of_a_merged_set(tmp_path: Path) -> None:
    """It names the sets that were merged and the folders of their shards; a missing shard is named, too."""
    paths = [write_set(tmp_path / name, list(name)) for name in ("ab", "c")]
    out = tmp_path / "all.fastio-set"
    CliRunner().invoke(cli, ["merge", *paths, "--out", str(out)])
    lines = CliRunner().invoke(cli, ["info", str(out)]).stdout.splitlines()
    assert "merged from x.fastio-set (2 samples), x.fastio-set (1 sample)" in lines
    assert f"2 shards in {tmp_path}/ab, 1 shard in {tmp_path}/c" in lines
    (tmp_path / "c" / "x-000000.tar").unlink()
    result = CliRunner().invoke(cli, ["info", str(out)])
    assert result.exit_code == 1
    (line,) = result.output.strip().splitlines()
    assert "x-000000.tar: is missing; the set" in line


def test_merge_of_equal_keys(tmp_path: Path) -> None:
    """An error is one line."""
    first, second = write_set(tmp_path / "a", ["a"]), write_set(tmp_path / "b", ["a"])
    result = CliRunner().invoke(cli, ["merge", first, second, "--out", str(tmp_path / "all.fastio-set")])
    assert result.exit_code == 1
    assert "key 'a' is in " in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_repair(tmp_path: Path) -> None:
    """`repair` names each shard, what was wrong, and where its bytes are from; the exit code is 1 if one is left."""
    path = Path(write_set(tmp_path / "set", ["a", "b", "c"]))
    shutil.copytree(path.parent, tmp_path / "copy")
    (path.parent / "x-000001.tar").unlink()
    (tmp_path / "copy/x-000002.tar").unlink()
    result = CliRunner().invoke(cli, ["repair", str(path), "--against", str(tmp_path / "copy")])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"{path.parent}/x-000001.tar: missing: written again from {tmp_path}/copy/x-000001.tar",
        f"{path}: 2 of 3 shards were whole; 1 written again",
    ]
    (path.parent / "x-000002.tar").unlink()
    result = CliRunner().invoke(cli, ["repair", str(path), "--against", str(tmp_path / "copy"), "--json"])
    assert result.exit_code == 1
    check("fastio.repair/1", json.loads(result.stdout))
    assert json.loads(result.stdout)["left"][0]["problem"] == "missing"


def test_repair_against_a_wrong_place(tmp_path: Path) -> None:
    """Is refused before the set is read."""
    write_set(tmp_path / "set", ["a"])
    write_set(tmp_path / "other", ["b"])
    result = CliRunner().invoke(cli, ["repair", str(tmp_path / "set"), "--against", str(tmp_path / "other")])

    assert 1 == result.exit_code
    assert f"error: {tmp_path / 'other'}: holds no shard of {tmp_path / 'set'}" in result.output
    assert "checking" not in result.output


@pytest.mark.parametrize("command", ["info", "verify", "pack"])
def test_a_missing_shard_is_named(tmp_path: Path, command: str) -> None:
    """Of a set named by its set object, with the command that mends it; it is not taken for a source."""
    path = write_set(tmp_path / "a b", ["a", "b"])
    (tmp_path / "a b" / "x-000001.tar").unlink()
    out = [str(tmp_path / "out.lmdb")] if command == "pack" else []
    result = CliRunner().invoke(cli, [command, path, *out])

    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path}/a b/x-000001.tar: is missing; the set {path} lists it")
    assert result.stderr.endswith(f"fastio repair '{path}' --against SOURCE\n")


def test_a_set_object_is_a_source(tmp_path: Path) -> None:
    """A set named by its set object is packed again, and compared with."""
    first, path, out = (str(tmp_path / name) for name in ("a.lmdb", "a.fastio-set", "out.lmdb"))
    write_store(Path(first), [encode(pixels) for pixels in pictures(4)])
    shards = ["pack", first, str(tmp_path / "a-%06d.tar"), "--shard-size", "4096"]
    for arguments in (
        shards,
        ["pack", path, out],
        ["verify", out, "--against", path],
        ["verify", path, "--against", out],
    ):
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 0, result.output
