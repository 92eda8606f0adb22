"""Builds the site: ``make docs`` writes HTML that opens from disk.

``--links`` asks instead whether the addresses of other sites, which the pages name, still answer.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import sys
from pathlib import Path

import click
from sphinx.cmd.build import build_main

from docs.address import repository_address
from docs.check import problems_of
from docs.commands import command_pages
from docs.pages import PageLink, contents, page_of, pages_of, rewrite_links
from fastio.cli import cli

TOP = Path(__file__).resolve().parents[2]
SITE = Path(__file__).resolve().parent


class Sources:
    """The pages' Markdown in a folder that Sphinx reads, with links as they lead on the site."""

    def __init__(self, folder: Path, repository: str | None) -> None:
        self._folder = folder
        self._repository = repository
        self._pages = pages_of(TOP)

    def write(self) -> None:
        """Write the folder anew, as one unit: Sphinx compares times and contents, so unchanged pages are kept."""
        texts = {page: self._text(page, path) for page, path in self._pages.items()}
        texts |= {f"commands/{name}": text for name, text in command_pages(cli, "fastio").items()}
        for page, table in contents(texts).items():
            texts[page] += table
        for page, text in texts.items():
            self._put(self._folder / f"{page}.md", text.encode())
        for path in self._folder.rglob("*.md"):
            if path.relative_to(self._folder).with_suffix("").as_posix() not in texts:
                path.unlink()

    def _text(self, page: str, path: Path) -> str:
        if path.suffix == ".py":
            return f"# {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```\n"
        name = path.relative_to(TOP).as_posix()
        return rewrite_links(path.read_text(encoding="utf-8"), name, lambda link: self._lead(link, page))

    def _lead(self, link: PageLink, page: str) -> str:
        """Write a link of a page: to another page, to a copied image, to the repository, or as words alone."""
        here = posixpath.dirname(page)
        target = page_of(link.path) or page_of(posixpath.join(link.path, "README.md"))
        if target == "index" or target in self._pages:
            return f"[{link.text}]({posixpath.relpath(f'{target}.md', here)}{link.anchor})"
        if link.is_image:
            self._put(self._folder / link.path, (TOP / link.path).read_bytes())
            return f"![{link.text}]({posixpath.relpath(link.path, here)})"
        if self._repository:
            return f"[{link.text}]({self._repository}/blob/main/{link.path}{link.anchor})"
        return link.text if link.path in link.text else f"{link.text} (`{link.path}`)"

    @staticmethod
    def _put(path: Path, content: bytes) -> None:
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--links", is_flag=True, help="Ask for every address on other sites instead of writing pages.")
def main(out: Path, *, links: bool) -> None:
    """Build the site into OUT. Warnings are errors."""
    out = out.resolve()
    sources = out.parent / f"{out.name}-sources"
    Sources(sources, repository_address(TOP)).write()
    target = out.with_name(f"{out.name}-links") if links else out
    shutil.rmtree(target, ignore_errors=True)  # it may hold pages of files that are gone
    # -E -a: a page that is kept from an earlier run would not repeat its warnings.
    options = ["-E", "-a", "-W", "--keep-going", "-n", "-q", "-j", str(min(4, os.cpu_count() or 1)), "-c", str(SITE)]
    options += ["-d", str(out.parent / f"{out.name}-doctrees"), "-b", "linkcheck" if links else "html"]
    status = build_main([*options, str(sources), str(target)])
    if status:
        sys.exit(status)
    if not links:
        shutil.rmtree(out / "_sources", ignore_errors=True)
        problems = list(problems_of(out))
        for problem in problems:
            click.echo(problem, err=True)
        if problems:
            sys.exit(1)
        click.echo((out / "index.html").as_uri())


if __name__ == "__main__":
    main()
