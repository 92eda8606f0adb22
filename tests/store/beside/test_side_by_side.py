"""Stores side by side: what one store that packs all fields would give, or an error that names what does not fit."""

from __future__ import annotations

import errno
import logging
import pickle
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import FastDataset, FastLoader, Mixture, Writer, beside, open_store
from fastio.errors import SchemaError, StoreError
from fastio.store.beside.joined import BesideStore, end_to_end
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.protocol import SampleStore, read_values
from fastio.types.schema import IMAGE, Field
from tests.conftest import SUFFIXES, encode, pictures
from tests.servers.fixtures import Bucket

COUNT = 20
_PHOTOS = [encode(pixels) for pixels in pictures(COUNT)]
_FIRST = {"image": "image", "label": "label"}
_OTHER = {"caption": "text", "latent": "float16[2,2]", "score": "float32"}


def sample(number: int) -> dict[str, Any]:
    """All fields of a sample."""
    return {
        "image": _PHOTOS[number],
        "label": number % 3,
        "caption": f"caption of {number}",
        "latent": np.full((2, 2), number, np.float16),
        "score": number / 4,
    }


def write(path: Path | str, numbers: list[int], fields: dict[str, str], *, words: str = "") -> str:
    """A store of these samples, in this order, with these fields."""
    with Writer(path, fields, overwrite=True) as writer:
        for number in numbers:
            values = {name: value for name, value in sample(number).items() if name in fields}
            if "caption" in values:
                values["caption"] += words
            writer.write(values, key=f"k{number:03d}")
    return str(path)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    """Photos, and what came later, in another order."""
    order = list(range(COUNT))
    return write(tmp_path / "photos.lmdb", order, _FIRST), write(tmp_path / "more.h5", order[::-1], _OTHER)


def content(store: SampleStore) -> dict[str, Any]:
    """All that a store holds."""
    every = np.arange(len(store))
    values: dict[str, Any] = {field.name: [] for field in store.schema.fields}
    for field in store.schema.payload:
        spans = read_values(store, field.name, every)
        checksums = store.spans(field.name, every).checksums
        assert checksums is not None
        assert store.value_bytes(field.name).tolist() == spans.sizes.tolist()
        values[field.name] = [[view.tobytes() for view in spans.views()], checksums.tolist()]
        if field.codec == IMAGE:
            values["shapes"] = store.shapes(field.name).tolist()
    for field in store.schema.columns:
        values[field.name] = store.column(field.name).tolist()
    return values | {"keys": store.keys(every), "receipt": store.receipt()}


@settings(max_examples=20, deadline=None)
@given(
    first=st.permutations(range(COUNT)),
    other=st.permutations(range(COUNT)),
    counts=st.tuples(st.integers(12, COUNT), st.integers(12, COUNT)),
    is_in_order=st.booleans(),
    suffixes=st.tuples(st.sampled_from(SUFFIXES), st.sampled_from(SUFFIXES)),
)
def test_as_one_store_that_packs_both(
    first: list[int], other: list[int], counts: tuple[int, int], is_in_order: bool, suffixes: tuple[str, str]
) -> None:
    """Bytes, checksums, columns, sizes, keys and the receipt, whatever order and formats, and again when pickled."""
    first = first[: counts[0]]
    other = first if is_in_order else other[: counts[1]]
    both = [number for number in first if number in other]
    with TemporaryDirectory() as folder:
        paths = [
            write(f"{folder}/first.{suffixes[0]}", first, _FIRST),
            write(f"{folder}/other.{suffixes[1]}", other, _OTHER),
        ]
        with (
            beside(*paths, allow=("missing", "extra")) as joined,
            open_store(write(f"{folder}/one.h5", both, _FIRST | _OTHER)) as one,
            pickle.loads(pickle.dumps(joined)) as again,
        ):
            assert one.schema == joined.schema
            assert content(one) == content(joined) == content(again)
            assert joined.identity == again.identity


