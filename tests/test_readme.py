"""What README and guides show is true: links, commands, code, figures, and how to read stores without fastio."""

from __future__ import annotations

import pickle
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from PIL import Image

from fastio.cli import cli
from fastio.converters import open_source, pack
from fastio.converters.text import Encoder, Sequences, TextSamples, load_tokenizer, open_text
from fastio.store import FORMATS
from fastio.types.schema import COLUMN, Field, Schema
from fastio.types.schema import IMAGE as IMAGE_CODEC
from fastio.types.schema import TEXT as TEXT_CODEC
from fastio.types.schema import TOKENS as TOKENS_CODEC

TOP = Path(__file__).parent.parent
GUIDE = TOP / "fastio" / "guide"
IMAGE = Field("image", codec=IMAGE_CODEC, dtype="|u1", shape=(None, None, None))
TOKENS = Field("tokens", codec=TOKENS_CODEC, dtype="<u2", shape=(None,))
TEXT = Field("text", codec=TEXT_CODEC, dtype="|u1", shape=(None,))
LABEL = Field("label", codec=COLUMN, dtype="<i8", shape=())
PAGES = sorted(
    {
        TOP / "README.md",
        *TOP.glob("*/README.md"),
        *TOP.glob("fastio/**/README.md"),
        *GUIDE.rglob("*.md"),
        *TOP.glob(".github/*.md"),
        TOP / "tests" / "compatibility" / "README.md",
    }
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Path -> class of twenty PNGs with names that are hard for tar readers, sorted by path."""
    folder = tmp_path_factory.mktemp("readme") / "pngs"
    folder.mkdir()
    names = [f"a.{number}.b c.png" for number in range(10)] + [f"ü{number}.png" for number in range(10)]
    for number, name in enumerate(names):
        Image.new("RGB", (8, 8), (number * 10, 5, 9)).save(folder / name)
    labels = {name: number % 3 for number, name in enumerate(names)}
    folder.with_name("labels.pkl").write_bytes(pickle.dumps(labels))
    return {str(folder / name): labels[name] for name in sorted(names)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every link into the project names a file that is there, and a heading that is in it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        aim = page.parent / path if path else page
        assert aim.exists(), f"{page.name}: {target}"
        headings = re.findall(r"(?m)^#+ (.+)$", aim.read_text()) if anchor else []
        assert not anchor or anchor in [anchor_of(heading) for heading in headings], f"{page.name}: {target}"


def anchor_of(heading: str) -> str:
    """``#the-sealed-index`` of ``The sealed index``, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def command_lines(page: Path) -> list[list[str]]:
    """The words of every ``$ fastio`` line of a page, without what follows ``#``."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("fastio ")]


@pytest.mark.parametrize("page", [page for page in PAGES if command_lines(page)], ids=lambda page: page.name)
def test_commands_that_are_shown_are_there(page: Path) -> None:
    """Every command line of the guides names a command, and options that it has."""
    for words in command_lines(page):
        command: click.Command = cli
        while isinstance(command, click.Group) and "|" not in words[0]:  # io|grid|decode names several
            command = command.commands[words[0]]
            words = words[1:]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        asked = words[: words.index("--")] if "--" in words else words

        assert {word for word in asked if word.startswith("-")} <= known, words


@pytest.mark.parametrize("page", [page for page in PAGES if command_lines(page)], ids=lambda page: page.name)
def test_no_store_is_packed_twice(page: Path) -> None:
    """Who copies a page's lines in order meets no name that something else has taken."""
    lines = {tuple(words) for words in command_lines(page) if not {"--resume", "--part", "--append"} & set(words)}
    outs = [words[2] for words in lines if words[0] == "pack"]

    assert sorted(set(outs)) == sorted(outs)


def plain_reader(format_name: str, field: Field) -> str:
    """What `fastio info` prints of a store of this field and labels, the path aside."""
    return FORMATS[format_name].plain_reader(Schema((field, LABEL)))


def test_guide_lists_every_format() -> None:
    """The table of the packing guide is that of FORMATS, and the README names each of them."""
    rows = [
        f"| {', '.join(f'`{name}`' for name in each.names)} | {each.file} | {each.good_for} |"
        for each in FORMATS.values()
    ]
    shown = re.findall(r"(?m)^\| `x\..*$", (GUIDE / "packing.md").read_text())

    assert rows == shown
    assert all(name in (TOP / "README.md").read_text().lower() for name in FORMATS)


@pytest.mark.parametrize("format_name", FORMATS)
def test_readme_shows_the_snippet(format_name: str) -> None:
    """The guide of formats holds exactly the lines that `fastio info` prints."""
    assert f"```python\n{plain_reader(format_name, IMAGE)}```" in (GUIDE / "formats.md").read_text()


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("format_name", FORMATS)
def test_plain_library_reads_what_was_packed(format_name: str, files: dict[str, int], tmp_path: Path) -> None:
    """Those lines, executed without fastio, give all bytes and labels in order."""
    folder = Path(next(iter(files))).parent
    store = tmp_path / f"out{FORMATS[format_name].suffixes[0]}"
    pack(open_source(folder, labels=folder.with_name("labels.pkl")), store)

    found: dict[str, Any] = {"path": str(store)}
    exec(compile(plain_reader(format_name, IMAGE), "formats.md", "exec"), found)

    assert [Path(path).read_bytes() for path in files] == [bytes(image) for image in found["images"]]
    assert list(files.values()) == list(found["labels"])
    assert "import fastio" not in plain_reader(format_name, IMAGE)


@pytest.mark.parametrize("format_name", FORMATS)
def test_readme_shows_the_reader_of_tokens(format_name: str) -> None:
    """The guide of formats holds exactly the lines that `fastio info` prints of a store of tokens."""
    assert f"```python\n{plain_reader(format_name, TOKENS)}```" in (GUIDE / "formats.md").read_text()


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("tokenizer", ["bytes", ""])
def test_plain_library_reads_text(format_name: str, tokenizer: str, tmp_path: Path) -> None:
    """Those lines, executed without fastio, give the ids or the text, and labels, in order."""
    texts = {"a/1.txt": "one", "a/v1.2.txt": "zwei ü", "b/1.txt": "x" * 3000}
    for name, text in texts.items():
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_text(text, encoding="utf-8")
    store = tmp_path / f"out{FORMATS[format_name].suffixes[0]}"
    encoder = Encoder(load_tokenizer(tokenizer) if tokenizer else None, Sequences(), has_labels=True)
    pack(TextSamples(open_text(tmp_path / "texts"), encoder), store)

    found: dict[str, Any] = {"path": str(store)}
    exec(compile(plain_reader(format_name, TOKENS if tokenizer else TEXT), "formats.md", "exec"), found)

    samples = [bytes(sample.tolist()).decode() for sample in found["samples"]] if tokenizer else found["samples"]
    assert list(texts.values()) == samples
    assert [0, 0, 1] == list(found["labels"])
    assert not tokenizer or all(sample.dtype == "<u2" for sample in found["samples"])
