"""FastDataset of samples with many fields: what was packed comes back, and only what was asked for is read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Subset

from fastio import FastDataset, FastLoader, SampleError, SchemaError, open_store
from fastio.dataset.form import Form
from fastio.store.files import KINDS
from fastio.types.field_types import field_of
from tests.conftest import SUFFIXES, encode, write_store
from tests.dataset.many_fields import TYPES, assert_equal, make_samples, write_fields
from tests.store.files.toy import SCHEME, Bucket

# torch warns where a test machine has a single CPU; Python 3.12 warns of any fork beside threads.
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Five samples of all field types in each format."""
    folder = tmp_path_factory.mktemp("fields")
    return {suffix: write_fields(folder / f"all.{suffix}", make_samples()) for suffix in SUFFIXES}


def test_samples_are_what_was_packed(stores: dict[str, Path], suffix: str) -> None:
    """A dict of all fields in order, each with its value, one by one and several at once."""
    dataset = FastDataset(stores[suffix])

    for expected, one, many in zip(make_samples(), dataset, dataset.__getitems__(range(5)), strict=True):  # type: ignore[call-overload]
        assert_equal(expected, one)
        assert_equal(expected, many)
    assert dataset.__getitems__([]) == []


@pytest.mark.parametrize("read", ["map", "pread"])
def test_both_ways_to_read(stores: dict[str, Path], suffix: str, read: Any) -> None:
    """The fields that one fetch brought together are told apart again, doubles and any order included."""
    samples = FastDataset(stores[suffix], read=read).__getitems__([4, 0, 4, -4])

    for expected, sample in zip([4, 0, 4, 1], samples, strict=True):
        assert_equal(make_samples()[expected], sample)


def test_pictures_and_masks_are_images(stores: dict[str, Path], suffix: str) -> None:
    """A picture is a lazy PIL image in the mode asked for; masks keep their palette and their 16 bits."""
    sample = FastDataset(stores[suffix], mode="L", fields=("image", "mask", "depth"))[2]

    assert [image.mode for image in sample] == ["L", "P", "I;16"]
    assert sample[1].getpalette()[:6] == [0, 0, 0, 255, 0, 0]
    assert sample[0].size == sample[1].size == (70, 92)


def test_fields_by_choice(stores: dict[str, Path], suffix: str) -> None:
    """One name is the value alone, several are a tuple in that order, image and label the pair."""
    store, expected = open_store(stores[suffix]), make_samples()[3]

    assert FastDataset(store, fields="caption")[3] == expected["caption"]
    assert FastDataset(store, fields="city")[3] == "Cambrai"
    assert FastDataset(store, fields=["is_day", "label"])[3] == (False, 0)
    boxes, image = FastDataset(store, fields=("boxes", "image"))[3]
    assert np.array_equal(boxes, expected["boxes"])
    assert np.array_equal(np.array(image), expected["image"])
    assert len(FastDataset(store, fields=("objects",))[3]) == 1
    assert FastDataset(store, fields=("image", "label"))[3][1] == 0


@pytest.mark.parametrize(
    ("names", "fields", "expected"),
    [
        (["image"], None, Form(("image",), "value")),
        (["image", "label"], None, Form(("image", "label"), "pair")),
        (["caption", "label"], None, Form(("caption", "label"), "pair")),
        (["image", "weight"], None, Form(("image", "weight"), "dict")),
        (["image", "caption", "label"], None, Form(("image", "caption", "label"), "dict")),
        (["image", "caption", "label"], ("caption", "label"), Form(("caption", "label"), "pair")),
        (["image", "caption", "label"], ("label", "image"), Form(("label", "image"), "tuple")),
        (["image", "label"], "image", Form(("image",), "value")),
        (["image", "label"], ["image"], Form(("image",), "tuple")),
    ],
)
def test_forms(tmp_path: Path, names: list[str], fields: Any, expected: Form) -> None:
    """What a store of some fields gives, without a choice and with one."""
    path = write_fields(tmp_path / "s.lmdb", make_samples(1), {name: TYPES[name] for name in names})
    dataset = FastDataset(path, fields=fields)

    assert dataset.form == expected
    assert list(dataset.readers) == [name for name in expected.names if name not in ("label", "weight")]
    assert pickle.loads(pickle.dumps(dataset)).form == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("pose", r"fields='pose': no such field: 'pose'; the store has image, depth, mask, caption, "),
        (("image", "pose", "gaze"), r"no such field: 'pose', 'gaze'; the store has image"),
        ((), r"fields=\(\): expected one name or more, each once: none; the store has"),
        (("image", "image"), r"expected one name or more, each once: 'image', 'image'; the store has"),
    ],
)
def test_unknown_fields(stores: dict[str, Path], fields: Any, message: str) -> None:
    """A wrong choice is one line that lists the fields there are."""
    with pytest.raises(SchemaError, match=message):
        FastDataset(stores["lmdb"], fields=fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [(("mask", "image"), "image"), (("mask", "caption"), "mask"), ("weight", "image"), (None, "image")],
)
def test_the_reader_is_that_of_the_first_picture(stores: dict[str, Path], fields: Any, expected: str) -> None:
    """``reader`` is the first picture's of the form, else the first payload field's; masks are no pictures there."""
    assert FastDataset(stores["h5"], fields=fields).reader.field.name == expected


