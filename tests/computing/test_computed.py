"""A function over a store: what it returns lies in a store of the same keys, whoever makes which part of it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from fastio import FastDataset, FastLoader, Writer, beside, compute, open_store
from fastio.cli import cli
from fastio.computing.computed import computed_source
from fastio.converters import Part
from fastio.errors import FastioError, SampleError, SchemaError, SourceError, StoreError
from fastio.store.sets.merge import merge_stores
from fastio.transforms import Resize
from fastio.types.field_types import type_of
from tests.conftest import encode, pictures

COUNT = 30


@pytest.fixture
def photos(tmp_path: Path) -> str:
    """Photos of unequal sizes, each with its number."""
    with Writer(tmp_path / "photos.lmdb", {"image": "image", "number": "int"}) as writer:
        for number in range(COUNT):
            (pixels,) = pictures(1, (20 + number % 3, 24, 3), seed=number)
            writer.write({"image": encode(pixels), "number": number}, key=f"a/{number:03d}.png")
    return str(tmp_path / "photos.lmdb")


def describe(batch: Any) -> dict[str, Any]:
    """Values of all kinds, each a function of one sample."""
    images, numbers = batch["image"].float(), batch["number"]
    return {
        "embedding": images.mean((2, 3)),
        "latent": (images[:, :1, :2, :2] / 4).to(torch.bfloat16),
        "score": numbers.double() / 4,
        "caption": [f"number {number}" for number in numbers.tolist()],
        "tags": [list(range(number % 4 + 1)) for number in numbers.tolist()],
        "extra": [{"even": number % 2 == 0} for number in numbers.tolist()],
    }


OPTIONS: dict[str, Any] = {"transforms": [Resize((8, 8))], "batch_size": 7}


def values(path: str) -> list[Any]:
    """All samples of a computed store, comparable."""
    with open_store(path) as store:
        dataset = FastDataset(store)
        return [{name: as_plain(value) for name, value in sample.items()} for sample in dataset]


def as_plain(value: Any) -> Any:
    """Numbers as lists; NumPy takes no tensor of bfloat16."""
    return value.tolist() if isinstance(value, torch.Tensor) else np.asarray(value).tolist()


@pytest.mark.parametrize("name", ["out.lmdb", "out.h5", "out.tar", "out-%03d.tar"])
def test_values_of_all_kinds(photos: str, tmp_path: Path, name: str) -> None:
    """Each sample has what the function makes of it, under its key; read beside the photos."""
    out = str(tmp_path / name)
    report = compute(photos, out, describe, shard_bytes=20_000 if "%" in name else None, **OPTIONS)

    expected = describe(next(iter(FastLoader(photos, COUNT, transforms=OPTIONS["transforms"]))))
    assert (COUNT, []) == (report.packed, report.skipped)
    with beside(photos, out) as both:
        assert both.members[1].rows is None
        assert both.keys(range(COUNT)) == open_store(photos).keys(range(COUNT))
        for number, sample in enumerate(FastDataset(both)):
            assert (number, number / 4, f"number {number}") == (sample["number"], sample["score"], sample["caption"])
            assert list(range(number % 4 + 1)) == sample["tags"].tolist()
            assert {"even": number % 2 == 0} == sample["extra"]
            assert expected["embedding"][number].tolist() == sample["embedding"].tolist()
            assert expected["latent"][number].float().tolist() == sample["latent"].tolist()


def test_columns_alone(photos: str, tmp_path: Path) -> None:
    """Scores without anything else: a column that where() and samplers know."""
    compute(photos, tmp_path / "scores.h5", lambda batch: {"score": batch["number"] * 2.0}, **OPTIONS)
    with beside(photos, tmp_path / "scores.h5") as both:
        assert [28, 29] == FastDataset(both).where("score >= 56").indices


def test_types_that_are_asked_for(photos: str, tmp_path: Path) -> None:
    """Only these fields, as these types."""
    fields = {"embedding": "float16[3]"}
    compute(photos, tmp_path / "out.h5", describe, fields=fields, **OPTIONS)
    with open_store(tmp_path / "out.h5") as store:
        assert [("embedding", "<f2", (3,))] == [(each.name, each.dtype, each.shape) for each in store.schema.fields]
    with pytest.raises(SchemaError, match=r"returns embedding, .* and no 'pose', which fields= asks for"):
        compute(photos, tmp_path / "more.h5", describe, fields={"pose": "float32[2]"}, **OPTIONS)


@pytest.mark.parametrize(
    ("read", "counts_of"),
    [
        ("many", lambda batch: batch[1]),
        (("many", "number"), lambda batch: batch[0][1]),
        (("number", "many"), lambda batch: batch[1][1]),
        (None, lambda batch: batch["many_counts"]),
    ],
)
def test_lists_of_pictures(tmp_path: Path, read: Any, counts_of: Any) -> None:
    """A batch has all pictures of its samples, as the loader makes it; values are one a sample all the same."""
    with Writer(tmp_path / "lists.h5", {"many": "image[*]", "number": "int"}) as writer:
        for number in range(COUNT):
            writer.write({"many": [encode(each) for each in pictures(number % 4)], "number": number}, key=f"{number}")
    compute(
        tmp_path / "lists.h5", tmp_path / "out.h5", lambda batch: {"count": counts_of(batch)}, read=read, batch_size=7
    )
    assert [number % 4 for number in range(COUNT)] == open_store(tmp_path / "out.h5").column("count").tolist()


def test_values_that_are_lists(photos: str, tmp_path: Path) -> None:
    """As many values a sample as the function finds, none included; pictures are told by themselves."""

    def crops(numbers: Any) -> dict[str, Any]:
        counts = [number % 3 for number in numbers.tolist()]
        return {
            "faces": [[encode(each) for each in pictures(count)] for count in counts],
            "names": [[f"name {i}" for i in range(count)] for count in counts],
            "note": ["seen" if count else None for count in counts],
        }

    fields = {"faces": None, "names": "text[*]", "note": "text?"}
    compute(photos, tmp_path / "out.lmdb", crops, read="number", fields=fields, batch_size=4)
    with open_store(tmp_path / "out.lmdb") as store:
        assert "image[*]" == type_of(store.schema["faces"])
        for number, sample in enumerate(FastDataset(store)):
            count = number % 3
            assert (count, [f"name {i}" for i in range(count)]) == (len(sample["faces"]), sample["names"])
            assert ("seen" if count else None) == sample["note"]


# Interrupted, in parts, by others.


class StoppedError(RuntimeError):
    """What ends a run."""


def test_an_interrupted_run_goes_on(photos: str, tmp_path: Path) -> None:
    """Finished shards stay and are not computed again; the bytes are those of a run without a stop."""
    seen: list[int] = []
    last = [20]

    def stops(batch: Any) -> dict[str, Any]:
        seen.extend(batch["number"].tolist())
        if last[0] in seen[-len(batch["number"]) :] and len(seen) > 7:
            raise StoppedError
        return describe(batch)

    stops.version = "1"  # type: ignore[attr-defined] # what it has counted does not make it another function
    out, whole = str(tmp_path / "out-%03d.tar"), str(tmp_path / "whole-%03d.tar")
    options = {**OPTIONS, "shard_bytes": 20_000}
    with pytest.raises(StoppedError) as stopped:
        compute(photos, out, stops, **options)
    assert "finished and stay: go on with --resume" in "".join(stopped.value.__notes__)
    with pytest.raises(StoreError):
        open_store(out)
    seen.clear()
    last[0] = -1
    report = compute(photos, out, stops, resume=True, **options)
    assert report.kept_samples > 0
    assert len(seen) == COUNT - report.kept_samples + 7
    compute(photos, whole, stops, **options)
    assert values(out) == values(whole)
    shards = [sorted(path.read_bytes() for path in tmp_path.glob(f"{name}-0*.tar")) for name in ("out", "whole")]
    assert shards[0] == shards[1]


def test_a_single_file_is_whole_or_not_there(photos: str, tmp_path: Path) -> None:
    """A run that ends early leaves nothing under the name."""

    def stops(batch: Any) -> dict[str, Any]:
        if 20 in batch["number"]:
            raise StoppedError
        return describe(batch)

    with pytest.raises(StoppedError):
        compute(photos, tmp_path / "out.h5", stops, **OPTIONS)
    assert ["photos.lmdb"] == sorted(path.name for path in tmp_path.iterdir())


def test_parts_make_the_same_set(photos: str, tmp_path: Path) -> None:
    """Three processes would; the last one seals."""
    out, whole = str(tmp_path / "out-%03d.tar"), str(tmp_path / "whole-%03d.tar")
    reports = [
        compute(photos, out, describe, part=Part(index, 3), shard_bytes=20_000, **OPTIONS) for index in (2, 0, 1)
    ]
    compute(photos, whole, describe, shard_bytes=20_000, **OPTIONS)

    assert [True, True, False] == [bool(report.missing) for report in reports]
    assert values(out) == values(whole)


def test_shards_of_another_function_are_refused(photos: str, tmp_path: Path) -> None:
    """--resume does not mix values of two functions, or of two stores."""

    def other(batch: Any) -> dict[str, Any]:
        return describe(batch)

    out = str(tmp_path / "out-%03d.tar")
    compute(photos, out, describe, part=Part(0, 2), shard_bytes=20_000, **OPTIONS)
    with pytest.raises(StoreError, match="its shards were packed from another state of the source"):
        compute(photos, out, other, resume=True, shard_bytes=20_000, **OPTIONS)


def _doubled(numbers: Any) -> dict[str, Any]:
    return {"score": 2.0 * numbers}


def _scaled(scale: float, inner: Any = _doubled) -> Any:
    def scaled(numbers: Any) -> dict[str, Any]:
        return {"score": scale * inner(numbers)["score"]}

    return scaled


def _raised(numbers: Any, *, by: int) -> dict[str, Any]:
    return {"score": numbers + float(by)}


class _Encoder:
    """Attributes of its own, and in slots, of which calls change one."""

    __slots__ = ("__dict__", "scale")

    def __init__(self, scale: float, device: Any = "cpu", version: Any = None) -> None:
        self.scale, self.device, self.calls = scale, device, 0
        if version is not None:
            self.version = version

    def __call__(self, numbers: Any) -> dict[str, Any]:
        self.calls += 1
        return self.encode(numbers)

    def encode(self, numbers: Any) -> dict[str, Any]:
        return {"score": self.scale * numbers}


def _typed(text: str) -> Any:
    """A function without source, as those of a prompt."""
    return eval(compile(text, "<typed>", "eval"), {})


# fmt: off
_PLUS, _MINUS, _PLUS_TWO = lambda x: {"score": x + 1.0}, lambda x: {"score": x - 1.0}, lambda x: {"score": x + 2.0}
# fmt: on


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_PLUS, _MINUS),
        (_PLUS, _PLUS_TWO),
        (_typed("lambda x: {'score': x + 1.0}"), _typed("lambda x: {'score': x + 2.0}")),
        (
            _typed("lambda x: {'score': [*map(lambda y: y + 1.0, x)]}"),
            _typed("lambda x: {'score': [*map(lambda y: y + 2.0, x)]}"),
        ),
        (_Encoder(1).encode, _Encoder(2).encode),
        (_scaled(1), _scaled(2)),
        (_scaled(1, _scaled(1)), _scaled(1, _scaled(2))),
        (_scaled(1), _scaled(1, partial(_raised, by=1))),
        (partial(_raised, by=1), partial(_raised, by=2)),
        (partial(_doubled), partial(_raised, by=1)),
    ],
)
def test_functions_made_with_other_values_are_others(photos: str, one: Any, other: Any) -> None:
    """Arguments of ``partial`` and variables of the function around it tell functions of the same source apart."""
    said = [computed_source(photos, each, read="number").metadata["computed"] for each in (one, one, other)]
    assert said[0] == said[1] != said[2]
    assert said[0]["definition"]
    assert "partial" not in said[2]["function"]


def test_objects_are_known_by_their_attributes(photos: str) -> None:
    """As they are before the first call; a version counts in their place."""

    def said(function: Any) -> str:
        return computed_source(photos, function, read="number").metadata["computed"]["definition"]

    assert said(_Encoder(1)) == said(_Encoder(1)) != said(_Encoder(2))
    assert said(partial(_Encoder(1))) == said(partial(_Encoder(1))) != said(partial(_Encoder(2)))
    assert said(_Encoder(1, ["a", "b"])) == said(_Encoder(1, ["a", "b"])) != said(_Encoder(1, ["a", "c"]))
    assert said(_Encoder(1)) != said(_Encoder(1, "cuda:1"))
    assert said(_Encoder(1, version="a")) != said(_Encoder(1, version="b"))
    assert said(_Encoder(1, version="a")) == said(_Encoder(2, "cuda:1", version="a")) != said(_Encoder(1))


def test_another_object_does_not_go_on(photos: str, tmp_path: Path) -> None:
    """Its shards would stand beside those of the first."""
    out, options = str(tmp_path / "out-%03d.tar"), {"read": "number", "shard_bytes": 4000, "batch_size": 7}
    compute(photos, out, _Encoder(1), part=Part(0, 2), **options)
    with pytest.raises(
        StoreError, match="the function that computes it and what that was made with, unless it has a v"
    ):
        compute(photos, out, _Encoder(2), resume=True, **options)


# What goes wrong.


@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
@pytest.mark.parametrize(
    ("field", "made"),
    [
        ("float32", lambda values: values),
        ("float32[2]", lambda values: torch.stack([values, values], 1)),
        ("float32[*]", lambda values: [value.repeat(1 + i) for i, value in enumerate(values)]),
        ("bfloat16[1]", lambda values: values[:, None].to(torch.bfloat16)),
        ("float16[1,*,*]", lambda values: [np.full((1, 2, 1 + i), value) for i, value in enumerate(values)]),
        ("float32[1][*]", lambda values: [[[0.0], [value]] for value in values.tolist()]),
        ("float32[1]?", lambda values: [[value] for value in values.tolist()]),
    ],
)
def test_values_that_are_not_finite(photos: str, tmp_path: Path, field: str, made: Any, wrong: float) -> None:
    """A network that overflows stops the run, which names the sample and what keeps such values."""

    def function(numbers: Any) -> dict[str, Any]:
        values = numbers.float() / 4
        values[numbers == 17] = wrong
        return {"x": made(values)}

    out = tmp_path / "out.h5"
    options: dict[str, Any] = {"fields": {"x": field}, "read": "number", "batch_size": 7}
    with pytest.raises(SourceError, match=rf"a/017\.png.*{wrong} in the field 'x'.*--allow-nan"):
        compute(photos, out, function, **options)
    assert ["a/017.png"] == [each.key for each in compute(photos, out, function, on_error="skip", **options).skipped]
    compute(photos, out, function, allow_nan=True, overwrite=True, **options)
    value = FastDataset(beside(photos, out))[17]["x"]
    value = value[-1] if isinstance(value, list) else value
    assert str(wrong) == str(np.asarray(as_plain(value)).flat[-1])


def refuses(batch: Any) -> dict[str, Any]:
    """Some samples are none for this function."""
    if {5, 17} & set(batch["number"].tolist()):
        raise SampleError("has no face")
    return {"embedding": batch["image"].float().mean((2, 3))}


def test_samples_that_the_function_refuses(photos: str, tmp_path: Path) -> None:
    """Named, though a whole batch was asked for; left out and listed with on_error="skip"."""
    with pytest.raises(SourceError, match=r"a/005\.png.*is refused by .*refuses: has no face"):
        compute(photos, tmp_path / "out.h5", refuses, **OPTIONS)
    report = compute(photos, tmp_path / "out.h5", refuses, on_error="skip", **OPTIONS)

    assert ["a/005.png", "a/017.png"] == [problem.key for problem in report.skipped]
    with open_store(tmp_path / "out.h5") as store:
        assert COUNT - 2 == len(store)
        assert ["a/005.png", "a/017.png"] == [entry["key"] for entry in store.metadata["skipped"]]
    with pytest.raises(SchemaError, match=r"2 keys \('a/005\.png', 'a/017\.png'\)"):
        beside(photos, tmp_path / "out.h5")
    with beside(photos, tmp_path / "out.h5", allow="missing") as both:
        assert COUNT - 2 == len(both)


def test_a_sample_of_the_first_batch_is_refused(photos: str, tmp_path: Path) -> None:
    """The others tell the fields, also where there is no batch without such a sample."""
    report = compute(photos, tmp_path / "out.h5", refuses, on_error="skip", transforms=[Resize((8, 8))], batch_size=64)
    assert (COUNT - 2, ["a/005.png", "a/017.png"]) == (report.packed, [problem.key for problem in report.skipped])


def test_damaged_photos(photos: str, tmp_path: Path) -> None:
    """A bad sample of the store is a problem with its key, whatever batch it is in."""
    data = bytearray(Path(photos).read_bytes())
    with open_store(photos) as store:
        spans = store.spans("image", np.array([9]))
        data[int(spans.starts[0]) + 60] ^= 0xFF
    Path(photos).write_bytes(data)
    report = compute(photos, tmp_path / "out.h5", describe, on_error="skip", **OPTIONS)

    assert ["a/009.png"] == [problem.key for problem in report.skipped]
    assert COUNT - 1 == report.packed
    assert [number for number in range(COUNT) if number != 9] == [
        int(sample["caption"].split()[-1]) for sample in FastDataset(open_store(tmp_path / "out.h5"))
    ]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda batch: batch["image"], "returned Tensor, expected a dict of values by field"),
        (lambda batch: {"x": [1, 2]}, "returned 2 values of 'x' for a batch of 7 samples"),
        (lambda batch: {"x": 1}, "<lambda> returned a field 'x' that is int; expected an array, a tensor or a list"),
        (lambda batch: {"x": batch["number"].sum()}, "returned a field 'x' that is a single number; expected an array"),
        (
            lambda batch: {"x": batch["number"].to_sparse()},
            "returned a field 'x' that is a tensor torch.int64 that NumPy has",
        ),
        (
            lambda batch: {"x" if 0 in batch["number"] else "y": batch["number"]},
            "returned y for a batch, and no 'x', which it returned for the first one",
        ),
    ],
)
def test_what_a_function_must_return(photos: str, tmp_path: Path, function: Any, words: str) -> None:
    """One line each."""
    with pytest.raises(FastioError, match=words):
        compute(photos, tmp_path / "out.h5", function, **OPTIONS)


def _into_one_array(count: int) -> Any:
    kept = np.empty((count, 2), np.float32)

    def embed(numbers: Any) -> dict[str, Any]:
        kept[: len(numbers)] = numbers.numpy()[:, None]
        return {"x": kept[: len(numbers)]}

    return embed


def _into_one_tensor(count: int) -> Any:
    kept = torch.empty(count, 2)

    def embed(numbers: Any) -> dict[str, Any]:
        kept[: len(numbers)] = numbers[:, None]
        return {"x": kept[: len(numbers)]}

    return embed


def _into_a_list_of_one_array(count: int) -> Any:
    kept = np.empty((count, 2), np.float32)

    def embed(numbers: Any) -> dict[str, Any]:
        kept[: len(numbers)] = numbers.numpy()[:, None]
        return {"x": [*kept[: len(numbers)]]}

    return embed


@pytest.mark.parametrize("make", [_into_one_array, _into_one_tensor, _into_a_list_of_one_array])
def test_a_function_may_return_the_same_memory_for_each_batch(photos: str, tmp_path: Path, make: Any) -> None:
    """As compiled networks and scripts with an output of their own do: values are those of their batch."""
    compute(photos, tmp_path / "out.h5", make(4), read="number", batch_size=4)
    assert [[number, number] for number in range(COUNT)] == [
        value.tolist() for value in FastDataset(tmp_path / "out.h5", fields="x")
    ]


# The command.

SCRIPT = """
from fastio.transforms import Resize

