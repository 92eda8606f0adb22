"""FastLoader of samples with many fields: its batches are those of FastDataset and FieldCollate."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fastio import (
    FastDataset,
    FastLoader,
    FieldCollate,
    LengthBucketSampler,
    PadCollate,
    SampleError,
    SchemaError,
    _native,
)
from fastio.loader.device.nested import tensors
from fastio.loader.producer.decoding import RowDecoder
from fastio.loader.producer.native import NativeProducer
from fastio.samplers.batches import Batches
from fastio.store import open_store
from fastio.transforms import RandomCrop, RandomHorizontalFlip, Resize
from tests.conftest import SUFFIXES
from tests.dataset.many_fields import TYPES, make_samples, write_fields
from tests.forking import in_fork

COUNT = 11
PAYLOAD = [name for name in TYPES if name not in ("label", "weight", "count", "is_day", "place", "city")]
MOVED = ("boxes", "points", "kinds")


def samples_of_one_size() -> list[dict[str, Any]]:
    """Samples whose pictures all have one size, so that they can be stacked."""
    samples = make_samples(5) + make_samples(COUNT - 5, seed=1)
    for index, sample in enumerate(samples):
        sample["count"], sample["caption"] = index, f"Bild {index}: zwölf Boxkämpfer"
        for name in ("image", "depth", "mask"):
            sample[name] = sample[name][:40, :30]
    return samples


@pytest.fixture(scope="module", params=SUFFIXES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of all field types in each format."""
    folder = tmp_path_factory.mktemp("fields")
    metadata = {"tokenizer": {"vocab_size": 50_000, "special": {"pad": 9}}}
    return write_fields(folder / f"s.{request.param}", samples_of_one_size(), metadata=metadata)


@pytest.fixture(scope="module")
def one_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of all field types."""
    return write_fields(tmp_path_factory.mktemp("fields") / "s.lmdb", samples_of_one_size())


def assert_same(expected: Any, batch: Any) -> None:
    """Two batches hold the same values in containers of the same types."""
    assert type(batch) is type(expected)
    if isinstance(expected, Mapping):
        assert list(batch) == list(expected)
        for name, value in expected.items():
            assert_same(value, batch[name])
    elif isinstance(expected, (list, tuple)):
        assert len(batch) == len(expected)
        for one, other in zip(expected, batch, strict=True):
            assert_same(one, other)
    elif isinstance(expected, torch.Tensor) and expected.is_nested:
        assert_same(list(expected.unbind()), list(batch.unbind()))
    elif isinstance(expected, torch.Tensor):
        assert (batch.dtype, batch.shape) == (expected.dtype, expected.shape)
        assert torch.equal(expected, batch)
    else:
        assert batch == expected


def plain_batches(dataset: FastDataset, batch_size: int, collate: Any = None) -> list[Any]:
    """What torch's DataLoader makes of the dataset."""
    make, count = FieldCollate(dataset, collate), len(dataset)
    firsts = range(0, count, batch_size)
    return [make([dataset[index] for index in range(first, min(count, first + batch_size))]) for first in firsts]


@pytest.mark.parametrize("collate", [None, "list", "pad", "nested", {"boxes": "pad", "tokens": PadCollate(3)}])
def test_batches_are_those_of_the_dataset(store: Path, collate: Any) -> None:
    """All fields of all types, in dicts, collated in each way."""
    with FastDataset(store) as dataset, FastLoader(dataset, 4, collate=collate, pin_memory=False) as loader:
        assert isinstance(loader._wiring.producer, NativeProducer)
        expected = plain_batches(dataset, 4, collate)
        assert_same(expected, list(loader))
        assert_same(expected, list(loader))


@pytest.mark.parametrize("read", ["map", "pread"])
@pytest.mark.parametrize("threads", [1, 3])
def test_however_it_is_read(one_store: Path, read: Any, threads: int) -> None:
    """Mapped or copied, by one thread or three."""
    with FastDataset(one_store, read=read) as dataset, FastLoader(dataset, 3, threads=threads) as loader:
        assert_same(plain_batches(dataset, 3), list(loader))
        assert COUNT == loader.stats.samples
        assert 0 < loader.stats.batch_bytes < loader.stats.estimated_bytes
        assert loader.stats.tokens > 0


