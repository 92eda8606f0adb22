"""Batches of token ids: natively filled ones equal the plain functions', each sample once, resumed at every batch."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler
from fastio.dataset.token_collate import ChunkCollate, PackCollate, PadCollate, TokenCollate, tensor_core_multiple
from fastio.errors import SampleError, SchemaError
from fastio.loader.options import CollateName
from fastio.loader.producer.tokens import TokenFiller
from fastio.samplers.order import Uneven
from fastio.types.schema import TEXT, TOKENS, Field
from tests.conftest import SUFFIXES, write_store
from tests.forking import answer_of_fork

COUNT = 61
VOCABULARY = 60_000
COLLATES: list[TokenCollate] = [
    PadCollate(),
    PadCollate(7, "left", 8),
    PadCollate(3, pad_to_multiple=torch.float16),
    PackCollate(pad_id=5),
    PackCollate(600, pad_id=5),
    PackCollate(80, pad_id=5, rows=9),
    ChunkCollate(16, pad_id=2),
]


def write_tokens(path: Path, samples: Sequence[Any], dtype: str = "<u2", **metadata: Any) -> Path:
    """Pack ids, each sample's label its number."""
    values = [np.array(ids).astype(dtype).tobytes() for ids in samples]
    said = {"tokenizer": {"vocab_size": VOCABULARY, "special": {"pad": 9}, **metadata}}
    field = Field("tokens", TOKENS, dtype, (None,))
    return write_store(path, values, np.arange(len(values)), field=field, metadata=said)


def samples_of(count: int = COUNT, seed: int = 0) -> list[Any]:
    """Random ids of 0 to 40 tokens each."""
    random = np.random.default_rng(seed)
    return [random.integers(0, VOCABULARY, int(length)) for length in random.integers(0, 41, count)]


@pytest.fixture(scope="module", params=SUFFIXES)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """The samples in each format, of uint32 in one of them."""
    path = tmp_path_factory.mktemp("tokens") / f"a.{request.param}"
    return FastDataset(write_tokens(path, samples_of(), "<u4" if request.param == "h5" else "<u2"))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """The samples in one format."""
    return FastDataset(write_tokens(tmp_path_factory.mktemp("tokens") / "a.lmdb", samples_of()))


