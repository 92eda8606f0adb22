"""Ten lines that are wrong, in files of chats, preferences and texts: one line says where, what, and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.store import open_store
from tests.converters.text.bpe import TEXTS, saved, train
from tests.converters.text.chat_templates import SPECIAL, TEMPLATES

GOOD: dict[str, Any] = {
    "messages": {"messages": [{"role": "user", "content": "the cat?"}, {"role": "assistant", "content": "sat"}]},
    "prompt": {"prompt": "the cat", "chosen": "sat", "rejected": "mat"},
    "": {"text": "the cat sat"},
}
# The line, and what the message says of it between the place and what to do.
LINES: list[tuple[str, bytes, str]] = [
    (
        "messages",
        b'{"messages": [',
        "is not JSON: Expecting value at character 15 of the line, expected an object with fields",
    ),
    ("messages", b'{"mesages": []}', "has no field 'messages', only 'mesages': --chat names another"),
    ("messages", b'{"messages": 7}', "has a number in the field 'messages', expected a list of turns"),
    (
        "messages",
        b'{"messages": [{"role": "usr", "content": "x"}]}',
        "turn 1 has the role 'usr', expected one of system, developer, user, assistant, tool, function, ipython",
    ),
    (
        "messages",
        b'{"messages": [{"role": "user", "content": {"text": "x"}}]}',
        "turn 1 has an object as its 'content', expected a string",
    ),
    (
        "messages",
        b'{"messages": [{"role": "user", "content": "x"}]}',
        "has nothing in the loss: no turn of the assistant, expected at least one (--loss all counts all tokens)",
    ),
    (
        "prompt",
        b'{"prompt": "a", "chosen": "b"}',
        "has no field 'rejected', only 'prompt', 'chosen': --chat names another",
    ),
    (
        "prompt",
        b'{"prompt": "a", "chosen": 3, "rejected": "x"}',
        "has a number in the field 'chosen', expected a string or a list of turns",
    ),
    ("", b'{"text": ["x"]}', "has a list in the field 'text', expected a string"),
    ("", b'{"text": ""}', "has no text in the field 'text'"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer with a chat template beside it."""
    tmp_path = tmp_path_factory.mktemp("model")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    (tmp_path / "chat_template.jinja").write_text(TEMPLATES["bars"])
    return saved(train((*TEXTS, "user assistant system"), special=SPECIAL), tmp_path / "tokenizer.json")


@pytest.mark.parametrize(("chat", "line", "words"), LINES)
def test_one_line_says_what_is_wrong(tmp_path: Path, model: Path, chat: str, line: bytes, words: str) -> None:
    """Where, what was expected and found, and what to do; the good row is kept with --on-error skip."""
    path, out = tmp_path / "a.jsonl", tmp_path / "a.h5"
    path.write_bytes(json.dumps(GOOD[chat]).encode() + b"\n" + line + b"\n")
    command = ["pack", str(path), str(out), "--tokenizer", str(model), *(("--chat", chat) if chat else ())]
    refused, skipped = (CliRunner().invoke(cli, [*command, *more]) for more in ((), ("--on-error", "skip")))

    advice = "; correct it, or skip such documents with --on-error skip"
    assert (1, f"error: {path}:2: {words}{advice}") == (refused.exit_code, refused.stderr.splitlines()[-1])
    assert 0 == skipped.exit_code, skipped.output
    with open_store(out) as store:
        assert [{"key": "a.jsonl:2", "problem": words}] == store.metadata["skipped"]
        assert ["a.jsonl:1"] == store.keys([0])
