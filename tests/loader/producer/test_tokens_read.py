"""How token ids come into memory: mapped or by pread the same batches, and errors where a file is cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio import FastDataset, FastLoader
from fastio.dataset.token_collate import TokenCollate
from fastio.loader.producer.tokens import TokenProducer
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.protocol import stretches
from tests.conftest import SUFFIXES
from tests.forking import answer_of_fork
from tests.loader.producer.test_tokens import COLLATES, COUNT, same, sampler_of, samples_of, write_tokens
from tests.warm_python import WarmPython


@pytest.fixture(scope="module", params=SUFFIXES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples in each format."""
    return write_tokens(tmp_path_factory.mktemp("read") / f"a.{request.param}", samples_of())


def batches_of(dataset: FastDataset, **options: Any) -> list[dict[str, Any]]:
    """Those of a loader, which must be filled by native threads."""
    with FastLoader(dataset, batch_sampler=sampler_of(dataset), threads=2, **options) as loader:
        assert isinstance(loader._wiring.producer, TokenProducer)
        return list(loader)


@pytest.mark.parametrize("collate", COLLATES, ids=repr)
@pytest.mark.parametrize("looked_up_bytes", [1, 5000, 1 << 20])
def test_pread_is_the_mapping(
    path: Path, collate: TokenCollate, looked_up_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same batches, natively too, whatever the collate and however few are read at a time."""
    monkeypatch.setattr("fastio.loader.producer.tokens.LOOKED_UP_BYTES", looked_up_bytes)
    mapped = batches_of(FastDataset(path, read="map"), collate=collate)
    read = batches_of(FastDataset(path, read="pread"), collate=collate, verify=True)

    assert len(mapped) == len(read)
    assert all(map(same, mapped, read))


def test_the_first_batch_looks_up_few(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch first, then more, but however short the samples are only so many; and the batches are the same."""
    expected, dataset = batches_of(FastDataset(path)), FastDataset(path)
    looked_up: list[int] = []
    spans = dataset.store.spans

    def counted(field: str, indices: np.ndarray[Any, Any], *, checksums: bool = True) -> Any:
        looked_up.append(len(indices) if checksums else 0)
        return spans(field, indices, checksums=checksums)

    monkeypatch.setattr("fastio.loader.producer.tokens._LOOKED_UP", COUNT // 4)
    monkeypatch.setattr("fastio.loader.producer.tokens._LOOKED_UP_FIRST", 1)
    monkeypatch.setattr("fastio.loader.producer.tokens._FIRST_BATCHES", 1)
    monkeypatch.setattr(dataset.store, "spans", counted)
    assert all(map(same, batches_of(dataset), expected))
    looked_up = [count for count in looked_up if count]
    assert looked_up[0] == len(expected[0]["labels"])
    assert looked_up[0] < max(looked_up) < COUNT // 2
    assert sum(looked_up) == COUNT


def test_the_first_batch_waits_for_one_look_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one, of an index that may lie on a slow disk, is begun when the loop has its first batches."""
    dataset = FastDataset(path)
    looked_up: list[int] = []
    spans = dataset.store.spans

    def counted(field: str, indices: np.ndarray[Any, Any], *, checksums: bool = True) -> Any:
        if checksums:
            looked_up.append(len(indices))
        return spans(field, indices, checksums=checksums)

    monkeypatch.setattr("fastio.loader.producer.tokens._LOOKED_UP_FIRST", 1)
    with FastLoader(dataset, 2, shuffle="full") as loader:
        expected = list(loader)
    monkeypatch.setattr(dataset.store, "spans", counted)
    with FastLoader(dataset, 2, shuffle="full") as loader:
        batches = iter(loader)
        found = [next(batches)]
        assert looked_up == [2 * 8]
        found += batches
    assert len(looked_up) > 2
    assert sum(looked_up) == COUNT
    assert len(found) == len(expected)
    assert all(map(same, found, expected))


def shards_of(folder: Path, samples: Any) -> Any:
    """The samples as shards, and as one file ``a.tar`` beside them."""
    one = open_store(write_tokens(folder / "a.tar", samples))
    with create_store(folder / "x-%d.tar", one.schema, shard_bytes=600) as writer:
        for part in np.array_split(np.arange(len(one)), 20):
            columns = {"label": one.column("label")[part]}
            writer.append(SampleBatch(one.keys(part), {"tokens": one.spans("tokens", part)}, columns))
        writer.close(dict(one.metadata))
    return open_store(folder / "x-*.tar")


def test_several_shards(tmp_path: Path) -> None:
    """The ids of a set of files are those of one."""
    several = FastDataset(shards_of(tmp_path, samples_of()).path)
    one = FastDataset(tmp_path / "a.tar")

    assert len(several.store.shard_paths) > 2
    assert all(map(same, batches_of(several), batches_of(one)))
    assert all(map(same, batches_of(FastDataset(tmp_path / "x-*.tar", read="pread")), batches_of(one)))


def test_a_whole_store_is_read_ahead_in_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several shards, too, few values are looked up at a time, and each lies in a stretch of its file."""
    several = shards_of(tmp_path, samples_of())
    values = several.spans("tokens", np.arange(COUNT, dtype=np.int64))
    looked_up: list[int] = []
    spans = several.spans

    def counted(field: str, indices: np.ndarray[Any, Any], *, checksums: bool = True) -> Any:
        looked_up.append(len(indices))
        return spans(field, indices, checksums=checksums)

    monkeypatch.setattr(several, "spans", counted)
    monkeypatch.setattr("fastio.store.protocol._LOOKED_UP", 4)
    parts = list(stretches(several, "tokens", 0, COUNT, most=300))

    covered = {
        (shard, at)
        for part in parts
        for shard, start, size in zip(part.shard.tolist(), part.starts.tolist(), part.sizes.tolist(), strict=True)
        for at in range(start, start + size)
    }
    wanted = {
        (shard, at)
        for shard, start, size in zip(values.shard.tolist(), values.starts.tolist(), values.sizes.tolist(), strict=True)
        for at in range(start, start + size)
    }
    assert wanted <= covered
    assert max(looked_up) == 4
    assert len(several.shard_paths) < len(parts) < COUNT // 2


def test_a_store_larger_than_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not all fits into memory the kernel is asked for the samples of each look-up; batches are the same."""
    expected = batches_of(FastDataset(path))
    monkeypatch.setattr("fastio.loader.producer.tokens.LOOKED_UP_BYTES", 3000)
    monkeypatch.setattr("os.sysconf", lambda name: 1)

    assert all(map(same, batches_of(FastDataset(path)), expected))


def test_a_saved_batch_is_small(path: Path, tmp_path: Path) -> None:
    """Saving the ids of a batch saves these, not those of the batches that share its buffer."""
    ids = batches_of(FastDataset(path))[0]["input_ids"]
    torch.save(ids, tmp_path / "ids.pt")

    assert ids.untyped_storage().nbytes() == ids.nbytes
    assert torch.equal(torch.load(tmp_path / "ids.pt"), ids)


@pytest.mark.parametrize("collate", COLLATES, ids=repr)
def test_pinned_batches_stay_torchs(path: Path, collate: TokenCollate, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pin_memory values are the same, and lie in what torch allocated, whose allocator must know them again."""
    plain = batches_of(FastDataset(path), collate=collate)
    allocated, empty = [], torch.empty

    def pinned_empty(*size: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        memory = empty(*size, **options)
        allocated.extend([memory.untyped_storage().data_ptr()] if pin_memory else [])
        return memory

    monkeypatch.setattr(torch, "empty", pinned_empty)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    pinned = batches_of(FastDataset(path), collate=collate, pin_memory=True)

    assert all(map(same, plain, pinned))
    big = [batch[name] for batch in pinned for name in ("input_ids", "attention_mask", "position_ids") if name in batch]
    assert {each.untyped_storage().data_ptr() for each in big} <= {*allocated}


@pytest.mark.parametrize("read", ["map", "pread"])
def test_a_forked_child_goes_on(path: Path, read: Any) -> None:
    """An iteration begun in the parent goes on in the child, without the parent's threads."""
    dataset = FastDataset(path, read=read)
    with FastLoader(dataset, batch_sampler=sampler_of(dataset), threads=2) as loader:
        iterator = iter(loader)
        first = len(next(iterator)["labels"])
        assert COUNT - first == answer_of_fork(lambda: sum(len(batch["labels"]) for batch in iterator))


_CUT = """
import json, os, sys
from fastio import FastDataset, FastLoader
path, cut = sys.argv[1], int(sys.argv[2])
dataset = FastDataset(path, read="pread")
loaders = [FastLoader(dataset, 4, on_error=policy, threads=2) for policy in ("skip", "zero")]
dataset[0]
os.truncate(path, cut)
found = [[(batch["labels"].tolist(), batch["lengths"].tolist()) for batch in loader] for loader in loaders]
print(json.dumps([found, [str(error) for error in loaders[0].skipped]]))
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_cut_off_while_it_is_open(tmp_path: Path, suffix: str, warm_torch: WarmPython) -> None:
    """Each sample beyond the new end is named and left out, or without tokens, and the process lives."""
    path = write_tokens(tmp_path / f"x.{suffix}", [np.arange(3000)] * 10)
    with open_store(path) as store:
        middle = int(store.spans("tokens", np.array([5])).starts[0]) + 10
    done = warm_torch.run(_CUT, str(path), str(middle), cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    (left_out, zeroed), skipped = json.loads(done.stdout)
    assert left_out == [[[0, 1, 2, 3], [3000] * 4], [[4], [3000]]]
    assert zeroed == [[[0, 1, 2, 3], [3000] * 4], [[4, 5, 6, 7], [3000, 0, 0, 0]], [[8, 9], [0, 0]]]
    assert [words[len(str(path)) : len(str(path)) + 3] for words in skipped] == [
        f"[{number}]" for number in range(5, 10)
    ]
    assert all(words.endswith("end too early") for words in skipped)
