"""ImageToken: the token that stands in a chat for a picture, until a batch is made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastio.converters.sources.chat_forms import ChatError
from fastio.converters.text.chat_template import ChatTemplate
from fastio.converters.text.huggingface import CONFIG, HuggingFaceTokenizer, configuration, special_tokens
from fastio.errors import SourceError

__all__ = ["ImageToken"]

_PROCESSOR = "processor_config.json"  # where transformers keeps the token of a picture, if not with the tokenizer
_NAME = "image_token"
_FURTHER = ("extra_special_tokens", "model_specific_special_tokens")  # of the tokenizer, in its configuration
# What it is called where nothing says it; the first that a vocabulary has is taken.
_USUAL = ("<|image_pad|>", "<image>", "<IMG_CONTEXT>", "<|image|>", "<|IMAGE|>", "[IMG]", "<image_soft_token>")
_PROBE = "fastio"  # a text whose place in a rendered chat is looked for


@dataclass(frozen=True, slots=True)
class ImageToken:
    """
    The token ``text``, with the number ``id``, that a chat has once for each picture; ``PackCollate`` makes it as many
    as the picture has.

    With ``takes_parts``, the template writes it for a part ``{"type": "image"}`` of a turn; otherwise it takes turns
    of text, in which the token stands.
    """

    text: str
    id: int
    takes_parts: bool

    @classmethod
    def of(
        cls,
        tokenizer: HuggingFaceTokenizer,
        template: ChatTemplate,
        tokenizer_path: str | os.PathLike[str],
        named: str | None = None,
    ) -> ImageToken:
        """
        Return the token that the user has ``named``, or the files beside the tokenizer, or one of a usual name.

        Raises SourceError if there is none, or if ``template`` does not write it once for a picture.
        """
        path = os.fspath(tokenizer_path)
        text = named or _configured(Path(path)) or next(filter(tokenizer.has_token, _USUAL), None)
        if text is None:
            raise SourceError(
                f"{path}: has no token for a picture, neither {_NAME!r} in {CONFIG} or {_PROCESSOR} nor one of "
                f"{', '.join(_USUAL)}: name it with --special image=TOKEN"
            )
        found = tokenizer.token_id(text)
        if found is None:
            raise SourceError(f"{path}: has no token {text!r}, which was named as that of a picture")
        return cls(text, found, _takes_parts(template, text))

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> ImageToken:
        """Return the token that ``to_json`` described."""
        return cls(said["token"], said["id"], said["takes_parts"])

    def to_json(self) -> dict[str, Any]:
        """Return what a store keeps of it."""
        return {"token": self.text, "id": self.id, "takes_parts": self.takes_parts}

    @property
    def in_texts(self) -> str | None:
        """What stands in the texts of turns for a picture; None where it is a part of its own."""
        return None if self.takes_parts else self.text


def _configured(tokenizer: Path) -> str | None:
    """The token that the files beside a tokenizer name."""
    said = configuration(tokenizer.with_name(CONFIG))
    further = [each for name in _FURTHER if isinstance(each := said.get(name), dict)]
    for each in (said, *further, configuration(tokenizer.with_name(_PROCESSOR))):
        if _NAME in (found := special_tokens(each)):
            return found[_NAME]
    return None


def _takes_parts(template: ChatTemplate, token: str) -> bool:
    """
    Whether a template writes the token for a picture that is a part of a turn, and not only where a text has it.

    Raises SourceError if it does neither: the token is then another one.
    """
    text, picture = {"type": "text", "text": _PROBE}, {"type": "image"}
    without, parted = _probe(template, [text]), _probe(template, [picture, text])
    if parted != without and _PROBE in parted and "type" not in parted:
        count = parted.count(token)
    else:  # it writes lists as they are, refuses them, or leaves pictures out
        count = _probe(template, f"{token}{_PROBE}").count(token)
        parted = ""
    if count != 1:
        raise SourceError(
            f"{template.name}: the chat template writes {token!r} {count} times for a picture, expected once: name the "
            "token with --special image=TOKEN"
        )
    return bool(parted)


def _probe(template: ChatTemplate, content: Any) -> str:
    """A turn of this content; "" if the template refuses it."""
    try:
        return template.render([{"role": "user", "content": content}], None).text
    except ChatError:
        return ""
