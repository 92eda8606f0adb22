"""Chats to token ids and what counts in the loss: equal to transformers, and with a sentence for each bad row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import FastDataset
from fastio.converters import PackReport, pack
from fastio.converters.text import (
    ChatEncoder,
    ChatTemplate,
    HuggingFaceTokenizer,
    Sequences,
    TextOptions,
    TextSamples,
    open_text,
)
from fastio.errors import SourceError
from fastio.store import open_store
from fastio.types.runs import mask_of_runs
from tests.converters.text.bpe import TEXTS, saved, train
from tests.converters.text.build import stored
from tests.converters.text.chat_templates import NO_SYSTEM, SPECIAL, TEMPLATES, plain

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
TOOL = {"type": "function", "function": {"name": "now", "description": "<the> time", "parameters": {"type": "object"}}}
CHAT = [
    {"role": "user", "content": "the cat?"},
    {"role": "assistant", "content": "the cat sat"},
    {"role": "user", "content": "on?"},
    {"role": "assistant", "content": "on the mat 🐈"},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer with special tokens, and its configuration beside it."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENS))
    return saved(
        train((*TEXTS, "user assistant system ### Instruction: Response:"), special=SPECIAL), folder / "t.json"
    )


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> HuggingFaceTokenizer:
    """It, loaded."""
    return HuggingFaceTokenizer.load(path)


def template(text: str) -> ChatTemplate:
    """A template with the special tokens of the tokenizer."""
    return ChatTemplate(text, None, TOKENS, None, "chat.jinja")


def rows(path: Path, *rows: Mapping[str, Any] | str) -> Path:
    """A file of JSON lines."""
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    )
    return path


def packed(source: Path, encoder: ChatEncoder, *, column: str = "messages", **how: Any) -> PackReport:
    """The chats of a table, packed beside it."""
    samples = TextSamples(open_text(source, options=TextOptions(chat=column)), encoder)
    return pack(samples, source.with_suffix(".h5"), overwrite=True, **how)


def encoded(encoder: ChatEncoder, folder: Path, *found: Mapping[str, Any], column: str = "messages") -> Any:
    """The ids and masks that rows become."""
    source = rows(folder / "chats.jsonl", *found)
    packed(source, encoder, column=column)
    return stored(source.with_suffix(".h5"))


@lru_cache
def _of_transformers(path: Path) -> Any:
    return pytest.importorskip("transformers").PreTrainedTokenizerFast(tokenizer_file=str(path), **TOKENS)


def by_transformers(path: Path, text: str, turns: Sequence[Any], tools: Any = None) -> tuple[list[int], list[bool]]:
    """What the library makes of a chat."""
    tokenizer = _of_transformers(path)
    tokenizer.chat_template = text
    found = tokenizer.apply_chat_template(
        turns, tools=tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    return found["input_ids"], list(map(bool, found["assistant_masks"]))


# Words and space, what takes several ids a character, and names of special tokens.
_PIECES = st.sampled_from(["the cat", " ", "\n", "🐈", "é", "<|im_end|>", "<s>", "{{ x }}", '"<&\\'])
_ANY = st.text(st.characters(exclude_characters="\U0010fffe\U0010ffff", codec="utf-8"), max_size=4)
_CONTENT = st.lists(st.one_of(_PIECES, _ANY), max_size=6).map("".join)


@st.composite
def _chats(draw: st.DrawFn, *, has_system: bool) -> list[dict[str, str]]:
    turns = [{"role": "system", "content": draw(_CONTENT)}] if has_system and draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 3))):
        turns += [{"role": role, "content": draw(_CONTENT)} for role in ("user", "assistant")]
    return turns


@pytest.mark.parametrize("name", TEMPLATES)
def test_equal_to_transformers(
    path: Path, tokenizer: HuggingFaceTokenizer, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """Ids and masks of chats are those of apply_chat_template; rendering prefixes finds the same masks."""
    folder, text = tmp_path_factory.mktemp("chats"), TEMPLATES[name]

    @settings(max_examples=10, deadline=None)
    @given(st.lists(_chats(has_system=name not in NO_SYSTEM), min_size=1, max_size=6))
    def check(chats: list[list[dict[str, str]]]) -> None:
        found = [{"messages": each} for each in chats]
        marked = encoded(ChatEncoder(tokenizer, template(text)), folder, *found)

        assert [by_transformers(path, text, each) for each in chats] == marked
        assert marked == encoded(ChatEncoder(tokenizer, template(plain(text))), folder, *found)

    check()


def test_tools(path: Path, tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    """Tools reach the template as lists or as JSON, and so do calls of a turn without content."""
    call = {"type": "function", "function": {"name": "now", "arguments": {"zone": "<é>"}}}
    turns = [
        {"role": "user", "content": "time?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "name": "now", "content": "12:00"},
        {"role": "assistant", "content": "noon"},
    ]
    text = TEMPLATES["tools"]
    expected = by_transformers(path, text, turns, [TOOL])
    encoder = ChatEncoder(tokenizer, template(text))
    both = [{"messages": turns, "tools": [TOOL]}, {"messages": json.dumps(turns), "tools": json.dumps([TOOL])}]

    assert [expected, expected] == encoded(encoder, tmp_path, *both)
    assert expected != encoded(encoder, tmp_path, {"messages": turns, "tools": None})[0]


def test_a_template_for_tools(path: Path, tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    """Of several templates in the configuration, chats with tools take that for tools."""
    texts = [{"name": "default", "template": TEMPLATES["bars"]}, {"name": "tool_use", "template": TEMPLATES["tools"]}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**TOKENS, "chat_template": texts}))
    encoder = ChatEncoder(tokenizer, ChatTemplate.load(tokenizer, tmp_path / "t.json"))
    found = encoded(encoder, tmp_path, {"messages": CHAT}, {"messages": CHAT, "tools": [TOOL]})

    assert [
        by_transformers(path, texts[0]["template"], CHAT),
        by_transformers(path, texts[1]["template"], CHAT, [TOOL]),
    ] == found


def test_all_ids_of_a_character_count(path: Path, tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    """A turn that ends with a character of several ids counts with all of them; transformers leaves out all but one."""
    text = "{% for turn in messages %}{% generation %}{{ turn.content }}{% endgeneration %}<|end|>{% endfor %}"
    turns = [{"role": "assistant", "content": "on 🐈"}]
    ((ids, mask),) = encoded(ChatEncoder(tokenizer, template(text)), tmp_path, {"messages": turns})

    assert [True] * (len(ids) - 1) + [False] == mask
    assert (ids, False) == (by_transformers(path, text, turns)[0], all(by_transformers(path, text, turns)[1][:-1]))


@pytest.mark.parametrize("mark", [str, plain])
def test_what_counts(tokenizer: HuggingFaceTokenizer, tmp_path: Path, mark: Any) -> None:
    """All turns of the assistant, the last, all tokens, or what follows the prompt."""
    text, found = mark(TEMPLATES["im_start"]), {}
    pairs = {"prompt": CHAT[:3], "completion": CHAT[3:]}
    for loss in ("assistant", "last", "all", "completion"):
        row, column = ({"messages": CHAT}, "messages") if loss != "completion" else (pairs, "prompt")
        ((ids, mask),) = encoded(ChatEncoder(tokenizer, template(text), loss), tmp_path, row, column=column)
        found[loss] = tokenizer.decode(np.array(ids)[mask]).decode()

    turns = "the cat sat<|im_end|>\n", "on the mat 🐈<|im_end|>\n"
    assert {"assistant": "".join(turns), "last": turns[1], "completion": turns[1]} == {
        name: text for name, text in found.items() if name != "all"
    }
    assert found["all"].startswith("<|im_start|>user\nthe cat?")


FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "messages": ({"messages": CHAT}, "role and content"),
    "chat": ({"chat": CHAT}, "role and content"),
    "meta.turns": ({"meta": {"turns": CHAT}}, "role and content"),
    "conversations": (
        {"conversations": [{"from": ("human", "gpt")[i % 2], "value": each["content"]} for i, each in enumerate(CHAT)]},
        "from and value",
    ),
    "prompt": ({"prompt": CHAT[:3], "completion": CHAT[3]["content"]}, "prompt and completion"),
}


@pytest.mark.parametrize("column", FORMS)
def test_forms(tokenizer: HuggingFaceTokenizer, tmp_path: Path, column: str) -> None:
    """Each form is recognised, recorded, and the same chat."""
    row, form = FORMS[column]
    encoder = ChatEncoder(tokenizer, template(TEMPLATES["im_start"]))
    expected = encoded(encoder, tmp_path, {"messages": CHAT})

    assert expected == encoded(encoder, tmp_path, {"id": 7, **row}, column=column)
    with open_store(tmp_path / "chats.h5") as store:
        origin, chat = store.metadata["source"], store.metadata["chat"]
    assert (column, form, ["id"]) == (origin["chat"], origin["form"], origin["left_out"])
    assert (TEMPLATES["im_start"], "assistant", sum(expected[0][1])) == (
        chat["template"], chat["loss"], chat["loss_tokens"],
    )  # fmt: skip


def test_instructions_and_system_prompts(tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    """An input follows its instruction, and the system prompt of a column is the first turn."""
    encoder = ChatEncoder(tokenizer, template(TEMPLATES["im_start"]), "completion")
    found = [{"instruction": "Add", "input": "2 2", "output": "4"}, {"instruction": "Hi", "input": "", "output": "Ho"}]
    turns = [[{"role": "user", "content": "Add\n\n2 2"}, {"role": "assistant", "content": "4"}],
             [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]]  # fmt: skip
    system = [[{"role": "system", "content": "Be kind"}, *each] for each in turns]
    for more, expected in (({}, turns), ({"system": "Be kind"}, system)):
        wanted = encoded(ChatEncoder(tokenizer, encoder.template), tmp_path, *({"messages": each} for each in expected))
        assert wanted == encoded(encoder, tmp_path, *({**row, **more} for row in found), column="instruction")


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json"])
def test_other_tables(tokenizer: HuggingFaceTokenizer, tmp_path: Path, suffix: str) -> None:
    """Chats in columns of structs, in cells of JSON, and in a list of rows."""
    encoder = ChatEncoder(tokenizer, template(TEMPLATES["im_start"]))
    expected, source = encoded(encoder, tmp_path, *[{"messages": CHAT}] * 3), tmp_path / f"table{suffix}"
    if suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(
            arrow.table({"messages": [CHAT] * 3, "n": [0, 1, 2]}), source
        )
    elif suffix == ".csv":
        cell = json.dumps(CHAT).replace('"', '""')
        source.write_text("messages,n\n" + "".join(f'"{cell}",{i}\n' for i in range(3)))
    else:
        source.write_text(json.dumps([{"messages": CHAT, "n": i} for i in range(3)]))
    packed(source, encoder)

    assert expected == stored(source.with_suffix(".h5"))


def turn(**values: Any) -> dict[str, Any]:
    """A row with one more turn."""
    return {"messages": [CHAT[0], values]}


BAD: dict[str, tuple[Mapping[str, Any] | str, str]] = {
    "cut off": ('{"messages": [{"role": "user"', "is not JSON: Expecting ',' delimiter"),
    "a list": ("[1]", "is a list, expected an object with fields"),
    "another column": ({"text": "x"}, "has no field 'messages', only 'text': --chat names another"),
    "no column": ({}, "has no field 'messages', as it is empty: --chat names another"),
    "null": ({"messages": None}, "has null in the field 'messages', expected a list of turns"),
    "a string": ({"messages": "Hi"}, "has text that is no JSON in the field 'messages', expected a list of turns"),
    "no turns": ({"messages": []}, "has no turns in the field 'messages', expected at least one"),
    "a turn of text": ({"messages": ["Hi"]}, "turn 1 is a string, expected an object with 'role' and 'content'"),
    "no role": ({"messages": [{"content": "x"}]}, "turn 1 has no 'role', only 'content'"),
    "an empty role": (turn(role="", content="x"), "turn 2 has the role '', expected one of system, developer, user, "),
    "an unknown role": (turn(role="bot", content="x"), "turn 2 has the role 'bot', expected one of system"),
    "no text": (turn(role="assistant"), "turn 2 has no 'content', only 'role'"),
    "a number": (turn(role="assistant", content=4), "turn 2 has a number as its 'content', expected a string"),
    "a picture": (
        turn(role="user", content=[{"type": "image", "url": "x"}]),
        "turn 2 has a part 'image' in its 'content', expected text alone",
    ),
    "a weight": (turn(role="assistant", content="x", weight=0), "turn 2 has the weight 0, expected 1"),
    "twice": ('{"messages": [{"role": "user", "role": "tool", "content": ""}]}', "has the name 'role' twice"),
    "tools": ({"messages": CHAT, "tools": ["x"]}, "has a list with a string in the field 'tools', expected a list of"),
    "half a character": ('{"messages": [{"role": "user", "content": "\\ud83d"}]}', "has half of a character"),
    "two system prompts": (
        {"messages": [{"role": "system", "content": "x"}, *CHAT], "system": "y"},
        "has a system prompt in the field 'system' and another as turn 1",
    ),
    "no answer": ({"messages": CHAT[:1]}, "has nothing in the loss: no turn of the assistant"),
    "a mark": (turn(role="assistant", content="\U0010fffe"), "holds U+10FFFE or U+10FFFF"),
    "too long": (turn(role="assistant", content="x" * 99), "tokens, more than 80: --too-long truncate cuts such chats"),
}


def test_bad_rows(tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    """Each is named with its row and what was expected; the others are packed."""
    found = [{"messages": CHAT, "system": "", "tools": None}, *(row for row, _ in BAD.values()), {"messages": CHAT}]
    source = rows(tmp_path / "sft.jsonl", *found)
    encoder = ChatEncoder(tokenizer, template(TEMPLATES["im_start"]), sequences=Sequences(max_length=80))
    report = packed(source, encoder, on_error="skip")

    problems = {problem.key: problem.problem for problem in report.skipped}
    assert [f"sft.jsonl:{i}" for i in range(2, len(BAD) + 2)] == sorted(
        problems, key=lambda key: int(key.split(":")[1])
    )
    for i, (name, (_, words)) in enumerate(BAD.items(), 2):
        assert words in problems[f"sft.jsonl:{i}"], name
    assert (2, len(BAD) + 2) == (report.packed, report.found)
    with pytest.raises(SourceError, match=r"sft.jsonl:2: is not JSON: .*; correct it, or skip such documents"):
        packed(source, encoder)


REFUSED = {
    "the template's own words": (
        "{{ raise_exception('no chats today') }}",
        "is refused by the chat template: no chats",
    ),
    "an error": ("{{ messages[0].content + 1 }}", "cannot be rendered by the chat template: TypeError"),
    "a last turn that differs": (
        "{% for turn in messages %}{{ turn.content if loop.last else '' }}{% endfor %}",
        "is rendered so that the text before turn 2 (assistant) does not begin the text with it: give a template with",
    ),
    "an end": (
        "{% for turn in messages %}{{ turn.content }}{% endfor %}!",
        "is rendered so that the text before turn 2 (assistant) does not begin",
    ),
    "turns that vanish": (
        "{% for turn in messages[-2:] %}{{ turn.content }}{% endfor %}",
        "is rendered so that the text up to turn 2 (assistant) does not begin the whole text",
    ),
    "reading Python": (
        "{{ ''.__class__.__mro__ }}",
        "is refused by the chat template: access to attribute '__class__'",
    ),
    "a namespace": ("{{ namespace(__self__='') }}", "is refused by the chat template: a namespace has no name like"),
    "a change": ("{{ messages.append(1) }}", "is refused by the chat template"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_chats(tokenizer: HuggingFaceTokenizer, tmp_path: Path, name: str) -> None:
    """What a template refuses, cannot do or must not do, and what hides where turns lie."""
    text, words = REFUSED[name]
    source = rows(tmp_path / "sft.jsonl", {"messages": CHAT})
    with pytest.raises(SourceError) as caught:
        packed(source, ChatEncoder(tokenizer, template(text)))

    assert f"{source}:1: {words}" in str(caught.value)


def test_truncated_chats(tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    """Ids and mask are cut together and counted; a chat whose answer is cut off is a problem."""
    source = rows(tmp_path / "sft.jsonl", {"messages": CHAT}, {"messages": [{**CHAT[0], "content": "x" * 99}, CHAT[1]]})
    whole = ChatEncoder(tokenizer, template(TEMPLATES["im_start"]))
    packed(source, whole)
    (ids, mask), _ = stored(tmp_path / "sft.h5")
    rule = Sequences(max_length=len(ids) - 3, over="truncate")
    report = packed(source, ChatEncoder(tokenizer, whole.template, sequences=rule), on_error="skip")

    assert [(ids[:-3], mask[:-3])] == stored(tmp_path / "sft.h5")
    assert (1, 3) == (report.documents.cut_documents, report.documents.cut_tokens)
    assert [f"has nothing in the loss: the first {len(ids) - 3} tokens are none of those that count"] == [
        problem.problem for problem in report.skipped
    ]


@pytest.mark.parametrize("said", [Sequences(bos=True), Sequences(max_length=9, over="split")])
def test_what_a_chat_is_not(tokenizer: HuggingFaceTokenizer, said: Sequences) -> None:
    """The template writes bos and eos, and a chat is one sequence."""
    with pytest.raises(SourceError):
        ChatEncoder(tokenizer, template(TEMPLATES["bars"]), sequences=said)


def test_where_templates_are(path: Path, tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    """A named file, one beside the tokenizer, its configuration, in this order; it must be there, and be Jinja."""
    with pytest.raises(SourceError, match=r"has no chat template beside it, neither chat_template\.jinja nor one in"):
        ChatTemplate.load(tokenizer, tmp_path / "t.json")
    found = []
    configured = json.dumps({**TOKENS, "chat_template": "1"})
    for name, content in (("tokenizer_config.json", configured), ("chat_template.jinja", "2"), ("own", "3")):
        (tmp_path / name).write_text(content)
        loaded = ChatTemplate.load(tokenizer, tmp_path / "t.json", tmp_path / name if name == "own" else None)
        found.append((loaded.text, loaded.special["eos_token"]))
    assert [("1", "</s>"), ("2", "</s>"), ("3", "</s>")] == found
    with pytest.raises(SourceError, match=r"t\.jinja: the chat template cannot be read: No such file or directory$"):
        ChatTemplate.load(tokenizer, tmp_path / "t.json", tmp_path / "t.jinja")
    (tmp_path / "own").write_text("{% for %}")
    with pytest.raises(SourceError, match="own: the chat template is not Jinja: line 1"):
        ChatTemplate.load(tokenizer, tmp_path / "t.json", tmp_path / "own")


def test_the_date_is_one(tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    """A template that writes the date writes that on which it was loaded, which the store keeps."""
    (tmp_path / "chat.jinja").write_text(
        "{{ strftime_now('%Y-%m-%d') }}{% generation %}{{ messages[1].content }}{% endgeneration %}"
    )
    loaded = ChatTemplate.load(tokenizer, tmp_path / "t.json", tmp_path / "chat.jinja")
    source = rows(tmp_path / "sft.jsonl", {"messages": CHAT})
    packed(source, ChatEncoder(tokenizer, loaded))

    with open_store(tmp_path / "sft.h5") as store:
        assert loaded.today == store.metadata["chat"]["date"]
        assert ChatTemplate.from_json(store.metadata["chat"]) == loaded
    ids, _ = stored(tmp_path / "sft.h5")[0]
    assert tokenizer.decode(np.array(ids)).decode().startswith(str(loaded.today))


def test_labels(tokenizer: HuggingFaceTokenizer, tmp_path: Path) -> None:
    """What is packed is what FastDataset takes for labels."""
    encoder = ChatEncoder(tokenizer, template(TEMPLATES["im_start"]))
    ((ids, mask),) = encoded(encoder, tmp_path, {"messages": CHAT})
    sample = FastDataset(tmp_path / "chats.h5")[0]

    assert (ids, [len(ids)]) == (sample["tokens"].tolist(), [int(sample["loss"].sum())])
    assert mask == mask_of_runs(sample["loss"], len(ids)).tolist()