def test_shards_and_three_stores(tmp_path: Path) -> None:
    """A set, a file and another set, whose shards are numbered one store after the other."""
    order = list(range(COUNT))
    paths = []
    for name, fields, own in (
        ("a-%03d.tar", _FIRST, order),
        ("b.h5", {"caption": "text"}, order),
        ("c-%03d.tar", {"latent": "float16[2,2]", "score": "float32"}, order[::-1]),
    ):
        with Writer(tmp_path / name, fields, **({"shard_bytes": 4_000} if "%" in name else {})) as writer:
            for number in own:
                values = {each: value for each, value in sample(number).items() if each in fields}
                writer.write(values, key=f"k{number:03d}")
        paths.append(str(tmp_path / name))
    with beside(*paths) as joined, open_store(write(tmp_path / "one.h5", order, _FIRST | _OTHER)) as one:
        assert len(joined.shard_paths) > 5
        assert content(one) == content(joined)


@pytest.mark.parametrize("reads", [("map", "pread"), ("pread", "map"), ("pread", "pread")])
def test_files_of_several_kinds(pair: tuple[str, str], reads: tuple[Any, Any]) -> None:
    """Each store's files are read by their own kind; batches are equal."""
    stores = [open_store(path, read=read) for path, read in zip(pair, reads, strict=True)]
    with beside(*pair) as mapped, beside(*stores) as mixed:
        assert content(mapped) == content(mixed)
        batches = [list(FastLoader(FastDataset(store), 6, shuffle=True, threads=2)) for store in (mapped, mixed)]
        for expected, got in zip(*batches, strict=True):
            assert expected["caption"] == got["caption"]
            assert bool((expected["image"] == got["image"]).all())


def test_behind_a_url(bucket: Bucket, pair: tuple[str, str]) -> None:
    """Photos here and captions behind a URL, and both there."""
    remote = Remote(bucket.options)
    folder, _ = folder_of(f"{bucket.url}/", remote)
    for path in pair:
        folder.put(Path(path).name, Path(path))
    urls = [f"{bucket.url}/{Path(path).name}" for path in pair]
    with beside(*pair) as here:
        for paths in ((pair[0], urls[1]), urls):
            with beside(*paths, remote=remote) as there:
                assert content(here) == content(there)
                with FastLoader(there, 6, shuffle=True) as loader, FastLoader(here, 6, shuffle=True) as plain:
                    for got, expected in zip(loader, plain, strict=True):
                        assert expected["caption"] == got["caption"]
                    assert plain.receipt() == loader.receipt()


@pytest.mark.parametrize("is_in_order", [True, False])
def test_lists(tmp_path: Path, *, is_in_order: bool) -> None:
    """Lists in either store are those of one store with both, with its receipt; also values that may be missing."""
    order = list(range(COUNT))
    fields = ({"images": "image[*]"}, {"captions": "text[*]", "note": "text?"})

    def lists(number: int) -> dict[str, Any]:
        return {
            "images": _PHOTOS[number : number + number % 3],
            "captions": [f"caption {each} of {number}" for each in range(number % 4)],
            "note": None if number % 2 else f"note of {number}",
        }

    def packed(name: str, numbers: list[int], types: dict[str, str]) -> str:
        with Writer(tmp_path / name, types) as writer:
            for number in numbers:
                writer.write({each: lists(number)[each] for each in types}, key=f"k{number:03d}")
        return str(tmp_path / name)

    one = packed("one.h5", order, fields[0] | fields[1])
    paths = packed("a.lmdb", order, fields[0]), packed("b.h5", order if is_in_order else order[::-1], fields[1])
    with beside(*paths) as joined, open_store(one) as whole, pickle.loads(pickle.dumps(joined)) as again:
        assert whole.receipt() == joined.receipt()
        for store in (joined, again):
            for got, expected in zip(FastDataset(store), FastDataset(whole), strict=True):
                assert (expected["captions"], expected["note"]) == (got["captions"], got["note"])
                assert [np.asarray(each).tolist() for each in expected["images"]] == [
                    np.asarray(each).tolist() for each in got["images"]
                ]
            with FastLoader(FastDataset(store, fields=("images", "captions")), 6, shuffle=True) as loader:
                captions = [caption for _, each in loader for caption in each]
                assert sorted(map(str, captions)) == sorted(str(lists(number)["captions"]) for number in order)
                assert "equals the store's" in str(loader.receipt())
            for name in ("images", "captions", "note"):
                assert whole.value_bytes(name).tolist() == store.value_bytes(name).tolist()
                assert whole.elements(name).shapes(name).tolist() == store.elements(name).shapes(name).tolist()


