"""
The forms in which rows keep chats and preferences: recognised by their columns, and made into the turns that a template
takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastio.converters.fields.values import check_keys
from fastio.converters.sources.tables.rows import json_of, kind_in_json
from fastio.converters.sources.tables.titles import column_path
from fastio.errors import SourceError

__all__ = [
    "CHATS",
    "COMPLETIONS",
    "IMAGE_MARK",
    "LABELLED",
    "OPTIONAL_PARTS",
    "PREFERENCES",
    "TURNS",
    "Chat",
    "ChatColumns",
    "ChatError",
    "Preference",
    "chat_column",
    "chat_columns",
    "chat_of",
    "document_of",
    "form_of_turns",
    "parts_of",
    "pictures_in",
    "preference_of",
    "refuse_pictures_twice",
    "turns_in",
]

CHATS: Final = ("messages", "conversations", "conversation", "dialog")  # what columns of lists of turns are called

ROLE_CONTENT: Final = "role and content"
FROM_VALUE: Final = "from and value"
USER_ASSISTANT: Final = "user and assistant"
PROMPT: Final = "prompt and completion"
INSTRUCTION: Final = "instruction and output"
COMPLETIONS: Final = (PROMPT, INSTRUCTION)  # the forms that say where the completion begins
PAIR: Final = "prompt, chosen and rejected"
SHARED: Final = "chosen and rejected"
LABELLED: Final = "prompt, completion and label"
PREFERENCES: Final = (PAIR, SHARED, LABELLED)  # the forms that say which answers are better than others

TURNS: Final = "turns"  # the part of a chat that is a list of turns
OPTIONAL_PARTS: Final = ("input", "system", "tools")  # the parts of a chat that a row may lack
_BESIDE: Final = ("system", "tools")  # columns that belong to a chat of any form
_ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
_SPEAKERS: Final = {
    "human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant",
    "system": "system", "tool": "tool", "observation": "tool",
}  # fmt: skip
_SHOWN = 8  # names in a sentence

IMAGE_MARK: Final = "<image>"  # what stands in texts of LLaVA and ShareGPT where a picture belongs
_MARKED = re.compile(r"\n?<image>\n?")  # LLaVA ends the line there, and templates write what stands between
_PICTURES: Final = ("image", "image_url", "input_image")  # types of the parts of a turn that stand for a picture
_SAYING: Final = ("image_url", "image", "url", "path", "base64")  # names under which parts say which picture they are
_BY_ORDER: Final = (USER_ASSISTANT, PROMPT, INSTRUCTION)  # forms that may leave out where pictures belong: they begin


class ChatError(Exception):
    """What is wrong with one chat, as a sentence that follows its name."""


@dataclass(frozen=True, slots=True)
class Chat:
    """
    Turns as templates take them, each with "role" and "content", and the tools that they may call.

    The first ``prompt`` turns are the prompt, None in a form that does not say. ``added`` turns come before the row's
    own: the system prompt of a column. ``is_text`` says that the row has no turns, but strings alone. ``pictures`` is
    how many pictures the row has, each with a place among the turns; None if pictures are not packed.
    """

    turns: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    prompt: int | None
    added: int
    is_text: bool = False
    pictures: int | None = None

    def name(self, position: int) -> str:
        """Return what a sentence calls the turn at ``position``: its number in the row, and its role."""
        role = self.turns[position]["role"]
        return "the system prompt" if position < self.added else f"turn {position - self.added + 1} ({role})"


@dataclass(frozen=True, slots=True)
class Preference:
    """
    A prompt, and the answers to it by the names of their columns: "chosen" and "rejected", or "completion". Each is a
    chat that begins with the ``prompt`` turns, and has some more.

    ``label`` says of a completion whether it is wanted; None for pairs.
    """

    prompt: int
    answers: Mapping[str, Chat]
    label: bool | None


def chat_column(names: Collection[str]) -> str | None:
    """
    Return the column of chats among ``names``, by what such columns are called; None if there is none.

    >>> chat_column(["id", "messages"]), chat_column(["prompt", "completion"]), chat_column(["prompt", "chosen"])
    ('messages', 'prompt', None)
    >>> chat_column(["messages", "prompt", "chosen", "rejected"]), chat_column(["chosen", "rejected"])
    ('prompt', 'chosen')
    """
    if {"chosen", "rejected"} <= {*names}:
        return "prompt" if "prompt" in names else "chosen"
    found = next((name for name in CHATS if name in names), None)
    if found is None and {"prompt", "completion"} <= {*names}:
        return "prompt"
    return "instruction" if found is None and {"instruction", "output"} <= {*names} else found


def parts_of(column: tuple[str, ...], names: Collection[str]) -> tuple[str, dict[str, tuple[str, ...]]]:
    """
    Return the form of chats in a column, "" for a list of turns, and the path to each part of a chat.

    >>> parts_of(("prompt",), ["prompt", "completion", "id"])
    ('prompt and completion', {'prompt': ('prompt',), 'completion': ('completion',)})
    >>> parts_of(("chosen",), ["chosen", "rejected"])
    ('chosen and rejected', {'chosen': ('chosen',), 'rejected': ('rejected',)})
    """
    form, found = "", {TURNS: column}
    if column in (("prompt",), ("chosen",)) and {"chosen", "rejected"} <= {*names}:
        form = PAIR if "prompt" in names else SHARED
        found = {name: (name,) for name in ("prompt", "chosen", "rejected") if name in names}
    elif column == ("prompt",) and "completion" in names:
        form = LABELLED if "label" in names else PROMPT
        found = {name: (name,) for name in ("prompt", "completion", "label") if name in names}
    elif column == ("instruction",) and "output" in names:
        inputs = {"input": ("input",)} if "input" in names else {}
        form, found = INSTRUCTION, {"instruction": column, **inputs, "output": ("output",)}
    return form, {**found, **{name: (name,) for name in _BESIDE if name in names and (name,) != column}}


def form_of_turns(value: object) -> str:
    """Return the form of a list of turns, which may be JSON; "" for anything else."""
    try:
        turns = json_of(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return ""
    first = turns[0] if isinstance(turns, list) and turns else None
    if not isinstance(first, dict):
        return ""
    if {"user", "assistant"} <= first.keys():
        return USER_ASSISTANT
    return FROM_VALUE if "from" in first and "role" not in first else ROLE_CONTENT


def chat_of(document: Mapping[str, Any], image: str | None = None) -> Chat:
    """
    Return the chat of a row: its "form", the value of each of its parts, and how many "pictures" it has, if they are
    packed. Raises ChatError for a malformed one, and for other numbers of pictures and of places for them.

    A place is ``<image>`` in a text, or a part of a turn that is a picture. In the turns it is a part ``{"type":
    "image"}``, without the line end before and behind the mark; or, for templates that take texts alone, the text
    ``image``.

    >>> chat_of({"form": "from and value", "turns": [{"from": "human", "value": "Hi"}]}).turns
    [{'role': 'user', 'content': 'Hi'}]
    """
    form, prompt, is_text = document["form"], None, False
    pictures: int | None = document.get("pictures")
    if form == PROMPT:
        asked = _side(document["prompt"], "prompt", "user", pictures)
        turns = [*asked, *_side(document["completion"], "completion", "assistant", pictures)]
        prompt = len(asked)
        is_text = _is_text(document["prompt"]) and _is_text(document["completion"])
    elif form == INSTRUCTION:
        asked_for, further = _text(document, "instruction"), document.get("input")
        if further is not None and not isinstance(further, str):
            raise ChatError(f"has {kind_in_json(further)} in the field 'input', expected a string")
        question = f"{asked_for}\n\n{further}" if further else asked_for
        turns = [_turn("user", question), _turn("assistant", _text(document, "output"))]
        prompt = 1
    else:
        turns = _turns(document[TURNS], "", form, pictures)
    system, tools = _system(document, turns), _tools(document.get("tools"))
    turns, added = [*system, *turns], len(system)
    if pictures is not None:
        turns = _with_pictures(turns, pictures, image, by_order=form in _BY_ORDER)
    prompt = None if prompt is None else prompt + added
    return Chat(turns, tools, prompt, added, is_text and not system, pictures)


def preference_of(document: Mapping[str, Any]) -> Preference:
    """
    Return the preference of a row: its "form", one of PREFERENCES, and the value of each of its parts.

    Without a prompt, it is what both answers begin with: turns, or characters of two strings. Answers that begin with
    the turns of the prompt, as some sets repeat them, do not say them twice. Raises ChatError for a malformed row.

    >>> shared = {"form": "chosen and rejected", "chosen": "2 + 2 is 4", "rejected": "2 + 2 is 5"}
    >>> [turn["content"] for turn in preference_of(shared).answers["chosen"].turns]
    ['2 + 2 is', ' 4']
    """
    form = document["form"]
    names = ("completion",) if form == LABELLED else ("chosen", "rejected")
    values = {name: document[name] for name in names}
    is_text = all(_is_text(document[name]) for name in (*names, "prompt") if name in document)
    if form != SHARED:
        prompt = _side(document["prompt"], "prompt", "user")
        answers = {name: _side(value, name, "assistant") for name, value in values.items()}
        if all(answer[: len(prompt)] == prompt for answer in answers.values()):
            answers = {name: answer[len(prompt) :] for name, answer in answers.items()}
    elif is_text:
        text = _shared(*values.values())
        prompt = [_turn("user", text)]
        answers = {name: [_turn("assistant", value[len(text) :])] for name, value in values.items()}
    else:
        whole = {name: _turns(value, f"{name}: ", ROLE_CONTENT) for name, value in values.items()}
        count = len(_shared(*whole.values()))
        prompt = whole["chosen"][:count]
        answers = {name: turns[count:] for name, turns in whole.items()}
    if not prompt:
        raise ChatError(f"has answers that begin with different turns, so they have no prompt in common: {_ADD_PROMPT}")
    for name, answer in answers.items():
        if not answer or not (is_text or any(turn.get("content") or turn.get("tool_calls") for turn in answer)):
            raise ChatError(f"has nothing in {name!r} after the prompt")
    system, tools = _system(document, prompt), _tools(document.get("tools"))
    added, before = len(system), [*system, *prompt]
    is_text = is_text and not system
    chats = {name: Chat([*before, *answer], tools, len(before), added, is_text) for name, answer in answers.items()}
    label = None
    if form == LABELLED:
        label = document["label"]
        if not isinstance(label, bool) and label not in (0, 1):
            found = kind_in_json(label) if isinstance(label, (list, dict, str)) else json.dumps(label)
            raise ChatError(f"has {found} in the field 'label', expected true or false")
    return Preference(len(before), chats, None if label is None else bool(label))


_ADD_PROMPT = "add a column 'prompt'"
_Turns = TypeVar("_Turns", str, list[dict[str, Any]])


def _shared(first: _Turns, second: _Turns) -> _Turns:
    """What both begin with; of strings, without the space before they differ, which belongs to the words after it."""
    count = next((i for i, (one, other) in enumerate(zip(first, second, strict=False)) if one != other), None)
    count = min(len(first), len(second)) if count is None else count
    if isinstance(first, str) and count and first[count - 1] == " ":
        count -= 1
    return first[:count]


def _system(document: Mapping[str, Any], turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The system prompt of a column, as turns that come before the others; none if the column is empty."""
    system = document.get("system")
    if system is not None and not isinstance(system, str):
        raise ChatError(f"has {kind_in_json(system)} in the field 'system', expected a string")
    if system and turns[0]["role"] == "system":
        raise ChatError(
            "has a system prompt in the field 'system' and another as turn 1, so it is unclear which counts"
        )
    return [_turn("system", system)] if system else []


