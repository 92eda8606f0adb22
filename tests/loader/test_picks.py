"""Pick in FastLoader and FastDataset: one element of each list, by seed, epoch and sample, or none."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, FieldCollate, PadCollate, SampleError, SchemaError, Writer
from fastio.transforms import Compose, Pick, RandomHorizontalFlip, RandomResizedCrop
from tests.loader.test_lists import damage, write

CROPS = [RandomResizedCrop(16), RandomHorizontalFlip()]
COUNTS = [2, 0, 1, 3, 0, 5, 1, 4, 2, 0, 1, 6]


def write_pairs(path: Path, counts: list[int]) -> Path:
    """A store of several texts a sample, the ids of each, a number of each, and one text."""
    fields = {
        "captions": "text[*]",
        "ids": "tokens16[*]",
        "vectors": "float32[2][*]",
        "title": "text",
        "label": "label",
    }
    with Writer(path, fields, overwrite=True) as out:
        for i, count in enumerate(counts):
            out.write(
                {
                    "captions": [f"{i}.{j}" for j in range(count)],
                    "ids": [[100 * i + j] * (j + 1) for j in range(count)],
                    "vectors": [[i, j] for j in range(count)],
                    "title": f"title {i}",
                    "label": i,
                },
                key=f"s{i}",
            )
    return path


def captions(loader: FastLoader, epoch: int = 0, name: str = "captions") -> dict[int, Any]:
    """What each sample gets, by its label."""
    loader.set_epoch(epoch)
    batches = [(batch["label"].tolist(), batch[name]) for batch in loader]
    return {label: value for labels, values in batches for label, value in zip(labels, values, strict=True)}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=9),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_a_pick_is_of_seed_epoch_and_sample(
    tmp_path: Path, counts: list[int], first: int, second: int, epoch: int, drop: float
) -> None:
    """Batches of any size and order give a sample the element that the Pick alone says, or none."""
    path, pick = write_pairs(tmp_path / "s.lmdb", counts), Pick("captions", drop=drop)
    places = pick.places(np.arange(len(counts)), np.array(counts), seed=3, epoch=epoch).tolist()
    expected = {i: "" if place < 0 else f"{i}.{place}" for i, place in enumerate(places)}
    for size, shuffle, threads in ((first, True, 1), (second, False, 2)):
        with FastLoader(path, size, shuffle=shuffle, transforms=[pick], seed=3, threads=threads) as loader:
            assert expected == captions(loader, epoch)
            assert loader.receipt().is_exact
    assert all(place < count for place, count in zip(places, counts, strict=True))
    if drop in (0.0, 1.0):
        assert [drop == 1.0 or count == 0 for count in counts] == [place < 0 for place in places]


def test_a_receipt_of_picked_elements_alone_is_no_proof(tmp_path: Path) -> None:
    """Where nothing else is read, no checksum stands for a sample: the receipt counts samples, and says so."""
    path, pick = write_pairs(tmp_path / "s.lmdb", COUNTS), Pick("captions", drop=0.1)
    for fields, is_proof in ((("captions",), False), (("captions", "label"), False), (("captions", "title"), True)):
        with FastLoader(FastDataset(path, fields=fields), 5, transforms=[pick]) as loader:
            assert len(COUNTS) == sum(1 for batch in loader.numbered() for _ in batch.indices)
            receipt = loader.receipt()
        assert (is_proof, is_proof) == (receipt.is_exact, receipt.is_verified)
        assert is_proof or "12 of 12 samples, bytes not compared (only elements that a Pick" in str(receipt)


def test_every_element_comes() -> None:
    """Elements come evenly, and as many are dropped as asked for; another epoch, seed and field draw anew."""
    ids, counts = np.arange(6000), np.full(6000, 3)
    places = Pick("captions", drop=0.25).places(ids, counts, seed=0, epoch=0)
    shares = [float(np.mean(places == place)) for place in (-1, 0, 1, 2)]

    assert [0.25] * 4 == pytest.approx(shares, abs=0.02)
    for other in (
        Pick("captions", drop=0.25).places(ids, counts, seed=0, epoch=1),
        Pick("captions", drop=0.25).places(ids, counts, seed=1, epoch=0),
        Pick("ids", drop=0.25).places(ids, counts, seed=0, epoch=0),
    ):
        assert 0.25 == pytest.approx(float(np.mean(places == other)), abs=0.03)
    assert (places == Pick("captions", "ids", drop=0.25).places(ids, counts, seed=0, epoch=0)).all()


@pytest.mark.parametrize("suffix", [".h5", ".tar"])
def test_token_ids(tmp_path: Path, suffix: str) -> None:
    """Picked ids are padded with a mask, on either side, or listed; none are those of ``empty``, and are counted."""
    path = write_pairs(tmp_path / f"s{suffix}", COUNTS)
    pick = Pick("captions", "ids", drop=0.2, empty=None)
    expected = {}
    with FastLoader(path, 5, transforms=[pick], collate={"ids": "list"}) as loader:
        texts, expected = captions(loader), captions(loader, name="ids")
    for label, ids in expected.items():
        place = len(ids) - 1
        assert torch.equal(ids, torch.full((place + 1,), 100 * label + place))
        assert texts[label] == (f"{label}.{place}" if place >= 0 else "")
    wishes: list[Any] = [None, "pad", {"ids": PadCollate(9, side="left")}]
    for collate in wishes:
        with FastLoader(path, 5, transforms=[pick], collate=collate) as loader:
            batches = list(loader)
            assert sum(map(len, expected.values())) == loader.stats.tokens
        for batch in batches:
            assert batch["ids"].dtype == torch.int64
            for label, ids, mask in zip(batch["label"].tolist(), batch["ids"], batch["ids_mask"], strict=True):
                assert expected[label].tolist() == ids[mask].tolist()
                assert {9} >= {*ids[~mask].tolist()} if isinstance(collate, dict) else not ids[~mask].any()
    with FastLoader(path, 12, transforms=[Pick("ids", drop=1, empty=[7, 8])], output="numpy") as loader:
        (batch,) = loader
    assert [[7, 8]] * 12 == batch["ids"].tolist()


def test_rows(tmp_path: Path) -> None:
    """A picked picture is that of the list, with its crop, and goes with its array; both may be missing."""
    path = write(tmp_path / "s.lmdb")
    with FastLoader(path, 4, transforms=CROPS) as loader:
        every = [(batch["label"], batch["images"].split(batch["images_counts"].tolist())) for batch in loader]
    rows = {int(label): images for labels, lists in every for label, images in zip(labels, lists, strict=True)}
    pick = Pick("images", "vectors", drop=0.2)
    with FastLoader(path, 3, shuffle=True, transforms=[pick, *CROPS], collate="pad") as loader:
        for batch in loader:
            assert (len(batch["label"]), 3, 16, 16) == batch["images"].shape
            assert torch.equal(batch["images_mask"], batch["vectors_mask"])
            for i in np.flatnonzero(batch["images_mask"]):
                label, place, _ = batch["vectors"][i].int().tolist()
                assert torch.equal(rows[label][place], batch["images"][i])
        receipt = loader.receipt()
        assert receipt.is_exact
        proved = {name for part in receipt.parts for name in part.fields}
        assert "control" in proved
        assert proved.isdisjoint(pick.fields)  # of which not all elements were read
    with FastLoader(path, 11, transforms=[pick, *CROPS]) as loader:
        (batch,) = loader
    assert len(batch["images"]) == batch["images_counts"].sum() == len(batch["vectors"])
    assert {0, 1} == {*batch["images_counts"].tolist()}


def test_texts_that_are_no_lists(tmp_path: Path) -> None:
    """A text, a text that may be missing and token ids alone can be dropped."""
    path = write_pairs(tmp_path / "s.lmdb", COUNTS)
    with FastLoader(path, 5, transforms=[Pick("title", drop=0.4, empty="none")]) as loader:
        found = captions(loader, name="title")
    assert {"none", *(f"title {i}" for i in range(12))} > {*found.values()}
    assert all(value in ("none", f"title {i}") for i, value in found.items())
    assert "none" in found.values()
    with Writer(tmp_path / "t.lmdb", {"ids": "tokens16", "label": "label"}) as out:
        for i in range(20):
            out.write({"ids": [i + 1] * 3, "label": i})
    with FastLoader(tmp_path / "t.lmdb", 20, transforms=[Pick("ids", drop=0.5)], collate={"ids": "list"}) as loader:
        ((ids, labels),) = loader
    assert {0, 3} == {*map(len, ids)}
    assert all(len(each) == 0 or each.tolist() == [label + 1] * 3 for each, label in zip(ids, labels, strict=True))


def test_resumed_on_other_ranks(tmp_path: Path) -> None:
    """What one rank has begun, two finish, with what it would have picked; another Pick is refused."""
    path = write_pairs(tmp_path / "s.h5", [i % 4 for i in range(24)])
    steps = [Pick("captions", drop=0.1)]
    with FastLoader(path, 3, shuffle=True, transforms=steps) as loader:
        whole = captions(loader)
        loader.set_epoch(0)
        found: dict[int, str] = {}
        for batch in islice(loader, 2):
            found |= dict(zip(batch["label"].tolist(), batch["captions"], strict=True))
        state = loader.state_dict()
    for rank in range(2):
        with FastLoader(path, 2, shuffle=True, transforms=steps, rank=rank, world_size=2) as loader:
            loader.load_state_dict(state)
            for batch in loader:
                found |= dict(zip(batch["label"].tolist(), batch["captions"], strict=True))
    assert whole == found
    for others in ([Pick("captions", drop=0.2)], None):
        with FastLoader(path, 3, shuffle=True, transforms=others) as loader:
            with pytest.raises(ValueError, match="picks"):
                loader.load_state_dict(state)
            other = loader.state_dict()
        with FastLoader(path, 3, shuffle=True, transforms=steps) as loader, pytest.raises(ValueError, match="picks"):
            loader.load_state_dict(other)


def test_only_what_is_drawn_is_read(tmp_path: Path) -> None:
    """A damaged element makes a sample bad in the epochs that draw it, and the error names it."""
    path, pick = write(tmp_path / "s.lmdb"), Pick("images")
    damage(path, 7, 2)
    places = [int(pick.places(np.array([7]), np.array([4]), seed=0, epoch=epoch)[0]) for epoch in range(12)]
    assert 2 in places
    for epoch, place in enumerate(places):
        with FastLoader(path, 4, transforms=[pick, *CROPS], on_error="skip") as loader:
            loader.set_epoch(epoch)
            labels = [label for batch in loader for label in batch["label"].tolist()]
            assert (7 not in labels) == (place == 2)
            assert [("s7", "images")] * (place == 2) == [(error.key, error.field) for error in loader.skipped]
            assert ["3 of 4" in str(error) for error in loader.skipped] == [True] * (place == 2)


def test_samples_of_a_dataset(tmp_path: Path) -> None:
    """FastDataset picks by torch's generator, from dicts and tuples, together and none, and a DataLoader joins them."""
    path = write_pairs(tmp_path / "s.lmdb", COUNTS)
    dataset = FastDataset(path, transform=Pick("captions", "ids"))
    torch.manual_seed(0)
    seen = [dataset[7] for _ in range(60)]
    assert {f"7.{j}" for j in range(4)} == {each["captions"] for each in seen}
    assert all(each["ids"].tolist() == [700 + len(each["ids"]) - 1] * len(each["ids"]) for each in seen)
    assert all(each["captions"] == f"7.{len(each['ids']) - 1}" for each in seen)
    assert ("", 0) == (dataset[1]["captions"], len(dataset[1]["ids"]))
    pairs = FastDataset(path, fields=("captions", "title"), transform=Pick("title", drop=1))
    assert (["0.0", "0.1"], "") == pairs[0]
    (batch,) = DataLoader(dataset, 12, collate_fn=FieldCollate(dataset))
    assert all(text.startswith(f"{i}.") or not COUNTS[i] for i, text in enumerate(batch["captions"]))
    unlike = FastDataset(write(tmp_path / "u.lmdb"), transform=Pick("images", "refs"))
    with pytest.raises(SampleError, match="lists of different lengths"):
        unlike[3]


