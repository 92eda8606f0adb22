"""Text beside pictures, packed together: placeholders, labels, positions and patches, planned by two budgets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel
from transformers.models.qwen2_vl.processing_qwen2_vl import Qwen2VLProcessor

from fastio import FastDataset, FastLoader, PackCollate, PackSampler, SampleError, SchemaError, Writer, open_store
from fastio.transforms import Normalize, Patchify, Resize, ResizeToTokens, SmartResize, patches_of, vision_lengths
from fastio.types.runs import runs_of_mask
from fastio.types.units import counted
from tests.conftest import encode

IMAGE = 9  # the id that stands for a picture
COUNTS = [2, 0, 1, 3, 0, 1, 1, 0, 2, 4, 0, 1, 1]
QWEN = [SmartResize(8, 64, 800), Patchify(4, order="qwen", packed=True)]
RASTER = [ResizeToTokens(12, 8), Patchify(8, packed=True)]


def picture(number: int) -> NDArray[np.uint8]:
    """Noise, of a size of its own."""
    size = (18 + number % 7, 40 - number % 23, 3)
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)


def text(number: int, pictures: int) -> NDArray[np.int64]:
    """Ids below 8 with a placeholder for each picture."""
    ids = np.random.default_rng(number).integers(0, 8, 5 + 3 * number % 11 + pictures)
    ids[np.random.default_rng(number).permutation(len(ids))[:pictures]] = IMAGE
    return ids


def in_loss(number: int, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """What counts in the loss."""
    return np.arange(len(ids)) % 4 >= number % 3


def write(path: Path, *, kind: str = "image[*]", texts: dict[int, Any] | None = None) -> Path:
    """A store of texts with as many pictures as COUNTS says, or at most one, or one each."""
    fields = {"images": kind, "tokens": "tokens16", "loss": "loss", "types": "uint8[*]", "number": "int"}
    with Writer(path, fields, overwrite=True) as out:
        for number, wish in enumerate(COUNTS):
            count = {"image[*]": wish, "image?": min(wish, 1), "image": 1}[kind]
            ids = (texts or {}).get(number, text(number, count))
            pictures: Any = [encode(picture(10 * number + place), "PNG") for place in range(count)]
            if kind != "image[*]":
                pictures = pictures[0] if pictures else None
            loss = runs_of_mask(in_loss(number, ids))
            sample = {"images": pictures, "tokens": ids, "loss": loss, "types": np.arange(len(ids), dtype=np.uint8)}
            out.write({**sample, "number": number}, key=f"s{number}")
    return path


def pictures_of(sample: dict[str, Any]) -> list[Image.Image]:
    """The pictures of a sample of any kind."""
    pictures = sample["images"]
    return pictures if isinstance(pictures, list) else [] if pictures is None else [pictures]


def loader_of(path: Path | FastDataset, transforms: list[Any], **options: Any) -> FastLoader:
    """Batches of two rows of at most 60 tokens and 160 patches."""
    dataset = path if isinstance(path, FastDataset) else FastDataset(path)
    tokens, patches = vision_lengths(dataset, transforms)
    ranks = {name: options.pop(name) for name in ("rank", "world_size") if name in options}
    packs = PackSampler(tokens, max_tokens=60, patches=patches, max_patches=160, rows=2, seed=3, **ranks)
    collate = PackCollate(60, pad_id=1, rows=2, image_token=IMAGE)
    return FastLoader(dataset, batch_sampler=packs, transforms=transforms, collate=collate, threads=2, **options)


def expected(sample: dict[str, Any], transforms: Sequence[Any], number: int) -> dict[str, torch.Tensor]:
    """What a batch should have of a sample, in plain Python."""
    resize, cut, *_ = transforms
    cuts = [cut(resize(picture)) for picture in pictures_of(sample)]
    merged = 4 if cut.order == "qwen" else 1
    ids, left = sample["tokens"].tolist(), [len(each["patches"]) // merged for each in cuts]
    counts = in_loss(number, np.array(ids)).tolist()
    made: dict[str, list[int]] = {"ids": [], "labels": [], "types": []}
    for place, (token, counts_here) in enumerate(zip(ids, counts, strict=True)):
        times = left.pop(0) if token == IMAGE else 1
        made["ids"] += [token] * times
        made["labels"] += [token if counts_here and token != IMAGE and place else -100] * times
        made["types"] += [place] * times
    assert not left
    parts = {name: torch.tensor(values) for name, values in made.items()}
    parts["patches"] = torch.cat([each["patches"] for each in cuts]) if cuts else torch.empty(0)
    parts["grids"] = torch.stack([each["grid_thw"] for each in cuts]) if cuts else torch.empty(0, 3)
    return parts


@pytest.mark.parametrize("kind", ["image[*]", "image?", "image"])
@pytest.mark.parametrize("transforms", [QWEN, RASTER], ids=["qwen", "raster"])
def test_batches_are_those_of_plain_python(tmp_path: Path, kind: str, transforms: list[Any]) -> None:
    """Ids, labels, positions, what lies beside, patches and grids of each sample, within both budgets, once."""
    dataset = FastDataset(write(tmp_path / "s.lmdb", kind=kind))
    tokens, patches = vision_lengths(dataset, transforms)
    with loader_of(dataset, transforms) as loader:
        batches = list(loader)
        assert loader.receipt().is_exact
    found = []
    for batch in batches:
        ids, cuts = batch["input_ids"].view(-1), batch["cu_seqlens"].tolist()
        documents, starts = batch["document_ids"].view(-1), batch["images"]["cu_seqlens"].tolist()
        of_samples = batch["images_counts"].tolist() if kind != "image" else [1] * len(batch["lengths"])
        grids, firsts = batch["images"]["grid_thw"], np.cumsum([0, *of_samples])
        assert batch["input_ids"].shape == (2, 60)
        assert len(batch["images"]["patches"]) <= 320
        for place, number in enumerate(batch["number"].tolist()):
            sample = expected(dataset[number], transforms, number)
            own = documents == place
            first = int(own.nonzero()[0])
            assert first in cuts
            assert sample["ids"].tolist() == ids[own].tolist()
            assert sample["labels"].tolist() == batch["labels"].view(-1)[own].tolist()
            assert sample["types"].tolist() == batch["types"].view(-1)[own].tolist()
            assert list(range(int(own.sum()))) == batch["position_ids"].view(-1)[own].tolist()
            assert len(sample["ids"]) == batch["lengths"][place] == tokens[number]
            assert len(sample["patches"]) == patches[number]
            part = slice(starts[firsts[place]], starts[firsts[place + 1]])
            patches_here = batch["images"]["patches"][part]
            assert sample["patches"].flatten().tolist() == patches_here.flatten().tolist()
            assert sample["grids"].tolist() == grids[firsts[place] : firsts[place + 1]].tolist()
            found.append(number)
        assert batch["mrope_position_ids"].shape == (3, 2, 60)
        assert (ids[documents < 0] == 1).all()
        assert (batch["labels"].view(-1)[documents < 0] == -100).all()

    assert sorted(found) == list(range(len(COUNTS)))
    assert loader.stats.packing is not None
    assert loader.stats.packing.patches_filled is not None


def test_a_picture_may_have_a_fixed_number_of_tokens(tmp_path: Path) -> None:
    """As LLaVA: pictures of one size, each for so many tokens, without patches; Normalize sees all of them."""
    dataset = FastDataset(write(tmp_path / "s.h5"))
    steps = [Resize((16, 16)), Normalize([0.5] * 3, [0.25] * 3)]
    tokens, pictures = vision_lengths(dataset, steps, image_length=5)
    packs = PackSampler(tokens, max_tokens=64, patches=pictures, max_patches=4)
    collate = PackCollate(64, image_token=IMAGE, image_length=5)
    batches = list(FastLoader(dataset, batch_sampler=packs, transforms=steps, collate=collate))

    assert COUNTS == pictures.tolist()
    assert [len(text(i, count)) + 4 * count for i, count in enumerate(COUNTS)] == tokens.tolist()
    for batch in batches:
        assert batch["images"].shape == (batch["images_counts"].sum(), 3, 16, 16)
        assert batch["images"].dtype == torch.float32
        assert (batch["input_ids"] == IMAGE).sum() == 5 * len(batch["images"]) <= 20
    assert sum(COUNTS) == sum(len(batch["images"]) for batch in batches)


WORDS = ["[UNK]", "a", "photo", "of", "two", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]


class QwenProcessor(Qwen2VLProcessor):  # type: ignore[misc]
    """Without a processor of videos, which would need torchvision."""

    def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
        """Take what is given."""
        return type(argument)


def qwen_processor() -> Any:
    """Qwen2-VL's processor, with a tokenizer of a few words."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[UNK]", additional_special_tokens=WORDS[5:]
    )
    return QwenProcessor(
        image_processor=Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=28 * 28 * 16), tokenizer=words
    )