def mean(images):
    return {"mean": images.float().mean((2, 3))}

mean.read, mean.transforms = "image", [Resize((8, 8))]

class Mean:
    read = "image"
    def __init__(self): self.calls = 0
    def __call__(self, images): return mean(images)

class NotCalled:
    pass

def two(a, b):
    pass
"""


def test_the_command(photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function and a class, a type, a set in parts; what it prints works."""
    monkeypatch.chdir(tmp_path)
    Path("means.py").write_text(SCRIPT)
    result = CliRunner().invoke(cli, ["compute", photos, "a.h5", "means.py:mean", "--field", "mean=float16[3]"])
    assert result.exit_code == 0, result.output
    assert "a.h5: computed 30 samples in" in result.output
    assert f"fastio.beside({photos!r}, 'a.h5')" in result.output
    words = ["compute", photos, "b-%03d.tar", "means.py:Mean", "--crop", "8", "--shard-size", "20kB"]
    for part in ("0/2", "1/2"):
        result = CliRunner().invoke(cli, [*words, "--part", part])
        assert result.exit_code == 0, result.output
    Path("b-001.tar").unlink()
    result = CliRunner().invoke(cli, [*words, "--resume"])
    assert result.exit_code == 0, result.output
    assert "samples/s); " in result.output
    assert " were there; " in result.output
    listed = CliRunner().invoke(cli, ["info", photos, "--beside", "a.h5", "--json"])
    assert "mean" in json.loads(listed.output)["fields"]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("means.py:NotCalled", "its objects cannot be called"),
        ("means.py:two", "fastio calls it with one argument"),
        ("means.py:moan", "has no function 'moan'"),
        ("means", "expected MODULE:FUNCTION"),
    ],
)
def test_functions_that_are_none(
    photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, words: str
) -> None:
    """One line each, before anything is read."""
    monkeypatch.chdir(tmp_path)
    Path("means.py").write_text(SCRIPT)
    result = CliRunner().invoke(cli, ["compute", photos, "a.h5", function])
    assert (1, True) == (result.exit_code, words in result.output), result.output


