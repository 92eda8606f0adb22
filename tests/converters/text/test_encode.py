"""Text beside other fields as token ids: what encode_values and the Writer make of it, and what a store says of it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import fastio
from fastio.converters.fields.values import encode_values
from fastio.converters.inspect.describe import describe
from fastio.converters.text import BytesTokenizer, HuggingFaceTokenizer, Sequences
from fastio.converters.text.decode import tokenizer_of
from fastio.converters.text.encode import TextTokens
from fastio.errors import SampleError, SchemaError, SourceError
from fastio.store import open_store
from fastio.types.field_types import field_of
from tests.converters.trees import picture
from tests.converters.write.writing import values

WORDS = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "a", "cat", "dog")


@pytest.fixture
def words(tmp_path):
    """A tokenizer of a few words, from a file of Hugging Face's library."""
    library = pytest.importorskip("tokenizers")
    model = library.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return HuggingFaceTokenizer.load(tmp_path / "tokenizer.json")


def ids(tokens, texts, type_="tokens16"):
    """The ids of each value, and the problems."""
    field = field_of("caption", type_)
    encoded = encode_values(field, texts, tokenizer=tokens)
    return [view.view(field.dtype).tolist() for view in encoded.spans.views()], dict(encoded.problems)


def test_ids_of_texts(words):
    """Texts get bos and eos, also empty ones; ids stay; what is neither is a problem."""
    tokens = TextTokens(words, Sequences(bos=True, eos=True))
    expected = [[1, 4, 5, 2], [1, 2], [6, 6], [], [1, 0, 2]]

    assert (expected, {3: "has a field 'caption' that is None; expected tokens16"}) == ids(
        tokens, ["a cat", "", [6, 6], None, "unknown"]
    )
    assert ([[104, 105]], {}) == ids(TextTokens(BytesTokenizer()), ["hi"], "tokens")


def test_longer_texts(words):
    """They are refused, or truncated and counted."""
    refusing = TextTokens(words, Sequences(eos=True, max_length=3))
    cutting = TextTokens(words, Sequences(eos=True, max_length=3, over="truncate"))
    texts = ["a cat", "a cat a dog"]

    sentence = "has a field 'caption' that has 5 tokens, more than 3: truncate such texts, or allow more"
    assert ([[4, 5, 2], []], {1: sentence}) == ids(refusing, texts)
    assert ([[4, 5, 2], [4, 5, 2]], {}) == ids(cutting, texts)
    assert (2, {"documents": 1, "tokens": 2}) == (
        cutting.record["options"]["documents"],
        cutting.record["options"]["cut"],
    )


def test_threads_share_texts(words):
    """Whatever their number, ids, problems and counts are those of one; also of a text that the tokenizer refuses."""
    texts = ["a cat " * (number % 5) for number in range(150)] + ["dog \0" * 3]
    many, one = (TextTokens(words, Sequences(eos=True, max_length=6), jobs=jobs) for jobs in (4, 1))
    found = ids(many, texts)
    assert ids(one, texts) == found
    assert list(range(3, 150, 5)) == [number for number in found[1] if number % 5 == 3]
    assert one.record == many.record
    assert ids(one, []) == ids(many, [])


def test_what_cannot_be(words, tmp_path):
    """Splitting, a missing special token, ids too wide for the field and a tokenizer without a field are refused."""
    with pytest.raises(SourceError, match="is one sequence: truncate it"):
        TextTokens(words, Sequences(max_length=4, over="split"))
    tokenizer = BytesTokenizer()
    tokenizer.special = {**tokenizer.special, "bos": None}
    with pytest.raises(SourceError, match="has no bos token"):
        TextTokens(tokenizer, Sequences(bos=True))
    tokenizer.vocab_size = 70_000
    with pytest.raises(SchemaError, match="the tokenizer has 70,000 ids, more than tokens16 holds: make it tokens"):
        encode_values(field_of("caption", "tokens16"), ["a"], tokenizer=TextTokens(tokenizer))
    with pytest.raises(SchemaError, match="the tokenizer has no use"):
        fastio.Writer(tmp_path / "out.lmdb", {"a": "text"}, tokenizer=TextTokens(words))


@pytest.mark.parametrize("name", ["out.lmdb", "out.h5", "out.tar"])
def test_pictures_with_captions(tmp_path, words, name):
    """A store of pictures and captions knows its tokenizer: ids decode again, and info says what it is."""
    tokens = TextTokens(words, Sequences(bos=True, eos=True, max_length=5, over="truncate"))
    texts = ["a cat", "a dog a dog a dog", ""]
    with fastio.Writer(tmp_path / name, {"image": "image", "caption": "tokens16"}, tokenizer=tokens) as writer:
        for i, text in enumerate(texts):
            writer.write({"image": picture(i), "caption": text})
    with open_store(tmp_path / name) as store:
        stored = [np.frombuffer(data, "<u2").tolist() for data in values(store, "caption")]
        tokenizer = tokenizer_of(store.metadata)
        assert [[1, 4, 5, 2], [1, 4, 6, 4, 2], [1, 2]] == stored
        assert b"a cat" == tokenizer.decode(np.array(stored[0][1:-1]))
        assert 3 == store.metadata["tokenizer"]["special"]["pad"]
        assert "tokenizer.json" == describe(store)["tokenizer"]["name"]
        assert {"documents": 1, "tokens": 3} == store.metadata["tokenizer"]["options"]["cut"]


def test_a_wrong_caption_is_named(tmp_path, words):
    """It is refused with its key at the end of its piece."""
    tokens = TextTokens(words, Sequences(max_length=2))
    fields = {"image": "image", "caption": tokens.field("caption")}
    writer = fastio.Writer(tmp_path / "out.lmdb", fields, tokenizer=tokens)
    writer.write({"image": picture(0), "caption": "a cat a"}, key="k")
    with pytest.raises(SampleError, match="'k' has a field 'caption' that has 3 tokens, more than 2"):
        writer.close()


def test_tokens_are_pickled(words):
    """A copy makes the same ids."""
    copy = pickle.loads(pickle.dumps(TextTokens(BytesTokenizer(), Sequences(eos=True))))

    assert ([[97, 257]], {}) == ids(copy, ["a"])