# What get_rope_index asks of a model.
MODEL: Any = SimpleNamespace(
    config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2)),
    get_vision_position_ids=partial(Qwen2VLModel.get_vision_position_ids, None),
)


def test_samples_are_those_of_transformers(tmp_path: Path) -> None:
    """Ids, positions, grids and patches equal those of transformers' Qwen2VLProcessor, pixels within a level."""
    processor, one = qwen_processor(), "<|vision_start|><|image_pad|><|vision_end|>"
    rows = [(f"a photo {one} of {one}", 2), ("two of a photo", 0), (f"{one} a", 1), (f"a {one} {one} {one} of", 3)]
    with Writer(tmp_path / "s.lmdb", {"images": "image[*]", "tokens": "tokens16", "number": "int"}) as out:
        for number, (words, count) in enumerate(rows):
            ids = processor.tokenizer(words)["input_ids"]
            photos = [encode(noise(90 + 31 * place, 130 - 17 * number), "PNG") for place in range(count)]
            out.write({"images": photos, "tokens": ids, "number": number})
    dataset, image_processor = FastDataset(tmp_path / "s.lmdb"), processor.image_processor
    finish = Normalize(image_processor.image_mean, image_processor.image_std)
    steps = [SmartResize(28, 56 * 56, 28 * 28 * 16), Patchify(14, order="qwen", packed=True), finish]
    tokens, patches = vision_lengths(dataset, steps)
    packs = PackSampler(tokens, max_tokens=256, patches=patches, max_patches=1024)
    (batch,) = FastLoader(
        dataset, batch_sampler=packs, transforms=steps, collate=PackCollate(image_token=processor.image_token_id)
    )
    starts, begins = batch["images"]["cu_seqlens"].tolist(), batch["cu_seqlens"].tolist()
    firsts = np.cumsum([0, *batch["images_counts"].tolist()])

    for place, number in enumerate(batch["number"].tolist()):
        photos = dataset[number]["images"]
        theirs = processor(text=[rows[number][0]], images=photos or None, return_tensors="pt")
        assert theirs["input_ids"][0].tolist() == batch["input_ids"][begins[place] : begins[place + 1]].tolist()
        whole = {name: theirs[name] for name in ("input_ids", "mm_token_type_ids")}
        positions, _ = Qwen2VLModel.get_rope_index(MODEL, **whole, image_grid_thw=theirs.get("image_grid_thw"))
        assert positions[:, 0].tolist() == batch["mrope_position_ids"][:, begins[place] : begins[place + 1]].tolist()
        if photos:
            own = slice(firsts[place], firsts[place + 1])
            assert theirs["image_grid_thw"].tolist() == batch["images"]["grid_thw"][own].tolist()
            values = batch["images"]["patches"][starts[own.start] : starts[own.stop]]
            levels = (theirs["pixel_values"] - values).abs() * 255 * min(image_processor.image_std)
            assert levels.max() < 1.01


