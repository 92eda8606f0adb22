"""Tokenizers of Hugging Face's ``tokenizers`` library, from their JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.sources.documents import Documents
from fastio.converters.sources.optional import tokenizers
from fastio.converters.text.tokenizer import ROLES, BytesTokenizer, Encoding, Tokenizer, id_dtype
from fastio.errors import SourceError

__all__ = [
    "CONFIG",
    "HuggingFaceTokenizer",
    "configuration",
    "in_our_threads",
    "load_tokenizer",
    "special_tokens",
]


# What special tokens are called where nothing says it; the first that a vocabulary has is taken.
_USUAL = {
    "bos": ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "[CLS]", "<|endoftext|>"),
    "eos": ("</s>", "<eos>", "<|end_of_text|>", "[SEP]", "<|endoftext|>"),
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>"),
}
_PARALLELISM = "TOKENIZERS_PARALLELISM"
CONFIG = "tokenizer_config.json"  # of transformers, beside the tokenizer's own file


class HuggingFaceTokenizer:
    """
    One tokenizer, shared by all threads: the library releases the GIL and keeps no state between calls.

    Truncation and padding in its file are switched off: both would silently change samples. Its template is not
    applied either: the packer adds bos and eos, by their ids in ``special``.
    """

    def __init__(self, text: str, name: str, special: Mapping[str, int | None]) -> None:
        self._json = text
        self._name = name
        self._tokenizer = tokenizers("for a tokenizer from a file").Tokenizer.from_str(text)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        self.special: Mapping[str, int | None] = {role: special.get(role) for role in ROLES}
        self._dtype = id_dtype(self.vocab_size)

    @classmethod
    def load(cls, path: str | os.PathLike[str], named: Mapping[str, str] | None = None) -> HuggingFaceTokenizer:
        """
        Read a ``tokenizers`` JSON. Raises SourceError if it is not one.

        ``named`` says which token is bos, eos, pad or unk; else ``tokenizer_config.json`` beside the file; else the
        usual names of such tokens.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as exc:
            raise SourceError(
                f"{os.fspath(path)}: the tokenizer cannot be read ({exc.strerror or exc}): expected bytes, or the path "
                "of a tokenizers JSON (tokenizer.json)"
            ) from exc
        except UnicodeDecodeError as exc:
            raise _no_json(path, exc) from exc
        library = tokenizers(f"to read {os.fspath(path)}")
        try:
            loaded = library.Tokenizer.from_str(text)
        except Exception as exc:  # the library raises no other class for a bad file
            raise _no_json(path, exc) from exc
        special: dict[str, int | None] = {}
        configured = special_tokens(configuration(Path(path).with_name(CONFIG)))
        for role in ROLES:
            token = configured.get(f"{role}_token")
            special[role] = _find(loaded, role, (named or {}).get(role), token, os.fspath(path))
        return cls(text, Path(path).name, special)

    def encode(self, documents: Documents) -> Encoding:
        """Return the library's own ids, without special tokens."""
        try:
            encodings = self._encoded(documents)
        except Exception:  # the library raises no other class, and does not say which document it was
            documents = documents.without(self._refused(documents))
            encodings = self._encoded(documents)
        data, lengths = _native.encoded_ids(encodings, np.dtype(self._dtype).itemsize)
        return documents, data.view(self._dtype), lengths

    def _encoded(self, documents: Documents) -> list[Any]:
        encodings: list[Any] = self._tokenizer.encode_batch_fast(_texts(documents), add_special_tokens=False)
        return encodings

    def encode_each(self, texts: Sequence[str]) -> list[list[int] | str]:
        """Return the ids of each text, or a sentence on why it has none; the tokenizer's template adds nothing."""
        try:
            return [each.ids for each in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        except Exception:  # the library raises no other class, and does not say which text it was
            return [self._encoded_alone(text) for text in texts]

    def _encoded_alone(self, text: str) -> list[int] | str:
        try:
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)
        except Exception as exc:  # for each text, of no other class
            return f"cannot be encoded by the tokenizer {self._name!r}: {exc}"

    def encode_with_places(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of each text, and the characters that each is of; the tokenizer's template adds nothing."""
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [(each.ids, each.offsets) for each in encodings]

    def token_id(self, token: str) -> int | None:
        """Return the id of a token; None if the vocabulary does not have it."""
        found = self._tokenizer.token_to_id(token)
        return None if found is None else int(found)

    def has_token(self, token: str) -> bool:
        """Return whether the vocabulary has a token."""
        return self.token_id(token) is not None

    def token(self, role: str) -> str | None:
        """Return the text of the special token of a role."""
        found = self.special[role]
        return None if found is None else str(self._tokenizer.id_to_token(found))

    def _refused(self, documents: Documents) -> dict[int, str]:
        """What the library says of the documents that it cannot encode, by position."""
        encoded = enumerate(map(self._encoded_alone, _texts(documents)))
        return {i: each for i, each in encoded if isinstance(each, str)}

    def decode(self, ids: NDArray[Any]) -> bytes:
        """Return what the tokenizer's decoder makes of some ids; special tokens appear by name."""
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=False)).encode()

    @property
    def template(self) -> list[str]:
        """The tokens that the tokenizer's own template would put around a text, which the packer does not."""
        if self._tokenizer.num_special_tokens_to_add(is_pair=False) == 0:
            return []
        return list(self._tokenizer.encode("", add_special_tokens=True).tokens)

    def to_json(self) -> dict[str, Any]:
        """Return the file's own text, and what was found in it."""
        numbers = {"vocab_size": self.vocab_size, "special": dict(self.special)}
        return {"kind": "huggingface", "name": self._name, **numbers, "json": self._json}


