"""The forms in which rows keep chats: recognised by their columns, and made into the turns that a template takes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastio.converters.sources.tables.rows import kind_in_json

__all__ = [
    "CHATS",
    "COMPLETIONS",
    "OPTIONAL",
    "Chat",
    "ChatError",
    "chat_column",
    "chat_of",
    "form_of_turns",
    "parts_of",
]

CHATS: Final = ("messages", "conversations", "conversation", "dialog")  # what columns of lists of turns are called

ROLE_CONTENT: Final = "role and content"
FROM_VALUE: Final = "from and value"
PROMPT: Final = "prompt and completion"
INSTRUCTION: Final = "instruction and output"
COMPLETIONS: Final = (PROMPT, INSTRUCTION)  # the forms that say where the completion begins

OPTIONAL: Final = ("input", "system", "tools")  # the parts of a chat that a row may lack
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
    own: the system prompt of a column.
    """

    turns: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    prompt: int | None
    added: int

    def name(self, position: int) -> str:
        """Return what a sentence calls the turn at ``position``: its number in the row, and its role."""
        role = self.turns[position]["role"]
        return "the system prompt" if position < self.added else f"turn {position - self.added + 1} ({role})"


def chat_column(names: Collection[str]) -> str | None:
    """
    Return the column of chats among ``names``, by what such columns are called; None if there is none.

    >>> chat_column(["id", "messages"]), chat_column(["prompt", "completion"]), chat_column(["prompt", "chosen"])
    ('messages', 'prompt', None)
    """
    found = next((name for name in CHATS if name in names), None)
    if found is None and {"prompt", "completion"} <= {*names}:
        return "prompt"
    return "instruction" if found is None and {"instruction", "output"} <= {*names} else found


def parts_of(column: tuple[str, ...], names: Collection[str]) -> tuple[str, dict[str, tuple[str, ...]]]:
    """
    Return the form of chats in a column, "" for a list of turns, and the path to each part of a chat.

    >>> parts_of(("prompt",), ["prompt", "completion", "id"])
    ('prompt and completion', {'prompt': ('prompt',), 'completion': ('completion',)})
    """
    form, found = "", {"turns": column}
    if column == ("prompt",) and "completion" in names:
        form, found = PROMPT, {"prompt": column, "completion": ("completion",)}
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
    form, prompt = document["form"], None
    if form == PROMPT:
        asked = _side(document["prompt"], "prompt", "user")
        turns = [*asked, *_side(document["completion"], "completion", "assistant")]
        prompt = len(asked)
    elif form == INSTRUCTION:
        asked_for, further = _text(document, "instruction"), document.get("input")
        if further is not None and not isinstance(further, str):
            raise ChatError(f"has {kind_in_json(further)} in the field 'input', expected a string")
        question = f"{asked_for}\n\n{further}" if further else asked_for
        turns = [_turn("user", question), _turn("assistant", _text(document, "output"))]
        prompt = 1
    else:
        turns = _turns(document["turns"], "", form)
    system = document.get("system")
    if system is not None and not isinstance(system, str):
        raise ChatError(f"has {kind_in_json(system)} in the field 'system', expected a string")
    if system and turns[0]["role"] == "system":
        raise ChatError(
            "has a system prompt in the field 'system' and another as turn 1, so it is unclear which counts"
        )
    if system:
        turns = [_turn("system", system), *turns]
        prompt = None if prompt is None else prompt + 1
    return Chat(turns, _tools(document.get("tools")), prompt, int(bool(system)))


def _turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document[name]
    if not isinstance(value, str):
        raise ChatError(f"has {kind_in_json(value)} in the field {name!r}, expected a string")
    return value


def _side(value: object, name: str, role: str) -> list[dict[str, Any]]:
    """A prompt or a completion: turns, or the text of one turn."""
    if isinstance(value, str):
        return [_turn(role, value)]
    if not isinstance(value, list):
        raise ChatError(f"has {kind_in_json(value)} in the field {name!r}, expected a string or a list of turns")
    return _turns(value, f"{name}: ", ROLE_CONTENT)


def _turns(value: object, where: str, form: str) -> list[dict[str, Any]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as exc:
            raise ChatError(f"has text that is no JSON, expected a list of turns: {exc}") from exc
    if not isinstance(value, list):
        raise ChatError(f"has {kind_in_json(value)}, expected a list of turns")
    if not value:
        raise ChatError(f"has no turns{f' in its {where[:-2]}' if where else ''}")
    return [_checked(each, f"{where}turn {number}", form) for number, each in enumerate(value, 1)]


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