def test_of_a_list_alone(tmp_path: Path) -> None:
    """A dataset of one list gives the element that was picked, and batches of these."""
    dataset = FastDataset(write(tmp_path / "s.lmdb"), fields="refs", transform=Pick("refs"))
    whole = FastDataset(dataset.store, fields="refs")
    assert all(dataset[i] in (whole[i] or [""]) for i in range(len(whole)))
    with FastLoader(dataset, 5) as loader:
        batches = list(loader)
    assert all(text in (whole[i] or [""]) for i, text in enumerate(text for batch in batches for text in batch))


def test_what_cannot_be_picked(tmp_path: Path) -> None:
    """Wrong fields, lists of different lengths, wrong values for none and what reads samples elsewhere: one line."""
    path = write(tmp_path / "s.lmdb", size=24)
    unfit: list[tuple[Any, str]] = [
        (Pick("caption"), r"got no such field for 'caption' among images, control, refs"),
        (Pick("label"), "got .* for 'label'"),
        (Pick("images", "refs"), r"'s0' has 2 in 'images' and 0 in 'refs': write a Pick for each"),
        (Pick("refs", empty=[1]), r"empty=\(1,\) does not fit text"),
        (Pick("ids", empty=""), "does not fit token ids"),
    ]
    for pick, sentence in unfit:
        with pytest.raises(SchemaError, match=sentence):
            FastLoader(path, 4, transforms=[pick])
    with pytest.raises(ValueError, match="both pick 'refs'"):
        FastLoader(path, 4, transforms=[Pick("refs"), Pick("refs")])
    with pytest.raises(ValueError, match="picks where the loader reads samples"):
        FastLoader(FastDataset(path, transform=dict), 4, transforms=[Pick("refs")])
    names: list[Any] = [(), ("a", "a"), (3,)]
    for some in names:
        with pytest.raises(ValueError, match="expected names of fields"):
            Pick(*some)
    with pytest.raises(ValueError, match="0 to 1"):
        Pick("refs", drop=2)
    wrong: Any = Pick("refs")
    with pytest.raises(TypeError, match="for samples with lists"):
        Compose([wrong])
    with pytest.raises(TypeError, match="a tuple or a dict"):
        wrong(["a"])
