"""Names of further files as a template on the samples' keys, so that a million of them take one line of metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["describe_names", "file_name", "parts_of_key"]


def parts_of_key(key: str) -> dict[str, str]:
    """
    Return the parts of a key that templates name.

    >>> parts_of_key("images/town/a.png")
    {'path': 'images/town/a', 'below': 'town/a', 'stem': 'a'}
    """
    folder, slash, name = key.rpartition("/")
    stem = name.rpartition(".")[0] or name
    path = folder + slash + stem
    return {"path": path, "below": path.partition("/")[2] or path, "stem": stem}


def describe_names(keys: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """
    Return JSON that ``file_name`` makes these names of, ``names[i]`` from ``keys[i]``.

    It is ``{"template": "masks/{stem}.png"}``, and ``"names": {key: name}`` for those that do not follow it.

    >>> describe_names(["images/a.jpg", "images/b.jpg"], ["masks/a.png", "masks/b.png"])
    {'template': 'masks/{stem}.png'}
    """
    best: dict[str, Any] | None = None
    for part in ("stem", "below", "path"):
        if not keys:
            break
        value = parts_of_key(keys[0])[part]
        before, found, after = names[0].rpartition(value)
        if not found:
            continue
        template = f"{before}{{{part}}}{after}"
        others = {
            key: name for key, name in zip(keys, names, strict=True) if file_name({"template": template}, key) != name
        }
        if best is None or len(others) < len(best.get("names", ())):
            best = {"template": template, **({"names": others} if others else {})}
        if not others:
            break
    return best or {"template": "", "names": dict(zip(keys, names, strict=True))}


def file_name(described: Mapping[str, Any], key: str) -> str:
    """Return the name of the file that belongs to a key, by what ``describe_names`` returned."""
    names = described.get("names")
    if isinstance(names, Mapping) and key in names:
        return str(names[key])
    name = str(described.get("template", ""))
    for part, value in parts_of_key(key).items():
        if f"{{{part}}}" in name:
            return name.replace(f"{{{part}}}", value)
    return name
