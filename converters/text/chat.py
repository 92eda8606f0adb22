"""ChatEncoder: turns chats into token ids, and says which of them count in the loss."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.chat_forms import COMPLETIONS, Chat, ChatError, chat_of
from fastio.converters.sources.documents import Documents
from fastio.converters.sources.places import places_of
from fastio.converters.sources.source import Chunk, DocumentCounts
from fastio.converters.text.chat_template import ChatTemplate, Rendered, has_marks
from fastio.converters.text.encode import Encoder, Sequences
from fastio.converters.text.huggingface import HuggingFaceTokenizer
from fastio.converters.text.image_token import ImageToken
from fastio.converters.text.tokenizer import id_dtype
from fastio.errors import SourceError
from fastio.store.protocol import SampleBatch
from fastio.types.field_types import FIELD_TYPES
from fastio.types.runs import runs_of_mask
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "LOSSES",
    "ChatEncoder",
    "EncodedChats",
    "Loss",
    "check_plain",
    "check_sequences",
    "default_loss",
    "joined_values",
]

Loss = Literal["assistant", "last", "all", "completion"]
LOSSES: tuple[Loss, ...] = ("assistant", "last", "all", "completion")

_Encoded = tuple[NDArray[Any], NDArray[np.bool_]]  # ids of a chat, and which of them count in the loss
_ADVICE = "give a template with {% generation %} (--chat-template), or count all tokens (--loss all)"


def default_loss(form: str) -> Loss:
    """
    Return what counts in the loss unless the user says otherwise.

    >>> default_loss("prompt and completion"), default_loss("role and content")
    ('completion', 'assistant')
    """
    return "completion" if form in COMPLETIONS else "assistant"


def check_sequences(sequences: Sequences) -> None:
    """Raise SourceError for rules that are not for chats."""
    if sequences.bos or sequences.eos:
        raise SourceError("the chat template writes bos and eos: drop --bos and --eos")
    if sequences.over in ("split", "concat"):
        raise SourceError("a chat is one sequence: truncate longer ones (--too-long truncate), or refuse them")


def check_plain(template: ChatTemplate, chat: Chat) -> None:
    """Raise ChatError for turns that would be joined as if they were strings."""
    if template.is_plain and not chat.is_text:
        raise ChatError(
            "has turns or a system prompt, whose roles --chat-template none leaves out: name the model's template"
        )


@dataclass(slots=True)
class EncodedChats:
    """
    What chats became: the ids of those that are good, which of them count in the loss, and how many were ``cut`` off.

    ``text_bytes`` is the UTF-8 of their texts. ``problems`` says what is wrong with the others, by position.
    """

    ids: list[NDArray[Any]]
    masks: list[NDArray[np.bool_]]
    cut: list[int]
    text_bytes: int
    problems: dict[int, str]

    @property
    def spans(self) -> dict[str, Spans]:
        """The values of the fields "tokens" and "loss"."""
        return {"tokens": joined_values(self.ids), "loss": joined_values([runs_of_mask(mask) for mask in self.masks])}


@dataclass(frozen=True, slots=True)
class ChatEncoder:
    """
    Turns the documents of a source of chats into samples: "tokens", and "loss" as ``runs_of_mask`` makes it.

    The text is what ``template`` writes, special tokens included; nothing is added to it. In the loss are all turns of
    the assistant (``loss`` "assistant"), the last one, all tokens, or what follows the prompt ("completion"). Where a
    turn of the assistant lies, {% generation %} in the template says; else the text of the turns before it, which must
    begin the text of the whole chat. A chat with nothing in the loss is a problem. With ``image``, chats have that
    token once for each of their pictures, and any other number of it is a problem. Thread-safe.
    """

    tokenizer: HuggingFaceTokenizer
    template: ChatTemplate
    loss: Loss = "assistant"
    sequences: Sequences = field(default_factory=Sequences)
    is_per_sample: bool = False
    image: ImageToken | None = None

    def __post_init__(self) -> None:
        check_sequences(self.sequences)

    @property
    def schema(self) -> Schema:
        """Tokens, and which of them count in the loss."""
        tokens = Encoder(self.tokenizer, self.sequences).schema["tokens"]
        return Schema((tokens, Field("loss", *FIELD_TYPES["loss"])), is_per_sample=self.is_per_sample)

    def to_json(self) -> dict[str, Any]:
        """Return the tokenizer as stored."""
        return self.tokenizer.to_json()

    @property
    def record(self) -> dict[str, Any]:
        """What a store keeps besides the tokenizer: the template, and what counts in the loss."""
        by = "generation" if self.template.marks_generation(has_tools=False) else "prefixes"
        image = {} if self.image is None else {"image": self.image.to_json()}
        return {"chat": {**self.template.to_json(), "loss": self.loss, "turns_by": by, **image}}

    def __call__(self, documents: Documents) -> Chunk:
        """Render, tokenise and mask one piece. The result counts what became of its chats."""
        found = len(documents.keys) + len(documents.problems)
        places = zip(documents.starts.tolist(), documents.sizes.tolist(), strict=True)
        chats = self.encoded([documents.data[start : start + size].tobytes() for start, size in places])
        documents = documents.without(chats.problems)
        if len(documents.keys) != len(chats.ids) or len(documents.keys) + len(documents.problems) != found:
            raise SourceError(
                f"{found} chats were read, {len(chats.ids)} tokenised and {len(documents.problems)} refused. Nothing "
                "is kept; please report this"
            )
        batch = SampleBatch(documents.keys, chats.spans, {})
        cut = chats.cut
        counts = DocumentCounts(
            documents=len(chats.ids),
            samples=len(chats.ids),
            tokens=sum(map(len, chats.ids)),
            text_bytes=chats.text_bytes,
            blank_lines=len(documents.blank_lines),
            read_bytes=documents.read_bytes,
            cut_documents=sum(map(bool, cut)),
            cut_tokens=sum(cut),
            split_documents=0,
            probed_documents=0,
            exact_documents=0,
            loss_tokens=sum(int(mask.sum()) for mask in chats.masks),
        )
        return Chunk(
            batch,
            documents.problems,
            documents=counts,
            blank_lines=documents.blank,
            cut=places_of(list(compress(documents.keys, cut))),
        )

    def encoded(self, documents: Sequence[bytes]) -> EncodedChats:
        """Render, tokenise and mask chats, of which each is the JSON that ``document_of`` makes."""
        problems: dict[int, str] = {}
        rendered: list[tuple[Chat, Rendered, int]] = []
        for i, document in enumerate(documents):
            try:
                rendered.append((*self._rendered(document), i))
            except ChatError as exc:
                problems[i] = str(exc)
        texts = [(text, i) for _, text, i in rendered]
        chats = EncodedChats([], [], [], 0, problems)
        for (chat, text, i), encoding in zip(rendered, self._encoded(texts, problems), strict=True):
            if encoding is None:
                continue
            try:
                ids, mask = self._fitting(encoding, chat)
            except ChatError as exc:
                problems[i] = str(exc)
                continue
            chats.ids.append(ids)
            chats.masks.append(mask)
            chats.cut.append(len(encoding[0]) - len(ids))
            chats.text_bytes += len(text.text.encode())
        return chats

    def _rendered(self, document: bytes) -> tuple[Chat, Rendered]:
        """A chat, its text, and what of that counts in the loss. Raises ChatError."""
        text = document.decode()
        if has_marks(text):
            raise ChatError("holds U+10FFFE or U+10FFFF, which are no characters: take them out")
        chat = chat_of(json.loads(text), None if self.image is None else self.image.in_texts)
        check_plain(self.template, chat)
        has_tools = chat.tools is not None
        whole = self.template.render(chat.turns, chat.tools)
        if self.loss == "all":
            spans = [(0, len(whole.text))]
        elif self.loss == "completion":
            spans = [self._completion(chat, whole.text)]
        else:
            turns = [i for i, turn in enumerate(chat.turns) if turn["role"] == "assistant"]
            if not turns:
                raise ChatError(
                    "has nothing in the loss: no turn of the assistant, expected at least one (--loss all counts all "
                    "tokens)"
                )
            if self.template.marks_generation(has_tools=has_tools):
                spans = whole.generated
                if self.loss == "last" and len(spans) != len(turns):
                    raise ChatError(
                        f"has {len(turns)} turns of the assistant, of which the template generates {len(spans)} pieces,"
                        " so it is unclear which is the last turn: --loss assistant takes all"
                    )
                spans = spans[-1:] if self.loss == "last" else spans
            else:
                wanted = turns[-1:] if self.loss == "last" else turns
                spans = [self._turn(chat, i, whole.text) for i in wanted]
        return chat, Rendered(whole.text, [span for span in spans if span[1] > span[0]])

    def _completion(self, chat: Chat, whole: str) -> tuple[int, int]:
        """The characters after the prompt."""
        if chat.prompt is None:
            raise ChatError("has no prompt and completion, which --loss completion is for: choose another --loss")
        prompt = self._prefix(chat, chat.prompt, asks=True)
        if not whole.startswith(prompt):
            raise ChatError(f"is rendered so that its prompt does not begin its text: {_ADVICE}")
        return len(prompt), len(whole)

    def _turn(self, chat: Chat, position: int, whole: str) -> tuple[int, int]:
        """The characters of one turn of the assistant."""
        before = self._prefix(chat, position, asks=True)
        until = whole if position + 1 == len(chat.turns) else self._prefix(chat, position + 1, asks=False)
        if not until.startswith(before):
            raise ChatError(
                f"is rendered so that the text before {chat.name(position)} does not begin the text with it: {_ADVICE}"
            )
        if not whole.startswith(until):
            raise ChatError(
                f"is rendered so that the text up to {chat.name(position)} does not begin the whole text: {_ADVICE}"
            )
        return len(before), len(until)

    def _prefix(self, chat: Chat, count: int, *, asks: bool) -> str:
        """The text of the first turns."""
        try:
            return self.template.render(chat.turns[:count], chat.tools, asks=asks).text
        except ChatError as exc:
            where = f"up to {chat.name(count - 1)}" if count else "without turns"
            raise ChatError(f"{exc} (rendered {where}, to find what counts in the loss; {_ADVICE})") from exc

    def _encoded(self, rendered: Sequence[tuple[Rendered, int]], problems: dict[int, str]) -> list[_Encoded | None]:
        """Ids and masks of the chats, None for those that the tokenizer refuses: they are added to ``problems``."""
        texts = [each.text for each, _ in rendered]
        try:
            encodings: list[Any] = list(self.tokenizer.encode_with_places(texts))
        except Exception:  # the library raises no other class, and does not say which text it was
            encodings = [self._encoded_alone(text, problems, i) for text, (_, i) in zip(texts, rendered, strict=True)]
        dtype = np.dtype(id_dtype(self.tokenizer.vocab_size))
        return [
            None if each is None else (np.array(each[0], dtype), _mask(each[1], text.generated))
            for each, (text, _) in zip(encodings, rendered, strict=True)
        ]

    def _encoded_alone(self, text: str, problems: dict[int, str], position: int) -> Any:
        try:
            return self.tokenizer.encode_with_places([text])[0]
        except Exception as exc:  # for each text, of no other class
            problems[position] = f"cannot be encoded by the tokenizer: {exc}"
            return None

    def _fitting(self, encoding: _Encoded, chat: Chat) -> _Encoded:
        """
        Ids and mask within the longest sequence allowed. Raises ChatError for what is too long or trains nothing, and
        for pictures without a token.
        """
        ids, mask = encoding
        self._check_pictures(ids, chat, "in its text")
        limit = self.sequences.max_length
        is_over = limit is not None and len(ids) > limit
        if is_over and self.sequences.over == "refuse":
            raise ChatError(f"has {len(ids):,} tokens, more than {limit:,}: --too-long truncate cuts such chats")
        ids, mask = ids[:limit], mask[:limit]
        if is_over:
            self._check_pictures(ids, chat, f"in its first {limit:,} tokens")
        if not mask.any():
            why = f"the first {limit:,} tokens are none of those that count" if is_over else "no token counts"
            raise ChatError(f"has nothing in the loss: {why}")
        return ids, mask

    def _check_pictures(self, ids: NDArray[Any], chat: Chat, where: str) -> None:
        """Raise ChatError unless the ids have the token of a picture once for each."""
        count = 0 if self.image is None else int(np.count_nonzero(ids == self.image.id))
        if self.image is not None and count != chat.pictures:
            raise ChatError(
                f"has {self.image.text!r} {count:,} times {where}, expected {chat.pictures:,}, for its pictures"
            )


_first: Callable[[tuple[int, int]], int] = itemgetter(0)
_last: Callable[[tuple[int, int]], int] = itemgetter(1)


def _mask(places: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """
    Which tokens hold a character of one of the spans, given the characters of each token: from, to.

    All tokens of a character that several make count, and a token across the bounds of a span does, too.

    >>> _mask([(0, 1), (1, 3), (3, 4), (3, 4), (4, 5)], [(2, 4)]).tolist()
    [False, True, True, True, False]
    """
    mask = np.zeros(len(places), np.bool_)
    for begin, end in spans:
        mask[bisect_right(places, begin, key=_last) : bisect_left(places, end, key=_first)] = True
    return mask


def joined_values(values: Sequence[NDArray[Any]]) -> Spans:
    """Return arrays one after the other, as the values of a field."""
    if not values:
        return Spans.joined(np.empty(0, np.uint8), np.empty(0, np.int64))
    sizes = np.array([each.nbytes for each in values], np.int64)
    return Spans.joined(np.concatenate(values).view(np.uint8), sizes)