def _turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _text(document: Mapping[str, Any], name: str, where: str = "") -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise ChatError(f"{where} has {kind_in_json(value)} in the field {name!r}, expected a string".lstrip())
    return value


def _side(value: object, name: str, role: str, pictures: int | None = None) -> list[dict[str, Any]]:
    """A prompt or a completion: turns, which may be JSON, or the text of one turn."""
    if _is_text(value):
        return [_turn(role, str(value))]
    if not isinstance(value, (str, list)):
        raise ChatError(f"has {kind_in_json(value)} in the field {name!r}, expected a string or a list of turns")
    return _turns(value, f"{name}: ", ROLE_CONTENT, pictures)


def _is_text(value: object) -> bool:
    """Whether a prompt or a completion is text: a string that is not the JSON of turns."""
    return isinstance(value, str) and not (value.lstrip().startswith("[") and form_of_turns(value))


def turns_in(value: object, name: str) -> list[Any]:
    """Return the turns in a field, unchecked; they may be JSON. Raises ChatError, which names the field, for none."""
    where = f"in the field {name!r}, expected a list of turns"
    if isinstance(value, str):
        try:
            value = json_of(value)
        except (ValueError, RecursionError) as exc:
            raise ChatError(f"has text that is no JSON {where}: {exc}") from exc
    if not isinstance(value, list):
        raise ChatError(f"has {kind_in_json(value)} {where}")
    if not value:
        raise ChatError(f"has no turns in the field {name!r}, expected at least one")
    return value


