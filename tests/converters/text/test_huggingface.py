"""Tokenizers from a Hugging Face JSON: the library's ids, nothing added or cut in silence, special tokens by role."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from fastio.converters.text import HuggingFaceTokenizer, Sequences, TextOptions, load_tokenizer
from fastio.converters.text.huggingface import in_our_threads
from fastio.errors import SourceError
from fastio.store import open_store
from tests.converters.text.bpe import lower, saved, templated, train
from tests.converters.text.build import SUFFIXES, ids, packed
from tests.converters.trees import tree

TEXT = "the cat sat on the mat\nGrüße,\n  two\tspaces\n\nan <s> within\n\nTHE DOG"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The JSON of a small BPE."""
    return saved(train(), tmp_path / "bpe.json")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A text of three paragraphs."""
    return tree(tmp_path, {"a.txt": TEXT}) / "a.txt"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_ids_are_those_of_the_library(tmp_path: Path, path: Path, corpus: Path, suffix: str) -> None:
    """Ids of every paragraph, and their text byte by byte, in every format; the JSON travels along."""
    tokenizer, out = load_tokenizer(str(path)), tmp_path / f"out{suffix}"
    report = packed(corpus, out, tokenizer=tokenizer, options=TextOptions(split="paragraph"))
    found = list(ids(out).values())
    plain = train()

    assert [plain.encode(text, add_special_tokens=False).ids for text in TEXT.split("\n\n")] == found
    assert TEXT.split("\n\n") == [tokenizer.decode(np.array(each)).decode() for each in found]
    assert (3, 3) == (report.documents.probed_documents, report.documents.exact_documents)
    with open_store(out) as store:
        said = store.metadata["tokenizer"]
    assert path.read_text() == said["json"]
    assert ("huggingface", "bpe.json", tokenizer.vocab_size) == (said["kind"], said["name"], said["vocab_size"])
    assert {"bos": 0, "eos": 1, "pad": None, "unk": None} == said["special"]
    assert {"documents": 3, "exact": 3} == said["options"]["decoded"]


def test_a_file_that_truncates_does_not(tmp_path: Path, path: Path, corpus: Path) -> None:
    """Truncation, padding and a template in the tokenizer's file change no sample; bos and eos are asked for."""
    other = saved(templated(train()), tmp_path / "other.json")
    for name, source, rule in (
        ("a", path, Sequences()),
        ("b", other, Sequences()),
        ("c", other, Sequences(True, True)),
    ):
        packed(corpus, tmp_path / f"{name}.h5", tokenizer=load_tokenizer(str(source)), sequences=rule)
    first, second, third = (list(ids(tmp_path / f"{name}.h5").values()) for name in "abc")

    assert first == second
    assert [[0, *each, 1] for each in first] == third
    assert ["<s>", "</s>"] == HuggingFaceTokenizer.load(other).template
    assert [] == HuggingFaceTokenizer.load(path).template


def test_a_tokenizer_that_loses_text_is_told(tmp_path: Path, corpus: Path) -> None:
    """Decoding some documents again shows that capital letters are gone."""
    tokenizer = load_tokenizer(str(saved(lower(train()), tmp_path / "lower.json")))
    report = packed(corpus, tmp_path / "out.h5", tokenizer=tokenizer, options=TextOptions(split="paragraph"))

    assert (3, 1) == (report.documents.probed_documents, report.documents.exact_documents)


def test_large_vocabularies_take_four_bytes(tmp_path: Path, corpus: Path) -> None:
    """Ids from 65,536 on do not fit in two bytes."""
    said = json.loads(train().to_str())
    said["added_tokens"].append({**said["added_tokens"][0], "id": 70_000, "content": "<far>"})
    said["model"]["vocab"]["<far>"] = 70_000
    (tmp_path / "far.json").write_text(json.dumps(said))
    tokenizer = load_tokenizer(str(tmp_path / "far.json"))
    tree(tmp_path, {"a.txt": "the<far>"})
    packed(tmp_path / "a.txt", tmp_path / "out.h5", tokenizer=tokenizer)

    assert 70_001 == tokenizer.vocab_size
    assert 70_000 == ids(tmp_path / "out.h5", "<u4")["a.txt:1"][-1]


