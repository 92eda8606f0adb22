"""Every peer has a file and an environment with pinned versions, and every file of a peer is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.peers.catalogue import PHOTOS, TEXT, Entry
from benchmarks.peers.environments import HOME, REQUIREMENTS, process_environment
from benchmarks.peers.suite import Suite

PEERS = REQUIREMENTS.parent


@pytest.mark.parametrize("entry", [*PHOTOS, *TEXT], ids=lambda entry: f"{entry.module}-{entry.variant}")
def test_every_peer_has_its_file_and_environment(entry: Entry) -> None:
    """The names in the catalogue exist."""
    assert (PEERS / f"{entry.module.replace('.', '/')}.py").exists()
    assert not entry.environment or (REQUIREMENTS / f"{entry.environment}.txt").exists()


def test_every_file_is_in_the_catalogue() -> None:
    """Neither peers nor requirements lie about unused."""
    modules = {entry.module for entry in (*PHOTOS, *TEXT)}
    files = {
        f"{path.parent.name}.{path.stem}" for name in ("photos", "text") for path in (PEERS / name).glob("[a-z]*.py")
    }

    assert modules == files
    assert {path.stem for path in REQUIREMENTS.iterdir()} == {e.environment for e in (*PHOTOS, *TEXT)} - {""}


@pytest.mark.parametrize("entries", [PHOTOS, TEXT])
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


def test_a_suite_is_cut_by_task_and_name(tmp_path: Path) -> None:
    """``only`` looks for a part of the name in any case."""
    suite = Suite(("a", "b"), PHOTOS, tmp_path, tmp_path, tmp_path, tmp_path, 8)

    assert (("b",), 3) == (suite.part("b", "ffcv").tasks, len(suite.part("b", "ffcv").entries))
    assert ("a", "b") == suite.part("all", "").tasks