def _turns(value: object, where: str, form: str, pictures: int | None = None) -> list[dict[str, Any]]:
    turns = turns_in(value, where.removesuffix(": ") or TURNS)
    if form == USER_ASSISTANT:
        return [turn for number, each in enumerate(turns, 1) for turn in _exchange(each, f"{where}turn {number}")]
    return [_checked(each, f"{where}turn {number}", form, pictures) for number, each in enumerate(turns, 1)]


def _exchange(turn: object, where: str) -> list[dict[str, Any]]:
    """The two turns of an object with a question and its answer."""
    if not isinstance(turn, dict):
        raise ChatError(f"{where} is {kind_in_json(turn)}, expected an object with 'user' and 'assistant'")
    return [_turn(role, _text(turn, role, where)) for role in ("user", "assistant")]


def _checked(turn: object, where: str, form: str, pictures: int | None) -> dict[str, Any]:
    """A turn with its "role" and "content", and what else it has that is not null."""
    speaker, text = ("from", "value") if form == FROM_VALUE else ("role", "content")
    if not isinstance(turn, dict):
        raise ChatError(f"{where} is {kind_in_json(turn)}, expected an object with {speaker!r} and {text!r}")
    if speaker not in turn:
        raise ChatError(f"{where} has no {speaker!r}, only {_listed(turn)}")
    role, known = turn[speaker], _SPEAKERS if form == FROM_VALUE else dict(zip(_ROLES, _ROLES, strict=True))
    if not isinstance(role, str):
        raise ChatError(f"{where} has {kind_in_json(role)} as its {speaker!r}, expected one of {', '.join(known)}")
    if role not in known:
        raise ChatError(f"{where} has the {speaker} {role!r}, expected one of {', '.join(known)}")
    rest = {name: value for name, value in turn.items() if value is not None and name not in (speaker, text)}
    if rest.get("weight", 1) != 1:
        raise ChatError(f"{where} has the weight {rest['weight']!r}, expected 1: weights of turns are not supported")
    found = turn.get(text)
    if text not in turn and not rest.get("tool_calls"):
        raise ChatError(f"{where} has no {text!r}, only {_listed(turn)}")
    if isinstance(found, list):
        for part in found:
            _check_part(part, f"{where} has a part {{}} in its {text!r}", pictures)
    elif not isinstance(found, str) and not (found is None and rest.get("tool_calls")):
        raise ChatError(f"{where} has {kind_in_json(found)} as its {text!r}, expected a string")
    names = {speaker: "role", text: "content"}  # and their order stays: templates may write a turn as JSON
    given = {str(names.get(name, name)): value for name, value in turn.items() if value is not None}
    return {**given, "role": known[role]}


