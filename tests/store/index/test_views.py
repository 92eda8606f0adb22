"""Several stores as one: spans, columns and keys are those of the members, whatever their formats."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio.errors import SchemaError
from fastio.store import open_store
from fastio.store.index.store import SealedStore
from fastio.store.index.views import MemoryStore, SelectedStore, join_stores
from fastio.store.protocol import SampleStore
from fastio.types.schema import IMAGE, RAW, TOKENS, Field
from tests.conftest import SUFFIXES, encode, pictures, write_store


def members(folder: Path) -> list[SealedStore]:
    """Five pictures in each format, with labels of their own dtypes."""
    stores = []
    for number, suffix in enumerate(SUFFIXES):
        labels = (10 * number + np.arange(5)).astype(["<i8", "<u2", "<i4", "<i8"][number % 4])
        values = [encode(pixels) for pixels in pictures(5, seed=number)]
        folder.mkdir(exist_ok=True)
        stores.append(open_store(write_store(folder / f"{number}.{suffix}", values, labels)))
    return stores


def test_the_samples_of_all_members(tmp_path: Path) -> None:
    """Bytes, checksums, labels, sizes and keys at any indices, pickled too."""
    stores = members(tmp_path)
    joined = join_stores(stores, ["image"])
    indices = np.array([14, 0, 7, 7, 4, 10])
    expected = [stores[index // 5].spans("image", np.array([index % 5])) for index in indices]

    for store in (joined, pickle.loads(pickle.dumps(joined))):
        assert len(store) == 5 * len(stores)
        spans = store.spans("image", indices)
        assert [each.views()[0].tobytes() for each in expected] == [view.tobytes() for view in spans.views()]
        assert spans.checksums is not None
        assert [int(each.checksums[0]) for each in expected] == spans.checksums.tolist()
        assert [24, 0, 12, 12, 4, 20] == store.column("label")[indices].tolist()
        assert [stores[index // 5].keys([index % 5])[0] for index in indices] == store.keys(indices)
        assert np.array_equal(np.concatenate([each.shapes("image") for each in stores]), store.shapes("image"))
        assert store.identity == joined.identity
    assert joined.identity != join_stores(stores[::-1], ["image"]).identity


def test_the_bytes_of_values_are_those_of_their_spans(tmp_path: Path) -> None:
    """In every store that is made of others, as in the sealed one."""
    source = members(tmp_path)[0]
    shape = np.full((len(source), 1), 3, np.int32)
    places = np.array([[0, 3 * i, 3] for i in range(len(source))])
    memory = MemoryStore(source, Field("row", RAW, "|u1", (3,)), [np.zeros(99, np.uint8)], places=places, shapes=shape)
    stores: list[tuple[SampleStore, str]] = [
        (source, "image"),
        (SelectedStore(source, np.array([3, 0, 3]), None), "image"),
        (join_stores(members(tmp_path / "others"), ["image"]), "image"),
        (memory, "row"),
    ]
    for store, name in stores:
        expected = store.spans(name, np.arange(len(store)), checksums=False).sizes
        assert expected.tolist() == store.value_bytes(name).tolist()
        assert not store.value_bytes(name).flags.writeable


def test_closing_it_leaves_the_members_open(tmp_path: Path) -> None:
    """The members belong to whoever opened them, and the joined store holds what it needs of them."""
    stores = members(tmp_path)
    joined = join_stores(stores, ["image"])
    stores[0].close()
    assert len(joined.spans("image", np.array([0])).views()[0])
    joined.close()
    assert len(stores[1].spans("image", np.array([0])).views()[0])


PIXELS = Field("image", RAW, "|u1", (8, 8, 3))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"field": PIXELS}, r"field 'image' is raw \|u1 of 8x8x3 in 'image', but in .* it is encoded pictures"),
        ({}, {"field": Field("x", IMAGE, "|u1", (None, None, None))}, "field 'image' is not there"),
        ({"labels": np.arange(2)}, {}, "has no labels, but .* has: pack it with labels"),
        ({"labels": np.arange(2)}, {"labels": np.arange(2.0)}, "labels of different kinds cannot form a batch"),
        (
            {"labels": np.arange(2)},
            {"labels": np.ones((2, 3), np.int64)},
            "labels of different kinds cannot form a batch",
        ),
        (
            {"labels": np.arange(2), "metadata": {"classes": ["cat", "dog"]}},
            {"labels": np.arange(2), "metadata": {"classes": ["cat", "eel", "dog"]}},
            r"label 1 is 'eel' in .*b.h5 but 'dog' in .*a.h5: pack both with the same classes, or",
        ),
    ],
)
def test_what_cannot_be_joined(tmp_path: Path, first: Any, second: Any, message: str) -> None:
    """Samples or labels that would mean different things are refused by name."""
    values = [pixels.tobytes() for pixels in pictures(2)]
    each = (("a.h5", first), ("b.h5", second))
    stores = [open_store(write_store(tmp_path / name, values, **more)) for name, more in each]
    with pytest.raises(SchemaError, match=message):
        join_stores(stores, ["image"])


def test_classes_are_the_longest_list(tmp_path: Path) -> None:
    """A member may lack the last classes; without names, labels are numbers."""
    values = [encode(pixels) for pixels in pictures(2)]
    names = (["cat"], ["cat", "dog"], None)
    stores = [
        open_store(write_store(tmp_path / f"{n}.h5", values, np.arange(2), metadata=known and {"classes": known}))
        for n, known in enumerate(names)
    ]
    assert join_stores(stores, ["image"]).metadata["classes"] == ["cat", "dog"]
    assert "classes" not in join_stores(stores, ["image"], has_classes=False).metadata


def test_tokenizers_that_did_more_or_less(tmp_path: Path) -> None:
    """What a tokenizer has counted does not make it another one, and is added."""
    field = Field("tokens", TOKENS, "<u2", (None,))
    options = [{"bos": True, "documents": n, "cut": {"documents": 1, "tokens": n}} for n in (3, 4)]
    metadata = [{"tokenizer": {"name": "bpe", "options": each}} for each in options]
    stores = [
        open_store(write_store(tmp_path / f"{n}.h5", [b"aabb"], field=field, metadata=metadata[n])) for n in range(2)
    ]
    options = join_stores(stores, ["tokens"]).metadata["tokenizer"]["options"]
    assert options == {"bos": True, "documents": 7, "cut": {"documents": 2, "tokens": 7}}


def test_ids_of_other_tokenizers_are_refused(tmp_path: Path) -> None:
    """The same ids would be other words."""
    field = Field("tokens", TOKENS, "<u2", (None,))
    stores = [
        open_store(write_store(tmp_path / f"{n}.h5", [b"aabb"], field=field, metadata={"tokenizer": {"name": name}}))
        for n, name in enumerate(("bpe", "bytes"))
    ]
    with pytest.raises(SchemaError, match=r"1\.h5: was packed with another tokenizer than .*0\.h5"):
        join_stores(stores, ["tokens"])
    assert join_stores([stores[0], stores[0]], ["tokens"]).metadata["tokenizer"] == {"name": "bpe"}
