"""Options that were called otherwise: they work for one release, and say what they are called now."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fastio.cli import COMMANDS, cli
from fastio.cli.bench import bench
from fastio.cli.group import FORMER, GONE, present_words
from tests.converters.trees import flat

GUIDE = Path(__file__).parents[2] / "fastio" / "guide"
TOKENS = ["--tokenizer", "bytes", "--max-length", "4"]
REST = ["--without", "*"]
# Every former word; one that is not here has no place in FORMER, and the other way round.
WORDS = [
    ("info", "--ignore-columns", "--without"),
    ("info", "--label-field", "--label-column"),
    ("info", "--text-field", "--text-column"),
    ("info", "--layout", "--source-kind"),
    ("pack", "--ignore-columns", "--without"),
    ("pack", "--label-field", "--label-column"),
    ("pack", "--split-long", "--too-long split"),
    ("pack", "--split-text", "--document"),
    ("pack", "--text-field", "--text-column"),
    ("pack", "--truncation", "--too-long truncate"),
    ("pack", "--layout", "--source-kind"),
    ("plan", "--batch", "--batch-size"),
    ("profile", "--with-flops", "--record-shapes"),
    ("grid", "--repeats", "--rounds"),
    ("repair", "--layout", "--source-kind"),
    ("verify", "--layout", "--source-kind"),
]


def command_of(name: str) -> click.Command:
    """A command by its last name."""
    return bench.commands[name] if name in bench.commands else COMMANDS[name]


WITHOUT = [("plan", "--cache"), ("plan", "--disk"), ("plan", "--rate")]  # every option that is gone


def test_these_are_all() -> None:
    """Adding a former word is a decision, made here."""
    assert sorted((name, option) for name, options in GONE.items() for option in options) == WITHOUT
    assert sorted(WORDS) == sorted((name, old, new) for name, words in FORMER.items() for old, new in words.items())


@pytest.mark.parametrize(("name", "old", "new"), WORDS)
def test_help_knows_the_present_word_only(name: str, old: str, new: str) -> None:
    """The option of today is there, and no command has the former one beside it."""
    options = {word for parameter in command_of(name).params for word in parameter.opts}

    assert new.partition(" ")[0] in options
    assert old not in options


@pytest.mark.parametrize(("name", "old", "new"), WORDS)
def test_a_former_word_says_what_to_type(name: str, old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With its value as a word of its own, or after an equals sign."""
    words, implied = new.split(), ["--text-column", "text"] if old == "--label-field" else []

    assert [*implied, "SRC", *words, "value", "--last"] == present_words(name, ["SRC", old, "value", "--last"])
    assert f"warning: {old} is now {new}" in capsys.readouterr().err
    assert [*implied, "SRC", *words[:-1], f"{words[-1]}=a b"] == present_words(name, ["SRC", f"{old}=a b"])


@pytest.mark.parametrize(("name", "option"), WITHOUT)
def test_an_option_that_is_gone_is_passed_over(name: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With its value, however that is written; a line says what to use instead."""
    assert option not in {word for parameter in command_of(name).params for word in parameter.opts}
    assert present_words(name, ["SRC", option, "9", "--last"]) == ["SRC", "--last"]
    assert present_words(name, ["SRC", f"{option}=9", "--last"]) == ["SRC", "--last"]
    assert present_words(name, ["SRC", option]) == ["SRC"]
    assert 3 == capsys.readouterr().err.count(f"warning: {option} is gone and does nothing: {GONE[name][option]}")


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (["--label-field", "label"], ["--text-column", "text", "--label-column", "label"]),
        (["--text-field", "body", "--label-field", "n"], ["--text-column", "body", "--label-column", "n"]),
        (["--split-long", "--tokenizer", "bytes", "--max-length", "4"], ["--too-long", "split", *TOKENS]),
        (["--truncation", "--tokenizer", "bytes", "--max-length", "4"], ["--too-long", "truncate", *TOKENS]),
    ],
)
def test_the_same_store(former: list[str], present: list[str], tmp_path: Path) -> None:
    """What a former line packs is what the present one packs, to the byte."""
    (tmp_path / "t.jsonl").write_text('{"text": "a text", "body": "b", "label": "x", "n": 1}\n')
    stores = []
    for name, words in (("former.h5", former), ("present.h5", present)):
        result = CliRunner().invoke(cli, ["pack", str(tmp_path / "t.jsonl"), str(tmp_path / name), *words, *REST])
        assert result.exit_code == 0, result.output
        stores.append((tmp_path / name).read_bytes())

    assert stores[0] == stores[1]


def test_it_works_on_the_command_line(tmp_path: Path) -> None:
    """In a group's command, too; the command line of the user's after -- is left alone."""
    said = CliRunner().invoke(cli, ["bench", "grid", "nothing", "--repeats=x"])

    assert "warning: --repeats is now --rounds" in said.stderr
    assert "Invalid value for '--rounds'" in said.stderr
    assert ["--", "train.py", "--with-flops"] == present_words("profile", ["--", "train.py", "--with-flops"])


@pytest.mark.parametrize("guide", sorted(GUIDE.rglob("*.md")), ids=lambda path: path.name)
def test_guides_use_the_present_words(guide: Path) -> None:
    """Only the changelog names former ones."""
    text = guide.read_text(encoding="utf-8")

    former = [*(old for _, old, _ in WORDS), *(f"plan {option}" for _, option in WITHOUT)]
    assert guide.name == "changelog.md" or [] == [old for old in former if f"`{old}" in text or f" {old} " in text]


def test_a_label_column_without_a_table(tmp_path: Path) -> None:
    """The error names what was asked for, not what the former word implied."""
    (tmp_path / "a.txt").write_text("x\n")
    said = CliRunner().invoke(cli, ["pack", str(tmp_path / "a.txt"), str(tmp_path / "o.lmdb"), "--label-field", "kind"])

    assert "a.txt: --label-column kind has no effect, because only tables have fields; class folders" in said.output


@pytest.mark.parametrize("command", ["pack", "info"])
def test_an_error_names_the_word_that_was_typed(tmp_path: Path, command: str) -> None:
    """And the implied one only if that was typed, too."""
    flat(tmp_path / "pngs")
    line = [command, str(tmp_path / "pngs"), *([str(tmp_path / "o.lmdb")] if command == "pack" else [])]
    said = CliRunner().invoke(cli, [*line, "--label-field", "kind"])
    both = CliRunner().invoke(cli, [*line, "--label-field", "kind", "--text-field", "body"])

    assert (2, 2) == (said.exit_code, both.exit_code)
    assert "error: --label-field is for text" in said.output
    assert "--text-column" not in said.output.partition("error: ")[2]
    assert "--text-column is for text" in both.output
