"""The options of ``fastio pack`` that are about text, gathered into one argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from fastio.cli.screen import SIZE

if TYPE_CHECKING:
    from fastio.converters.text import Encoder, TextOptions, TextSource

__all__ = ["TEXT_LAYOUTS", "TEXT_OPTIONS", "TextArguments"]

TEXT_LAYOUTS = ("text-folder", "lines")

TEXT_OPTIONS = (
    click.option(
        "--split-text",
        type=click.Choice(("line", "paragraph")),
        help="What a sample of one .txt file is.  [default: line]",
    ),
    click.option("--tokenizer", metavar="bytes|FILE", help="Store token ids: of bytes, or of a tokenizers JSON."),
    click.option("--bos", is_flag=True, help="Begin every document with the tokenizer's bos token."),
    click.option("--eos", is_flag=True, help="End every document with its eos token."),
    click.option("--max-length", type=click.IntRange(min=1), metavar="N", help="Tokens of a sample, bos and eos too."),
    click.option("--truncation", is_flag=True, help="Cut off what is longer than --max-length, and count it."),
    click.option("--split", is_flag=True, help="Make several samples of what is longer: key#0, key#1, ..."),
    click.option(
        "--max-document", type=SIZE, metavar="SIZE", help="A longer document is a bad sample.  [default: 64MiB]"
    ),
)


@dataclass(frozen=True, slots=True)
class TextArguments:
    """What was said of text on the command line; the names are those of the options."""

    split_text: Literal["line", "paragraph"] | None
    tokenizer: str | None
    bos: bool
    eos: bool
    max_length: int | None
    truncation: bool
    split: bool
    max_document: int | None

    @property
    def given(self) -> list[str]:
        """The options that were used, as they are written."""
        return [f"--{name.replace('_', '-')}" for name in self.__slots__ if getattr(self, name)]

    def options(self) -> TextOptions:
        """How the text is found in its source."""
        from fastio.converters.text import TextOptions
        from fastio.converters.text.documents import MAX_DOCUMENT_BYTES

        return TextOptions(split=self.split_text, max_document_bytes=self.max_document or MAX_DOCUMENT_BYTES)

    def encoder(self, source: TextSource) -> Encoder:
        """What makes samples of the source's documents."""
        from fastio.converters.text import Encoder, Sequences, load_tokenizer

        if self.truncation and self.split:
            raise click.UsageError("--truncation loses what --split keeps: say one of them")
        without = [name for name in ("--bos", "--eos", "--max-length") if name in self.given]
        if self.tokenizer is None and not source.is_ids and without:
            raise click.UsageError(f"{without[0]} is about tokens: say --tokenizer bytes, or a tokenizers JSON")
        over: Literal["refuse", "truncate", "split"]
        over = "truncate" if self.truncation else "split" if self.split else "refuse"
        tokenizer = None if self.tokenizer is None else load_tokenizer(self.tokenizer)
        sequences = Sequences(bos=self.bos, eos=self.eos, max_length=self.max_length, over=over)
        return Encoder(tokenizer, sequences, is_ids=source.is_ids, has_labels=source.has_labels)