# What does not fit.


def test_missing_and_extra_keys_are_refused(tmp_path: Path) -> None:
    """The message counts them, names the first, and says what to type."""
    paths = write(tmp_path / "a.h5", [0, 1, 2, 3, 4, 5], _FIRST), write(tmp_path / "b.h5", [5, 0, 7], _OTHER)
    words = re.escape(
        f"{paths[1]}: its keys are not those of {paths[0]}: {paths[0]} has 4 keys ('k001', 'k002', 'k003', ...)"
    )
    with pytest.raises(SchemaError, match=words):
        beside(*paths)
    with pytest.raises(SchemaError, match=r"b\.h5 has 1 key \('k007'\) that .*allow=\('extra',\) \(--allow extra\)"):
        beside(*paths, allow="missing")
    with beside(*paths, allow=("missing", "extra")) as joined:
        assert ["k000", "k005"] == joined.keys([0, 1])
    other = write(tmp_path / "c.h5", [8, 9], _OTHER)
    with pytest.raises(SchemaError, match=r"a\.h5: shares no key .* there is 'k000' in .*a\.h5 and 'k008' in .*c\.h5"):
        beside(paths[0], other, allow=("missing", "extra"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"allow": "lost"}, "expected some of 'missing', 'extra', 'double'"),
        ({"on": "position"}, "on='position': names the column of a table; samples of stores are matched by their keys"),
        (
            {"fields": {"pose": "x"}},
            r"fields=\{'pose': \.\.\.\}: no such field beside; there is caption, latent, score",
        ),
    ],
)
def test_options_that_make_no_sense(pair: tuple[str, str], options: dict[str, Any], words: str) -> None:
    """One line each."""
    with pytest.raises(ValueError, match=words):
        beside(*pair, **options)


def test_keys_without_extensions(tmp_path: Path) -> None:
    """Photos and captions in files of one name: matched where that is asked for, and in maps of their own."""
    for name, suffix, fields in (("a.h5", "png", {"image": "image"}), ("b.tar", "txt", {"caption": "text"})):
        with Writer(tmp_path / name, fields) as writer:
            for number in range(COUNT) if suffix == "png" else reversed(range(COUNT)):
                writer.write({each: sample(number)[each] for each in fields}, key=f"dir.1/{number}.{suffix}")
    paths = tmp_path / "a.h5", tmp_path / "b.tar"
    with pytest.raises(SchemaError, match="has 20 keys"):
        beside(*paths)
    with beside(*paths, stems=True) as joined, pickle.loads(pickle.dumps(joined)) as again:
        for store in (joined, again):
            assert [f"caption of {number}" for number in range(COUNT)] == [
                each["caption"] for each in FastDataset(store)
            ]
        assert joined.identity == again.identity
        assert "stems=True" in joined.opened_by
    with pytest.raises(SchemaError, match="has 20 keys"):
        beside(*paths)


def test_two_fields_of_one_name(pair: tuple[str, str], tmp_path: Path) -> None:
    """Refused with both stores and what to do; renamed, or left out, they are two or one."""
    other = write(tmp_path / "other.h5", list(range(COUNT)), {"caption": "text", "score": "float32"}, words="!")
    with pytest.raises(
        SchemaError, match=r"other\.h5: has a field 'caption', and so has .*more\.h5: give it another name"
    ):
        beside(*pair, other)
    with beside(pair[1], other, fields={"caption": "second", "score": None}) as joined:
        first = FastDataset(joined)[3]
        assert first["caption"] + "!" == first["second"]
        assert ["caption", "latent", "score", "second"] == [field.name for field in joined.schema.fields]