def qwen_model() -> Qwen2VLForConditionalGeneration:
    """Qwen2-VL with a few random weights, for ids below 16 and patches of 4 x 4."""
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    text = {
        "vocab_size": 16,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "rope_parameters": rope,
    }
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 1}
    vision = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 1, "patch_size": 4}
    config = Qwen2VLConfig(text_config=text | heads, vision_config=vision, image_token_id=IMAGE, video_token_id=12)
    return Qwen2VLForConditionalGeneration(config).eval()


@torch.no_grad()
def test_a_model_says_of_packed_chats_what_it_says_of_each(tmp_path: Path) -> None:
    """Qwen2-VL's logits for a row of chats are those for each chat alone, with the positions that it makes for it."""
    texts = {}
    for number, count in enumerate(COUNTS):  # the model finds pictures by what stands between them
        parts = [text(number, 0), *[[10, IMAGE, 11, number % 8]] * count]
        texts[number] = np.concatenate(parts)
    path, model = write(tmp_path / "s.lmdb", texts=texts), qwen_model()
    dataset, steps = FastDataset(path), [*QWEN, Normalize([0.5] * 3, [0.25] * 3)]
    tokens, patches = vision_lengths(dataset, steps)
    packs = PackSampler(tokens, max_tokens=128, patches=patches, max_patches=400)
    compared = 0
    for batch in FastLoader(dataset, batch_sampler=packs, transforms=steps, collate=PackCollate(image_token=IMAGE)):
        images, ids = batch["images"], batch["input_ids"][None]
        positions = torch.cat([batch["position_ids"][None], batch["mrope_position_ids"]])[:, None]
        pictures = {"pixel_values": images["patches"], "image_grid_thw": images["grid_thw"]}
        whole = model(input_ids=ids, position_ids=positions, use_cache=False, **pictures).logits[0]
        firsts, starts = np.cumsum([0, *batch["images_counts"].tolist()]), images["cu_seqlens"].tolist()
        for place, (begin, end) in enumerate(pairwise(batch["cu_seqlens"].tolist())):
            own, first, last = ids[:, begin:end], *firsts[place : place + 2]
            values, grids = images["patches"][starts[first] : starts[last]], images["grid_thw"][first:last]
            pictures = {"pixel_values": values, "image_grid_thw": grids, "mm_token_type_ids": (own == IMAGE).int()}
            alone = model(input_ids=own, use_cache=False, **(pictures if last > first else {})).logits[0]
            torch.testing.assert_close(whole[begin:end], alone, atol=1e-5, rtol=1e-4)
            compared += 1
    assert len(dataset) == compared