def sampler_of(dataset: FastDataset, **options: Any) -> LengthBucketSampler:
    """Batches of up to 200 tokens with their padding."""
    return LengthBucketSampler(dataset.column("length"), **{"max_tokens": 200, "window": 30, **options})


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two batches have the same keys in order, dtypes and values."""
    assert list(one) == list(other)
    longest = [batch.get("max_seqlen") for batch in (one, other)]
    return longest[0] == longest[1] and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name])
        for name in one
        if name != "max_seqlen"
    )


def test_samples_are_tensors_and_labels(dataset: FastDataset) -> None:
    """A sample is its ids as int64, and its label; lengths come from the index."""
    for number, expected in enumerate(samples_of()):
        ids, label = dataset[number]
        assert (ids.dtype, ids.tolist(), label) == (torch.int64, expected.tolist(), number)
    assert dataset.column("length").tolist() == [len(each) for each in samples_of()]
    assert dataset.column("label").tolist() == list(range(COUNT))
    assert dataset.pad_id == 9


@pytest.mark.parametrize("collate", COLLATES, ids=repr)
@pytest.mark.parametrize("pin_memory", [False, True])
def test_native_batches_equal_the_plain_function(dataset: FastDataset, collate: TokenCollate, pin_memory: bool) -> None:
    """What native threads fill is what the collate makes of the samples in a DataLoader, to the key and dtype."""
    if pin_memory and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    expected = list(DataLoader(dataset, batch_sampler=sampler_of(dataset), collate_fn=collate))
    options: dict[str, Any] = {"collate": collate, "threads": 2, "pin_memory": pin_memory}
    with FastLoader(dataset, batch_sampler=sampler_of(dataset), **options) as loader:
        found = list(loader)

    assert len(found) == len(expected) == len(loader)
    assert all(map(same, found, expected))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 70), min_size=1, max_size=40), st.integers(1, 9), st.sampled_from(COLLATES))
@example([0], 1, PadCollate())
@example([0], 1, PackCollate())
@example([0], 1, ChunkCollate(16))
def test_any_lengths_equal_the_plain_function(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], batch_size: int, collate: TokenCollate
) -> None:
    """Fast path and plain path agree for any lengths, also none at all, and any batch size."""
    samples = [np.arange(length) + 3 for length in lengths]
    path = tmp_path_factory.mktemp("any") / "a.h5"
    with FastDataset(write_tokens(path, samples)) as dataset:
        order = [
            list(range(first, min(first + batch_size, len(lengths)))) for first in range(0, len(lengths), batch_size)
        ]
        with FastLoader(dataset, batch_size, collate=collate, threads=1) as loader:
            for batch, indices in zip(loader, order, strict=True):
                assert same(batch, collate([dataset[index] for index in indices]))


def test_batches_live_after_their_chunk(one: FastDataset) -> None:
    """Views of a shared buffer keep their values when later batches are made, and after the loader is closed."""
    with FastLoader(one, 2, collate="pad", threads=2) as loader:
        first = list(loader)
        second = list(loader)
        third = [batch["input_ids"].clone() for batch in loader]

    for batches in (first, second):
        assert all(torch.equal(batch["input_ids"], ids) for batch, ids in zip(batches, third, strict=True))


def test_padding_is_counted(one: FastDataset) -> None:
    """stats.padding is the share of slots without a token, natively and on the plain path."""
    sampler = sampler_of(one)
    with FastLoader(one, batch_sampler=sampler, collate="pad", threads=1) as loader:
        slots = sum(batch["input_ids"].numel() for batch in loader)
        assert loader.stats.padding == pytest.approx(1 - int(one.lengths.sum()) / slots)
        assert loader.stats.tokens == int(one.lengths.sum())


@pytest.mark.parametrize("collate", COLLATES, ids=repr)
def test_bytes_are_counted(one: FastDataset, collate: TokenCollate) -> None:
    """stats.batch_bytes is what the largest batch takes for its tokens, whatever its collate makes of them."""
    with FastLoader(one, batch_sampler=sampler_of(one), collate=collate, threads=1) as loader:
        names = ("input_ids", "attention_mask", "position_ids", "document_ids")
        expected = max(sum(batch[name].nbytes for name in names if name in batch) for batch in loader)
        assert expected == loader.stats.batch_bytes


@pytest.mark.parametrize("job_bytes", [1, 1 << 20])
def test_a_batch_that_does_not_fit(one: FastDataset, job_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised where its turn is; the batches before it come, however few are filled at a time."""
    monkeypatch.setattr("fastio.loader.producer.tokens.JOB_BYTES", job_bytes)
    most = int(one.lengths.max())
    first = int(one.lengths.argmax())
    with FastLoader(one, 1, collate=PackCollate(most - 1), threads=1) as loader:
        batches = iter(loader)
        assert [*range(first)] == [label for batch in islice(batches, first) for label in batch["labels"].tolist()]
        with pytest.raises(ValueError, match=f"a batch of {most} tokens does not fit"):
            next(batches)