@pytest.mark.parametrize("fields", [{"caption": "latent"}, {"caption": "x", "score": "x"}])
def test_two_fields_of_one_store_under_one_name(pair: tuple[str, str], fields: dict[str, str]) -> None:
    """Neither is left out without a word."""
    with pytest.raises(SchemaError, match=r"more\.h5: its fields 'caption' and .* would both be .*: give one another"):
        beside(*pair, fields=fields)
    with beside(*pair, fields={"caption": "latent", "latent": "caption"}) as joined:
        assert "caption of 3" == FastDataset(joined)[3]["latent"]


def test_a_field_that_belongs_to_another(tmp_path: Path) -> None:
    """Labels of boxes follow the new name of the boxes, and cannot stay without them."""
    order = list(range(COUNT))
    with Writer(tmp_path / "boxes.h5", {"boxes": "xyxy", "classes": "int64[*] per boxes"}) as writer:
        for number in order:
            writer.write({"boxes": np.ones((2, 4)), "classes": np.array([1, 2])}, key=f"k{number:03d}")
    photos = write(tmp_path / "photos.h5", order, _FIRST)
    with beside(photos, tmp_path / "boxes.h5", fields={"boxes": "found"}) as joined:
        assert "per:found" == joined.schema["classes"].role
    with pytest.raises(SchemaError, match="field 'classes' belongs to 'boxes', which is left out"):
        beside(photos, tmp_path / "boxes.h5", fields={"boxes": None})


# The map.


def map_file(other: str) -> Path:
    """The map beside a store."""
    (found,) = Path(other).parent.glob(f"{Path(other).name}.*.fastio-index")
    return found