def noise(height: int, width: int) -> NDArray[np.uint8]:
    """Random pixels."""
    return np.random.default_rng(height * width).integers(0, 256, (height, width, 3), np.uint8)


def numbers_of(batches: Any) -> list[int]:
    """The samples that have come."""
    return [number for batch in batches for number in batch["number"].tolist()]


@pytest.mark.parametrize(("had", "missing"), [(2, 1), (1, 2)])
def test_placeholders_are_counted(tmp_path: Path, had: int, missing: int) -> None:
    """A sample with more or fewer than pictures is a bad sample: raised, left out, or its pictures' tokens alone."""
    ids = text(0, had + 2 - missing)
    ids = np.append(ids[ids != IMAGE], [IMAGE] * (3 if missing == 1 else 1))
    path = write(tmp_path / "s.lmdb", texts={0: ids})
    found = counted(int((ids == IMAGE).sum()), "placeholder")
    words = rf"\('s0'\), field 'tokens': {found} \(id 9\) for 2 pictures in 'images': expected one for each"
    with pytest.raises(SampleError, match=words):
        list(loader_of(path, QWEN))
    skipping, zeroing = loader_of(path, QWEN, on_error="skip"), loader_of(path, QWEN, on_error="zero")
    assert list(range(1, len(COUNTS))) == sorted(numbers_of(skipping))
    for batch in zeroing:
        patches = batch["images"]["patches"]
        assert (batch["input_ids"] == IMAGE).sum() * 4 == len(patches)
        if 0 in (numbers := batch["number"].tolist()):
            own = batch["document_ids"].view(-1) == numbers.index(0)
            assert (batch["input_ids"].view(-1)[own] == IMAGE).all()
            assert (batch["labels"].view(-1)[own] == -100).all()


