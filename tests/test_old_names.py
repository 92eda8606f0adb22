"""Names and options of 0.1 that still work for one release: each warns once, and says what to write instead."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastio
from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler, Ranks, Remote
from fastio.converters import SOURCES, SourceKind, text
from fastio.converters.text import Encoder, Sequences, open_text, pack_text
from fastio.converters.text.encode import TextTokens
from fastio.store.files import remote_options
from fastio.transforms import NormalizeLayer
from tests.conftest import encode, pictures, write_store

LENGTHS = np.arange(1, 9)
ROOT = {
    "MockLoader": "fastio.measure",
    "MockTrainer": "fastio.measure",
    "StepShares": "fastio.measure",
    "create_store": "fastio.store",
    "verdict": "fastio.measure",
}
REMOTE: dict[str, Any] = {
    "storage_options": {"region": "eu"},
    "cache_dir": "cache",
    "cache_limit": "1GB",
    "download_retry": 1,
    "download_timeout": 2.0,
    "stage": "stage",
    "stage_wait": True,
}
RANKS: dict[str, Any] = {"mesh": None, "replication": 1}
OWNERS: dict[str, Callable[..., Any]] = {
    "FastLoader": lambda path, **options: FastLoader(path, 2, **options),
    "LengthBucketSampler": lambda _, **options: LengthBucketSampler(LENGTHS, batch_size=2, **options),
    "PackSampler": lambda _, **options: PackSampler(LENGTHS, max_tokens=16, **options),
    "FastDataset.iterable": lambda path, **options: FastDataset(path).iterable(**options),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four pictures."""
    path = tmp_path_factory.mktemp("old") / "a.lmdb"
    return write_store(path, list(map(encode, pictures(4, (8, 8, 3)))), np.array([0, 0, 1, 1]))


@pytest.mark.parametrize("name", ROOT)
def test_names_of_the_root(name: str) -> None:
    """They are those of the package that has them now."""
    with pytest.warns(DeprecationWarning, match=f"^fastio.{name}: write from {ROOT[name]} import {name} instead$"):
        value = getattr(fastio, name)

    assert value.__module__.startswith(f"{ROOT[name]}.")
    assert name not in fastio.__all__


def test_the_class_of_remote() -> None:
    """``open_store(url, remote=RemoteOptions.of(...))`` was the way to open a store behind a URL."""
    with pytest.warns(DeprecationWarning, match=r"\.RemoteOptions: write fastio.Remote instead$"):
        older = remote_options.RemoteOptions

    assert Remote(cache_dir="cache") == older.of(cache_dir="cache")
    assert isinstance(older(download_retry=1), Remote)


def test_the_groups_have_all_old_options() -> None:
    """The lists above are complete."""
    assert {"epoch_retry", *REMOTE} == inspect.signature(Remote).parameters.keys()
    assert {"rank", "world_size", *RANKS} == inspect.signature(Ranks).parameters.keys()


@pytest.mark.parametrize("name", REMOTE)
def test_options_of_remote(store: Path, name: str) -> None:
    """Those of FastDataset."""
    options = {name: REMOTE[name]}
    others = {"cache_limit": {"cache_dir": "cache"}, "stage_wait": {"stage": "stage"}}.get(name, {})
    listed = ", ".join(f"{option}=..." for option in {**options, **others})
    match = rf"^FastDataset\({listed}\): write FastDataset\(remote=Remote\({listed}\)\) instead$"
    if "stage" in listed:
        with pytest.warns(DeprecationWarning, match=match), pytest.raises(TypeError, match="path of a store"):
            FastDataset(3, **options, **others)  # type: ignore[arg-type] # nothing is copied
        return
    with pytest.warns(DeprecationWarning, match=match) as warned, FastDataset(store, **options, **others) as dataset:
        assert 4 == len(dataset)
    assert __file__ == warned[0].filename


@pytest.mark.parametrize("name", RANKS)
@pytest.mark.parametrize("owner", OWNERS)
def test_options_of_ranks(store: Path, owner: str, name: str) -> None:
    """Those of everything that divides samples; ``rank`` and ``world_size`` stay."""
    match = rf"^{owner}\({name}=...\): write {owner}\(ranks=Ranks\({name}=...\)\) instead$"
    with pytest.warns(DeprecationWarning, match=match):
        OWNERS[owner](store, rank=0, world_size=1, **{name: RANKS[name]})


def test_a_group_beside_its_old_options(store: Path) -> None:
    """One of them is too much."""
    with pytest.raises(TypeError, match=r"^FastDataset: cache_dir: remote= has that too: write remote=Remote"):
        FastDataset(store, remote=Remote(), cache_dir="cache")  # type: ignore[call-arg] # what is tested


def test_ranks_beside_ranks(store: Path) -> None:
    """Plain numbers go with a replication, not with other numbers."""
    with FastLoader(store, 2, rank=1, world_size=4, ranks=Ranks(replication=2)) as loader:
        assert (0, 2) == (loader.rank, loader.world_size)
    with pytest.raises(ValueError, match=r"^rank=0, world_size=1: ranks= says that too: drop it here$"):
        FastLoader(store, 2, rank=0, world_size=1, ranks=Ranks(0, 1))
    with pytest.raises(TypeError, match=r"^ranks=\(0, 1\): expected fastio.Ranks, such as"):
        FastLoader(store, 2, ranks=(0, 1))  # type: ignore[arg-type] # what is tested
    with pytest.raises(TypeError, match=r"^remote={}: expected fastio.Remote, such as"):
        FastDataset(store, remote={})  # type: ignore[arg-type] # what is tested


def test_the_packer_of_text(tmp_path: Path) -> None:
    """``pack_text`` packs as ``pack`` does."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with pytest.warns(DeprecationWarning, match=r"pack_text is now fastio\.converters\.pack\(TextSamples"):
        report = pack_text(open_text(tmp_path / "a.txt"), Encoder(None, Sequences()), tmp_path / "a.lmdb")

    assert 2 == report.packed == len(FastDataset(tmp_path / "a.lmdb"))


@pytest.mark.parametrize(("name", "now"), [("TEXT_SOURCES", "SOURCES"), ("TextKind", "SourceKind")])
def test_the_table_of_texts(name: str, now: str) -> None:
    """Kinds of text are rows of the one table of kinds."""
    with pytest.warns(DeprecationWarning, match=rf"text\.{name}: write from fastio\.converters import {now}"):
        value = getattr(text, name)

    kinds = {kind: each for kind, each in SOURCES.items() if each.open_text}
    assert value == (kinds if name == "TEXT_SOURCES" else SourceKind)
    assert name not in text.__all__


def test_the_module_of_text_in_fields() -> None:
    """The guide of 0.1 imported ``TextTokens`` from a module of its own."""
    with pytest.warns(DeprecationWarning, match=r"write from fastio\.converters\.text\.encode import TextTokens"):
        value = import_module("fastio.converters.record_tokens").TextTokens

    assert value is TextTokens


def test_a_network_pickled_with_its_normalize_layer() -> None:
    """Networks of 0.1 name the module that the layer was in."""
    now = pickle.dumps(NormalizeLayer((0.5,), (0.25,)), protocol=0)
    older = now.replace(b"fastio.transforms.batch.layer\n", b"fastio.transforms.batch.finish\n")
    assert older != now
    with pytest.warns(DeprecationWarning, match=r"finish\.NormalizeLayer: write from fastio\.transforms import"):
        layer = pickle.loads(older)

    assert type(layer) is NormalizeLayer
    assert 1.0 == layer(torch.full((1, 1, 1, 1), 0.75)).item()
