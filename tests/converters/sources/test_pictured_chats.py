"""Chats with pictures: one command for each layout, the ids of transformers, and a line for each bad row."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import FastDataset, FastLoader, PackCollate, PackSampler
from fastio.cli import cli
from fastio.converters.inspect.contact_sheet import shown_lists
from fastio.store import open_store
from fastio.transforms import Normalize, Patchify, SmartResize, vision_lengths
from fastio.types.field_types import type_of
from tests.converters.sources.arrow.picture_tables import write_parquet, write_stream
from tests.converters.sources.packed import lists_of
from tests.converters.sources.test_pairs import tree
from tests.converters.text.bpe import TEXTS, saved, train
from tests.converters.text.build import stored
from tests.converters.trees import picture

SPECIAL = ("<pad>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<image>")
PAD, MARK = "<|image_pad|>", "<image>"
NAMES = [f"{i}.{('png', 'jpg')[i % 2]}" for i in range(4)]
FILES = {name: picture(i, kind=("PNG", "JPEG")[i % 2]) for i, name in enumerate(NAMES)}
PAIR = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

_TURNS = """{{% for turn in messages %}}<|im_start|>{{{{ turn.role }}}}
{{% if turn.role == 'assistant' %}}{{% generation %}}{0}<|im_end|>
{{% endgeneration %}}{{% else %}}{0}<|im_end|>
{{% endif %}}{{% endfor %}}{{% if add_generation_prompt %}}<|im_start|>assistant
{{% endif %}}"""
# As Qwen's, LLaVA's (which takes lists alone, pictures first) and a language model's, each with its token of a picture.
_INLINE = """{% if turn.content is string %}{{ turn.content }}{% else %}{% for part in turn.content %}
{%- if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}"""
_FIRST = """{% for part in turn.content | selectattr('type', 'equalto', 'image') %}<image>
{% endfor %}{% for part in turn.content | selectattr('type', 'equalto', 'text') %}{{ part.text }}{% endfor %}"""
MODELS = {"inline": _INLINE, "first": _FIRST, "texts": "{{ turn.content }}"}
TOKENS = {"inline": PAD, "first": MARK, "texts": PAD}


def run(*arguments: object, code: int = 0) -> str:
    """Run a command in this process; its exit code is as expected."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert code == result.exit_code, result.output
    return " ".join(result.output.split())


@lru_cache
def trained() -> Any:
    """A tokenizer that knows the special tokens."""
    return train((*TEXTS, "user assistant"), special=SPECIAL)


