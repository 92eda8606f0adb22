"""Every peer has a file and an environment with pinned versions, and every file of a peer is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.peers.catalogue import FLOATS, KINDS, PHOTOS, TASKS, Entry
from benchmarks.peers.environments import HOME, REQUIREMENTS, process_environment
from benchmarks.peers.picture_sets import PICTURE_SETS
from benchmarks.peers.suite import Suite
from benchmarks.text.run import LOADERS as TEXT_LOADERS
from benchmarks.trainings.run import LOADERS

PEERS = REQUIREMENTS.parent
ENTRIES = [*PHOTOS, *FLOATS, *KINDS]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.name} {entry.packed_name}")
def test_every_peer_has_its_file_and_environment(entry: Entry) -> None:
    """The names in the catalogue exist."""
    assert (PEERS / f"{entry.module.replace('.', '/')}.py").exists()
    assert not entry.environment or (REQUIREMENTS / f"{entry.environment}.txt").exists()


def test_every_file_is_in_the_catalogue() -> None:
    """Neither peers nor requirements lie about unused."""
    modules = {entry.module for entry in ENTRIES}
    files = {f"photos.{path.stem}" for path in (PEERS / "photos").glob("[a-z]*.py")}

    assert modules == files
    environments = {entry.environment for entry in ENTRIES}
    for loaders in (LOADERS, TEXT_LOADERS):
        environments |= {environment for _, environment in loaders.values()}
    assert {path.stem for path in REQUIREMENTS.iterdir()} == environments - {""}


@pytest.mark.parametrize("entries", [PHOTOS, FLOATS, KINDS], ids=["photos", "floats", "kinds"])
def test_names_and_places_are_unique(entries: tuple[Entry, ...]) -> None:
    """Two peers share neither a row nor a packed form."""
    assert len(entries) == len({entry.name for entry in entries})
    assert len(entries) == len({entry.packed_name for entry in entries})


@pytest.mark.parametrize("path", sorted(REQUIREMENTS.iterdir()), ids=lambda path: path.stem)
def test_all_versions_are_pinned(path: Path) -> None:
    """One exact version a line; no place of somebody's machine."""
    for line in path.read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.+!]+|--no-binary [a-z-]+", line), line


def test_peers_write_into_folders_of_their_own() -> None:
    """Home, caches and temporary files: LitData deletes what it finds in the latter."""
    for name, value in process_environment("litdata").items():
        assert Path(value).is_relative_to(HOME / "homes" / "litdata"), name


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_pictures_in_whole_batches(name: str) -> None:
    """An even number of whole batches, so that two workers have the same to do."""
    task = TASKS[name]
    samples = PICTURE_SETS[task.pictures].samples

    assert 0 == samples % (2 * task.batch_size)


def test_a_suite_says_what_is_to_be_done(tmp_path: Path) -> None:
    """Two tasks on the same pictures share what was packed."""
    suite = Suite("jpeg", tmp_path, tmp_path, tmp_path, tmp_path)
    crops, floats = (suite.work(PHOTOS[0], TASKS[name], workers=2) for name in ("random_224", "floats_224"))

    assert (True, True) == (crops.is_random, floats.is_random)
    assert crops.packed == floats.packed
