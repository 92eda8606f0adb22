"""The commands on stores in an object store: the same output as of local files, and errors in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.cli.options import hidden_secrets
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from tests.commands import result_of, run
from tests.servers.fixtures import Bucket


@pytest.fixture
def options(bucket: Bucket) -> list[str]:
    """The credentials of the bucket on the command line."""
    return [word for name, value in bucket.options.items() for word in ("--storage-option", f"{name}={value}")]


@pytest.fixture
def url(bucket: Bucket, png_stores: dict[str, Path]) -> str:
    """A store of 50 PNGs in the bucket."""
    folder, _ = folder_of(f"{bucket.url}/a/", Remote(bucket.options))
    folder.put("png.tar", png_stores["tar"])
    return f"{bucket.url}/a/png.tar"


def test_looking_into_a_store(url: str, options: list[str], png_stores: dict[str, Path], tmp_path: Path) -> None:
    """info, ls, show, verify and unpack say of a URL what they say of the file."""
    local = png_stores["tar"]
    described = json.loads(run("info", url, *options, "--json"))
    expected = json.loads(run("info", local, "--json"))
    assert described.pop("path") == url
    assert described.pop("folders") == {url.rpartition("/")[0]: 1}
    assert expected.pop("folders") == {str(local.parent): 1}
    assert described.pop("epoch")["requests"] == 1
    expected.pop("path")
    expected.pop("epoch")
    described.pop("read_without_fastio")
    expected.pop("read_without_fastio")
    assert described == expected
    assert "1 request for" in run("info", url, *options)
    assert run("ls", local) == run("ls", url, *options)
    assert "all good" in run("verify", url, *options, "--decode")
    for path, extra, name in ((url, options, "a"), (local, [], "b")):
        run("unpack", path, tmp_path / name, *extra)
        run("show", path, *extra, "-o", tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
    names = sorted(path.relative_to(tmp_path / "b") for path in (tmp_path / "b").rglob("*.png"))
    assert len(names) == 50
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_measuring_a_store(url: str, options: list[str], tmp_path: Path) -> None:
    """bench io, bench decode and plan read it; a cache is kept where the option says."""
    kept = ["--cache-dir", tmp_path / "cache", "--cache-limit", "10MB"]
    report = json.loads(result_of("bench", "io", url, *options, *kept, "--epochs", 1, "--json").stdout)
    assert report["samples"] == 50
    assert json.loads(result_of("bench", "decode", url, *options, "--rounds", 1, "--count", 4, "--json").stdout)
    plan = json.loads(result_of("plan", url, *options, "--json").stdout)
    assert plan["samples"] == 50


def test_damage_is_found(bucket: Bucket, options: list[str], png_stores: dict[str, Path], tmp_path: Path) -> None:
    """verify compares every byte of the object, and its exit code says so."""
    damaged = bytearray(png_stores["tar"].read_bytes())
    damaged[len(damaged) // 3] ^= 1
    (tmp_path / "x.tar").write_bytes(damaged)
    folder, _ = folder_of(f"{bucket.url}/a/", Remote(bucket.options))
    folder.put("x.tar", tmp_path / "x.tar")
    assert "1 PROBLEM" in run("verify", f"{bucket.url}/a/x.tar", *options, code=1)


def test_errors_are_one_line(bucket: Bucket, url: str, options: list[str]) -> None:
    """A missing object, bucket or folder, wrong keys, and options that mean nothing, each by name."""
    wrong = ["secret_access_key=no" if word.startswith("secret_access_key=") else word for word in options]
    cases = [
        ((f"{bucket.url}/a/no.tar", *options), f"{bucket.url}/a/no.tar"),
        (("s3://no-such-bucket/x-%06d.tar", *options), "s3://no-such-bucket"),
        ((f"{bucket.url}/empty/", *options), f"{bucket.url}/empty/"),
        ((url, *wrong), url),
        ((url, "--storage-option", "endpoint"), "expected KEY=VALUE"),
        ((url, *options, "--cache-limit", "1GB"), "--cache-dir"),
    ]
    for arguments, name in cases:
        result = CliRunner().invoke(cli, ["info", *map(str, arguments)])
        assert result.exit_code in (1, 2), result.output
        lines = result.output.strip().splitlines()
        assert len(lines) == 1, result.output
        assert lines[0].startswith("error: ")
        assert name in lines[0]


def test_a_folder_that_is_not_there(bucket: Bucket, options: list[str]) -> None:
    """Nothing begins with its name: that is said, and no command is advised that would fail as well."""
    result = CliRunner().invoke(cli, ["info", f"{bucket.url}/empty/", *options])
    assert "holds nothing: check the name" in result.output
    assert "fastio pack" not in result.output


def test_packing_from_a_url(tmp_path: Path) -> None:
    """Of a folder, one line says how to get a copy that can be packed, before a request; nothing is written."""
    result = CliRunner().invoke(cli, ["pack", "s3://bucket/photos/", str(tmp_path / "x.lmdb")])
    assert result.exit_code == 1
    (line,) = result.output.strip().splitlines()
    assert "s3://bucket/photos/: is a URL" in line
    assert "fastio stage s3://bucket/photos/ DIR" in line
    assert not any(tmp_path.iterdir())


def test_packing_a_table_from_a_bucket(bucket: Bucket, options: list[str], tmp_path: Path) -> None:
    """The options of URLs are those of SRC and the label file, too; a set beside it is packed from it and resumed."""
    folder, _ = folder_of(f"{bucket.url}/in/", Remote(bucket.options))
    table = tmp_path / "a.jsonl"
    table.write_text("".join(f'{{"text": "line {i}", "label": "{i % 2}"}}\n' for i in range(100)))
    folder.put("a.jsonl", table)
    line = ["pack", f"{bucket.url}/in/a.jsonl", f"{bucket.url}/out/a-%06d.tar", *options, "--shard-size", "256B"]
    line += ["--label-column", "label"]

    said = run(*line)
    assert f"{bucket.url}/in/a.jsonl: a table, text in 'text', 100 samples" in said
    assert "packed 100 of 100 samples" in said
    assert "100 were there" in run(*line, "--resume")
    table.write_text(table.read_text().replace("line 7", "LINE 7"))
    folder.put("a.jsonl", table, replace=True)
    assert "Give the same source and options" in run(*line, "--resume", code=1)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["x.lmdb", "--storage-option", "endpoint=x"], r"is on this machine, .* \(storage_options\) have no use here"),
        (["x.lmdb", "--resume"], "is a single file, which is packed as a whole, so --resume has nothing to go by"),
        (["http://127.0.0.1:9/x-%06d.tar"], "a web server takes no files"),
        (["s3:/bucket/x-%06d.tar"], "a URL has two slashes: s3://bucket/x-%06d.tar"),
    ],
)
def test_what_cannot_be_packed_to(words: list[str], hint: str, tmp_path: Path) -> None:
    """Is said in one line, before the source is looked at."""
    result = CliRunner().invoke(cli, ["pack", str(tmp_path / "no-such-source"), *words])

    assert 0 != result.exit_code
    assert re.search(hint, result.output), result.output
    assert "no-such-source" not in result.output


def test_a_bucket_that_is_not_there(bucket: Bucket, options: list[str]) -> None:
    """Is named as such, also where one file was asked for."""
    for name in ("x.tar", "x-%06d.tar", "x/"):
        result = CliRunner().invoke(cli, ["info", f"s3://no-such-bucket/{name}", *options])
        assert "error: s3://no-such-bucket: no such bucket" in result.output


def test_secrets_stay_out_of_reports() -> None:
    """Values of options that are secret are hidden in a command line."""
    words = [
        "ls",
        "--storage-option",
        "secret_access_key=abc",
        "--storage-option=token=abc",
        "--storage-option",
        "region=eu",
    ]
    assert "abc" not in " ".join(hidden_secrets(words))
    assert "region=eu" in hidden_secrets(words)
