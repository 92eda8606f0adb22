"""Every version reads what each version before it wrote: keys, bytes, pixels, and the rest of an epoch begun then."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import fastio
from tests.compatibility.manifest import describe_store, go_on
from tests.compatibility.write_stores import FOLDER, write_version

MANIFESTS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
STORES = [(version, name) for version, manifest in MANIFESTS.items() for name in manifest["stores"]]
STATES = [
    (version, name, number)
    for version, manifest in MANIFESTS.items()
    for name, states in manifest.get("states", {}).items()
    for number in range(len(states))
]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The stores of each version, in a folder of their own."""
    folders = {version: tmp_path_factory.mktemp("stores") for version in MANIFESTS}
    for version, folder in folders.items():
        with tarfile.open(FOLDER / f"{version}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    return folders


@pytest.mark.parametrize(("version", "name"), STORES)
def test_a_store_is_read_as_by_the_version_that_wrote_it(unpacked: dict[str, Path], version: str, name: str) -> None:
    """Keys, schema, bytes, checksums and decoded samples are what they were."""
    assert MANIFESTS[version]["stores"][name] == describe_store(unpacked[version] / name)


@pytest.mark.parametrize(("version", "name", "number"), STATES)
def test_an_epoch_goes_on_where_an_older_version_stopped(
    unpacked: dict[str, Path], version: str, name: str, number: int
) -> None:
    """A state that an older version saved is continued with the batches that were to come."""
    saved: dict[str, Any] = MANIFESTS[version]["states"][name][number]

    assert saved["batches"] == go_on(unpacked[version] / name, saved["options"], saved["state"])


def test_the_next_release_can_write_its_stores(tmp_path: Path) -> None:
    """The commands that pack the sources still do, and no kind of store is left out."""
    written = write_version(tmp_path)

    assert list(MANIFESTS[fastio.__version__]["stores"]) == list(written["stores"])


def test_this_version_has_its_stores() -> None:
    """`python -m tests.compatibility.write_stores` was run for the version in pyproject.toml."""
    assert fastio.__version__ in MANIFESTS


@pytest.mark.parametrize("version", MANIFESTS)
def test_the_stores_stay_small(version: str) -> None:
    """A version adds less than 150 kB to every clone."""
    assert sum((FOLDER / f"{version}{suffix}").stat().st_size for suffix in (".tar.xz", ".json")) < 150_000
