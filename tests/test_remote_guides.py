"""The guides of URLs and of copies run as they stand, against an object store that the environment names."""

from __future__ import annotations

import io
import re
import shlex
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.types.schema import COLUMN, IMAGE, Field, Schema
from tests.conftest import as_spans, encode, pictures
from tests.converters.sources.shard_files import KINDS as SHARDS
from tests.converters.sources.tfrecord.records import example, write_records
from tests.servers.fixtures import Bucket
from tests.test_guide_examples import GUIDE, examples

COUNT = 40


@pytest.fixture
def run(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make what a guide speaks of what is here: the bucket, and folders."""
    values = [encode(pixels) for pixels in pictures(COUNT)]
    schema = Schema((Field("image", IMAGE, "|u1", (None, None, None)), Field("label", COLUMN, "<i8", ())))
    batch = SampleBatch(
        [f"{number}.png" for number in range(COUNT)], {"image": as_spans(values)}, {"label": np.arange(COUNT)}, {}
    )
    (tmp_path / "made").mkdir()
    for name in ("train-%06d.tar", "train.lmdb"):
        shard_bytes = 1000 if "%" in name else None
        with create_store(tmp_path / "made" / name, schema, shard_bytes=shard_bytes) as writer:
            writer.append(batch)
    for prefix in ("", "train/"):
        folder, _ = folder_of(f"{bucket.url}/{prefix}", Remote(bucket.options))
        for path in [*(tmp_path / "made").iterdir()]:
            if not prefix or path.suffix != ".lmdb":
                folder.put(path.name, path)
    mds, chunks = (SHARDS[kind](tmp_path / "made" / kind, values) for kind in ("mds", "litdata"))
    records = [example({"image": value, "label": 1}) for value in values]
    write_records(tmp_path / "made" / "train-0.tfrecord", records)
    for prefix, files in {"mds/": mds, "mds/train/": mds, "chunks/": chunks, "": tmp_path / "made"}.items():
        folder, _ = folder_of(f"{bucket.url}/{prefix}", Remote(bucket.options))
        for path in files.glob("*.tfrecord" if not prefix else "*"):
            folder.put(path.name, path)
    last = sorted(path.name for path in (tmp_path / "made").glob("*.tar"))[-1]
    for name, value in bucket.server.environment().items():
        monkeypatch.setenv(name, value)
    for name in ("SCRATCH", "HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.lmdb").symlink_to(tmp_path / "made" / "train.lmdb")

    def adapted(text: str) -> str:
        text = text.replace("s3://bucket", bucket.url).replace("/scratch/", f"{tmp_path}/scratch/")
        return text.replace("000099}", last.removeprefix("train-").removesuffix(".tar") + "}")

    return adapted


def test_the_urls_open(run: Any) -> None:
    """Every URL of the table is a store."""
    table = (GUIDE / "remote.md").read_text().partition("## Options")[0]
    urls = re.findall(r"`(s3://[^`]+)`", table)

    assert 6 <= len(urls)
    for url in urls:
        with open_store(run(url)) as store:
            assert COUNT == len(store), url


def test_the_examples_of_remote_stores_run(run: Any, bucket: Bucket, tmp_path: Path) -> None:
    """Loaders over URLs; ``fastio info`` says what an epoch takes, and shards of other tools get an index."""
    names: dict[str, Any] = {}
    for code in examples("remote.md"):
        if "./index" in code:
            folder, _ = folder_of(f"{bucket.url}/", Remote(bucket.options))
            for number in range(10):
                shard = tmp_path / f"x-{number:06d}.tar"
                _write_foreign(shard, number)
                folder.put(shard.name, shard)
            command = re.search(r"^    (fastio index .*)$", (GUIDE / "remote.md").read_text(), re.MULTILINE)
            assert command is not None
            result = CliRunner().invoke(cli, shlex.split(run(command[1]))[1:])
            assert result.exit_code == 0, result.output
        exec(compile(run(code), "remote.md", "exec"), names)
    result = CliRunner().invoke(cli, ["info", run("s3://bucket/train.fastio-set")])

    assert 10 == len(names["dataset"])
    assert (8, 3, 8, 8) == tuple(names["images"].shape)
    assert "are in memory (one rank, shuffle=True" in result.output


def _write_foreign(path: Path, number: int) -> None:
    """A shard of one sample as webdataset writes it."""
    with tarfile.open(path, "w") as archive:
        for extension, value in {"png": encode(pictures(1)[0]), "cls": b"1"}.items():
            member = tarfile.TarInfo(f"{number:04d}.{extension}")
            member.size = len(value)
            archive.addfile(member, io.BytesIO(value))


def test_the_staging_examples_run(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copy has the samples of the store; the command copies, too."""
    monkeypatch.setattr("builtins.print", lambda *_: None)
    names: dict[str, Any] = {}
    for code in examples("staging.md"):
        exec(compile(run(code), "staging.md", "exec"), names)
        assert COUNT == len(names["dataset"])
        assert COUNT == len(names["dataset"].__getitems__(range(COUNT)))
    command = re.search(r"^    \$ (fastio stage s3.*)$", (GUIDE / "staging.md").read_text(), re.MULTILINE)
    assert command is not None
    result = CliRunner().invoke(cli, shlex.split(run(command[1]).replace("$TMPDIR", str(tmp_path / "copied")))[1:])

    assert 0 == result.exit_code, result.output
    assert (tmp_path / "SCRATCH/stage/train.fastio-set").exists()
    assert (tmp_path / "copied/train.fastio-set").exists()
    assert any((tmp_path / "HOME/.cache/fastio").iterdir())
    assert names["report"].fetched_bytes == Path("copy/train.lmdb").stat().st_size
