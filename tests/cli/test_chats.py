"""``fastio pack --chat``: one store, sets in parts, what is said of them, and options that do not go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import outcome
from tests.converters.text.bpe import TEXTS, saved, train
from tests.converters.text.chat_templates import SPECIAL, TEMPLATES


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Forty chats, one of them without an answer; the options that pack them."""
    monkeypatch.chdir(tmp_path)
    saved(train(TEXTS, special=SPECIAL), Path("tokenizer.json"))
    Path("chat_template.jinja").write_text(TEMPLATES["im_start"])
    turns = [{"role": "user", "content": "the cat?"}, {"role": "assistant", "content": "sat"}]
    rows = [json.dumps({"id": i, "messages": turns[: 1 + (i != 7)]}) for i in range(40)]
    Path("sft.jsonl").write_text("\n".join(rows) + "\n")
    return ["--tokenizer", "tokenizer.json", "--chat", "messages", "--on-error", "skip"]


def test_a_store_of_chats(chat: list[str]) -> None:
    """Packed, described, and compared with its source."""
    code, said = outcome("pack", "sft.jsonl", "sft.h5", *chat)
    assert 0 == code, said
    assert "sft.jsonl: jsonl, chats in 'messages' (role and content)" in said
    assert "chat template chat_template.jinja; in the loss: the assistant's turns, by {% generation %}" in said
    assert "has nothing in the loss: no turn of the assistant" in said
    assert 1 == sum(line.startswith("in the loss: ") for line in said.splitlines())

    assert "chats by the template chat_template.jinja; in the loss: assistant, " in outcome("info", "sft.h5")[1]
    code, said = outcome("verify", "sft.h5", "--against", "sft.jsonl")
    assert (0, True) == (code, "39 compared with sft.jsonl: keys and the fields tokens, loss" in said), said


def test_sets_of_chats(chat: list[str]) -> None:
    """Resuming makes the same shards, and joins none of another template or loss; parts make a set as well."""
    words = ("pack", "sft.jsonl", "sft-%06d.tar", *chat, "--shard-size", "20KB")
    code, said = outcome(*words)
    assert 0 == code, said
    shards = {path.name: path.read_bytes() for path in Path().glob("sft-*.tar")}
    assert 2 < len(shards)
    sorted(Path().glob("sft-*.tar"))[1].unlink()
    code, said = outcome(*words, "--resume")
    assert 0 == code, said
    assert shards == {path.name: path.read_bytes() for path in Path().glob("sft-*.tar")}

    sorted(Path().glob("sft-*.tar"))[1].unlink()
    assert 1 == outcome(*words, "--resume", "--loss", "all")[0]
    Path("chat_template.jinja").write_text(TEMPLATES["bars"])
    assert 1 == outcome(*words, "--resume")[0]
    for part in ("0/2", "1/2"):
        code, said = outcome("pack", "sft.jsonl", "part-%06d.tar", *chat, "--part", part)
        assert 0 == code, said
    assert "39 samples" in outcome("verify", "part-%06d.tar")[1]


WRONG = {
    "no tokenizer": (["--chat", "messages"], "--chat needs the tokenizer of a model: add --tokenizer FILE"),
    "a template alone": (["--chat-template", "x"], "--chat-template is for chats: add --chat COLUMN"),
    "eos": ([..., "--eos"], "the chat template writes bos and eos: drop --bos and --eos"),
    "split": ([..., "--max-length", 9, "--too-long", "split"], "a chat is one sequence: truncate longer ones"),
    "text too": ([..., "--text-column", "id"], "--text-column id has no effect, because the columns of a chat are"),
    "another column": ([..., "--chat", "turns"], "has no column 'turns', only 'id', 'messages': --chat names another"),
    "no chats": ([..., "--chat", "id"], "has a number in the column 'id', expected a list of turns"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_do_not_fit(chat: list[str], name: str) -> None:
    """One line says which, and what to type."""
    options, words = WRONG[name]
    given = [word for each in options for word in (chat if each is ... else [each])]
    code, said = outcome("pack", "sft.jsonl", "out.lmdb", *given)

    assert (True, True) == (code > 0, words in said), said
    assert not Path("out.lmdb").exists()


def test_chats_are_in_tables(chat: list[str]) -> None:
    """A file of lines has no columns."""
    Path("a.txt").write_text("x\n")
    assert (
        "--chat messages has no effect, because only tables hold chats" in outcome("pack", "a.txt", "a.lmdb", *chat)[1]
    )


def test_preferences(chat: list[str]) -> None:
    """Named in the report, compared with their source; without the label, completions are chats."""
    row = {"prompt": "the cat?", "completion": "sat", "label": True}
    Path("kto.jsonl").write_text("".join(json.dumps({**row, "label": i % 2 == 0}) + "\n" for i in range(9)))
    words = ("pack", "kto.jsonl", *chat[:2], "--chat", "prompt")
    code, said = outcome(*words[:2], "kto.h5", *words[2:])
    assert (0, True) == (code, "jsonl, preferences in 'prompt' (prompt, completion and label)" in said), said
    code, said = outcome("verify", "kto.h5", "--against", "kto.jsonl")
    assert (0, True) == (code, "9 compared with kto.jsonl: keys and the fields prompt, completion, label" in said), said

    code, said = outcome(*words[:2], "sft.h5", *words[2:], "--without", "label")
    assert (0, True) == (code, "jsonl, chats in 'prompt' (prompt and completion)" in said), said
    code, said = outcome("verify", "sft.h5", "--against", "kto.jsonl")
    assert (0, True) == (code, "9 compared with kto.jsonl: keys and the fields tokens, loss" in said), said
    assert "drop --loss all" in outcome(*words[:2], "x.h5", *words[2:], "--loss", "all")[1]
    assert "--tokenizer tokenizer.json --chat prompt" in outcome("info", "kto.jsonl")[1]
