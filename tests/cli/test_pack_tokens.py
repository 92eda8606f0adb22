"""``fastio pack --field caption=...:tokens --tokenizer``: pictures with captions as token ids, from any source."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fastio.store import open_store
from tests.commands import outcome
from tests.converters.trees import picture
from tests.converters.write.writing import values

TEXTS = ["a cat", "", "a cat and a dog", "dog"]
TOKENS = ["--field", "caption=caption:tokens16", "--tokenizer", "bytes"]


@pytest.fixture(params=["metadata.jsonl", "metadata.csv"])
def source(request, tmp_path):
    """Four pictures with captions, in a folder with a table of each kind."""
    (tmp_path / "set").mkdir()
    rows = []
    for i, text in enumerate(TEXTS):
        (tmp_path / "set" / f"{i}.png").write_bytes(picture(i))
        rows.append(json.dumps({"file_name": f"{i}.png", "caption": text}))
    if request.param == "metadata.csv":
        rows = ["file_name,caption", *(f"{i}.png,{text}" for i, text in enumerate(TEXTS))]
    (tmp_path / "set" / request.param).write_text("\n".join(rows))
    return tmp_path / "set"


def test_captions_become_ids(tmp_path, source):
    """Ids with eos, truncated and counted; the store knows the tokenizer, and equals its source."""
    options = ("--eos", "--max-length", "6", "--too-long", "truncate")
    code, output = outcome("pack", source, tmp_path / "out.lmdb", *TOKENS, *options)
    assert 0 == code, output
    with open_store(tmp_path / "out.lmdb") as store:
        expected = [[*text.encode()[:5], 257] for text in TEXTS]
        assert expected == [np.frombuffer(data, "<u2").tolist() for data in values(store, "caption")]
        assert [picture(i) for i in range(4)] == values(store, "image")
        assert {"documents": 1, "tokens": 10} == store.metadata["tokenizer"]["options"]["cut"]
        assert 258 == store.metadata["tokenizer"]["special"]["pad"]
    assert "tokenizer bytes: 259 ids" in outcome("info", tmp_path / "out.lmdb")[1]
    code, output = outcome("verify", tmp_path / "out.lmdb", "--against", source)
    assert (0, True) == (code, "all good" in output), output


def test_longer_captions_are_problems(tmp_path, source):
    """They stop the run, or are skipped and listed."""
    words = ("pack", source, tmp_path / "out.lmdb", *TOKENS, "--max-length", "6")
    code, output = outcome(*words)
    assert 1 == code
    assert "has a field 'caption' that has 15 tokens, more than 6" in output
    assert 0 == outcome(*words, "--on-error", "skip")[0]
    with open_store(tmp_path / "out.lmdb") as store:
        assert (3, 1) == (len(store), len(store.metadata["skipped"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--field", "caption=caption", "--tokenizer", "bytes"], "makes token ids of text in a field: name it, as in"),
        (["--field", "caption=caption:tokens", "--bos"], "--bos needs a tokenizer: add --tokenizer bytes"),
        ([*TOKENS, "--too-long", "split", "--max-length", "5"], "--too-long split is for samples of text alone"),
        (["--tokenizer", "bytes"], "--tokenizer is for text, but"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, options, message):
    """A clear line says which option has no use, and what to add."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "0.png").write_bytes(picture(0))
    (tmp_path / "set" / "metadata.jsonl").write_text(json.dumps({"file_name": "0.png", "caption": "x"}))
    code, output = outcome("pack", tmp_path / "set", tmp_path / "out.lmdb", *options)

    assert code in (1, 2)
    assert message in " ".join(output.split())
    assert not (tmp_path / "out.lmdb").exists()
