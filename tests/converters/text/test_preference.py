"""Preferences to token ids: equal to TRL's, recognised in each form, and with a sentence for each bad row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import FastLoader
from fastio.converters import PackReport, pack
from fastio.converters.text import (
    ChatTemplate,
    HuggingFaceTokenizer,
    PreferenceEncoder,
    Sequences,
    TextOptions,
    TextSamples,
    open_text,
)
from fastio.converters.text.preference import encoder_of
from fastio.errors import SourceError
from fastio.store import open_store
from tests.converters.text.bpe import TEXTS, saved, train
from tests.converters.text.chat_templates import SPECIAL, TEMPLATES

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
ASKED = [{"role": "user", "content": "the cat?"}]
GOOD, BAD = [{"role": "assistant", "content": "sat"}], [{"role": "assistant", "content": "on the log"}]
PAIR = {"prompt": ASKED, "chosen": GOOD, "rejected": BAD}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer, its configuration and its template beside it."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENS))
    (folder / "chat_template.jinja").write_text(TEMPLATES["im_start"])
    return saved(train((*TEXTS, "user assistant"), special=SPECIAL), folder / "t.json")


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> HuggingFaceTokenizer:
    """It, loaded."""
    return HuggingFaceTokenizer.load(path)


def packed(
    folder: Path,
    path: Path,
    rows: Sequence[Mapping[str, Any] | str],
    *,
    column: str = "prompt",
    template: str | None = None,
    sequences: Sequences | None = None,
    **how: Any,
) -> PackReport:
    """Rows, packed as the command line does, into pairs.h5."""
    source = folder / "pairs.jsonl"
    source.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    tokenizer, opened = HuggingFaceTokenizer.load(path), open_text(source, options=TextOptions(chat=column))
    found = ChatTemplate.load(tokenizer, path, template)
    encoder = encoder_of(opened.chat.form, tokenizer, found, None, sequences or Sequences(), is_per_sample=False)
    return pack(TextSamples(opened, encoder), folder / "pairs.h5", overwrite=True, **how)


def stored(folder: Path) -> list[dict[str, Any]]:
    """The ids of each sample by field, and its label."""
    with open_store(folder / "pairs.h5") as store:
        every = np.arange(len(store))
        fields = {
            field.name: [
                np.frombuffer(view.tobytes(), "<u2").tolist() for view in store.spans(field.name, every).views()
            ]
            for field in store.schema.payload
        }
        columns = {field.name: store.column(field.name).tolist() for field in store.schema.columns}
    names = {**fields, **columns}
    return [dict(zip(names, row, strict=True)) for row in zip(*names.values(), strict=True)]


def as_trl(tokenizer: Any, row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """What TRL 1 makes of a row with a prompt: written out, as its DPOTrainer and KTOTrainer tokenise."""
    if isinstance(row["prompt"], str):
        ends = {name: row[name] + ("" if row[name].endswith("</s>") else "</s>") for name in names}
        alone = tokenizer(row["prompt"])["input_ids"]
        whole = {name: tokenizer(row["prompt"] + ends[name])["input_ids"] for name in names}
    else:
        render = {"tokenize": True, "return_dict": True}
        alone = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, **render)["input_ids"]
        whole = {n: tokenizer.apply_chat_template(row["prompt"] + row[n], **render)["input_ids"] for n in names}
    count = min(_common(alone, each) for each in whole.values())
    return {"prompt": alone[:count], **{name: each[count:] for name, each in whole.items()}}


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


_CONTENT = st.lists(st.sampled_from(["the cat", " ", "\n", "🐈", "é", "<|im_end|>", "sat", "{{ x }}"]), max_size=6)
_TEXTS = _CONTENT.map("".join)


def _turns(*roles: str) -> st.SearchStrategy[list[dict[str, str]]]:
    return st.tuples(*[_TEXTS.map(lambda text: f"x{text}")] * len(roles)).map(
        lambda texts: [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    )


def test_equal_to_trl(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Chats and plain text become the ids that TRL makes of them, for pairs and for completions."""
    library = pytest.importorskip("transformers").PreTrainedTokenizerFast(tokenizer_file=str(path), **TOKENS)
    library.chat_template = TEMPLATES["im_start"]
    folder = tmp_path_factory.mktemp("pairs")
    prompts = st.one_of(_turns("user"), _turns("system", "user"), _turns("user", "assistant", "user"))
    chats = st.fixed_dictionaries({"prompt": prompts, "chosen": _turns("assistant"), "rejected": _turns("assistant")})
    texts = st.fixed_dictionaries(
        {name: _TEXTS.map(lambda text: f"y{text}") for name in ("prompt", "chosen", "rejected")}
    )

    @settings(max_examples=25, deadline=None)
    @given(st.one_of(st.lists(chats, min_size=1, max_size=5), st.lists(texts, min_size=1, max_size=5)))
    def check(rows: list[dict[str, Any]]) -> None:
        template = "none" if isinstance(rows[0]["prompt"], str) else None
        packed(folder, path, rows, template=template)
        assert [as_trl(library, row, ("chosen", "rejected")) for row in rows] == stored(folder)

        labelled = [
            {"prompt": row["prompt"], "completion": row["chosen"], "label": i % 2} for i, row in enumerate(rows)
        ]
        packed(folder, path, labelled, template=template)
        expected = [as_trl(library, row, ("completion",)) | {"label": bool(row["label"])} for row in labelled]
        assert expected == stored(folder)

    check()


