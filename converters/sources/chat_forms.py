"""
The forms in which rows keep chats and preferences: recognised by their columns, and made into the turns that a template
takes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastio.converters.sources.tables.rows import kind_in_json

__all__ = [
    "CHATS",
    "COMPLETIONS",
    "LABELLED",
    "OPTIONAL_PARTS",
    "PREFERENCES",
    "TURNS",
    "Chat",
    "ChatError",
    "Preference",
    "chat_column",
    "chat_of",
    "form_of_turns",
    "parts_of",
    "preference_of",
    "turns_in",
]

CHATS: Final = ("messages", "conversations", "conversation", "dialog")  # what columns of lists of turns are called

ROLE_CONTENT: Final = "role and content"
FROM_VALUE: Final = "from and value"
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


class ChatError(Exception):
    """What is wrong with one chat, as a sentence that follows its name."""


@dataclass(frozen=True, slots=True)
class Chat:
    """
    Turns as templates take them, each with "role" and "content", and the tools that they may call.

    The first ``prompt`` turns are the prompt, None in a form that does not say. ``added`` turns come before the row's
    own: the system prompt of a column. ``is_text`` says that the row has no turns, but strings alone.
    """

    turns: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    prompt: int | None
    added: int
    is_text: bool = False

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
        turns = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return ""
    first = turns[0] if isinstance(turns, list) and turns else None
    if not isinstance(first, dict):
        return ""
    return FROM_VALUE if "from" in first and "role" not in first else ROLE_CONTENT


def chat_of(document: Mapping[str, Any]) -> Chat:
    """
    Return the chat of a row: its "form", and the value of each of its parts. Raises ChatError for a malformed one.

    >>> chat_of({"form": "from and value", "turns": [{"from": "human", "value": "Hi"}]}).turns
    [{'role': 'user', 'content': 'Hi'}]
    """
    form, prompt, is_text = document["form"], None, False
    if form == PROMPT:
        asked = _side(document["prompt"], "prompt", "user")
        turns = [*asked, *_side(document["completion"], "completion", "assistant")]
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
        turns = _turns(document[TURNS], "", form)
    system, tools = _system(document, turns), _tools(document.get("tools"))
    added = len(system)
    return Chat([*system, *turns], tools, None if prompt is None else prompt + added, added, is_text and not system)


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


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document[name]
    if not isinstance(value, str):
        raise ChatError(f"has {kind_in_json(value)} in the field {name!r}, expected a string")
    return value


def _side(value: object, name: str, role: str) -> list[dict[str, Any]]:
    """A prompt or a completion: turns, which may be JSON, or the text of one turn."""
    if _is_text(value):
        return [_turn(role, str(value))]
    if not isinstance(value, (str, list)):
        raise ChatError(f"has {kind_in_json(value)} in the field {name!r}, expected a string or a list of turns")
    return _turns(value, f"{name}: ", ROLE_CONTENT)


def _is_text(value: object) -> bool:
    """Whether a prompt or a completion is text: a string that is not the JSON of turns."""
    return isinstance(value, str) and not (value.lstrip().startswith("[") and form_of_turns(value))


def turns_in(value: object, name: str) -> list[Any]:
    """Return the turns in a field, unchecked; they may be JSON. Raises ChatError, which names the field, for none."""
    where = f"in the field {name!r}, expected a list of turns"
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as exc:
            raise ChatError(f"has text that is no JSON {where}: {exc}") from exc
    if not isinstance(value, list):
        raise ChatError(f"has {kind_in_json(value)} {where}")
    if not value:
        raise ChatError(f"has no turns in the field {name!r}, expected at least one")
    return value


def _turns(value: object, where: str, form: str) -> list[dict[str, Any]]:
    turns = turns_in(value, where.removesuffix(": ") or TURNS)
    return [_checked(each, f"{where}turn {number}", form) for number, each in enumerate(turns, 1)]


def _checked(turn: object, where: str, form: str) -> dict[str, Any]:
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
            if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                what = part.get("type") if isinstance(part, dict) else part
                raise ChatError(f"{where} has a part {what!r:.40} in its {text!r}, expected text alone")
    elif not isinstance(found, str) and not (found is None and rest.get("tool_calls")):
        raise ChatError(f"{where} has {kind_in_json(found)} as its {text!r}, expected a string")
    names = {speaker: "role", text: "content"}  # and their order stays: templates may write a turn as JSON
    given = {str(names.get(name, name)): value for name, value in turn.items() if value is not None}
    return {**given, "role": known[role]}


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, [*names][:_SHOWN])) or "nothing"


def _tools(value: object) -> list[dict[str, Any]] | None:
    if isinstance(value, str) and value:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as exc:
            raise ChatError(f"has text in the field 'tools' that is no JSON: {exc}") from exc
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        found = f"a list with {kind_in_json(value[0])}" if isinstance(value, list) else kind_in_json(value)
        raise ChatError(f"has {found} in the field 'tools', expected a list of objects")
    return value