@pytest.mark.parametrize("field", ["images", "tokens", "loss", "types"])
def test_damage_is_a_bad_sample(tmp_path: Path, field: str) -> None:
    """A flipped byte in a picture, the ids or what lies beside them is found, and dealt with by on_error."""
    path = write(tmp_path / "s.tar")
    with open_store(path) as store:
        spans = (store.elements(field) if field == "images" else store).spans(field, np.array([2]))
    data = bytearray(path.read_bytes())
    data[int(spans.starts[0]) + int(spans.sizes[0]) // 2] ^= 4
    path.write_bytes(bytes(data))

    with pytest.raises(SampleError, match=r"\('s2'\)"):
        list(loader_of(path, QWEN))
    assert [i for i in range(len(COUNTS)) if i != 2] == sorted(numbers_of(loader_of(path, QWEN, on_error="skip")))
    zeroing = loader_of(path, QWEN, on_error="zero")
    for batch in zeroing:
        assert (batch["input_ids"] == IMAGE).sum() * 4 == len(batch["images"]["patches"])
    assert list(range(len(COUNTS))) == sorted(numbers_of(zeroing))


def test_epochs_go_on_with_other_ranks(tmp_path: Path) -> None:
    """Two ranks, then one: each sample comes once, and the receipt says so."""
    path = write(tmp_path / "s.lmdb")
    ranks = [loader_of(path, QWEN, rank=rank, world_size=2) for rank in range(2)]
    begun = [iter(loader) for loader in ranks]
    had = [number for batches in begun for number in numbers_of(islice(batches, 1))]
    rest = loader_of(path, QWEN)
    rest.load_state_dict(ranks[0].state_dict())
    came = [*had, *numbers_of(rest)]

    assert had
    assert set(came) == set(range(len(COUNTS)))
    assert len(came) == len(COUNTS)


def test_pictures_that_a_transform_refuses(tmp_path: Path) -> None:
    """A sample with a picture beyond 1:200 is left out, and named; all others come, within both budgets."""
    with Writer(tmp_path / "s.lmdb", {"images": "image[*]", "tokens": "tokens16", "number": "int"}) as out:
        for number in range(8):
            sizes = [(20, 30), (3, 700) if number in {2, 5} else (25, 16)]
            pictures = [encode(np.full((*size, 3), 9, np.uint8), "PNG") for size in sizes]
            out.write({"images": pictures, "tokens": [1, IMAGE, 2, IMAGE], "number": number})
    loader = loader_of(tmp_path / "s.lmdb", QWEN, on_error="skip")
    found = sorted(numbers_of(loader))

    assert [0, 1, 3, 4, 6, 7] == found
    assert [2, 5] == sorted(error.index for error in loader.skipped)
    assert "field 'images' 2 of 2: SmartResize(" in str(loader.skipped[0])


def test_patches_of_lists_alone(tmp_path: Path) -> None:
    """Without text, pictures of lists are cut as those of single fields are, also where a batch has none."""
    path, resize = write(tmp_path / "s.lmdb"), ResizeToTokens(12, 8)
    dataset = FastDataset(path, fields=("images", "number"))
    for cut in (Patchify(8, 12), Patchify(8), Patchify(8, packed=True)):
        for size in (1, 5):
            loader = FastLoader(dataset, size, transforms=[resize, cut])
            for (images, counts), numbers in loader:
                cuts = [cut(resize(each)) for i in numbers.tolist() for each in dataset[i][0]]
                assert len(cuts) == counts.sum() == len(images["grid_thw"])
                wanted = torch.cat([each["patches"] for each in cuts]) if cuts else torch.empty(0, 192)
                got = images["patches"] if cut.packed else images["patches"][images["patch_valid"]]
                assert torch.equal(wanted, got.to(wanted.dtype))
            assert loader.stats.tokens == patches_of(dataset.readers["images"].sizes(), [resize, cut]).sum()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Text without pictures, no length for pictures, other transforms than planned, and options that mean nothing."""
    path = write(tmp_path / "s.lmdb")
    with Writer(tmp_path / "t.lmdb", {"tokens": "tokens16"}) as out:
        out.write({"tokens": [1, 2, 3]})
    collate = PackCollate(60, image_token=IMAGE)
    with pytest.raises(SchemaError, match="expected samples as dicts with token ids and one field of pictures, got"):
        FastLoader(tmp_path / "t.lmdb", 1, collate=collate)
    with pytest.raises(ValueError, match="expected a Patchify among the transforms, or image_length="):
        FastLoader(path, 2, collate=collate, transforms=[Resize((8, 8))])
    with pytest.raises(ValueError, match="expected a Patchify among them, or image_length="):
        vision_lengths(FastDataset(path), [Resize((8, 8))])
    with pytest.raises(SchemaError, match="patches of lists come one behind the other: drop collate="):
        FastLoader(path, 2, collate={"images": "pad"}, transforms=QWEN)
    tokens, patches = vision_lengths(FastDataset(path), QWEN)
    packs = PackSampler(tokens, max_tokens=60, patches=patches // 4, max_patches=60)
    with pytest.raises(SchemaError, match=r"a batch of \d+ patches, but its PackSampler plans at most 60"):
        list(FastLoader(path, batch_sampler=packs, transforms=QWEN, collate=collate))
    with pytest.raises(ValueError, match="image_token= is for FastLoader"):
        collate([torch.tensor([1, 2])])
    for options, words in (
        ({"image_length": 4}, "image_length=4: expected image_token=, too"),
        ({"image_token": -1}, "image_token=-1: expected a whole number of 0 or more"),
        ({"image_token": 1, "image_length": 0}, "image_length=0: expected a whole number of 1 or more"),
        ({"image_token": 1, "longest": 4}, "longest=4 with image_token="),
        ({"image_token": 0}, "image_token=0 is pad_id, too"),
    ):
        with pytest.raises(ValueError, match=words):
            PackCollate(60, **options)