def test_batches_are_those_of_trl_itself(path: Path, tmp_path: Path) -> None:
    """Where TRL is installed: its own trainers prepare the rows, its own collators make the batches."""
    trl = pytest.importorskip("trl.trainer.dpo_trainer")
    datasets, transformers = pytest.importorskip("datasets"), pytest.importorskip("transformers")
    library = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), **TOKENS)
    library.chat_template = TEMPLATES["im_start"]
    draw = np.random.default_rng(0)
    words = [" ".join(draw.choice(TEXTS[0].split(), draw.integers(1, 12))) for _ in range(90)]
    rows = [
        {part: [{"role": role, "content": words[i + k]}] for k, (part, role) in enumerate(_ROLES)}
        for i in range(0, 90, 3)
    ]
    packed(tmp_path, path, rows)
    arguments = SimpleNamespace(dataset_num_proc=None, max_length=None, truncation_mode="keep_start")
    prepare, trainer = trl.DPOTrainer._prepare_dataset, SimpleNamespace(_tokenizer=library)
    ready = [dict(row) for row in prepare(trainer, datasets.Dataset.from_list(rows), library, arguments, "train")]
    collate = trl.DataCollatorForPreference(library.pad_token_id)
    with FastLoader(tmp_path / "pairs.h5", 8, collate="preference", threads=1) as loader:
        for first, batch in zip(range(0, len(rows), 8), loader, strict=True):
            expected = collate(ready[first : first + 8])
            assert {name: value.tolist() for name, value in expected.items()} == {
                name: value.long().tolist() for name, value in batch.items()
            }


_ROLES = (("prompt", "user"), ("chosen", "assistant"), ("rejected", "assistant"))


