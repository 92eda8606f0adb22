"""ChatTemplate: the Jinja template of a model, which writes the turns of a chat as one text."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from fastio.converters.sources.chat_forms import ChatError
from fastio.converters.text.huggingface import CONFIG, HuggingFaceTokenizer, configuration, special_tokens
from fastio.errors import SourceError

__all__ = ["PLAIN", "ChatTemplate", "Rendered", "has_marks"]

PLAIN = "none"  # in place of a template's file: prompts and answers are text, joined as they are

_BESIDE = "chat_template.jinja"  # where transformers keeps the template beside a tokenizer
_TOOL_USE = "tool_use"  # the name of the template for chats with tools, where there are several
_REASONING = ("reasoning_content", "thinking", "reasoning")  # what the reasoning of a turn is called, the usual first
_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
_DATE = "strftime_now"
_JOINED = """{% for turn in messages %}{{ turn.content }}{% endfor %}
{%- if not add_generation_prompt and not messages[-1].content.endswith(eos_token) %}{{ eos_token }}{% endif %}"""

# Around what {% generation %} writes while a template is rendered: noncharacters, which no text for interchange has.
_BEGIN, _END = "\U0010fffe", "\U0010ffff"
_MARKS = re.compile(f"[{_BEGIN}{_END}]")


class Rendered(NamedTuple):
    """The text of a chat, and the characters that the template's {% generation %} wrote: from, to."""

    text: str
    generated: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """
    A template in Jinja's sandbox, with what transformers offers to it. Thread-safe.

    ``tool_text`` replaces ``text`` for chats with tools. ``special`` are the variables for special tokens, such as
    ``bos_token``. ``today`` is the date in ISO 8601 that ``strftime_now`` writes, at midnight: the same for all chats.
    Raises SourceError if it is no template.
    """

    text: str
    tool_text: str | None
    special: Mapping[str, str]
    today: str | None
    name: str

    def __post_init__(self) -> None:
        for text in filter(None, (self.text, self.tool_text)):
            try:
                _compiled(text, self.today)
            except TemplateSyntaxError as exc:
                raise SourceError(f"{self.name}: the chat template is not Jinja: line {exc.lineno}: {exc}") from exc

    @classmethod
    def load(
        cls,
        tokenizer: HuggingFaceTokenizer,
        tokenizer_path: str | os.PathLike[str],
        path: str | os.PathLike[str] | None = None,
        *,
        named: Mapping[str, str] | None = None,
    ) -> ChatTemplate:
        """
        Read the template ``path``, or else ``chat_template.jinja`` or ``tokenizer_config.json`` beside the tokenizer.

        The path PLAIN stands for no template: prompts and answers, which must be strings, are joined as they are, with
        eos behind them, and bos before them if the tokenizer adds it to a text.

        Special tokens are those of the configuration, and those ``named`` by role (bos, ...); without a configuration
        those that the tokenizer has by their usual names.
        """
        config_path = Path(tokenizer_path).with_name(CONFIG)
        config = configuration(config_path)
        roles = tokenizer.special if not config else {*(named or {})}
        special = special_tokens(config) | {f"{role}_token": tokenizer.token(role) for role in roles}
        if path == PLAIN:
            return cls(_joined(tokenizer, special, tokenizer_path), None, _known(special), None, PLAIN)
        texts, where = _texts(Path(tokenizer_path), path, config.get("chat_template"))
        if "default" not in texts:
            known = ", ".join(map(repr, texts)) or "none"
            raise SourceError(
                f"{where}: expected a chat template as text or one with the name 'default', got {known}: name a file "
                "with --chat-template"
            )
        uses_date = any(_DATE in text for text in texts.values())
        today = date.today().isoformat() if uses_date else None
        return cls(texts["default"], texts.get(_TOOL_USE), _known(special), today, where)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> ChatTemplate:
        """Return the template that ``to_json`` described."""
        return cls(said["template"], said["tool_template"], said["special"], said["date"], said["name"])

    def to_json(self) -> dict[str, Any]:
        """Return what a store keeps of it."""
        return {
            "name": self.name,
            "template": self.text,
            "tool_template": self.tool_text,
            "special": dict(self.special),
            "date": self.today,
        }

    @property
    def is_plain(self) -> bool:
        """Whether there is no template, and strings are joined as they are."""
        return self.name == PLAIN

    def marks_generation(self, *, has_tools: bool) -> bool:
        """Return whether the template says itself what the model generates, by {% generation %}."""
        return _GENERATION.search(self._text(has_tools=has_tools)) is not None

    def render(
        self, turns: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, *, asks: bool = False
    ) -> Rendered:
        """
        Return the text of the turns; ``asks`` adds what comes before an answer.

        Raises ChatError for what the template refuses or cannot render.
        """
        template = _compiled(self._text(has_tools=tools is not None), self.today)
        try:
            text = template.render(
                messages=list(map(_with_reasoning, turns)),
                tools=tools,
                documents=None,
                add_generation_prompt=asks,
                **self.special,
            )
        except TemplateError as exc:
            raise ChatError(f"is refused by the chat template: {exc}") from exc
        except Exception as exc:  # a template is a program that may raise anything
            raise ChatError(f"cannot be rendered by the chat template: {type(exc).__name__}: {exc}") from exc
        return _unmarked(text)

    def _text(self, *, has_tools: bool) -> str:
        return self.tool_text if has_tools and self.tool_text is not None else self.text