@pytest.mark.parametrize(
    ("special", "config", "named", "expected"),
    [
        (["<s>", "</s>"], None, {}, {"bos": 0, "eos": 1, "pad": None, "unk": None}),
        (["[PAD]", "[CLS]", "[SEP]", "[UNK]"], None, {}, {"bos": 1, "eos": 2, "pad": 0, "unk": 3}),
        (["<a>", "<b>"], {"bos_token": "<a>", "eos_token": {"content": "<b>"}}, {}, {"bos": 0, "eos": 1}),
        (["<a>", "<b>"], {"bos_token": "<a>"}, {"bos": "<b>", "pad": "<a>"}, {"bos": 1, "pad": 0}),
        (["<a>"], None, {}, {"bos": None, "eos": None}),
    ],
)
def test_special_tokens(
    tmp_path: Path, special: list[str], config: Any, named: dict[str, str], expected: dict[str, int | None]
) -> None:
    """Roles are said by name, by the configuration beside the file, or by what such tokens are usually called."""
    path = saved(train(special=special), tmp_path / "t.json")
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))

    assert expected.items() <= dict(load_tokenizer(str(path), named).special).items()


def test_a_role_without_a_token(tmp_path: Path, corpus: Path) -> None:
    """To ask for a token that nobody has is an error that says how to name one."""
    tokenizer = load_tokenizer(str(saved(train(special=["<a>"]), tmp_path / "t.json")))
    with pytest.raises(SourceError, match="the tokenizer has no eos token: name it with --special eos=TOKEN"):
        packed(corpus, tmp_path / "out.h5", tokenizer=tokenizer, sequences=Sequences(eos=True))
    with pytest.raises(SourceError, match=r"t\.json: has no token '<b>', which was named as its eos"):
        load_tokenizer(str(tmp_path / "t.json"), {"eos": "<b>"})
    with pytest.raises(SourceError, match="drop --special"):
        load_tokenizer("bytes", {"eos": "x"})


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff"])
def test_what_is_no_tokenizer(tmp_path: Path, content: bytes) -> None:
    """Another file is refused by name."""
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(SourceError, match=r"t\.json: expected a tokenizers JSON"):
        load_tokenizer(str(tmp_path / "t.json"))


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_tokenizer_that_is_not_there(monkeypatch: pytest.MonkeyPatch, is_installed: bool) -> None:
    """A misspelt name is not answered with a package to install, but with what may be named."""
    if not is_installed:
        monkeypatch.setitem(sys.modules, "tokenizers", None)
    words = r"bytez: the tokenizer cannot be read \(No such file or directory\): expected bytes, or the path of "
    with pytest.raises(SourceError, match=words):
        load_tokenizer("bytez")


def test_documents_that_the_library_refuses(tmp_path: Path) -> None:
    """A word outside a vocabulary without an unknown token is a problem of its document alone."""
    model = models.WordLevel({"the": 0, "cat": 1}, unk_token="<unk>")
    tokenizer = HuggingFaceTokenizer.load(saved(Tokenizer(model), tmp_path / "words.json"))
    report = packed(
        tree(tmp_path, {"a.txt": "the\ndog\ncat"}) / "a.txt", tmp_path / "out.h5", tokenizer=tokenizer, on_error="skip"
    )

    assert {"a.txt:1": [0], "a.txt:3": [1]} == ids(tmp_path / "out.h5")
    assert ["a.txt:2"] == [problem.key for problem in report.skipped]
    assert report.skipped[0].problem.startswith("cannot be encoded by the tokenizer 'words.json': ")


def test_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch, path: Path, tmp_path: Path) -> None:
    """One sentence says what to install."""
    for name in ("tokenizers", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SourceError, match=r"the package tokenizers is needed: pip install 'fastio\[text\]'"):
        load_tokenizer(str(path))
    (tmp_path / "a.txt.zst").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"the package pyarrow is needed: pip install 'fastio\[text\]'"):
        packed(tmp_path / "a.txt.zst", tmp_path / "out.h5")


@pytest.mark.parametrize("chosen", [None, "true"])
def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch, chosen: str | None) -> None:
    """The library's threads are kept out while packing only, and only where nobody chose."""
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if chosen is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", chosen)
    with in_our_threads():
        assert (chosen or "false") == os.environ["TOKENIZERS_PARALLELISM"]

    assert chosen == os.environ.get("TOKENIZERS_PARALLELISM")


def test_the_store_does_not_depend_on_threads(tmp_path: Path, path: Path) -> None:
    """One thread or three share a tokenizer and give the same bytes."""
    source = tree(tmp_path, {"a.txt": "\n".join(f"the cat {i} sat" for i in range(20_000))}) / "a.txt"
    for jobs in (1, 3):
        packed(source, tmp_path / f"{jobs}.lmdb", tokenizer=load_tokenizer(str(path)), jobs=jobs)

    assert (tmp_path / "1.lmdb").read_bytes() == (tmp_path / "3.lmdb").read_bytes()