def test_image_and_label_of_many_fields_take_the_fast_path(stores: dict[str, Path]) -> None:
    """The pair of a larger store is what FastLoader decodes natively."""
    dataset = FastDataset(stores["lmdb"], fields=("thumbnail", "label"))
    with FastLoader(dataset, 5) as loader:
        thumbnails, labels = next(iter(loader))

    assert dataset.is_as_stored
    assert not FastDataset(stores["lmdb"], fields="thumbnail").is_as_stored  # there are labels that it leaves out
    assert thumbnails.shape == (5, 3, 4, 5)
    assert labels.tolist() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_other_fields_are_not_read(stores: dict[str, Path], suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes read are those of the fields asked for, and no more."""
    bucket = Bucket()
    monkeypatch.setitem(KINDS, "toy", bucket.kind())
    name = f"{SCHEME}all.{suffix}"
    bucket.put(name, stores[suffix].read_bytes())
    dataset = FastDataset(name, fields=("caption", "weight", "boxes"), read="toy")  # type: ignore[arg-type]
    bucket.reads.clear()

    dataset.__getitems__([2, 3])

    every = make_samples()
    captions = [len(every[i]["caption"].encode()) for i in (2, 3)]
    assert [stop - start for _, start, stop in bucket.reads] == [*captions, 2 * 16, 3 * 16]


def test_the_transform_gets_the_whole_sample(stores: dict[str, Path]) -> None:
    """Of dicts and tuples; its exception names the sample."""
    assert FastDataset(stores["tar"], list)[0] == list(TYPES)
    assert FastDataset(stores["tar"], lambda pair: pair[::-1], fields=("label", "caption"))[1][1] == 1
    assert FastDataset(stores["tar"], str.upper, fields="city")[0] == "KYÏV"
    with pytest.raises(KeyError) as error:
        FastDataset(stores["tar"], lambda sample: sample["pose"])[1]
    assert "all.tar[1] ('a/0001')" in error.value.__notes__[0]


def test_target_transform_is_for_pairs(stores: dict[str, Path]) -> None:
    """It is refused where the transform gets the label anyway."""
    with pytest.raises(ValueError, match=r"these are a dict of image, .*: change the label in transform="):
        FastDataset(stores["lmdb"], None, int)
    assert FastDataset(stores["lmdb"], None, str, fields=("caption", "label"))[2][1] == "2"


def test_blank_keeps_what_can_be_read(tmp_path: Path, suffix: str) -> None:
    """Only the fields that are bad are blank; those of one payload field always are."""
    samples = make_samples(2)
    samples[1]["image"] = encode(samples[1]["image"])[:300]
    samples[1]["mask"] = b"no picture"
    samples[1]["sound"] = b"kept"
    path = write_fields(tmp_path / f"s.{suffix}", samples, {name: TYPES[name] for name in ("image", "sound", "label")})
    dataset = FastDataset(path)

    with pytest.raises(SampleError, match=r"\('a/0001'\), field 'image': .*: image file is truncated"):
        dataset[1]["image"].load()
    assert not np.array(dataset.blank(1)["image"]).any()
    assert (dataset.blank(1)["image"].size, dataset.blank(1)["sound"], dataset.blank(1)["label"]) == (
        (70, 91),
        b"kept",
        1,
    )
    assert dataset.blank(0)["image"] == dataset[0]["image"]
    assert FastDataset(path, fields="sound").blank(1) == b""


@pytest.mark.parametrize(
    ("kind", "value", "message", "blank"),
    [
        ("text", b"\xff\xfe", r"byte 0 \(0xff\) is not UTF-8", ""),
        ("json", b"{", "is no JSON document: Expecting property name", None),
        ("mask", b"GIF89a", "Pillow", None),
    ],
)
def test_errors_name_the_field(tmp_path: Path, kind: str, value: bytes, message: str, blank: Any) -> None:
    """A bad value is a SampleError with its key and field."""
    dataset = FastDataset(write_store(tmp_path / "s.lmdb", [value], field=field_of("extra", kind)))

    with pytest.raises(SampleError, match=rf"\('a/0000.png'\), field 'extra': .*{message}") as error:
        dataset[0]
    assert (error.value.field, error.value.key, error.value.index) == ("extra", "a/0000.png", 0)
    if kind == "mask":
        with pytest.raises(SampleError, match="its size is unknown"):
            dataset.blank(0)
    else:
        assert dataset.blank(0) == blank


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_workers_give_the_same(stores: dict[str, Path], start_method: str) -> None:
    """A DataLoader's workers get the dataset by fork or by pickle, and read the same samples."""
    dataset = FastDataset(stores["tar"])
    loader = DataLoader(dataset, None, num_workers=1, multiprocessing_context=start_method)

    for expected, sample in zip(make_samples(), loader, strict=True):
        assert_equal(expected, sample)


def test_it_still_looks_like_an_image_folder(stores: dict[str, Path]) -> None:
    """Labels, keys, classes and samples of a store of many fields are those of its column "label"."""
    dataset = FastDataset(stores["lmdb"])

    assert dataset.targets == [0, 1, 2, 0, 1]
    assert dataset.classes == ["0", "1", "2"]
    assert dataset.samples[1] == ("a/0001", 1)
    assert dataset.loader("a/0003")["caption"] == make_samples()[3]["caption"]
    assert dataset.column("count").tolist() == [250, 251, 252, 253, 254]
    assert [sample["label"] for sample in dataset.iterable(rank=0, world_size=1)] == dataset.targets
    assert Subset(dataset, [3])[0]["label"] == 0
    shown = repr(FastDataset(stores["lmdb"], fields=("boxes", "label", "kinds")))
    assert shown.endswith("5 samples, lmdb, tuple of boxes: xyxy, label: int, kinds: int64[*] per boxes")


def test_samples_can_be_chosen(stores: dict[str, Path]) -> None:
    """A list assigned to ``samples`` brings its own labels; without any, the field is gone."""
    dataset = FastDataset(stores["h5"])
    dataset.samples = [("a/0004", 7), ("a/0002", 5)]
    assert [(sample["label"], sample["caption"][5]) for sample in dataset] == [(7, "4"), (5, "2")]  # type: ignore[attr-defined]

    dataset.samples = [("a/0004", None)]
    assert "label" not in dataset[0]
    pairs = FastDataset(stores["h5"], fields=("image", "label"))
    with pytest.raises(SchemaError, match="no such field: 'label'"):
        pairs.samples = [("a/0004", None)]
    assert len(pairs) == 5


def test_class_names_by_field(tmp_path: Path) -> None:
    """Names of the column "label" are ``classes``; other fields have their own."""
    metadata = {"classes": ["cat", "dog"], "field_classes": {"kinds": ["car", "bus"]}}
    types = {name: TYPES[name] for name in ("caption", "boxes", "kinds", "label")}
    dataset = FastDataset(write_fields(tmp_path / "s.tar", make_samples(2), types, metadata))

    assert dataset.classes_of("kinds") == ["car", "bus"]
    assert dataset.classes_of("label") == dataset.classes == ["cat", "dog"]
    assert dataset.classes_of("caption") == []
    with pytest.raises(SchemaError, match=r"no field 'pose'; class names are stored for \['kinds'\]"):
        dataset.classes_of("pose")
