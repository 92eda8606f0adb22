"""Checks built pages: every link leads to a page and a heading, and nothing is loaded from other hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["problems_of"]

# What makes a browser load an address, by element and attribute; links that a reader follows are not among them.
_LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href"), ("video", "src")}
_CSS_ADDRESS = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?P<address>[^"')]+)""")


@dataclass
class _Page(HTMLParser):
    """What a page has: the ids of its elements, the addresses that it links to, and those that it loads."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the element's id and addresses."""
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif (tag, name) in _LOADS and value:
                self.loads.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)


def problems_of(folder: Path) -> Iterator[str]:
    """Yield one line for each link of the HTML pages in ``folder`` that leads nowhere, and for each foreign load."""
    pages = {path.resolve(): _read(path) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        yield from (f"{name}: loads {address} from another host" for address in page.loads if _is_foreign(address))
        for address in [*page.links, *page.loads]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                yield f"{name}: {address} names no file of the site"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                yield f"{name}: {address} names no element of {target.name}"
    for path in sorted(folder.rglob("*.css")):
        for match in _CSS_ADDRESS.finditer(path.read_text(encoding="utf-8")):
            if _is_foreign(match["address"]):
                yield f"{path.relative_to(folder)}: loads {match['address']} from another host"


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _is_foreign(address: str) -> bool:
    """Whether an address names a host: ``data:`` and relative addresses do not."""
    return bool(urlsplit(address).netloc)