def test_buffers_go_back_without_the_garbage_collector(
    one: FastDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches with and without bad samples die when the loop lets go of them."""
    values = [np.array(ids).astype("<u2").tobytes() for ids in samples_of(20)]
    values[13] = np.array([VOCABULARY], "<u2").tobytes()
    field, said = Field("tokens", TOKENS, "<u2", (None,)), {"tokenizer": {"vocab_size": VOCABULARY}}
    bad = FastDataset(write_store(tmp_path / "a.tar", values, field=field, metadata=said))
    groups: list[weakref.ref[Any]] = []
    batches_of = TokenFiller.batches

    def watched(*arguments: Any, **options: Any) -> Any:
        group = batches_of(*arguments, **options)
        groups.append(weakref.ref(group))
        return group

    monkeypatch.setattr(TokenFiller, "batches", watched)
    gc.collect()
    gc.disable()
    try:
        for dataset in (one, bad):
            with FastLoader(dataset, 4, on_error="skip", threads=1) as loader:
                batches = iter(loader)
                next(batches)
                assert groups
                list(batches)
            assert all(reference() is None for reference in groups)
    finally:
        gc.enable()


def test_names_of_collates(one: FastDataset) -> None:
    """The names take the pad id of the store, the multiple of the bucket sampler and the budget of the pack sampler."""
    with FastLoader(one, batch_sampler=sampler_of(one, pad_to_multiple=8), collate="pad", threads=1) as loader:
        for batch in loader:
            assert batch["input_ids"].shape[1] % 8 == 0
            assert (batch["input_ids"][~batch["attention_mask"]] == 9).all()
    packed = PackSampler(one.lengths, max_tokens=100)
    with FastLoader(one, batch_sampler=packed, collate="pack", threads=1) as loader:
        assert {batch["input_ids"].shape for batch in loader} == {(100,)}


def test_rows_are_documents_of_their_own(one: FastDataset) -> None:
    """The forms of a batch of rows say the same: document numbers, positions, and sequences of the flat batch."""
    sampler = PackSampler(one.lengths, max_tokens=64, rows=3, seed=2)
    with FastLoader(one, batch_sampler=sampler, collate="pack", threads=1) as loader:
        batches = list(loader)

    plan = sampler.plan(0)
    for batch, place in zip(batches, plan.slices(), strict=True):
        ids, documents, positions = (batch[name] for name in ("input_ids", "document_ids", "position_ids"))
        assert ids.shape == documents.shape == positions.shape == (3, 64)
        for number, index in enumerate(plan.indices[place].tolist()):
            expected, _ = one[index]
            rows, columns = (documents == number).nonzero(as_tuple=True)
            assert len(set(rows.tolist())) <= 1  # no document is cut
            assert ids[rows, columns].tolist() == expected.tolist()
            assert positions[rows, columns].tolist() == list(range(len(expected)))
        assert set(ids[documents == -1].tolist()) <= {one.pad_id}
        cuts = batch["cu_seqlens"].tolist()
        assert (cuts[0], cuts[-1]) == (0, 3 * 64)
        assert batch["max_seqlen"] == max(np.diff(cuts))
        for start, stop in pairwise(cuts):
            assert len(set(documents.view(-1)[start:stop].tolist())) <= 1
            assert start == stop or start // 64 == (stop - 1) // 64  # within one row


def test_rows_that_do_not_fit(one: FastDataset) -> None:
    """The native and the plain way name the sampler that plans such batches, with its numbers."""
    words = r"do not fit into rows=2 of tokens=40: plan batches with PackSampler\(lengths, max_tokens=40, rows=2\)"
    collate = PackCollate(40, rows=2)
    with FastLoader(one, 30, collate=collate, threads=1) as loader, pytest.raises(ValueError, match=words):
        list(loader)
    with pytest.raises(ValueError, match=words):
        PackCollate(40, rows=2)([torch.arange(30)] * 3)
    with pytest.raises(ValueError, match=words):
        PackCollate(40, rows=2)([torch.arange(41)])


def test_rows_without_a_collate_that_makes_them(one: FastDataset) -> None:
    """Padding would make one row of each sample, and a batch far larger than was planned."""
    sampler = PackSampler(one.lengths, max_tokens=64, rows=3)
    with pytest.raises(
        ValueError, match=r"collate=None: the PackSampler plans rows=3 a batch: expected collate='pack'"
    ):
        FastLoader(one, batch_sampler=sampler)
    with FastLoader(one, batch_sampler=sampler, collate=PackCollate(64, rows=3), threads=1) as loader:
        assert next(iter(loader))["input_ids"].shape == (3, 64)


kinds = st.sampled_from(["batch_size", "max_tokens", "packed", "rows"])
collates: dict[str, CollateName] = {"batch_size": "pad", "max_tokens": "pad", "packed": "pack", "rows": "pack"}


def planned(dataset: FastDataset, kind: str, **share: Any) -> LengthBucketSampler | PackSampler:
    """A sampler of each kind, with several windows an epoch."""
    if kind == "packed":
        return PackSampler(dataset.lengths, max_tokens=120, window=30, **share)
    if kind == "rows":
        return PackSampler(dataset.lengths, max_tokens=50, rows=3, window=30, **share)
    size = {"batch_size": 4} if kind == "batch_size" else {"max_tokens": 200}
    return LengthBucketSampler(dataset.lengths, window=30, **size, **share)


def samples_in(batch: dict[str, Any]) -> list[tuple[int, list[int]]]:
    """The label and ids of each sample of a padded or packed batch."""
    if "document_ids" in batch:
        numbers = range(len(batch["labels"]))
        ids = [batch["input_ids"][batch["document_ids"] == number].tolist() for number in numbers]
    elif "cu_seqlens" in batch:
        bounds = batch["cu_seqlens"].tolist()
        ids = [batch["input_ids"][start:stop].tolist() for start, stop in pairwise(bounds)]
    else:
        ids = [row[mask].tolist() for row, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
    return list(zip(batch["labels"].tolist(), ids, strict=True))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 25), st.sampled_from([1, 2, 3, 8]), kinds, st.integers(0, 2))
@example(0, 1, "batch_size", 0)
@example(1, 2, "packed", 1)
@example(25, 8, "max_tokens", 2)
def test_resume_at_every_batch(one: FastDataset, step: int, world_size: int, kind: str, epoch: int) -> None:
    """What is left after a state is loaded is what was left when it was taken, on every rank."""

    def loader_of(rank: int) -> FastLoader:
        sampler = planned(one, kind, rank=rank, world_size=world_size)
        return FastLoader(one, batch_sampler=sampler, collate=collates[kind], threads=1)

    for rank in range(world_size):
        with loader_of(rank) as loader, loader_of(rank) as resumed:
            loader.set_epoch(epoch)
            steps = min(step, len(loader))
            batches = iter(loader)
            assert len(list(islice(batches, steps))) == steps
            resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
            assert [samples_in(batch) for batch in batches] == [samples_in(batch) for batch in resumed]
            assert [samples_in(batch) for batch in loader] == [samples_in(batch) for batch in resumed]


@settings(max_examples=25, deadline=None)
@given(kinds, st.sampled_from([1, 2, 3, 8]), st.sampled_from(get_args(Uneven)), st.integers(0, 3))
@example("batch_size", 1, "pad", 0)
@example("packed", 8, "repeat", 1)
@example("max_tokens", 3, "drop", 0)
def test_every_sample_once_over_ranks(one: FastDataset, kind: str, world_size: int, uneven: Uneven, epoch: int) -> None:
    """All ranks get equally many batches; over them each sample comes once, whole, but for those the plan names."""
    ranks = []
    for rank in range(world_size):
        sampler = planned(one, kind, rank=rank, world_size=world_size, uneven=uneven)
        repeated, dropped = sampler.plan(epoch).repeated, sampler.plan(epoch).dropped
        with FastLoader(one, batch_sampler=sampler, collate=collates[kind], threads=1) as loader:
            loader.set_epoch(epoch)
            ranks.append(list(loader))

    assert len({len(batches) for batches in ranks}) == 1
    found = [each for batches in ranks for batch in batches for each in samples_in(batch)]
    counts = np.bincount([label for label, _ in found], minlength=COUNT)
    assert (repeated, dropped) == (int((counts - 1).clip(0).sum()), int((counts == 0).sum()))
    samples = [each.tolist() for each in samples_of()]
    assert all(ids == samples[label] for label, ids in found)


def test_a_forked_child_goes_on(one: FastDataset) -> None:
    """A child that uses an inherited iterator gets the batches that its parent's threads had under way."""
    loader = FastLoader(one, batch_sampler=sampler_of(one), threads=2)
    batches = iter(loader)
    next(batches)
    labels = answer_of_fork(lambda: [batch["labels"].tolist() for batch in batches])
    assert labels == [batch["labels"].tolist() for batch in batches]


@pytest.mark.parametrize("collate", ["pad", "pack"])
def test_bad_samples(tmp_path: Path, collate: Any) -> None:
    """A sample with an id beyond the vocabulary is named; it is raised, left out, or has no tokens."""
    words = "token 1 is 60000, but the vocabulary has ids 0 to 59999"
    values = [np.array(ids).astype("<u2").tobytes() for ids in samples_of(20)]
    values[13] = np.array([1, VOCABULARY, 2], "<u2").tobytes()
    field, said = Field("tokens", TOKENS, "<u2", (None,)), {"tokenizer": {"vocab_size": VOCABULARY}}
    dataset = FastDataset(write_store(tmp_path / "a.tar", values, np.arange(20), field=field, metadata=said))

    with pytest.raises(SampleError, match=words):
        _ = dataset[13]
    with FastLoader(dataset, 4, collate=collate, threads=1) as loader, pytest.raises(SampleError, match=words):
        list(loader)
    with FastLoader(dataset, 4, collate=collate, on_error="skip", threads=1) as loader:
        assert [label for batch in loader for label in batch["labels"].tolist()] == [*range(13), *range(14, 20)]
        assert [error.index for error in loader.skipped] == [13]
    with FastLoader(dataset, 4, collate=collate, on_error="zero", threads=1) as loader:
        batch = next(islice(loader, 3, None))
        assert batch["labels"].tolist() == [12, 13, 14, 15]
        assert batch["lengths"].tolist() == [len(values[12]) // 2, 0, len(values[14]) // 2, len(values[15]) // 2]


def test_checksums_are_compared_by_default(tmp_path: Path) -> None:
    """A changed id that is a good id is seen; verify=False does not look."""
    path = write_tokens(tmp_path / "a.h5", [[1, 2, 3], [4, 5, 6]])
    data = bytearray(path.read_bytes())
    place = data.index(np.array([4, 5, 6], "<u2").tobytes())
    data[place] = 7
    path.write_bytes(data)
    with FastLoader(path, 2, verify=False, threads=1) as loader:
        assert next(iter(loader))["input_ids"].tolist()[1] == [7, 5, 6]
    with FastLoader(path, 2, threads=1) as loader, pytest.raises(SampleError, match="checksum"):
        list(loader)


def test_transforms_of_the_user_take_the_plain_path(one: FastDataset) -> None:
    """A transform sees the ids of one sample, and the collate what it makes of them."""
    cut = FastDataset(one.store, lambda ids: ids[:5])
    with FastLoader(cut, 8, collate=PadCollate(), threads=1) as loader:
        batches = list(loader)
        assert loader.stats.slots == sum(batch["input_ids"].numel() for batch in batches)
    assert max(batch["input_ids"].shape[1] for batch in batches) == 5


def test_labels_by_target_transform(one: FastDataset) -> None:
    """Labels go through target_transform, as those of pictures do."""
    doubled = FastDataset(one.store, target_transform=lambda label: 2 * label)
    with FastLoader(doubled, 8, threads=1) as loader:
        assert [label for batch in loader for label in batch["labels"].tolist()] == list(range(0, 2 * COUNT, 2))


def test_text_is_strings(tmp_path: Path) -> None:
    """A store of UTF-8 gives str and lengths in bytes; what is not UTF-8 is named by its byte."""
    values = ["zoë".encode(), b"", "漢字\n".encode()]
    path = write_store(tmp_path / "a.lmdb", values, np.arange(3), field=Field("text", TEXT, "|u1", (None,)))
    dataset = FastDataset(path)

    assert [dataset[index] for index in range(3)] == [("zoë", 0), ("", 1), ("漢字\n", 2)]
    assert dataset.column("length").tolist() == [4, 0, 7]
    with FastLoader(dataset, 2, threads=1) as loader:
        assert [text for texts, _ in loader for text in texts] == ["zoë", "", "漢字\n"]
    bad = write_store(tmp_path / "b.lmdb", [b"ab\xffc"], field=Field("text", TEXT, "|u1", (None,)))
    with pytest.raises(SampleError, match=r"byte 2 \(0xff\) is not UTF-8"):
        _ = FastDataset(bad)[0]


def test_no_tokenizer_means_pad_0(tmp_path: Path) -> None:
    """Ids without a word on their tokenizer are padded with 0, and none of them is out of range."""
    field = Field("tokens", TOKENS, "<u4", (None,))
    dataset = FastDataset(write_store(tmp_path / "a.h5", [np.array([2**32 - 1], "<u4").tobytes(), b""], field=field))
    with FastLoader(dataset, 2, threads=1) as loader:
        assert next(iter(loader))["input_ids"].tolist() == [[2**32 - 1], [0]]


def test_what_does_not_go_together_is_refused(one: FastDataset, png_stores: dict[str, Path], tmp_path: Path) -> None:
    """Arguments that a batch_sampler decides, samplers of other data, and collates of other samples are refused."""
    sampler = sampler_of(one)
    with pytest.raises(ValueError, match="batch_size, shuffle: the batch_sampler decides that"):
        FastLoader(one, 4, shuffle=True, batch_sampler=sampler)
    with pytest.raises(ValueError, match="61 samples, but the batch_sampler plans 2"):
        FastLoader(one, batch_sampler=LengthBucketSampler([1, 2], batch_size=1))
    with pytest.raises(TypeError, match="batch_sampler=int: expected an iterable"):
        FastLoader(one, batch_sampler=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch_size=None"):
        FastLoader(one)
    with pytest.raises(SchemaError, match="collate= is for token ids"):
        FastLoader(png_stores["h5"], 4, collate="pad")
    with pytest.raises(ValueError, match="collate='padded': expected"):
        FastLoader(one, 4, collate="padded")  # type: ignore[arg-type]
    with (
        FastLoader(one, 30, collate=PackCollate(50), threads=1) as loader,
        pytest.raises(ValueError, match="PackSampler"),
    ):
        list(loader)


def test_pictures_by_a_batch_sampler(png_stores: dict[str, Path]) -> None:
    """Any dataset may be read by planned batches: of pictures too."""
    dataset = FastDataset(png_stores["lmdb"])
    sampler = LengthBucketSampler(dataset.column("length"), batch_size=8)
    with FastLoader(dataset, batch_sampler=sampler, threads=1) as loader:
        found = [labels.tolist() for _, labels in loader]
    plan = sampler.plan(0)
    assert found == [[index % 3 for index in plan.indices[place].tolist()] for place in plan.slices()]


def test_the_guide_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that the guide shows for training on text run, and give what they say."""
    write_tokens(tmp_path / "text.h5", samples_of())
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[3] / "fastio" / "guide" / "text.md").read_text()
    block = next(each for each in text.split("```python\n")[1:] if "LengthBucketSampler" in each).split("```")[0]
    found: dict[str, Any] = {}
    exec(compile(block, "text.md", "exec"), found)

    assert list(found["batch"]) == ["input_ids", "position_ids", "cu_seqlens", "max_seqlen", "lengths", "labels"]
    assert found["batch"]["input_ids"].shape == (8192,)
    assert 0 < found["padded"].stats.padding < 1


def test_a_dataset_tells_of_its_tokenizer(dataset: FastDataset, png_stores: dict[str, Path]) -> None:
    """The size of the vocabulary and the special ids, as they were packed; nothing for pictures."""
    assert dataset.tokenizer == {"vocab_size": VOCABULARY, "special": {"pad": 9}}
    assert FastDataset(png_stores["h5"]).tokenizer == {}


@pytest.mark.parametrize(
    ("dtype", "multiple"), [(torch.float16, 8), (torch.int8, 16), (torch.float32, 4), (torch.float64, 2)]
)
def test_multiples_for_tensor_cores(dtype: torch.dtype, multiple: int) -> None:
    """NVIDIA's multiples by the type that is computed in."""
    assert tensor_core_multiple(dtype) == multiple
    assert PadCollate(pad_to_multiple=dtype)([torch.arange(17)])["input_ids"].shape[1] % multiple == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: PadCollate(side="middle"),  # type: ignore[arg-type]
        lambda: PadCollate(pad_to_multiple=0),
        lambda: PadCollate(pad_to_multiple=torch.bool),
        lambda: ChunkCollate(0),
        lambda: PackCollate(0),
        lambda: PackCollate(1 << 31),
        lambda: PackCollate(rows=2),
        lambda: PackCollate(8, rows=0),
        lambda: PackCollate(1 << 30, rows=2),
    ],
)
def test_nonsense_collates_are_refused(make: Callable[[], Any]) -> None:
    """What cannot be is refused when it is made."""
    with pytest.raises(ValueError, match="expected"):
        make()