def _check_part(part: object, words: str, pictures: int | None) -> None:
    """Raise ChatError for a part of a turn that is neither text nor, where these are packed, a picture."""
    kind = part.get("type") if isinstance(part, dict) else part
    if isinstance(part, dict) and kind == "text" and isinstance(part.get("text"), str):
        return
    if not isinstance(part, dict) or kind not in _PICTURES or pictures is None:
        expected = "text alone" if pictures is None else "text or an image"
        raise ChatError(f"{words.format(f'{kind!r:.40}')}, expected {expected}")


# Where pictures belong among the turns.


def _with_pictures(turns: Sequence[dict[str, Any]], count: int, image: str | None, *, by_order: bool) -> list[Any]:
    """
    The turns with a place for each of ``count`` pictures. With ``by_order``, turns that say of none have all of them
    before the first text of the user. Raises ChatError if there are more or fewer places than pictures.
    """
    placed = [_placed(turn.get("content")) for turn in turns]
    places = [part for parts in placed for part in parts or () if part["type"] == "image"]
    first = next((i for i, turn in enumerate(turns) if turn["role"] == "user"), None)
    if by_order and not places and first is not None:
        places = [{"type": "image"}] * count
        placed[first] = [*places, *(placed[first] or ())]
    numbers = [part.pop("index") for part in places if "index" in part]
    if numbers not in ([], [*range(len(places))]):
        raise ChatError(f"has the pictures {numbers} in its turns, expected them in their order, from 0 on")
    if len(places) != count:
        there = "1 picture" if count == 1 else f"{count:,} pictures"
        raise ChatError(
            f"has {there}, but {len(places):,} {'place' if len(places) == 1 else 'places'} for pictures in its turns "
            f"({IMAGE_MARK}, or a part of the type 'image'): expected one for each"
        )
    return [
        turn
        if parts is None
        else {**turn, "content": parts if image is None else _as_text(turn["content"], parts, image)}
        for turn, parts in zip(turns, placed, strict=True)
    ]


