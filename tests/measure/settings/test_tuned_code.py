"""The lines that tune prints are run: on photos of mixed sizes, in stores, folders and functions of the user."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from fastio.cli import cli
from fastio.measure.loop.data import DataOptions
from fastio.measure.settings.points import GridData
from fastio.measure.settings.tune import candidates, loading_rate
from fastio.store.files.remote_options import RemoteOptions
from tests.servers.fixtures import Served

SCRIPT = """
from fastio import FastDataset
from fastio.measure.loop.folder import FolderDataset
from fastio.transforms import CenterCrop, Compose

def files():
    return FolderDataset({root!r} + "/photos", Compose([CenterCrop(16)]))

def packed():
    import numpy as np
    return FastDataset({root!r} + "/photos.lmdb", lambda image: np.asarray(image)[:16, :16].copy())
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos of mixed sizes, packed and not, and a script in another folder."""
    numbers = np.random.default_rng(0)
    for number in range(8):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = (40 + number, 60 - number, 3)
        Image.fromarray(numbers.integers(0, 256, size, np.uint8)).save(path)
    assert CliRunner().invoke(cli, ["pack", str(tmp_path / "photos"), str(tmp_path / "photos.lmdb")]).exit_code == 0
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "user_tuned.py").write_text(SCRIPT.format(root=str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "user_tuned", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        ("photos.lmdb", DataOptions(batch_size=4, crop=16), "CenterCrop"),
        ("photos.lmdb", DataOptions(batch_size=4, crop=16, augment=True, shuffle=True), "RandomResizedCrop"),
        ("photos", DataOptions(batch_size=4, crop=16), "CenterCrop"),
        ("photos", DataOptions(batch_size=4, crop=16, augment=True, shuffle=True), "RandomResizedCrop"),
        ("code/user_tuned.py:files", DataOptions(batch_size=4, shuffle=True), "sys.path.insert(0, 'code')"),
        ("code/user_tuned.py:packed", DataOptions(batch_size=4), "DataLoader(packed(), batch_size=4, num_workers=0)"),
    ],
)
def test_lines_to_paste_run(data: str, options: DataOptions, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name is there, and batches come that have the size that was asked for."""
    opened = GridData(data, options)
    point = candidates(opened)[0]
    rate = loading_rate(opened, point, seconds=0.0)
    code = opened.code(point)
    opened.close()
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not each.endswith("/code")])
    sys.modules.pop("user_tuned", None)
    names: dict[str, Any] = {}
    exec(code, names)
    images, labels = next(iter(names["loader"]))

    assert rate > 0
    assert expected in code
    assert (4, 16, 16) == (len(labels), *sorted(images.shape)[-2:])


def test_options_of_a_url(folder: Path, served: Served) -> None:
    """They are in the lines, which run; a secret is not."""
    shutil.copy(folder / "photos.lmdb", served.root)
    url = f"{served.url}/photos.lmdb"
    remote = RemoteOptions.of({"client_options": {"user_agent": "me"}}, cache_dir=folder / "cache", download_retry=7)
    code = _code(url, DataOptions(batch_size=4, crop=16, remote=remote))
    expected = (
        f"storage_options={{'client_options': {{'user_agent': 'me'}}}}, cache_dir={str(folder / 'cache')!r}, "
        "download_retry=7)"
    )
    assert f"loader = FastLoader(FastDataset({url!r}, {expected}, batch_size=4" in code
    names: dict[str, Any] = {}
    exec(code, names)
    with names["loader"] as loader:
        assert (4, 3, 16, 16) == next(iter(loader))[0].shape
    names["loader"].dataset.close()

    hidden = RemoteOptions.of({"client_options": {"default_headers": {"Authorization": "Bearer 123"}}})
    code = _code(url, DataOptions(batch_size=4, crop=16, remote=hidden))
    assert "storage_options={'client_options': {'default_headers': {'Authorization': '***'}}})" in code
    assert "'photos.lmdb', batch_size=4" in _code("photos.lmdb", DataOptions(batch_size=4, crop=16, remote=remote))


def _code(data: str, options: DataOptions) -> str:
    """The lines for the first candidate."""
    opened = GridData(data, options)
    point = candidates(opened)[0]
    opened.close()
    return opened.code(point)