@pytest.mark.parametrize("out", ["photos.lmdb", "./photos.lmdb", "link.lmdb"])
def test_a_store_is_not_replaced_by_what_is_computed_from_it(
    photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    """Nor with overwrite=True, by whatever name it is called: its photos would be gone."""
    monkeypatch.chdir(tmp_path)
    Path("link.lmdb").symlink_to("photos.lmdb")
    with pytest.raises(StoreError, match="is the store that values are computed from, which they would replace"):
        compute(out.replace("photos", "link") if out == "./photos.lmdb" else out, out, describe, overwrite=True)
    with open_store("photos.lmdb") as store:
        assert ["image", "number"] == [field.name for field in store.schema.fields]


def test_a_set_is_not_replaced_by_what_is_computed_from_it(photos: str, tmp_path: Path) -> None:
    """The numbered name of its own shards names the set itself; another name does not."""
    name = str(tmp_path / "out-%03d.tar")
    compute(photos, name, describe, **OPTIONS)
    with pytest.raises(StoreError, match="is the store that values are computed from"):
        compute(name, name, lambda batch: {"score": batch["score"]}, overwrite=True)

    compute(name, str(tmp_path / "again-%03d.tar"), lambda batch: {"half": batch[0]}, read=["score", "caption"])


def test_a_merged_set_is_not_replaced_by_what_is_computed_from_it(tmp_path: Path) -> None:
    """Its shards have other names, but its set object has that of the numbered name."""
    for name, key in (("c.tar", "other"), ("d.tar", "another")):
        with Writer(tmp_path / name, {"text": "text"}) as out:
            out.write({"text": "words"}, key=key)
    merge_stores([str(tmp_path / "c.tar"), str(tmp_path / "d.tar")], str(tmp_path / "all.fastio-set"))
    for path in (tmp_path / "all.fastio-set", tmp_path / "all-%03d.tar"):
        with pytest.raises(StoreError, match="is the store that values are computed from"):
            compute(path, tmp_path / "all-%03d.tar", lambda texts: {"size": [*map(len, texts)]}, overwrite=True)
    with open_store(tmp_path / "all.fastio-set") as store:
        assert ["other", "another"] == store.keys([0, 1])


def test_an_empty_dict_is_called_so(photos: str, tmp_path: Path) -> None:
    """The function returned a dict, but nothing in it."""
    with pytest.raises(FastioError, match="returned an empty dict, expected a dict of values"):
        compute(photos, tmp_path / "out.h5", lambda batch: {}, **OPTIONS)


def test_nothing_good_says_why(photos: str, tmp_path: Path) -> None:
    """A function that refuses all samples is quoted."""

    def refuse(batch: Any) -> dict[str, Any]:
        raise SampleError("too dark")

    with pytest.raises(SchemaError, match=r"none of its samples is good, .*; the first is refused by .*: too dark"):
        compute(photos, tmp_path / "out.h5", refuse, **OPTIONS)