FORMS: dict[str, tuple[dict[str, Any], str, str]] = {
    "turns": (PAIR, "prompt", "prompt, chosen and rejected"),
    "named by an answer": (PAIR, "chosen", "prompt, chosen and rejected"),
    "JSON": ({name: json.dumps(turns) for name, turns in PAIR.items() if name != "prompt"} | {"prompt": "the cat?"},
             "prompt", "prompt, chosen and rejected"),
    "a shared prompt": ({"chosen": ASKED + GOOD, "rejected": ASKED + BAD}, "chosen", "chosen and rejected"),
    "the prompt again": (
        {"prompt": "the cat?", "chosen": ASKED + GOOD, "rejected": ASKED + BAD},
        "prompt",
        "prompt, chosen and rejected",
    ),
    "strings": (
        {"prompt": "the cat?", "chosen": "sat", "rejected": "on the log"}, "prompt", "prompt, chosen and rejected",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_forms(path: Path, tmp_path: Path, name: str) -> None:
    """Each is recognised, recorded, and the same preference; other columns are left out by name."""
    row, column, form = FORMS[name]
    packed(tmp_path, path, [PAIR])
    expected = stored(tmp_path)
    packed(tmp_path, path, [{"id": 1, **row}], column=column)

    assert expected == stored(tmp_path)
    with open_store(tmp_path / "pairs.h5") as store:
        origin, chat = store.metadata["source"], store.metadata["chat"]
    assert (column, form, ["id"]) == (origin["chat"], origin["form"], origin["left_out"])
    answered = len(expected[0]["chosen"]) + len(expected[0]["rejected"])
    assert (TEMPLATES["im_start"], answered) == (chat["template"], chat["loss_tokens"])


def test_plain_text_shares_its_beginning(path: Path, tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    """Without a prompt it is what both strings begin with, up to the space before they differ."""
    packed(tmp_path, path, [{"chosen": "the cat sat", "rejected": "the cat on"}], column="chosen", template="none")
    (sample,) = stored(tmp_path)

    assert ["the cat", " sat</s>", " on</s>"] == [
        tokenizer.decode(np.array(sample[name])).decode() for name in ("prompt", "chosen", "rejected")
    ]


WRONG: dict[str, tuple[Mapping[str, Any] | str, str]] = {
    "cut off": ('{"prompt": "x"', "is not JSON: Expecting ',' delimiter at character 15"),
    "no rejected": ({"prompt": ASKED, "chosen": GOOD}, "has no field 'rejected', only 'prompt', 'chosen'"),
    "a number": ({**PAIR, "chosen": 4}, "has a number in the field 'chosen', expected a string or a list of turns"),
    "null": ({**PAIR, "prompt": None}, "has null in the field 'prompt', expected a string or a list of turns"),
    "no turns": ({**PAIR, "rejected": []}, "has no turns in the field 'rejected', expected at least one"),
    "an empty answer": ({**PAIR, "rejected": ""}, "has nothing in 'rejected' after the prompt"),
    "a role": (
        {**PAIR, "chosen": [{"role": "bot", "content": ""}]},
        "chosen: turn 1 has the role 'bot', expected one of",
    ),
    "only the prompt": ({**PAIR, "chosen": ASKED, "rejected": ASKED}, "has nothing in 'chosen' after the prompt"),
    "two system prompts": (
        {**PAIR, "prompt": [{"role": "system", "content": "x"}, *ASKED], "system": "y"},
        "has a system prompt in the field 'system' and another as turn 1",
    ),
    "too long": ({**PAIR, "rejected": "x" * 99}, "tokens, more than 60: --too-long truncate cuts such answers"),
}


def test_bad_rows(path: Path, tmp_path: Path) -> None:
    """Each is named with its row and what was expected; the others are packed."""
    report = packed(
        tmp_path, path, [PAIR, *(row for row, _ in WRONG.values())], sequences=Sequences(max_length=60), on_error="skip"
    )

    problems = {problem.key: problem.problem for problem in report.skipped}
    for number, (name, (_, words)) in enumerate(WRONG.items(), 2):
        assert words in problems[f"pairs.jsonl:{number}"], name
    assert (1, 1 + len(WRONG)) == (report.packed, report.found)


@pytest.mark.parametrize(
    ("row", "column", "template", "words"),
    [
        ({"chosen": GOOD, "rejected": BAD}, "chosen", None, "begin with different turns"),
        ({"chosen": "a b", "rejected": "a c"}, "chosen", None, "a template cannot tell the turns apart"),
        (PAIR, "prompt", "none", "whose roles --chat-template none leaves out"),
        ({"prompt": "a", "completion": "b", "label": "yes"}, "prompt", None, "in the field 'label', expected true or"),
    ],
)
def test_rows_that_do_not_fit_their_form(
    path: Path, tmp_path: Path, row: Any, column: str, template: str | None, words: str
) -> None:
    """One line says why, and what to do."""
    with pytest.raises(SourceError, match=words):
        packed(tmp_path, path, [row], column=column, template=template)


def test_long_answers_are_cut_and_counted(path: Path, tmp_path: Path) -> None:
    """Each answer loses what is beyond the length with its prompt; a prompt that leaves no room is a problem."""
    packed(tmp_path, path, [PAIR])
    (whole,) = stored(tmp_path)
    length = len(whole["prompt"]) + 2
    cutting = Sequences(max_length=length, over="truncate")
    long_prompt = {**PAIR, "prompt": "the cat sat on the mat? " * 9}
    report = packed(tmp_path, path, [PAIR, long_prompt], sequences=cutting, on_error="skip")

    assert [{name: ids if name == "prompt" else ids[:2] for name, ids in whole.items()}] == stored(tmp_path)
    assert report.documents is not None
    lost = sum(len(whole[name]) - 2 for name in ("chosen", "rejected"))
    assert (1, lost) == (report.documents.cut_documents, report.documents.cut_tokens)
    (problem,) = report.skipped
    assert f"has nothing of 'chosen' after the prompt: the prompt takes all {length} tokens" == problem.problem


def test_what_preferences_do_not_take(path: Path, tokenizer: HuggingFaceTokenizer) -> None:
    """Another loss, bos and eos besides the template's, splitting, and plain text without an end mark."""
    template = ChatTemplate.load(tokenizer, path)
    form = "prompt, chosen and rejected"
    with pytest.raises(SourceError, match="drop --loss all"):
        encoder_of(form, tokenizer, template, "all", Sequences(), is_per_sample=False)
    with pytest.raises(SourceError, match="drop --bos and --eos"):
        PreferenceEncoder(tokenizer, template, form, Sequences(eos=True))
    with pytest.raises(SourceError, match="a chat is one sequence"):
        PreferenceEncoder(tokenizer, template, form, Sequences(max_length=9, over="split"))


def test_plain_text_needs_an_end_mark(tmp_path: Path) -> None:
    """A tokenizer without eos cannot end an answer; one that begins texts with bos does so here."""
    bare = saved(train(special=["<a>"]), tmp_path / "bare.json")
    with pytest.raises(SourceError, match="ends each text with eos, which the tokenizer does not have: name it with"):
        ChatTemplate.load(HuggingFaceTokenizer.load(bare), bare, "none")
    template = ChatTemplate.load(HuggingFaceTokenizer.load(bare, {"eos": "<a>"}), bare, "none", named={"eos": "<a>"})
    assert "ab<a>" == template.render([{"content": "a"}, {"content": "b"}], None).text
    assert "ab" == template.render([{"content": "ab"}], None, asks=True).text