def _placed(content: object) -> list[dict[str, Any]] | None:
    """What a turn says as parts that are texts or pictures; None if it says nothing."""
    if isinstance(content, str):
        parts: list[dict[str, Any]] = []
        for number, text in enumerate(_MARKED.split(content)):
            parts += [{"type": "image"}] if number else []
            parts += [{"type": "text", "text": text}] if text else []
        return parts
    if not isinstance(content, list):
        return None
    return [
        {"type": "text", "text": part["text"]}
        if part["type"] == "text"
        else {"type": "image", **({"index": part["index"]} if isinstance(part.get("index"), int) else {})}
        for part in content
    ]


def pictures_in(turns: object) -> list[Any]:
    """
    Return what the parts of turns that stand for pictures say of them, a name of a file or its data as base64, None for
    one that says nothing; none of them for what is no list of turns.

    >>> pictures_in([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.jpg"}}]}])
    ['a.jpg']
    """
    try:
        turns = json_of(turns) if isinstance(turns, str) and turns.lstrip().startswith("[") else turns
    except (ValueError, RecursionError):
        return []
    contents = (
        [turn.get("content", turn.get("value")) for turn in turns if isinstance(turn, dict)]
        if isinstance(turns, list)
        else []
    )
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [_said_of(part) for part in parts if isinstance(part, dict) and part.get("type") in _PICTURES]


def refuse_pictures_twice(
    where: str, path: Sequence[str], turns: Iterable[object], column: str, field: str, *, of_turns: str
) -> None:
    """
    Raise SourceError if these turns, the first ones of the column ``path``, name pictures, as ``column`` does, which is
    to be ``field``; ``of_turns`` says how to take those of the turns.
    """
    if any(each is not None for value in turns for each in pictures_in(value)):
        raise SourceError(
            f"{where}: column {column!r} holds pictures, and so do the turns in {'.'.join(path)!r}: {of_turns}, "
            f"--field {field}={column}:image[*] those of the column"
        )


