"""The public face: what ``import fastio`` offers, and what it costs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import fastio

PUBLIC = {
    "ChunkCollate",
    "PackCollate",
    "PadCollate",
    "PreferenceCollate",
    "Ranks",
    "Receipt",
    "Remote",
    "DevicePrefetcher",
    "FastDataset",
    "FastLoader",
    "FieldCollate",
    "ClipSampler",
    "LengthBucketSampler",
    "LoaderStats",
    "PackSampler",
    "FastioError",
    "Mixture",
    "SampleError",
    "SchemaError",
    "ShapeBucketSampler",
    "SourceError",
    "StepTimer",
    "StoreCorrupt",
    "StoreError",
    "StoreIncomplete",
    "StoreNotFound",
    "TokenStream",
    "Unpacked",
    "Writer",
    "__version__",
    "add_field",
    "beside",
    "compute",
    "computed_source",
    "open_store",
    "pack",
}


def test_the_public_names() -> None:
    """Adding or removing a name is a decision, made here."""
    assert set(fastio.__all__) == PUBLIC
    assert set(dir(fastio)) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_there(name: str) -> None:
    """Each name can be had, and says where it comes from."""
    value = getattr(fastio, name)

    assert value == version("fastio") if name == "__version__" else value.__module__.startswith("fastio.")


def test_another_name_is_an_attribute_error() -> None:
    """A misspelt name is told what there is."""
    with pytest.raises(AttributeError, match="FastLoader"):
        _ = fastio.Fastloader


def test_source_that_is_not_built_says_so(tmp_path: Path) -> None:
    """Python in a clone takes its fastio/, which has no native part: one line says what to do."""
    shutil.copytree(Path(fastio.__file__).parent, tmp_path / "fastio", ignore=shutil.ignore_patterns("_native*.so"))
    command = [sys.executable, "-S", "-c", "import fastio"]

    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert 1 == ended.returncode
    assert f"ImportError: {tmp_path}/fastio is source code whose native part is not built" in ended.stderr