@pytest.mark.parametrize(
    "fields",
    [
        ("boxes", "image"),
        ("label", "caption"),
        ("mask",),
        ("place", "city"),
        *((name, "label") for name in ("mask", "depth", "boxes", "caption", "objects", "sound")),
        *TYPES,
    ],
    ids=str,
)
def test_chosen_fields(one_store: Path, fields: Any) -> None:
    """A tuple in the order of the names, and the value alone for one name."""
    with FastDataset(one_store, fields=fields) as dataset, FastLoader(dataset, 4) as loader:
        assert_same(plain_batches(dataset, 4), list(loader))


def test_one_sample_at_a_time_may_have_any_size(tmp_path: Path) -> None:
    """Batches of one sample need no equal sizes."""
    path = write_fields(tmp_path / "s.tar", make_samples(3))
    with FastDataset(path) as dataset, FastLoader(dataset, 1) as loader:
        assert_same(plain_batches(dataset, 1), list(loader))
    with FastLoader(path, 2) as loader, pytest.raises(SchemaError, match="different sizes in one batch: 'a/0000'"):
        list(loader)


def test_only_what_is_asked_for_is_read(one_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that are fetched, and read ahead, are those of the fields in question."""
    with FastDataset(one_store, fields=("caption", "mask", "label"), read="pread") as dataset:
        files, read = type(dataset.store.files), [0]
        fetch = files.fetch

        def counted(self: Any, spans: Any, **options: Any) -> Any:
            read[0] += int(spans.sizes.sum())
            return fetch(self, spans, **options)

        every = np.arange(COUNT)
        asked = sum(int(dataset.store.spans(name, every).sizes.sum()) for name in ("caption", "mask"))
        monkeypatch.setattr(files, "fetch", counted)
        monkeypatch.setattr(files, "read_ahead", lambda *_, **__: pytest.fail("nothing else is read ahead"))
        with FastLoader(dataset, 4) as loader:
            list(loader)

        assert asked == read[0]


def damaged(path: Path, field: str, index: int) -> None:
    """Change a byte of one value in the file."""
    with open_store(path) as opened:
        spans = opened.spans(field, np.array([index]))
        file = opened.shard_paths[int(spans.shard[0])]
        offset = int(spans.starts[0] + spans.sizes[0] // 2)
    with Path(file).open("r+b") as handle:
        handle.seek(offset)
        byte = handle.read(1)[0]
        handle.seek(offset)
        handle.write(bytes([byte ^ 0xFF]))


@pytest.mark.parametrize("field", PAYLOAD)
def test_a_damaged_value_of_any_field(tmp_path: Path, field: str) -> None:
    """The sample is refused by name; or left out of all fields; or the one field is blank."""
    path = write_fields(tmp_path / "s.lmdb", samples_of_one_size())
    with FastDataset(path) as dataset:
        good = [dataset[index] for index in range(COUNT)]
        make = FieldCollate(dataset)
        whole = make(good[4:8])
    damaged(path, field, 7)

    with FastLoader(path, 4) as loader, pytest.raises(SampleError, match=f"'a/0007'.*field {field!r}") as caught:
        list(loader)
    assert (7, field) == (caught.value.index, caught.value.field)
    with FastLoader(path, 4, on_error="skip") as loader:
        batches = list(loader)
        assert [7] == [error.index for error in loader.skipped]
    assert_same(make(good[4:7]), batches[1])
    with FastLoader(path, 4, on_error="zero") as loader:
        blank = list(loader)[1]
    for name in blank:
        of_field = name in (field, f"{field}_mask")
        if not of_field:
            assert_same(whole[name], blank[name])
        elif isinstance(blank[name], torch.Tensor):
            assert not blank[name][3].any()
        else:
            assert not (blank[name][3].numel() if isinstance(blank[name][3], torch.Tensor) else blank[name][3])


def test_a_value_that_is_no_text(tmp_path: Path) -> None:
    """What is wrong with text and JSON is said in the words of FastDataset, whatever the checksums."""
    samples = samples_of_one_size()
    path = write_fields(tmp_path / "s.tar", samples, {"caption": "text", "objects": "json", "label": "label"})
    with open_store(path) as opened:
        for field in ("caption", "objects"):
            spans = opened.spans(field, np.array([2]))
            with Path(opened.shard_paths[0]).open("r+b") as handle:
                handle.seek(int(spans.starts[0]))
                handle.write(b"\xff")
    for field in ("caption", "objects"):
        with FastDataset(path, fields=(field,), verify=False) as dataset:
            with pytest.raises(SampleError) as expected:
                dataset[2]
            with FastLoader(dataset, 5, on_error="skip") as loader:
                assert [4, 5, 1] == [len(batch[0]) for batch in loader]
                assert [str(expected.value)] == [str(error) for error in loader.skipped]


def test_a_batch_of_bad_samples_alone(tmp_path: Path) -> None:
    """There is no such batch with skip."""
    path = write_fields(tmp_path / "s.lmdb", samples_of_one_size()[:2])
    damaged(path, "caption", 1)
    with FastLoader(path, 1, on_error="skip") as loader:
        assert 1 == len(list(loader))


def test_resume_and_ranks(one_store: Path) -> None:
    """A state continues with the next batch; two ranks share the samples of one order."""
    fields = ("image", "mask", "caption", "boxes", "label")
    options: dict[str, Any] = {"shuffle": True, "transforms": [RandomCrop(16), RandomHorizontalFlip()]}
    dataset = FastDataset(one_store, fields=fields)
    with FastLoader(dataset, 3, **options) as loader:
        batches = list(loader)
    with FastLoader(dataset, 3, **options) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with FastLoader(dataset, 3, **options) as loader:
        loader.load_state_dict(state)
        assert_same(batches[1:], list(loader))
    captions: list[str] = []
    for rank in range(2):
        with FastLoader(dataset, 3, rank=rank, world_size=2, uneven="drop", **options) as loader:
            captions += [caption for batch in loader for caption in batch[2]]
    assert len(captions) == len(set(captions)) == COUNT - 1


def test_indices_weights_and_sampler(one_store: Path) -> None:
    """Which samples come is chosen as for any other dataset."""
    with FastDataset(one_store, fields=("caption", "label")) as dataset:
        by_index = FastLoader(dataset, 2, indices=[5, 1])
        by_sampler = FastLoader(dataset, 2, sampler=[5, 1])
        by_weight = FastLoader(dataset, 2, weights={0: 0, 1: 1.0, 2: 0}, samples_per_epoch=4)
        expected = FieldCollate(dataset)([dataset[5], dataset[1]])
        assert_same(expected, next(iter(by_index)))
        assert_same(expected, next(iter(by_sampler)))
        assert all((labels == 1).all() for _, labels in by_weight)


def test_joined_datasets(one_store: Path, tmp_path: Path) -> None:
    """ConcatDataset of stores with the same fields, in any format."""
    other = write_fields(tmp_path / "other.tar", samples_of_one_size()[:3])
    with FastDataset(one_store) as first, FastDataset(other) as second:
        both = torch.utils.data.ConcatDataset([first, second])
        with FastLoader(both, COUNT) as loader:
            batches = list(loader)
        assert_same(plain_batches(first, COUNT) + plain_batches(second, COUNT), batches)


def test_joined_datasets_of_other_fields(one_store: Path, tmp_path: Path) -> None:
    """Datasets whose samples differ cannot be joined."""
    other = write_fields(tmp_path / "other.lmdb", samples_of_one_size()[:3], {"image": "image", "caption": "text"})
    with FastDataset(one_store) as first, FastDataset(other) as second:
        both = torch.utils.data.ConcatDataset([first, second])
        with pytest.raises(SchemaError, match=r"samples have image, caption, but in .* name the fields that"):
            FastLoader(both, 2)


def test_a_forked_child_continues(one_store: Path) -> None:
    """With threads of its own, also with the batches that its parent has under way."""
    with FastLoader(one_store, 2, threads=2) as loader:
        expected = list(loader)
        batches = iter(loader)
        first = next(batches)
        assert 0 == in_fork(lambda: assert_same(expected, [first, *batches]))
        assert_same(expected, [first, *batches])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"collate": "pack"}, "collate='pack' for 'tokens': expected 'list', 'pad', 'nested' or a PadCollate"),
        ({"collate": {"image": "pad"}}, "collate= names 'image'; fields of token ids or of arrays"),
        ({"cache": "ram"}, "cache='ram' is for one picture or array a sample"),
        ({"cache": "device", "device": "cpu"}, "cache='device' is for one picture or array a sample"),
        ({"decode": "device", "device": "cpu"}, "decode='device' is for one picture or array a sample"),
    ],
)
def test_options_that_do_not_fit(one_store: Path, options: dict[str, Any], message: str) -> None:
    """One line says what is wrong."""
    with pytest.raises((ValueError, SchemaError), match=message) as caught:
        FastLoader(one_store, 2, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{"cache": "ram"}, {"cache": "device", "device": "cpu"}], ids=str)
def test_a_cache_of_a_chosen_pair(one_store: Path, options: dict[str, Any]) -> None:
    """A pair chosen from many fields stays a pair."""
    with FastDataset(one_store, fields=("image", "label")) as dataset, FastLoader(dataset, 4, **options) as loader:
        assert_same(plain_batches(dataset, 4), list(loader))


def test_a_cache_of_pictures_whose_labels_are_left_out(one_store: Path) -> None:
    """The error says which fields a cache can keep, and it keeps these."""
    alone = FastDataset(one_store, fields="image")
    with alone, pytest.raises(ValueError, match=r"fields=\('image', 'label'\)"):
        FastLoader(alone, 2, cache="ram")
    pairs = FastDataset(one_store, fields=("image", "label"))
    with pairs, FastLoader(pairs, 4) as expected, FastLoader(pairs, 4, cache="ram") as loader:
        assert_same(list(expected), list(loader))


def test_transforms_without_pictures(one_store: Path) -> None:
    """Transforms need a size to begin with, and rows what they belong to."""
    boxes = FastDataset(one_store, fields=("boxes", "caption"))
    with boxes, pytest.raises(SchemaError, match="transforms= is for pictures and masks, but the samples have only"):
        FastLoader(boxes, 2, transforms=[RandomCrop(8)])
    kinds = FastDataset(one_store, fields=("image", "kinds"))
    with kinds, pytest.raises(SchemaError, match="rows of 'kinds' are dropped with those of 'boxes'"):
        FastLoader(kinds, 2, transforms=[RandomCrop(8)])


def test_pictures_masks_and_boxes_move_together(one_store: Path) -> None:
    """Random crops and flips: pictures as without the other fields, masks and boxes by the same numbers."""
    steps = [RandomCrop(16), RandomHorizontalFlip()]
    options: dict[str, Any] = {"transforms": steps, "seed": 3}
    with FastDataset(one_store, fields=("image", "label")) as dataset, FastLoader(dataset, COUNT, **options) as loader:
        expected = next(iter(loader))[0]
    together = FastDataset(one_store, fields=("boxes", "kinds", "mask", "image"))
    with together, FastLoader(together, COUNT, **options) as loader:
        boxes, kinds, mask, images = next(iter(loader))

    assert torch.equal(expected, images)
    samples = samples_of_one_size()
    for sample, moved in zip(samples, mask.numpy(), strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(sample["mask"], (16, 16)).reshape(-1, 16, 16)
        assert (windows == moved).all(axis=(1, 2)).any() or (windows[:, :, ::-1] == moved).all(axis=(1, 2)).any()
    assert [len(rows) for rows in boxes] == [len(rows) for rows in kinds]
    assert any(len(rows) < len(sample["boxes"]) for rows, sample in zip(boxes, samples, strict=True))


def test_raw_pictures_of_another_size(tmp_path: Path) -> None:
    """They cannot be transformed beside the picture, which is one line; without transforms each keeps its size."""
    types = {name: TYPES[name] for name in ("image", "thumbnail")}
    path = write_fields(tmp_path / "s.lmdb", make_samples(2)[:1], types)

    with FastLoader(path, 1, transforms=[RandomCrop(4)]) as loader, pytest.raises(SchemaError, match="are 4x5, but 'i"):
        next(iter(loader))
    with FastLoader(path, 1) as loader:
        assert next(iter(loader))["thumbnail"].shape == (1, 3, 4, 5)


def test_pictures_of_one_sample_with_different_sizes(tmp_path: Path) -> None:
    """They cannot be transformed together, and the error names both sizes; without transforms each keeps its own."""
    samples = samples_of_one_size()[:4]
    samples[2]["right"] = samples[2]["image"][:30]
    samples[3]["mask"] = samples[3]["mask"][:, :20]
    for sample in samples:
        sample.setdefault("right", sample["image"])
    types: dict[str, Any] = {"image": "image", "right": "image", "mask": "mask"}
    path = write_fields(tmp_path / "s.lmdb", samples, types)

    with FastLoader(path, 4, transforms=[RandomCrop(16)], on_error="skip") as loader:
        batch = next(iter(loader))
        errors = {error.index: str(error) for error in loader.skipped}
    assert torch.equal(batch["image"], batch["right"])
    assert 2 == len(batch["mask"])
    assert "field 'right': is 30x30, but 'image' of the same sample 40x30 (height x width)" in errors[2]
    assert "field 'mask'" in errors[3]
    assert "40x20" in errors[3]
    assert "40x30" in errors[3]
    with FastLoader(path, 2, indices=[0, 1]) as loader:
        assert (2, 40, 30) == next(iter(loader))["mask"].shape


def test_boxes_of_a_picture_without_a_header(tmp_path: Path) -> None:
    """Zeroed pictures of unknown size have no boxes: nobody knows where these would be."""
    samples = [{"image": b"no picture", "boxes": np.ones((2, 4), np.float32)}, make_samples(3)[2]]
    path = write_fields(tmp_path / "s.lmdb", samples, {"image": "image", "boxes": "xyxy"})
    with FastLoader(path, 2, transforms=[Resize((8, 8))], on_error="zero") as loader:
        batch = next(iter(loader))
        assert [0] == [error.index for error in loader.skipped]
    assert not batch["image"][0].any()
    assert [(0, 4), 4] == [tuple(batch["boxes"][0].shape), batch["boxes"][1].shape[1]]


@pytest.mark.parametrize("fields", ["mask", ("mask", "label"), ("mask", "boxes")], ids=str)
def test_a_mask_alone_leads(one_store: Path, fields: Any) -> None:
    """Without a picture, the size of the mask decides: it is moved as beside a picture of its size."""
    options: dict[str, Any] = {"transforms": [RandomCrop(16), RandomHorizontalFlip()], "seed": 4}
    beside = FastDataset(one_store, fields=("image", "mask"))
    with beside, FastLoader(beside, COUNT, **options) as loader:
        expected = next(iter(loader))[1]
    with FastDataset(one_store, fields=fields) as dataset, FastLoader(dataset, COUNT, **options) as loader:
        batch = next(iter(loader))
        assert torch.equal(expected, batch if isinstance(batch, torch.Tensor) else batch[0])


def test_batches_of_similar_lengths(one_store: Path) -> None:
    """LengthBucketSampler takes the lengths of any field; token ids are padded to its multiple."""
    with FastDataset(one_store, fields=("tokens", "boxes")) as dataset:
        lengths = dataset.lengths_of("tokens")
        assert [len(dataset[index][0]) for index in range(COUNT)] == lengths.tolist()
        assert [len(dataset[index][1]) for index in range(COUNT)] == dataset.lengths_of("boxes").tolist()
        sampler = LengthBucketSampler(lengths, batch_size=3, pad_to_multiple=4)
        with FastLoader(dataset, batch_sampler=sampler) as loader:
            widths = {int(tokens.shape[1]) for (tokens, _), _ in loader}
    assert widths <= {0, 4, 8}


def test_pairs_and_values_of_other_fields(one_store: Path) -> None:
    """A target_transform changes the labels of any pair."""
    dataset = FastDataset(one_store, target_transform=lambda label: label + 100, fields=("objects", "label"))
    with dataset, FastLoader(dataset, COUNT) as loader:
        objects, labels = next(iter(loader))
        assert [dataset[index] for index in range(COUNT)] == list(zip(objects, labels.tolist(), strict=True))


def test_pictures_that_only_pillow_decodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are decoded in threads, with the same transforms, beside masks of any kind; the next epoch says so first."""
    samples = samples_of_one_size()[:6]
    types: dict[str, Any] = {"image": "image", "mask": "mask", "embedding": "float32[4]"}
    as_png = write_fields(tmp_path / "a.lmdb", samples, types)
    for sample in samples[:3]:
        for name, kind in (("image", "TIFF"), ("mask", "GIF")):
            file = io.BytesIO()
            Image.fromarray(sample[name]).save(file, kind)
            sample[name] = file.getvalue()
    as_is = write_fields(tmp_path / "b.lmdb", samples, types)
    options: dict[str, Any] = {"transforms": [RandomCrop(16), RandomHorizontalFlip()], "threads": 2}
    with FastLoader(as_png, 2, **options) as expected, FastLoader(as_is, 2, **options) as loader:
        assert_same(list(expected), list(loader))
        assert_same(list(expected), list(loader))
        assert "Pillow decodes 6 of the first 12 pictures (3 GIF mask, 3 TIFF)" in caplog.text


def test_on_a_device(one_store: Path) -> None:
    """All tensors of a batch are copied, also in lists and pairs; text and objects stay as they are."""
    collate: dict[str, Any] = {"boxes": "nested", "points": "pad"}
    with FastDataset(one_store) as dataset, FastLoader(dataset, 4, device="cpu", collate=collate) as loader:
        assert_same(plain_batches(dataset, 4, collate), list(loader))


ROWS = [
    ("image", "label"),
    ("mask", "image", "thumbnail", "embedding", "label", "weight", "count", "place", "is_day", "city"),
    ("mask", "label"),
    "image",
]


@pytest.mark.parametrize("transforms", [None, [RandomCrop(16), RandomHorizontalFlip()]], ids=["as_stored", "cropped"])
@pytest.mark.parametrize("fields", ROWS, ids=str)
def test_rows_and_columns_are_native_codes(
    one_store: Path, fields: Any, transforms: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Native code makes batches of rows and columns alone, the values that Python would have put together."""
    if transforms and isinstance(fields, tuple):
        fields = tuple(name for name in fields if name != "thumbnail")  # of another size
    with FastDataset(one_store, fields=fields) as dataset:
        with FastLoader(dataset, 4, transforms=transforms, threads=2) as loader:
            producer = loader._wiring.producer
            batches = Batches(np.arange(4), np.array([0, 2, 4]))
            groups = list(producer.submit(batches, epoch=0))
            assert [type(group) for group in groups] == [_native.RowBatches] * 2
            native = list(loader)
        monkeypatch.setattr(RowDecoder, "output", lambda *values, **options: None)
        with FastLoader(dataset, 4, transforms=transforms, threads=2) as loader:
            assert_same(list(loader), native)


@pytest.mark.parametrize("fields", ROWS, ids=str)
def test_pinned_batches_stay_torchs(one_store: Path, fields: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pin_memory values are the same, and lie in what torch allocated, whose allocator must know them again."""
    with FastDataset(one_store, fields=fields) as dataset, FastLoader(dataset, 4, pin_memory=False) as loader:
        plain = list(loader)
    allocated, empty = set[int](), torch.empty

    def pinned_empty(*size: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        memory = empty(*size, **options)
        assert pin_memory
        allocated.add(memory.data_ptr())
        return memory

    with monkeypatch.context() as patch, FastDataset(one_store, fields=fields) as dataset:
        patch.setattr(torch, "empty", pinned_empty)
        patch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
        with FastLoader(dataset, 4, pin_memory=True) as loader:
            pinned = list(loader)
            assert loader.stats.buffer_bytes > 0
    assert_same(plain, pinned)
    found = [each for each in tensors(pinned) if isinstance(each, torch.Tensor) and each.dtype != torch.bool]
    assert found
    assert {each.data_ptr() for each in found} <= allocated
