"""The site's own code: pages and links of the repository's files, the commands' pages, and the check of the HTML."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import check, commands, pages
from fastio.cli import cli

TOP = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("README.md", "index"),
        (".ci/docs/api/loaders.md", "api/loaders"),
        ("fastio/guide/loading.md", "loading"),
        ("fastio/guide/moving/README.md", "moving/index"),
        ("fastio/guide/examples/cifar.py", "examples/cifar"),
        ("fastio/README.md", "internals/index"),
        ("fastio/store/files/README.md", "internals/store/files"),
        (".ci/docs/README.md", None),
        ("native/README.md", "internals/native"),
        ("benchmarks/README.md", "benchmarks/index"),
        ("benchmarks/peers/README.md", "benchmarks/peers/index"),
        (".github/CONTRIBUTING.md", "contributing"),
        (".ci/docs/conf.py", None),
        ("fastio/measure/loop/verdict.py", None),
        (".venv/README.md", None),
    ],
)
def test_a_file_has_one_page(path: str, page: str | None) -> None:
    """Guides lie at the top of the site, READMEs below the section of their folder."""
    assert page == pages.page_of(path)


def test_links_are_rewritten_outside_code() -> None:
    """A link is resolved from its file; addresses, anchors of the page and code blocks stay as they are."""
    text = "\n".join(
        (
            "[map](../README.md#one-idea), ![plot](../../benchmarks/a.png) [![plot](x.png)](y.md)",
            "[here](#there) [site](https://example.org/a.md)",
            "```python",
            "a[0](b.md)",
            "```",
            "[last](ranks.md)",
        )
    )
    links = []

    def lead(link: object) -> str:
        links.append(link)
        return f"<{len(links)}>"

    rewritten = pages.rewrite_links(text, "fastio/guide/loading.md", lead)

    assert [
        pages.PageLink("map", "fastio/README.md", "#one-idea", is_image=False),
        pages.PageLink("plot", "benchmarks/a.png", "", is_image=True),
        pages.PageLink("plot", "fastio/guide/x.png", "", is_image=True),
        pages.PageLink("<3>", "fastio/guide/y.md", "", is_image=False),
        pages.PageLink("last", "fastio/guide/ranks.md", "", is_image=False),
    ] == links
    assert "<1>, <2> <4>\n[here](#there) [site](https://example.org/a.md)\n```python\na[0](b.md)\n```\n<5>" == rewritten


def test_every_page_stands_in_a_table_of_contents() -> None:
    """All but the first page are listed, each once."""
    names = set(pages.pages_of(TOP))
    listed = [
        (Path(page).parent / line).as_posix()
        for page, table in pages.contents(names).items()
        for line in table.splitlines()
        if line and not line.startswith(("```", ":"))
    ]

    assert sorted(names - {"index"}) == sorted(listed)


def test_every_command_has_a_page() -> None:
    """Help becomes Markdown: usage and examples as consoles, options with their words, headings as in the help."""
    made = commands.command_pages(cli, "fastio")

    assert {"index", *(f"fastio-{name}" for name in cli.commands)} == set(made)
    assert "```console\n$ fastio pack [OPTIONS] SRC OUT\n```" in made["fastio-pack"]
    assert "\n## Text\n" in made["fastio-pack"]
    assert "`--overwrite`\n: Replace OUT if it exists." in made["fastio-pack"]
    assert "{targets}" not in made["fastio-pack"]
    assert "\n## fastio bench io\n" in made["fastio-bench"]


def test_commands_are_listed_by_name_and_linked() -> None:
    """The first page leads to each command's page, a group's page to its sections."""
    made = commands.command_pages(cli, "fastio")

    assert [(name, f"fastio-{name}.md") for name in sorted(cli.commands)] == _links(made["index"])
    assert [("both", "#fastio-bench-both"), ("bus", "#fastio-bench-bus")] == _links(made["fastio-bench"])[:2]


def test_options_in_help_are_code() -> None:
    """An option within a sentence, or the name of shards, is code, which does not break behind a dash."""
    text = commands.command_pages(cli, "fastio")["fastio-pack"]

    assert "names shards: `name-%06d.tar`." in text
    assert "unless you ask for `--restart`, `--short-side`," in text


def _links(page: str) -> list[tuple[str, str]]:
    return re.findall(r"(?m)^\[`(.*)`\]\((.*)\)$", page)


def test_the_check_finds_what_is_wrong(tmp_path: Path) -> None:
    """Missing files and anchors, and whatever a browser would load from another host, are named with their page."""
    (tmp_path / "good.html").write_text('<p id="a"><a href="#a"></a><a href="https://example.org"></a></p>')
    (tmp_path / "bad.html").write_text(
        '<a href="gone.html"></a><a href="good.html#b"></a><script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "style.css").write_text('a { background: url("//example.org/x.png"); b: url(data:image/png;base64,0) }')

    assert [
        "bad.html: loads https://example.org/x.js from another host",
        "bad.html: gone.html names no file of the site",
        "bad.html: good.html#b names no element of good.html",
        "style.css: loads //example.org/x.png from another host",
    ] == list(check.problems_of(tmp_path))
