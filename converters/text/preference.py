"""PreferenceEncoder: turns prompts and the better or worse answers to them into token ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.chat_forms import (
    LABELLED,
    PREFERENCES,
    SHARED,
    Chat,
    ChatError,
    Preference,
    preference_of,
)
from fastio.converters.sources.documents import Documents
from fastio.converters.sources.places import places_of
from fastio.converters.sources.source import Chunk, DocumentCounts
from fastio.converters.text.chat import ChatEncoder, Loss, check_plain, check_sequences, default_loss, joined_values
from fastio.converters.text.chat_template import ChatTemplate, has_marks
from fastio.converters.text.encode import Sequences
from fastio.converters.text.huggingface import HuggingFaceTokenizer
from fastio.converters.text.tokenizer import id_dtype
from fastio.errors import SourceError
from fastio.store.protocol import SampleBatch
from fastio.types.field_types import field_of
from fastio.types.schema import Schema

__all__ = ["PreferenceEncoder", "encoder_of"]

_Ids = NDArray[Any]
_Texts = tuple[str, ...]  # of a prompt, and of the prompt with each answer


def encoder_of(
    form: str,
    tokenizer: HuggingFaceTokenizer,
    template: ChatTemplate,
    loss: Loss | None,
    sequences: Sequences,
    *,
    is_per_sample: bool,
) -> ChatEncoder | PreferenceEncoder:
    """Return what encodes rows of a form. Raises SourceError for a ``loss`` that preferences do not have."""
    if form not in PREFERENCES:
        return ChatEncoder(tokenizer, template, loss or default_loss(form), sequences, is_per_sample)
    if loss not in (None, "completion"):
        raise SourceError(f"the answers of preferences count, the prompts do not: drop --loss {loss}")
    return PreferenceEncoder(tokenizer, template, form, sequences, is_per_sample)


@dataclass(frozen=True, slots=True)
class PreferenceEncoder:
    """
    Turns the documents of a source of preferences into samples: "prompt", "chosen" and "rejected", or "prompt",
    "completion" and the column "label", a bool.

    The prompt is rendered with what comes before an answer, and each answer behind the prompt; all are tokenised whole.
    The ids of ``prompt`` are those that begin all of them, and an answer has those that follow. So prompt and answer
    together are the ids of their text, also where a token reaches across the end of the prompt. A prompt that does not
    begin the text of an answer is a problem. Thread-safe.
    """

    tokenizer: HuggingFaceTokenizer
    template: ChatTemplate
    form: str
    sequences: Sequences = field(default_factory=Sequences)
    is_per_sample: bool = False

    def __post_init__(self) -> None:
        check_sequences(self.sequences)

    @property
    def schema(self) -> Schema:
        """Token ids of the prompt and of each answer; the label of a completion."""
        type_ = "tokens16" if id_dtype(self.tokenizer.vocab_size) == "<u2" else "tokens"
        fields = [field_of(name, type_) for name in ("prompt", *self._answers)]
        label = [field_of("label", "bool")] if self.form == LABELLED else []
        return Schema((*fields, *label), is_per_sample=self.is_per_sample)

    @property
    def _answers(self) -> tuple[str, ...]:
        return ("completion",) if self.form == LABELLED else ("chosen", "rejected")

    def to_json(self) -> dict[str, Any]:
        """Return the tokenizer as stored."""
        return self.tokenizer.to_json()

    @property
    def record(self) -> dict[str, Any]:
        """What a store keeps besides the tokenizer: the template."""
        return {"chat": {**self.template.to_json(), "loss": "completion", "turns_by": "prefixes"}}

    def __call__(self, documents: Documents) -> Chunk:
        """Render and tokenise one piece. The result counts what became of its rows."""
        found = len(documents.keys) + len(documents.problems)
        problems: dict[int, str] = {}
        rendered: list[tuple[int, Preference, _Texts]] = []
        for i, (start, size) in enumerate(zip(documents.starts.tolist(), documents.sizes.tolist(), strict=True)):
            try:
                rendered.append((i, *self._rendered(documents.data[start : start + size].tobytes())))
            except ChatError as exc:
                problems[i] = str(exc)
        each = 1 + len(self._answers)
        flat = self.tokenizer.encode_each([text for _, _, texts in rendered for text in texts])
        ids: list[list[_Ids]] = [[] for _ in range(each)]
        labels, cuts, text_bytes = [], [], 0
        for row, (i, preference, texts) in enumerate(rendered):
            try:
                fitted, cut = self._fitted(flat[row * each : (row + 1) * each])
            except ChatError as exc:
                problems[i] = str(exc)
                continue
            for name, value in zip(ids, fitted, strict=True):
                name.append(value)
            cuts.append(cut)
            labels.append(preference.label)
            text_bytes += sum(len(text.encode()) for text in texts[1:])
        documents = documents.without(problems)
        if len(documents.keys) != len(cuts) or len(documents.keys) + len(documents.problems) != found:
            raise SourceError(
                f"{found} rows were read, {len(cuts)} tokenised and {len(documents.problems)} refused. Nothing is "
                "kept; please report this"
            )
        values = {name: joined_values(of) for name, of in zip(("prompt", *self._answers), ids, strict=True)}
        columns = {"label": np.array(labels, np.bool_)} if self.form == LABELLED else {}
        answered = sum(len(value) for of in ids[1:] for value in of)
        counts = DocumentCounts(
            documents=len(cuts),
            samples=len(cuts),
            tokens=answered + sum(map(len, ids[0])),
            text_bytes=text_bytes,
            blank_lines=len(documents.blank_lines),
            read_bytes=documents.read_bytes,
            cut_documents=sum(map(bool, cuts)),
            cut_tokens=sum(cuts),
            split_documents=0,
            probed_documents=0,
            exact_documents=0,
            loss_tokens=answered,
        )
        return Chunk(
            SampleBatch(documents.keys, values, columns),
            documents.problems,
            documents=counts,
            blank_lines=documents.blank,
            cut=places_of(list(compress(documents.keys, cuts))),
        )

    def _rendered(self, document: bytes) -> tuple[Preference, _Texts]:
        """A preference, and the texts of its prompt and of the prompt with each answer. Raises ChatError."""
        text = document.decode()
        if has_marks(text):
            raise ChatError("holds U+10FFFE or U+10FFFF, which are no characters: take them out")
        preference = preference_of(json.loads(text))
        chats = preference.answers
        for chat in chats.values():
            check_plain(self.template, chat)
            if self.form == SHARED and chat.is_text and not self.template.is_plain:
                raise ChatError(
                    "has text as 'chosen' and 'rejected' and no 'prompt', so a template cannot tell the turns apart: "
                    "add a column 'prompt', or join plain text (--chat-template none)"
                )
        prompt = self._prompt(next(iter(chats.values())), preference.prompt)
        whole = {name: self.template.render(chat.turns, chat.tools).text for name, chat in chats.items()}
        for name, text in whole.items():
            if not text.startswith(prompt):
                raise ChatError(
                    f"is rendered so that its prompt does not begin the text with {name!r}: give a template that "
                    "writes the prompt alike with and without an answer (--chat-template)"
                )
        return preference, (prompt, *whole.values())

    def _prompt(self, chat: Chat, count: int) -> str:
        try:
            return self.template.render(chat.turns[:count], chat.tools, asks=True).text
        except ChatError as exc:
            raise ChatError(f"{exc} (rendered up to {chat.name(count - 1)}, the prompt)") from exc

    def _fitted(self, encoded: Sequence[list[int] | str]) -> tuple[list[_Ids], int]:
        """
        The ids of the prompt and of each answer within the longest sequence allowed, and how many were cut off. Raises
        ChatError for what is too long, or has nothing left of an answer.
        """
        dtype = np.dtype(id_dtype(self.tokenizer.vocab_size))
        arrays = []
        for each in encoded:
            if isinstance(each, str):
                raise ChatError(each)
            arrays.append(np.array(each, dtype))
        alone, *whole = arrays
        count = min(_common(alone, each) for each in whole)
        limit, longest = self.sequences.max_length, max(map(len, whole))
        if limit is not None and longest > limit and self.sequences.over == "refuse":
            raise ChatError(f"has {longest:,} tokens, more than {limit:,}: --too-long truncate cuts such answers")
        answers = [each[count:limit] for each in whole]
        for name, answer, text in zip(self._answers, answers, whole, strict=True):
            if not len(answer):
                why = f"the prompt takes all {limit:,} tokens" if len(text) > count else "it adds no token"
                raise ChatError(f"has nothing of {name!r} after the prompt: {why}")
        cut = sum(map(len, whole)) - len(whole) * count - sum(map(len, answers))
        return [alone[:count], *answers], cut


def _common(first: _Ids, second: _Ids) -> int:
    """How many ids both begin with."""
    count = min(len(first), len(second))
    differing = np.flatnonzero(first[:count] != second[:count])
    return int(differing[0]) if len(differing) else count
