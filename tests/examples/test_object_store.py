"""The example of an object store packs into a bucket and trains from there, with a copy, with a cache, with neither."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fastio import Remote
from fastio.cli import cli
from fastio.store.staging import staged
from fastio.store.staging.staged import BackgroundStage
from tests.examples.class_photos import COUNT, write_class_photos
from tests.examples.running import commands, run_script
from tests.servers.fixtures import Bucket


def test_it_trains_from_a_bucket(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch has each sample once, with the same losses wherever the bytes come from; copy and cache are made."""
    monkeypatch.chdir(tmp_path)
    begin, copying = staged.background_stage, list[BackgroundStage]()

    def kept(path: str, folder: str, options: Remote) -> BackgroundStage:
        """Have the copy outlive its training, which may be over before it begins."""
        copying.append(begin(path, folder, options))
        return copying[-1]

    monkeypatch.setattr(staged, "background_stage", kept)
    for name, value in bucket.server.environment().items():
        monkeypatch.setenv(name, value)
    write_class_photos(tmp_path / "photos")
    (pack, *trainings) = commands("object_store.py")
    url = f"{bucket.url}/photos-%06d.tar"
    assert ["fastio", "pack", "photos/", "s3://bucket/photos-%06d.tar"] == pack[:4]
    cli(["pack", "photos/", url, *pack[4:]], standalone_mode=False)

    outputs = []
    for number, words in enumerate(trainings):
        torch.manual_seed(0)  # for the model
        own = [f"scratch-{number}" if word == "scratch" else word for word in words[3:]]
        outputs.append(run_script("object_store.py", url, *own, "--batch-size", "8"))

    assert 3 == len(outputs)
    assert [f"{COUNT} of {COUNT} samples once"] * 2 == re.findall(r"\d+ of \d+ samples once", outputs[0])
    assert outputs[0] == outputs[1] == outputs[2]
    assert [True] == [copy.wait(60) for copy in copying]
    assert any(Path("scratch-1").rglob("*.tar"))
    assert any(path.is_file() for path in Path("scratch-2").rglob("*"))