def test_the_map_is_kept(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are compared once."""
    with beside(*pair) as joined:
        expected = content(joined)
    monkeypatch.setattr("fastio.store.beside.key_map.match_keys", None)
    with beside(*pair) as joined:
        assert expected == content(joined)


def test_a_damaged_map_is_made_anew(pair: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Whichever byte is flipped, and wherever it is cut: the same samples, and a warning unless nothing changed."""
    with beside(*pair) as joined:
        expected = joined.keys(range(COUNT)), FastDataset(joined)[3]["caption"]
    place = map_file(pair[1])
    whole = place.read_bytes()
    damaged = [whole[:size] for size in range(0, len(whole), 61)]
    damaged += [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(0, len(whole), 7)]
    for data in damaged:
        place.write_bytes(data)
        caplog.clear()
        with beside(*pair) as joined:
            assert expected == (joined.keys(range(COUNT)), FastDataset(joined)[3]["caption"])
        if "made anew" not in caplog.text:  # the byte was between two arrays
            assert data == place.read_bytes()
        else:
            assert whole == place.read_bytes()


def test_a_map_that_names_other_samples_is_not_used(pair: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Rows outside of the store, though all checksums are right."""
    from fastio.store.beside import key_map
    from fastio.store.beside.match import KeyMatch

    first, other = map(open_store, pair)
    rows = np.arange(COUNT, dtype=np.int32) + 1
    bound = key_map._bound(first, other, stems=False)
    key_map._keep([str(_place(pair))], KeyMatch(rows), bound, pair[1])
    with caplog.at_level(logging.WARNING), beside(first, other) as joined:
        assert "caption of 3" == FastDataset(joined)[3]["caption"]
    assert "names samples that there are not" in caplog.text


def _place(pair: tuple[str, str]) -> Path:
    with beside(*pair):
        return map_file(pair[1])


def test_a_store_that_changed_is_noticed(pair: tuple[str, str], tmp_path: Path) -> None:
    """Keys are compared again; a worker that opens the store by its path refuses it, and names it."""
    with beside(*pair) as joined:
        pickled, identity = pickle.dumps(joined), joined.identity
        state = FastLoader(FastDataset(joined), 4).state_dict()
    write(pair[1], [*range(COUNT - 1, 0, -2), *range(0, COUNT, 2)], _OTHER, words=" again")
    with pytest.raises(StoreError, match=r"more\.h5: was replaced since it was opened"):
        pickle.loads(pickled)
    with beside(*pair) as joined:
        assert "caption of 3 again" == FastDataset(joined)[3]["caption"]
        assert identity != joined.identity
        with pytest.raises(ValueError, match="store"):
            FastLoader(FastDataset(joined), 4).load_state_dict(state)


def test_a_folder_that_cannot_be_written(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The map then lies in the cache directory; without one, too, all samples are there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    from fastio.store.beside import key_map
    from fastio.store.foreign.sidecar import publish_sidecar

    def refuse(place: str, *rest: Any) -> None:
        if not place.startswith(str(tmp_path / "cache")):
            raise StoreError("read-only")
        publish_sidecar(place, *rest)

    monkeypatch.setattr(key_map, "publish_sidecar", refuse)
    with beside(*pair):
        pass
    assert 1 == len(list((tmp_path / "cache" / "fastio").iterdir()))
    monkeypatch.setattr(key_map, "match_keys", None)
    with beside(*pair) as joined:
        assert "caption of 3" == FastDataset(joined)[3]["caption"]


def test_a_full_disk_is_an_error(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where TMPDIR has no room for the map, that is said: the kernel would kill a process that writes to its pages."""

    def no_room(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", no_room)
    with pytest.raises(StoreError, match=r"cannot be matched .*No space left on device.*TMPDIR"):
        beside(*pair)


# Loaders.


@pytest.mark.parametrize("shuffle", [False, True, "full"])
def test_a_loader_resumes_on_other_ranks(pair: tuple[str, str], tmp_path: Path, shuffle: Any) -> None:
    """Two ranks begin, one goes on: the same samples as from one store with all fields, and its receipt."""
    one = write(tmp_path / "one.h5", list(range(COUNT)), _FIRST | _OTHER)
    found = []
    for store in (beside(*pair), open_store(one)):
        dataset = FastDataset(store)
        captions, states = [], []
        for rank in range(2):
            with FastLoader(dataset, 3, shuffle=shuffle, seed=3, rank=rank, world_size=2) as loader:
                batches = iter(loader)
                captions += [*next(batches)["caption"], *next(batches)["caption"]]
                states.append(loader.state_dict())
        with FastLoader(dataset, 5, shuffle=shuffle, seed=3) as loader:
            loader.load_state_dict(states)
            for batch in loader:
                captions += batch["caption"]
                assert [int(caption.split()[-1]) / 4 for caption in batch["caption"]] == batch["score"].tolist()
            receipt = loader.receipt()
        assert "equals the store's" in str(receipt)
        found.append((captions, receipt))
    assert found[0] == found[1]


def test_parts_weights_and_workers(pair: tuple[str, str]) -> None:
    """where(), indices, the store itself as a dataset, a Mixture, and torch's workers that open both again."""
    from torch.utils.data import DataLoader

    with beside(*pair) as joined:
        dataset = FastDataset(joined, fields=("image", "caption"))
        good = dataset.where("score >= 2 and label == 1 and width > 1")
        assert [number for number in range(COUNT) if number / 4 >= 2 and number % 3 == 1] == list(good.indices)
        batch = next(iter(FastLoader(good, 2)))
        assert ["caption of 10", "caption of 13"] == batch[1]
        assert COUNT == sum(len(batch["caption"]) for batch in FastLoader(joined, 7, shuffle=True))
        assert 8 == sum(len(batch["caption"]) for batch in FastLoader(joined, 4, indices=range(8)))
        plain = FastDataset(joined, transform=dict)
        loader = DataLoader(plain, 5, num_workers=1, multiprocessing_context="spawn", collate_fn=list)
        assert [f"caption of {number}" for number in range(COUNT)] == [
            sample["caption"] for batch in loader for sample in batch
        ]


def test_several_joined_ones_end_to_end(pair: tuple[str, str], tmp_path: Path) -> None:
    """ConcatDataset and Mixture, also with a store that has all fields itself; each sample once, by the receipt."""
    from torch.utils.data import ConcatDataset

    one = write(tmp_path / "one.tar", [3, 1, 2], _FIRST | _OTHER)
    with beside(*pair) as first, beside(*pair, fields={"score": None}) as second, open_store(one) as third:
        datasets = [FastDataset(store, fields=("image", "caption", "label")) for store in (first, second, third)]
        numbers = [*range(COUNT), *range(COUNT), 3, 1, 2]
        with FastLoader(ConcatDataset(datasets), 7) as loader:
            got = [caption for _, captions, _ in loader for caption in captions]
            assert [f"caption of {number}" for number in numbers] == got
            assert "equals the store's" in str(loader.receipt())
            again = pickle.loads(pickle.dumps(loader.base.store))
            assert again.identity == loader.base.store.identity
            assert third.keys([0]) == again.keys([2 * COUNT])
        mixture = Mixture({"a": datasets[0], "b": datasets[2]}, {"a": 1, "b": 1})
        with FastLoader(mixture, 4, samples_per_epoch=12) as loader:
            assert 12 == sum(len(labels) for _, _, labels in loader)
        with pytest.raises(SchemaError, match=r"more\.h5: has no field 'image', which .* has"):
            end_to_end([first, open_store(pair[1])], ["image"])
        with Writer(tmp_path / "words.h5", {"words": "text"}) as writer:
            writer.write({"words": "!"}, key="k")
        with pytest.raises(SchemaError, match=r"more\.h5: has a field under another name than .*words\.h5"):
            end_to_end([open_store(tmp_path / "words.h5"), beside(*pair, fields={"caption": "words"})], ["words"])


def test_a_damaged_sample_is_named(pair: tuple[str, str]) -> None:
    """A flipped bit in either store: the file, the key and the field."""
    place = Path(pair[1])
    data = bytearray(place.read_bytes())
    at = data.index(b"caption of 7")
    data[at] ^= 1
    place.write_bytes(data)
    with beside(*pair) as joined:
        with pytest.raises(ValueError, match=r"more\.h5.*'k007'.*'caption'"):
            list(FastLoader(joined, 4))
        with FastLoader(joined, 4, on_error="skip") as loader:
            assert COUNT - 1 == sum(len(batch["caption"]) for batch in loader)


def test_what_cannot_stand_side_by_side(pair: tuple[str, str]) -> None:
    """One store, what is none, and what is several already."""
    with pytest.raises(TypeError, match="needs a second store"):
        beside(pair[0])
    with pytest.raises(TypeError, match="takes paths and opened stores, got int"):
        beside(pair[0], 3)  # type: ignore[arg-type]
    with beside(*pair) as joined, pytest.raises(TypeError, match="got BesideStore; name all stores in one call"):
        beside(joined, pair[1])  # type: ignore[arg-type]


def test_what_it_says_of_itself(pair: tuple[str, str]) -> None:
    """Its repr, how to open it, and an index outside."""
    with beside(*pair, allow=("extra",)) as joined:
        assert isinstance(joined, BesideStore)
        assert f"beside({pair[0]!r}, {pair[1]!r}, allow=('extra',))" == joined.opened_by
        assert "20 samples of image, label, caption, latent, score" in repr(joined)
        assert Field("score", "column", "<f4", ()) == joined.schema["score"]
        with pytest.raises(IndexError, match=r"expected indices in 0\.\.19, got 20"):
            joined.spans("caption", np.array([20]))
        with pytest.raises(SchemaError, match="no field 'pose'"):
            joined.column("pose")