def _said_of(part: Mapping[str, Any]) -> Any:
    """What a part says of its picture."""
    for name in _SAYING:
        value = part.get(name)
        value = value.get("url") if isinstance(value, dict) else value
        if value is not None:
            return value
    return None


def _as_text(content: object, parts: Sequence[Mapping[str, Any]], image: str) -> str:
    """What a turn says as one text, with ``image`` in each place; a text that marks places keeps its line ends."""
    if isinstance(content, str) and IMAGE_MARK in content:
        return content.replace(IMAGE_MARK, image)
    return "".join(image if part["type"] == "image" else part["text"] for part in parts)


# The columns of a table that chats are in, and the chat of a row.


@dataclass(frozen=True, slots=True)
class ChatColumns:
    """The form of the chats of a table, and the path to each part of a chat, from the title of a column on."""

    form: str
    parts: Mapping[str, tuple[str, ...]]

    @property
    def titles(self) -> list[str]:
        """The columns that the parts are in."""
        return list(dict.fromkeys(path[0] for path in self.parts.values()))

    def to_json(self) -> dict[str, Any]:
        """Return what the record of a source keeps: the form, and the column of each part, in the words of options."""
        return {"form": self.form, "parts": {part: ".".join(path) for part, path in self.parts.items()}}


def chat_columns(
    place: str,
    column: str,
    names: Collection[str],
    without: Collection[str],
    values: Callable[[tuple[str, ...]], Iterable[Any]],
) -> ChatColumns:
    """
    Return where chats are, by the column that the user names and its first ``values``; no part of them is in a column
    of ``without``.

    Raises SourceError if there is no such column among ``names``, or if no row has a chat there.
    """
    where = column_path(column, names)
    if where is None:
        raise SourceError(f"{place}: has no column {column!r}, only {_listed(names) or 'none'}: --chat names another")
    form, parts = parts_of(where, [name for name in names if name not in without])
    turns = [] if form else list(filter(None, values(where)))
    form = form or next(filter(None, map(form_of_turns, turns)), "")
    if not form:
        found = kind_in_json(turns[0]) if turns else "nothing"
        raise SourceError(
            f"{place}: has {found} in the column {column!r}, expected a list of turns; a prompt needs a column "
            "'completion' beside it, or 'chosen' and 'rejected', and an instruction a column 'output'"
        )
    return ChatColumns(form, parts)


def document_of(form: str, values: Mapping[str, tuple[str, Any]], pictures: int | None = None) -> bytes:
    """
    Return the JSON of a row's chat, for ``chat_of`` and ``preference_of``: its form, each part of ``values``, which are
    the name of its column and its value, and how many ``pictures`` the row has. Raises ChatError for what is no JSON,
    and UnicodeEncodeError for half of a character.
    """
    document: dict[str, Any] = {"form": form} if pictures is None else {"form": form, "pictures": pictures}
    for part, (where, value) in values.items():
        if part == TURNS:
            turns_in(value, where)
        document[part] = value
    try:
        check_keys(document)
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, RecursionError) as exc:
        raise ChatError(f"has a value that is no JSON: {exc}") from exc


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, [*names][:_SHOWN])) or "nothing"


def _tools(value: object) -> list[dict[str, Any]] | None:
    if isinstance(value, str) and value:
        try:
            value = json_of(value)
        except (ValueError, RecursionError) as exc:
            raise ChatError(f"has text in the field 'tools' that is no JSON: {exc}") from exc
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        found = f"a list with {kind_in_json(value[0])}" if isinstance(value, list) else kind_in_json(value)
        raise ChatError(f"has {found} in the field 'tools', expected a list of objects")
    return value