def _no_json(path: str | os.PathLike[str], exc: Exception) -> SourceError:
    return SourceError(f"{os.fspath(path)}: expected a tokenizers JSON (tokenizer.json): {exc}")


def _texts(documents: Documents) -> list[str]:
    data = documents.data.tobytes()
    places = zip(documents.starts.tolist(), (documents.starts + documents.sizes).tolist(), strict=True)
    if data.isascii():  # of which each byte is a character, so that all are decoded at once
        text = data.decode("ascii")
        return [text[start:stop] for start, stop in places]
    return [data[start:stop].decode() for start, stop in places]


@contextmanager
def in_our_threads() -> Iterator[None]:
    """
    Switch off the library's own threads, unless the user asked for them: pieces are already encoded in parallel.

    Only the environment tells the library. In six interleaved rounds on two busy cores (AMD EPYC, tokenizers
    0.23.3), packing reached in the median 1.11 of the tokens per second of ``encode_batch``, and 1.13 per CPU-second,
    with our threads; with the library's 0.96 to 1.03 and 1.03 to 1.08, while one to three pieces were under way.
    """
    if _PARALLELISM in os.environ:
        yield
        return
    os.environ[_PARALLELISM] = "false"
    try:
        yield
    finally:
        os.environ.pop(_PARALLELISM, None)


def configuration(path: Path) -> dict[str, Any]:
    """Return what transformers keeps beside a tokenizer; empty if there is no file. Raises SourceError for no JSON."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise SourceError(f"{path}: is beside the tokenizer, but cannot be read ({exc}): move it away") from exc
    return said if isinstance(said, dict) else {}


def special_tokens(said: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens in such a configuration, by their names in it, such as "bos_token"."""
    found = {}
    for name, token in said.items():
        text = token.get("content") if isinstance(token, dict) else token
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _find(loaded: Any, role: str, named: str | None, configured: str | None, path: str) -> int | None:
    """The id of a role's token."""
    token = named or configured
    if token is not None:
        found = loaded.token_to_id(token)
        if found is None:
            raise SourceError(f"{path}: has no token {token!r}, which was named as its {role}")
        return int(found)
    for usual in _USUAL[role]:
        found = loaded.token_to_id(usual)
        if found is not None:
            return int(found)
    return None


# ``load_tokenizer``: the tokenizer that a user names.


def load_tokenizer(name: str, special: Mapping[str, str] | None = None) -> Tokenizer:
    """
    Load ``bytes``, or a Hugging Face ``tokenizers`` JSON by its path; ``special`` names its tokens by role (bos,
    ...).
    """
    if name != "bytes":
        return HuggingFaceTokenizer.load(name, special)
    if special:
        raise SourceError("the tokenizer of bytes has its own special tokens: drop --special")
    return BytesTokenizer()