def _known(special: Mapping[str, str | None]) -> dict[str, str]:
    return {name: token for name, token in special.items() if token is not None}


def _joined(tokenizer: HuggingFaceTokenizer, special: Mapping[str, str | None], path: str | os.PathLike[str]) -> str:
    """The template that joins strings. Raises SourceError for a tokenizer that has no eos to put behind them."""
    if special.get("eos_token") is None:
        raise SourceError(
            f"{os.fspath(path)}: --chat-template {PLAIN} ends each text with eos, which the tokenizer does not have: "
            "name it with --special eos=TOKEN"
        )
    bos = special.get("bos_token")
    return f"{{{{ bos_token }}}}{_JOINED}" if bos is not None and tokenizer.template[:1] == [bos] else _JOINED


def _texts(tokenizer: Path, path: str | os.PathLike[str] | None, configured: object) -> tuple[dict[str, str], str]:
    """The templates by name, and where they are from."""
    beside = tokenizer.with_name(_BESIDE)
    if path is not None or beside.is_file():
        file = beside if path is None else Path(path)
        try:
            return {"default": file.read_text(encoding="utf-8")}, str(file if path is not None else file.name)
        except OSError as exc:
            raise SourceError(f"{file}: the chat template cannot be read: {exc.strerror or exc}") from exc
        except UnicodeDecodeError as exc:
            raise SourceError(f"{file}: the chat template cannot be read: {exc}") from exc
    if isinstance(configured, str):
        return {"default": configured}, CONFIG
    if isinstance(configured, list):
        named = [each for each in configured if isinstance(each, dict) and isinstance(each.get("template"), str)]
        return {str(each.get("name")): each["template"] for each in named}, CONFIG
    raise SourceError(
        f"{tokenizer}: has no chat template beside it, neither {_BESIDE} nor one in {CONFIG}: name a file with "
        f"--chat-template, or {PLAIN} for prompts and answers that are plain text"
    )


def _with_reasoning(turn: Mapping[str, Any]) -> dict[str, Any]:
    """A turn whose reasoning has the names under which templates look for it."""
    reasoning = next((turn[name] for name in _REASONING if turn.get(name) is not None), None)
    return dict(turn) if reasoning is None else {"thinking": reasoning, **turn, "reasoning_content": reasoning}


def _unmarked(text: str) -> Rendered:
    """Take the marks out of a text, and return what was between them; a block within a block belongs to it."""
    parts, spans = [], []
    at, length, depth, begin = 0, 0, 0, 0
    for mark in _MARKS.finditer(text):
        parts.append(text[at : mark.start()])
        length, at = length + mark.start() - at, mark.end()
        if mark[0] == _BEGIN:
            begin = length if depth == 0 else begin
            depth += 1
        else:
            depth -= 1
            if depth == 0 and length > begin:
                spans.append((begin, length))
    return Rendered("".join([*parts, text[at:]]), spans)


def has_marks(text: str) -> bool:
    """Return whether a text holds one of the two noncharacters that rendering needs for itself."""
    return _MARKS.search(text) is not None


# What templates find in their environment.


class _Generation(Extension):
    """The block {% generation %} ... {% endgeneration %}."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> Node:
        """Make the block a call that marks what it writes."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Any) -> str:
        return f"{_BEGIN}{caller()}{_END}"


class _PlainNamespace(Namespace):
    """A namespace without names that begin with _, by which a template could pass for another kind of object."""

    def __init__(*args: Any, **values: Any) -> None:
        self, *rest = args
        found = dict(*rest, **values)
        for name in found:
            _check_name(name)
        Namespace.__init__(self, found)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace has no name like {name!r}")


def _raise(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes for HTML of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _dict(*args: Any, **values: Any) -> dict[Any, Any]:
    """What templates call as ``dict``: a function, as a class would let them reach more."""
    return dict(*args, **values)


@lru_cache(maxsize=8)
def _compiled(text: str, today: str | None) -> Template:
    """A template in the environment that transformers gives to it. Raises TemplateSyntaxError."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _json
    midnight = datetime.combine(date.fromisoformat(today), time.min) if today is not None else datetime.min
    environment.globals |= {
        "raise_exception": _raise,
        _DATE: midnight.strftime,
        "dict": _dict,
        "namespace": _PlainNamespace,
    }
    return environment.from_string(text)