def model(folder: Path, name: str) -> list[str]:
    """The options of a model, whose tokenizer and template are in a folder of their own."""
    place = folder / f"model-{name}"
    place.mkdir(parents=True, exist_ok=True)
    saved(trained(), place / "tokenizer.json")
    (place / "tokenizer_config.json").write_text(json.dumps({"image_token": TOKENS[name], "pad_token": "<pad>"}))
    (place / "chat_template.jinja").write_text(_TURNS.format(MODELS[name]))
    return ["--tokenizer", str(place / "tokenizer.json")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with pictures in ``photos``."""
    monkeypatch.chdir(tmp_path)
    tree(tmp_path / "photos", FILES)
    return tmp_path


def by_transformers(name: str, turns: Sequence[Any]) -> tuple[list[int], list[bool]]:
    """What the library makes of turns whose contents are parts."""
    tokenizer = pytest.importorskip("transformers").PreTrainedTokenizerFast(
        tokenizer_object=trained(), pad_token="<pad>", chat_template=_TURNS.format(MODELS[name])
    )
    if name == "texts":
        turns = [{**turn, "content": "".join(part.get("text", PAD) for part in turn["content"])} for turn in turns]
    found = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    return found["input_ids"], list(map(bool, found["assistant_masks"]))


# Chats in published layouts: a chat is questions, which are lists of texts and of names of files, with their answers.

Question = list[str]
Talk = list[tuple[Question, str]]


def is_name(part: str) -> bool:
    """Whether a part of a question is a picture."""
    return part in FILES


def named(talk: Talk) -> list[str]:
    """The pictures of a chat, in their order."""
    return [part for question, _ in talk for part in question if is_name(part)]


def as_parts(talk: Talk, **more: Any) -> list[dict[str, Any]]:
    """Turns with parts, ``more`` of those that are pictures."""
    turns = []
    for question, answer in talk:
        parts = [
            {"type": "image", **{key: value(part) for key, value in more.items()}}
            if is_name(part)
            else {"type": "text", "text": part}
            for part in question
        ]
        turns += [
            {"role": "user", "content": parts},
            {"role": "assistant", "content": [{"type": "text", "text": answer}]},
        ]
    return turns


def marked(question: Question) -> str:
    """A question as LLaVA writes it."""
    text = "".join(f"{MARK}\n" if is_name(part) else part for part in question)
    return text.removesuffix("\n")


def from_value(talk: Talk) -> list[dict[str, str]]:
    """LLaVA's turns."""
    return [
        turn
        for question, answer in talk
        for turn in ({"from": "human", "value": marked(question)}, {"from": "gpt", "value": answer})
    ]


def user_assistant(talk: Talk) -> list[dict[str, str]]:
    """The Cauldron's turns, which do not say where pictures belong."""
    return [
        {"user": "".join(part for part in question if not is_name(part)), "assistant": answer, "source": "made"}
        for question, answer in talk
    ]


def lines(path: Path, rows: Sequence[Any]) -> Path:
    """A .json, or a .jsonl."""
    path.write_text(json.dumps(rows) if path.suffix == ".json" else "".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def llava(folder: Path, talks: Sequence[Talk]) -> tuple[Path, list[str]]:
    """One picture, several in a list, or none."""
    rows = []
    for i, talk in enumerate(talks):
        files = named(talk)
        images = {"image": files[0] if len(files) == 1 else files} if files else {}
        rows.append({"id": f"{i}", **images, "conversations": from_value(talk)})
    return lines(folder / "chats.json", rows), ["--root", "photos", "--chat", "conversations"]


def sharegpt(folder: Path, talks: Sequence[Talk]) -> tuple[Path, list[str]]:
    """Lists of names beside messages with marks, as LLaMA-Factory takes them."""
    turns = [
        [
            {"role": {"human": "user", "gpt": "assistant"}[each["from"]], "content": each["value"]}
            for each in from_value(talk)
        ]
        for talk in talks
    ]
    rows = [{"messages": each, "images": named(talk)} for each, talk in zip(turns, talks, strict=True)]
    return lines(folder / "chats.jsonl", rows), ["--root", "photos", "--chat", "messages"]


def openai(folder: Path, talks: Sequence[Talk]) -> tuple[Path, list[str]]:
    """Messages with parts beside lists of names, as TRL takes them."""
    rows = [{"messages": as_parts(talk), "images": named(talk)} for talk in talks]
    return lines(folder / "chats.jsonl", rows), ["--root", "photos", "--chat", "messages"]


def parquet(folder: Path, talks: Sequence[Talk]) -> tuple[Path, list[str]]:
    """The same in Parquet, whose parts of all types have the same fields, with nulls."""
    images = [[{"bytes": FILES[name], "path": name} for name in named(talk)] for talk in talks]
    table = pa.table({"messages": list(map(as_parts, talks)), "images": pa.array(images, pa.list_(PAIR))})
    return write_parquet(folder / "chats.parquet", table), ["--chat", "messages"]


def names_in_parquet(folder: Path, talks: Sequence[Talk]) -> tuple[Path, list[str]]:
    """Lists of names in Parquet."""
    table = pa.table(
        {"conversations": list(map(from_value, talks)), "images": pa.array(map(named, talks), pa.list_(pa.string()))}
    )
    return write_parquet(folder / "chats.parquet", table), ["--root", "photos", "--chat", "conversations"]


def in_base64(folder: Path, talks: Sequence[Talk]) -> tuple[Path, list[str]]:
    """Lists of base64 beside marks."""
    texts = [[base64.b64encode(FILES[name]).decode() for name in named(talk)] for talk in talks]
    rows = [{"image": each, "conversations": from_value(talk)} for each, talk in zip(texts, talks, strict=True)]
    return lines(folder / "chats.jsonl", rows), ["--chat", "conversations"]


def in_turns(folder: Path, talks: Sequence[Talk]) -> tuple[Path, list[str]]:
    """Messages as Qwen's examples have them, whose parts name the files."""
    return lines(folder / "chats.jsonl", [{"messages": as_parts(talk, image=str)} for talk in talks]), [
        *("--root", "photos", "--chat", "messages")
    ]


def data_urls(folder: Path, talks: Sequence[Talk]) -> tuple[Path, list[str]]:
    """Messages as OpenAI's API takes them, with the pictures themselves."""

    def url(name: str) -> dict[str, str]:
        return {"url": f"data:image/png;base64,{base64.b64encode(FILES[name]).decode()}"}

    rows = [{"messages": as_parts(talk, type=lambda _: "image_url", image_url=url)} for talk in talks]
    return lines(folder / "chats.jsonl", rows), ["--chat", "messages"]


LAYOUTS: dict[str, Callable[[Path, Sequence[Talk]], tuple[Path, list[str]]]] = {
    "LLaVA": llava, "ShareGPT": sharegpt, "parts": openai, "parts in Parquet": parquet,
    "names in Parquet": names_in_parquet, "base64": in_base64,
    "parts with names": in_turns, "parts with data": data_urls,
}  # fmt: skip

words = st.text(st.sampled_from("ab the\n?é🐈"), min_size=1, max_size=8).filter(lambda text: text == text.strip("\n"))
questions = st.lists(words | st.sampled_from(NAMES), min_size=1, max_size=4)
talks = st.lists(st.tuples(questions, words), min_size=1, max_size=3)
FIRST: Talk = [(["0.png", "the dog?"], "sat")]  # tells that there are pictures


@settings(max_examples=8, deadline=None)
@given(found=st.lists(talks, min_size=1, max_size=4), name=st.sampled_from(sorted(MODELS)))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_to_transformers(
    tmp_path_factory: pytest.TempPathFactory, layout: str, found: list[Talk], name: str
) -> None:
    """The ids and the mask of every chat, with one token for each picture, which are there byte by byte."""
    folder, found = tmp_path_factory.mktemp("chats"), [FIRST, *found]
    tree(folder / "photos", FILES)
    source, options = LAYOUTS[layout](folder, found)
    options = [str(folder / "photos") if each == "photos" else each for each in options]
    run("pack", source, folder / "o.h5", *options, *model(folder, name))
    turns = list(map(as_parts, found))
    if name == "texts" and not layout.startswith("parts"):  # a mark in a text keeps its line end
        roles = {"human": "user", "gpt": "assistant"}
        turns = [
            [{"role": roles[each["from"]], "content": [{"text": each["value"].replace(MARK, PAD)}]} for each in row]
            for row in map(from_value, found)
        ]
    assert [by_transformers(name, each) for each in turns] == stored(folder / "o.h5")
    with open_store(folder / "o.h5") as store:
        pictures = next(field for field in store.schema.fields if field.element.traits.is_picture)
        assert [[FILES[each] for each in named(talk)] for talk in found] == lists_of(store, pictures.name)


TALKS: list[Talk] = [
    FIRST, [(["the cat?"], "sat")], [(["1.jpg", "2.png", "which?"], "the log"), (["why?"], "so")],
    [(["where?", "3.jpg"], "the mat")],
]  # fmt: skip


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_the_cauldron_and_fine_vision(folder: Path, suffix: str) -> None:
    """Turns of user and assistant, without marks: pictures begin the first question."""
    images = [[{"bytes": FILES[name], "path": None} for name in named(talk)] for talk in TALKS]
    columns = {
        "images": pa.array(images, pa.list_(PAIR)),
        "texts": list(map(user_assistant, TALKS)),
        "source": ["s"] * 4,
    }
    write = {"parquet": write_parquet, "arrow": write_stream}[suffix]
    source = write(folder / f"a.{suffix}", pa.table(columns))
    said = run("pack", source, "o.h5", "--chat", "texts", *model(folder, "inline"))
    assert "images: 0 to 2 pictures a sample, 4 in all" in said
    assert "left out: column source" in said
    assert f"a picture is {PAD}: PackCollate(..., image_token={SPECIAL.index(PAD)})" in said
    first = [
        [([*named(talk), *(part for part in talk[0][0] if not is_name(part))], talk[0][1]), *talk[1:]] for talk in TALKS
    ]
    assert [by_transformers("inline", as_parts(talk)) for talk in first] == stored("o.h5")
    assert f"4 compared with {source}: keys and the fields images, tokens, loss" in run(
        "verify", "o.h5", "--against", source
    )
    run("pack", source, "p.h5", "--chat", "texts", *model(folder, "inline"), "--shuffle", "1")
    assert sorted(stored("p.h5")) == sorted(stored("o.h5"))


def test_one_picture_or_none(folder: Path) -> None:
    """Names alone are image?, in rows of which many show the same picture; reports and later commands know them."""
    one: list[Talk] = [FIRST, [(["the cat?"], "sat")], [(["0.png", "which?"], "the log")]]
    source, options = llava(folder, one)
    options += model(folder, "inline")
    said = run("pack", source, "o.h5", *options)
    assert "image: pictures in 2 of 3 samples" in said
    assert "chat template chat_template.jinja; in the loss: the assistant's turns, by {% generation %}" in said
    with open_store("o.h5") as store:
        assert {"image": "image?", "tokens": "tokens16", "loss": "loss"} == {
            each.name: type_of(each) for each in store.schema.fields
        }
        assert ["chats.json:1", "chats.json:2", "chats.json:3"] == list(store.keys(np.arange(3)))
    assert "3 compared with" in run("verify", "o.h5", "--against", source, "--decode")
    assert "chats by the template chat_template.jinja" in run("info", "o.h5")
    run("pack", source, "o-%06d.tar", *options, "--shard-size", "1KB", "--per-sample")
    shards = {path.name: path.read_bytes() for path in sorted(folder.glob("o-*.tar"))}
    assert len(shards) > 1
    (folder / min(shards)).unlink()
    run("pack", source, "o-%06d.tar", *options, "--shard-size", "1KB", "--per-sample", "--resume")
    assert shards == {path.name: path.read_bytes() for path in sorted(folder.glob("o-*.tar"))}
    assert stored("o.h5") == stored("o-%06d.tar")
    run("unpack", "o.h5", "files")
    run("show", "o.h5", "-o", "page.png")
    with open_store("o.h5") as store:
        shown = shown_lists(store, count=3, size=96)
    assert [["#0: image 1 of 1", "text"], ["no picture: #1", "text"], ["#2: image 1 of 1", "text"]] == [
        [each.label for each in row] for row in shown
    ]
    assert all(not isinstance(row[-1].picture, str) and np.asarray(row[-1].picture).min() < 128 for row in shown)


def test_prompts_and_instructions(folder: Path) -> None:
    """Their pictures begin the prompt, unless marks say where they belong."""
    rows = [
        {"prompt": "the dog?", "completion": "sat", "image": "0.png"},
        {"prompt": f"the {MARK} dog?", "completion": "sat", "image": "0.png"},
        {"prompt": "the log?", "completion": "on", "image": None},
    ]
    said = run(
        "pack",
        lines(folder / "a.jsonl", rows),
        "o.h5",
        "--chat",
        "prompt",
        "--root",
        "photos",
        *model(folder, "inline"),
    )
    assert "in the loss: what follows the prompt" in said
    talks: list[Talk] = [
        [(["0.png", "the dog?"], "sat")],
        [(["the ", "0.png", " dog?"], "sat")],
        [(["the log?"], "on")],
    ]
    assert [by_transformers("inline", as_parts(talk))[0] for talk in talks] == [ids for ids, _ in stored("o.h5")]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no mark": ({"images": ["0.png"], "conversations": from_value([(["why?"], "so")])},
                "has 1 picture, but 0 places for pictures in its turns (<image>, or a part of the type 'image')"),
    "no picture": ({"images": [], "conversations": from_value(FIRST)}, "has 0 pictures, but 1 place for pictures"),
    "too few": ({"images": ["0.png"], "conversations": from_value([(["0.png", "1.jpg", "?"], "so")])},
                "has 1 picture, but 2 places for pictures"),
    "the model's token": ({"images": [], "conversations": from_value([([f"{PAD}?"], "so")])},
                          "has '<|image_pad|>' 1 times in its text, expected 0, for its pictures"),
    "no file": ({"images": ["gone.png"], "conversations": from_value(FIRST)}, "it is 'gone.png', but there is no"),
    "no chat": ({"images": ["0.png"], "conversations": None}, "has null in the field 'conversations', expected a list"),
    "a video": ({"images": [], "conversations": [{"from": "human", "value": [{"type": "video"}]}]},
                "turn 1 has a part 'video' in its 'value', expected text or an image"),
    "too long": ({"images": ["0.png"], "conversations": from_value([(["the cat sat on " * 9, "0.png"], "so")])},
                 "has '<|image_pad|>' 0 times in its first 40 tokens, expected 1, for its pictures"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_named(folder: Path, name: str) -> None:
    """With file, row, what was expected and what is there; the other rows are packed."""
    row, sentence = BAD[name]
    good = {"images": ["0.png"], "conversations": from_value(FIRST)}
    source = lines(folder / "a.jsonl", [good, row, good])
    words = ["--root", "photos", "--chat", "conversations", "--max-length", "40", "--too-long", "truncate"]
    words += model(folder, "inline")
    said = run("pack", source, "o.h5", *words, code=1)
    assert "a.jsonl:2" in said
    assert sentence in said
    assert not Path("o.h5").exists()
    run("pack", source, "o.h5", *words, "--on-error", "skip")
    with open_store("o.h5") as store:
        assert ["a.jsonl:2"] == [each["key"] for each in store.metadata["skipped"]]
    assert [by_transformers("inline", as_parts(FIRST))] * 2 == stored("o.h5")
    assert "2 compared" in run("verify", "o.h5", "--against", source)


def test_pictures_that_come_late(folder: Path) -> None:
    """Where the first row has no picture and no folder is named, the others are not lost."""
    rows = [
        {"conversations": from_value([(["why?"], "so")])},
        {"image": "photos/0.png", "conversations": from_value(FIRST)},
    ]
    source, words = lines(folder / "a.json", rows), ["--chat", "conversations", *model(folder, "inline")]
    said = run("pack", source, "o.h5", *words, code=1)
    assert (
        "column 'image' holds names of pictures, and only these would be packed: --root FOLDER packs the files" in said
    )
    assert "image: pictures in 1 of 2 samples" in run("pack", source, "o.h5", *words, "--root", ".")


@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv", "parquet"])
@pytest.mark.parametrize("rows_before", [1, 60])
def test_marks_of_pictures_that_no_folder_was_named_for(
    folder: Path, suffix: str, rows_before: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Chats are not packed as text, <image> included, while a column names the pictures, however late."""
    plain = {"id": "7", "image": None, "instruction": "2 and 2", "output": "4"}
    rows = [*[plain] * rows_before, {**plain, "image": "0.png", "instruction": f"{MARK}which?", "output": "the log"}]
    path = folder / f"a.{suffix}"
    if suffix == "parquet":
        write_parquet(path, pa.Table.from_pylist(rows))
    elif suffix == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(plain))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text(json.dumps(rows) if suffix == "json" else "\n".join(map(json.dumps, rows)))
    words = ["--chat", "instruction", *model(folder, "inline")]
    said = run("pack", path, "o.h5", *words, code=1)
    assert f"has {MARK} in its turns, and pictures are named in the column 'image', which would be left out" in said
    assert "--root FOLDER packs those of a folder, --without image the text as it is" in said
    assert not Path("o.h5").exists()
    said = run("pack", path, "o.h5", *words, "--root", "photos")
    assert f"image: pictures in 1 of {rows_before + 1} samples" in said
    talks: list[Talk] = [[(["2 and 2"], "4")], [(["0.png", "which?"], "the log")]]
    assert [by_transformers("inline", as_parts(talk))[0] for talk in talks] == [
        stored("o.h5")[i][0] for i in (0, rows_before)
    ]
    assert not caplog.messages
    assert "left out: columns id, image" in run("pack", path, "t.h5", *words, "--without", "image")
    (told,) = caplog.messages
    assert f"keep {MARK} in their text" in told
    assert "without the pictures of the column 'image'" in told


def test_pictures_in_another_order(folder: Path) -> None:
    """Parts that number their pictures say their order."""
    turns = as_parts([(["0.png", "1.jpg", "why?"], "so")])
    for part, index in zip(turns[0]["content"], (1, 0), strict=False):
        part["index"] = index
    source = lines(folder / "a.jsonl", [{"messages": turns, "images": ["0.png", "1.jpg"]}])
    words = ("--root", "photos", "--chat", "messages", *model(folder, "inline"))
    assert "has the pictures [1, 0] in its turns, expected them in their order" in run(
        "pack", source, "o.h5", *words, code=1
    )


def test_what_does_not_fit_is_said_in_a_line(folder: Path) -> None:
    """Several columns of pictures, preferences, no token, another token, URLs of no picture, and text alone."""
    row = {"images": ["0.png"], "chart": "1.jpg", "conversations": from_value(FIRST)}
    source, words = lines(folder / "a.jsonl", [row]), ["--root", "photos", "--chat", "conversations"]
    inline = model(folder, "inline")
    preference = {"prompt": "a", "chosen": "b", "rejected": "c", "image": "0.png"}
    both = [{"images": ["0.png"], "messages": as_parts(FIRST, image=str)}]
    bytes_of = pa.array([[{"bytes": FILES["0.png"], "path": None}]], pa.list_(PAIR))
    in_table = pa.table({"images": bytes_of, "messages": [as_parts(FIRST, image=str)]})
    for arguments, sentence in (
        ((lines(folder / "b.jsonl", both), "--root", "photos", "--chat", "messages", *inline),
         "column 'images' holds pictures, and so do the turns in 'messages': --without images takes those of"),
        ((write_parquet(folder / "b.parquet", in_table), "--chat", "messages", *inline),
         "and so do the turns in 'messages': those of the turns are taken from JSON lines alone"),
        ((source, *words, *inline), "has pictures in the fields 'images' and 'chart', expected one field of them"),
        ((lines(folder / "p.jsonl", [preference]), "--root", "photos", "--chat", "prompt", *inline),
         "has preferences (prompt, chosen and rejected), which are packed without pictures"),
        ((source, *words, "--without", "chart", *inline, "--special", "image=<image>"),
         "writes '<image>' 0 times for a picture, expected once: name the token with --special image=TOKEN"),
        ((source, *words, "--without", "chart", *inline, "--special", "image=<x>"), "has no token '<x>'"),
        ((source, *words, *inline, "--concat"), "--concat makes a stream of documents, chats are samples"),
        ((source, *words, *inline, "--text-column", "id"), "--text-column has no effect, because the columns"),
        ((source, "--root", "photos", "--chat", "turns", *inline), "has no column 'turns'"),
    ):  # fmt: skip
        is_usage = bool({"--concat", "--text-column"} & {*arguments})
        said = run("pack", arguments[0], "o.h5", *arguments[1:], code=2 if is_usage else 1)
        assert sentence in said
        assert "Traceback" not in said
    run("pack", source, "o.h5", *words, "--without", "chart", *inline)
    run("pack", source, "p.h5", *words, "--without", "images", "--field", "chart=chart:image?", *inline)
    assert stored("o.h5") == stored("p.h5")
    said = run("pack", source, "t.h5", "--chat", "conversations", "--without", "chart,images", *inline)
    assert "left out: columns images, chart" in said


def test_batches_are_those_of_transformers(folder: Path) -> None:
    """From a table to a batch of Qwen2-VL: the ids and grids of its processor."""
    vision = pytest.importorskip("tests.loader.test_vision")
    photos = [Image.fromarray(np.full((60 + 9 * i, 90, 3), 40 * i, np.uint8)) for i in range(4)]
    tree(folder / "photos", {f"{i}.png": encoded(photo) for i, photo in enumerate(photos)})
    chats = [
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a photo"}]}, answer("of two")],
        [{"role": "user", "content": [{"type": "text", "text": "two of"}]}, answer("a")],
        [{"role": "user", "content": [*[{"type": "image"}] * 2, {"type": "text", "text": "of"}]}, answer("photo a")],
    ]
    names = [["0.png"], [], ["1.png", "2.png"]]
    rows = [{"messages": turns, "images": each} for turns, each in zip(chats, names, strict=True)]
    processor, place = vision.qwen_processor(), folder / "qwen"
    processor.chat_template = """{% for turn in messages %}{{ ' a ' if turn.role == 'user' else ' of ' }}
{%- for part in turn.content %}{% if part.type == 'image' %} <|vision_start|> <|image_pad|> <|vision_end|> {% else %}
{{- part.text }}{% endif %}{% endfor %}{% endfor %}{% if add_generation_prompt %} of {% endif %}"""
    place.mkdir()
    processor.tokenizer.backend_tokenizer.save(str(place / "tokenizer.json"))
    (place / "chat_template.jinja").write_text(processor.chat_template)
    source = lines(folder / "a.jsonl", rows)
    run("pack", source, "o.lmdb", "--root", "photos", "--chat", "messages", "--tokenizer", place / "tokenizer.json")

    dataset = FastDataset("o.lmdb")
    image, norm = dataset.store.metadata["chat"]["image"], processor.image_processor
    steps = [
        SmartResize(28, 56 * 56, 28 * 28 * 16), Patchify(14, order="qwen", packed=True),
        Normalize(norm.image_mean, norm.image_std),
    ]  # fmt: skip
    tokens, patches = vision_lengths(dataset, steps)
    packs = PackSampler(tokens, max_tokens=256, patches=patches, max_patches=1024, shuffle=False)
    (batch,) = FastLoader(dataset, batch_sampler=packs, transforms=steps, collate=PackCollate(image_token=image["id"]))
    begins, grids = batch["cu_seqlens"].tolist(), iter(batch["images"]["grid_thw"].tolist())
    order = [int(np.flatnonzero(tokens == length)[0]) for length in np.diff(begins)]
    assert [0, 1, 2] == sorted(order)
    for position, number in enumerate(order):
        text = processor.apply_chat_template(chats[number], tokenize=False)
        images = [photos[int(name[0])] for name in names[number]] or None
        theirs = processor(text=[text], images=images, return_tensors="pt")
        assert theirs["input_ids"][0].tolist() == batch["input_ids"][begins[position] : begins[position + 1]].tolist()
        assert theirs.get("image_grid_thw", np.zeros((0, 3))).tolist() == [next(grids) for _ in names[number]]


def encoded(photo: Image.Image) -> bytes:
    """A picture as a PNG."""
    out = io.BytesIO()
    photo.save(out, "PNG")
    return out.getvalue()


def answer(text: str) -> dict[str, Any]:
    """A turn of the assistant, as parts."""
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}
