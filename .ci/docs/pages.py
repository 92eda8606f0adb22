"""Which file of the repository becomes which page of the site, and where links between files lead there."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PageLink", "contents", "page_of", "pages_of", "rewrite_links"]

GUIDE = "fastio/guide/"
SITE = ".ci/docs/"
# Guides in the order in which people need them; those that are not listed follow by name.
ORDER = (
    *("packing", "loading", "transforms", "trainings", "fields", "text", "chats", "streams", "mixtures", "ranks"),
    *("measuring", "trackers", "remote", "staging", "clusters", "formats", "json"),
)
PROJECT = ("changelog", "compatibility", "licences", "contributing", "security")
SECTIONS = ("moving", "examples", "api", "commands", "benchmarks", "internals")

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_HIDDEN = (".ci", ".github")  # folders whose pages are shown
_FENCE = re.compile(r"(?ms)^(?P<fence>`{3,}|~{3,})[^\n]*\n.*?^(?P=fence)[ \t]*$")


@dataclass(frozen=True, slots=True)
class PageLink:
    """A link into the repository: its words, the file or folder that it names from the top, and ``#anchor``."""

    text: str
    path: str
    anchor: str
    is_image: bool


def page_of(path: str) -> str | None:
    """
    Return the page, without suffix, that a file of the repository becomes; None for a file that has no page.

    >>> page_of("fastio/guide/moving/README.md"), page_of("native/README.md"), page_of("native/src/png/png.cpp")
    ('moving/index', 'internals/native', None)
    """
    folder, name = posixpath.split(path)
    stem, suffix = posixpath.splitext(name)
    if path == "README.md":
        return "index"
    if path.startswith(SITE + "api/"):
        return f"api/{stem}"
    if path.startswith(GUIDE):
        section = folder.removeprefix(GUIDE.rstrip("/")).lstrip("/")
        has_page = suffix == ".md" or (suffix == ".py" and section == "examples")
        return posixpath.join(section, "index" if name == "README.md" else stem) if has_page else None
    if folder == ".github" and suffix == ".md":
        return stem.lower() if stem.lower() in PROJECT else None
    if name != "README.md" or folder.startswith("."):
        return None
    if folder.startswith("benchmarks"):
        return posixpath.join(folder, "index")
    return posixpath.join("internals", folder.removeprefix("fastio").lstrip("/") or "index", "").rstrip("/")


def pages_of(top: Path) -> dict[str, Path]:
    """Return the files that become pages, by page."""
    patterns = (
        "README.md",
        "fastio/**/*.md",
        "fastio/guide/examples/*.py",
        "*/README.md",
        "*/**/README.md",
        ".github/*.md",
        f"{SITE}api/*.md",
    )
    pages = {}
    for path in sorted({path for pattern in patterns for path in top.glob(pattern)}):
        name = path.relative_to(top).as_posix()
        page = page_of(name)
        if page is not None and not any(part.startswith(".") and part not in _HIDDEN for part in name.split("/")):
            pages[page] = path
    return pages


def rewrite_links(text: str, path: str, lead: Callable[[PageLink], str]) -> str:
    """
    Return a file's Markdown with each link into the repository as ``lead`` writes it; code blocks stay as they are.

    ``path`` names the file from the top of the repository. Links with a scheme and links to a heading of the same
    page are left alone.
    """

    def one(match: re.Match[str]) -> str:
        target, _, anchor = match["target"].partition("#")
        if not target or ":" in target:
            return match[0]
        named = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        words = rewrite_links(match["text"], path, lead)
        return lead(PageLink(words, named, f"#{anchor}" if anchor else "", match["image"] == "!"))

    parts, start = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(one, text[start : fence.start()]), fence[0]]
        start = fence.end()
    return "".join([*parts, _LINK.sub(one, text[start:])])


def contents(pages: Iterable[str]) -> dict[str, str]:
    """Return the tables of contents, as MyST directives, by the page that holds them: that of all, and of sections."""
    names = set(pages)
    inner = {section: sorted(name for name in names if name.startswith(f"{section}/")) for section in SECTIONS}
    guides = sorted(name for name in names if "/" not in name and name not in ("index", *PROJECT))
    guides.sort(key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    starts = {section: f"{section}/index" for section in SECTIONS if f"{section}/index" in names}
    project = [name for name in PROJECT if name in names]
    groups = {
        "Guides": guides,
        "Start from": [starts[section] for section in ("examples", "moving") if section in starts],
        "Reference": [starts[section] for section in ("api", "commands") if section in starts],
        "Project": [*project, *(starts[section] for section in ("benchmarks", "internals") if section in starts)],
    }
    tables = {"index": "\n".join(_table(entries, caption) for caption, entries in groups.items() if entries)}
    for section, start in starts.items():
        entries = [posixpath.relpath(name, section) for name in inner[section] if name != start]
        if entries:
            tables[start] = _table(entries)
    return tables


def _table(entries: Iterable[str], caption: str = "") -> str:
    option = f":caption: {caption}\n" if caption else ""
    return "\n```{toctree}\n:hidden:\n" + option + "\n" + "\n".join(entries) + "\n```\n"
