"""The guides' Python examples run, page by page and in order; trainers and Parquet have tests of their own."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from fastio import FastLoader, Writer
from fastio.cli import cli
from fastio.measure.trackers import CSV
from fastio.store import open_store
from tests.conftest import encode, pictures, write_store
from tests.converters.sources import layouts
from tests.converters.text.bpe import saved, train
from tests.converters.text.chat_templates import SPECIAL, TEMPLATES
from tests.converters.trees import class_folders, flat, picture, tree
from tests.dataset.many_fields import TYPES, make_samples, write_fields

GUIDE = Path(__file__).parent.parent / "fastio" / "guide"
# A word of each example that runs elsewhere: under Lightning, accelerate, transformers, torchvision, on several ranks;
# under torchft nowhere.
ELSEWHERE = (
    "fastio.integrations",
    "from transformers import",
    "from torchvision",
    "from torchft import",
    "init_device_mesh",
)
# What the machine of a test lacks, and what would only take time here.
INSTEAD = {'device="cuda"': 'device="cpu"', "num_workers=4": "num_workers=0", ", 256, ": ", 8, "}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores that the guides speak of."""
    path = tmp_path_factory.mktemp("guide")
    for name, count, shape in (
        ("train.lmdb", 1000, (8, 8, 3)),
        ("val.lmdb", 20, (8, 8, 3)),
        ("cifar.h5", 20, (32, 32, 3)),
    ):
        values = [encode(pixels) for pixels in pictures(count, shape)]
        write_store(path / name, values, np.arange(count, dtype=np.int64) % 3)
    class_folders(path / "photos")
    labels = flat(path / "pngs")
    (path / "labels.csv").write_text("".join(f"{name},{label}\n" for name, label in labels.items()))
    flat(path / "images")
    (path / "masks").mkdir()
    for name in labels:
        (path / "masks" / name).write_bytes(picture(1, mode="L"))
    boxes = {"labels/train/a.txt": "0 0.5 0.5 0.1 0.1\n"}
    tree(path / "yolo", {**layouts.pictures("images/train/a.jpg"), **boxes})
    fields = ("image", "mask", "caption", "boxes", "kinds", "label")
    write_fields(path / "scenes.tar", scenes(9), {name: TYPES[name] for name in fields})
    for name in ("train", "web", "code"):
        ids = np.arange(20_000, dtype=np.uint16)
        ids[999::1000] = 50256  # the end of each document, as the guide's eos says
        ids.tofile(path / f"{name}.bin")
    (path / "corpus.txt").write_text("".join("word " * (1 + number % 9) + "\n" for number in range(2000)))
    for name in ("text", "web", "code"):
        words = ["pack", str(path / "corpus.txt"), str(path / f"{name}.h5"), "--tokenizer", "bytes"]
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
    rows = [{"en": "why " * (1 + i % 5), "de": "warum " * (1 + i % 7)} for i in range(20)]
    (path / "words.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [{"prompt": "why " * (1 + i % 5), "chosen": "so " * (1 + i % 7), "rejected": "no"} for i in range(20)]
    turns = [{"role": role, "content": "so " * 9} for role in ("user", "assistant")]
    (path / "sft.jsonl").write_text("".join(json.dumps({"messages": turns * (1 + i % 3)}) + "\n" for i in range(20)))
    (path / "dpo.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    (path / "model").mkdir()
    saved(train(special=(*SPECIAL, "<|image_pad|>")), path / "model" / "tokenizer.json")
    talks = [[{"from": "human", "value": f"{mark}why?"}, {"from": "gpt", "value": "so"}] for mark in ("", "<image>\n")]
    llava = [{"conversations": talks[0]}, *({"image": name, "conversations": talks[1]} for name in labels)]
    (path / "llava.json").write_text(json.dumps(llava))
    (path / "model" / "chat_template.jinja").write_text(TEMPLATES["im_start"])
    text = (GUIDE / "text.md").read_text()
    (of_words,) = re.findall(r"fastio (pack words.jsonl .*) --tokenizer bpe.json", text)
    chats = (GUIDE / "chats.md").read_text()
    (of_pairs,) = re.findall(r"fastio (pack dpo.jsonl .*\S) +#", chats)
    (of_chats,) = re.findall(r"fastio (pack sft.jsonl .*)", chats)
    (of_pictures,) = re.findall(r"fastio (pack llava.json .*\S) +#", chats)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        for command in (f"{of_words} --tokenizer bytes", of_chats, of_pairs, of_pictures):
            result = CliRunner().invoke(cli, shlex.split(command))
            assert result.exit_code == 0, result.output
    return path


def scenes(count: int) -> list[dict[str, Any]]:
    """Samples of many fields, with pictures of one size."""
    samples = make_samples(count)
    for sample in samples:
        sample |= {name: sample[name][:40, :30] for name in ("image", "mask")}
    return samples


def examples(page: str) -> Iterator[str]:
    """The Python examples of a guide, in order, as they can run here."""
    for code in re.findall(r"```python\n(.*?)```", (GUIDE / page).read_text(), re.DOTALL):
        if not any(word in code for word in ELSEWHERE):
            for word, other in INSTEAD.items():
                code = code.replace(word, other)
            yield code


PAGES = ["loading", "ranks", "transforms", "trainings", "text", "chats", "streams", "mixtures"]


@pytest.mark.parametrize("page", [f"{page}.md" for page in PAGES])
def test_the_examples_run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example runs with the names of those before it, and every loader that it leaves behind gives a batch."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"device": torch.device("cpu"), "transform": lambda picture: np.array(picture)}
    for code in examples(page):
        exec(compile(code, page, "exec"), names)
        for name, value in list(names.items()):
            if isinstance(value, FastLoader):
                assert len(list(islice(value, 1))) == 1, name
                value.close()
                del names[name]


def test_the_road_of_a_loader_is_printed_as_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output that the guide shows of print(loader) is what its examples print."""
    monkeypatch.chdir(folder)
    section = (GUIDE / "loading.md").read_text().partition("## Which road")[2].partition("\n## ")[0]
    shown = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(compile(code, "loading.md", "exec"), names)
        names["loader"].close()

    assert 2 == len(shown)
    assert "".join(shown) == capsys.readouterr().out


def test_the_packing_examples_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Datasets and samples as the guide names them are packed; the stores open."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.print", lambda *_: None)
    photos = [encode(pixels) for pixels in pictures(3)]
    mask = np.zeros((8, 8), np.uint8)
    for number, photo in enumerate(photos):
        folder = tmp_path / "imagenet" / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(photo)
    names: dict[str, Any] = {
        "dataset": [{"image": photo, "label": 0} for photo in photos],
        "rows": ((photo, mask, "a caption") for photo in photos),
        "beans": [{"image": photo, "labels": 0} for photo in photos],
        "photos": photos,
        "pixels_of_classes": mask,
        "vector": np.zeros(512),
    }
    for code in examples("packing.md"):
        exec(compile(code, "packing.md", "exec"), names)
    for name, count in {
        "train.lmdb": 3,
        "scenes-%06d.tar": 3,
        "beans.h5": 3,
        "many.lmdb": 3,
        "captions.lmdb": 1,
        "four-%06d.tar": 3,
    }.items():
        with open_store(name) as store:
            assert count == len(store)


def test_the_plans_of_the_measuring_guide_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command that plans, as it stands."""
    monkeypatch.chdir(folder)
    lines = re.findall(r"^\$ (fastio plan .*?)(?:  #.*)?$", (GUIDE / "measuring.md").read_text(), re.MULTILINE)
    (result,) = (CliRunner().invoke(cli, shlex.split(line)[1:]) for line in lines)

    assert result.exit_code == 0
    assert ["8 nodes of 8 ranks"] == re.findall(r"(?m)^world +(.*)$", result.stdout)
    assert ["of 256 samples a rank"] == re.findall(r"(?m)^batches +(.*)$", result.stdout)


def test_the_examples_of_fields_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segmentation, captions and detection, from the commands and lines of the page."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    annotations = []
    for folder in ("images", "masks", "latents"):
        Path(folder).mkdir()
    for number, pixels in enumerate(pictures(12, (260, 300, 3))):
        Image.fromarray(pixels).save(f"images/{number}.png")
        Image.fromarray(rng.integers(0, 11, (260, 300), np.uint8)).save(f"masks/{number}.png")
        np.save(f"latents/{number}.npy", np.ones((16, 3 + number % 2, 4 - number % 2), np.float16))
        annotations += [{"id": number + 1, "image_id": number, "category_id": 3, "bbox": [10, 20, 30 + number, 40]}]
    images = [{"id": i, "file_name": f"{i}.png", "height": 260, "width": 300} for i in range(12)]
    coco = {"images": images, "annotations": annotations, "categories": [{"id": 3, "name": "car"}]}
    Path("instances.json").write_text(json.dumps(coco))
    commands = re.findall(r"`fastio (pack images/ [^`]*|pack instances[^`]*)`", (GUIDE / "fields.md").read_text())
    for command in dict.fromkeys(commands):
        result = CliRunner().invoke(cli, shlex.split(command))
        assert result.exit_code == 0, result.output
    names: dict[str, Any] = {
        "pairs": [(path, f"A picture, {path.name}.") for path in Path("images").iterdir()],
    }
    with Writer("photos.lmdb", {"image": "image"}) as photos, Writer("captions.h5", {"caption": "text"}) as captions:
        for number in range(12):
            photos.write({"image": Path(f"images/{number}.png")}, key=f"{number}.png")
            captions.write({"caption": f"Picture {number}."}, key=f"{number}.png")
    _tables_of_lists()
    for code in examples("fields.md"):
        exec(compile(code, "fields.md", "exec"), names)

    assert (8, 320, 320) == names["masks"].shape
    assert [*range(11), 255] == names["masks"].unique().tolist()
    assert ["car"] == names["names"]
    lists = {"ai2d": [2, 1], "fine": [2, 1], "sharegpt": [0, 2], "llava": [1, 0], "frames": [2]}
    assert {**lists, "turns-%06d": list(range(12))} == _counts_of_lists()
    assert names["captions"].shape == names["is_token"].shape


def _tables_of_lists() -> None:
    """The tables that the commands about lists pack, of files below images/."""
    files = [Path(f"images/{i}.png").read_bytes() for i in range(3)]
    table = pa.table({"images": [files[:2], files[2:]], "captions": [["a", "b"], []]})
    for name in ("train-00000-of-00001.parquet", "fine.parquet"):
        pq.write_table(table, name)
    chats = [{"from": "human", "value": "?"}]
    rows: dict[str, list[dict[str, Any]]] = {
        "sharegpt.json": [{"images": []}, {"images": ["1.png", "2.png"]}],
        "llava.json": [{"image": "0.png"}, {}],
    }
    for name, of_file in rows.items():
        numbered = [{"id": str(i), "conversations": chats, **row} for i, row in enumerate(of_file)]
        Path(name).write_text(json.dumps(numbered))
    Path("frames").mkdir()
    for i in range(2):
        Path(f"frames/{i}.png").write_bytes(files[i])
    Path("frames/metadata.jsonl").write_text(json.dumps({"file_names": ["0.png", "1.png"], "text": "a"}))


def _counts_of_lists() -> dict[str, list[int]]:
    """How many pictures each sample has, by store, in the stores that the guide's commands about lists make."""
    found = {}
    part = (GUIDE / "fields.md").read_text().partition("## Lists and missing values")[2].partition("\n## ")[0]
    for command in re.findall(r"^\$ fastio ([^#\n]*)", part, re.MULTILINE):
        words = shlex.split(command)
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
        if words[0] == "pack":
            with open_store(words[2]) as store:
                pictures = next(each.name for each in store.schema.lists if each.element.traits.is_picture)
                found[Path(words[2]).stem] = store.elements(pictures).counts.tolist()
    return found


def test_the_measuring_examples_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The lines around StepTimer, with a loader and a step of one's own."""
    monkeypatch.chdir(tmp_path)
    trained: list[torch.Tensor] = []
    batches = [(torch.zeros(4, 3), torch.zeros(4))] * 30
    names: dict[str, Any] = {"loader": batches, "train": lambda images, labels: trained.append(images)}
    for code in examples("measuring.md"):
        exec(compile(code, "measuring.md", "exec"), names)

    assert 30 == len(trained)
    assert (tmp_path / "steps.json").exists()


def test_the_examples_of_trackers_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lines that write to files and serve metrics; examples of packages that are not installed are left out."""
    monkeypatch.chdir(tmp_path)
    batches = [(torch.zeros(4, 3), torch.zeros(4))] * 60
    names: dict[str, Any] = {"loader": batches, "train": lambda images, labels: None}
    missing = [name for name in ("tensorboard", "wandb", "mlflow") if find_spec(name) is None]
    if "tensorboard" in missing:  # the first example writes to a CSV too
        monkeypatch.setattr("fastio.measure.trackers.TensorBoard", lambda folder: CSV(f"{folder}/figures.csv"))
    for name, value in {
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_TRACKING_URI": f"file:{tmp_path}/mlruns",
        "WANDB_MODE": "offline",
    }.items():
        monkeypatch.setenv(name, value)
    for code in examples("trackers.md"):
        if not any(f"import {name}" in code or f"from torch.utils.{name}" in code for name in missing):
            exec(compile(code.replace("9095", "0"), "trackers.md", "exec"), names)
            names["timer"].close()

    assert ["50", "60"] == [line.split(",")[1] for line in Path("steps.csv").read_text().splitlines()[1:]]
