"""The options of ``fastio pack`` that are about text, gathered into one argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from fastio.cli.screen import SIZE

if TYPE_CHECKING:
    from fastio.converters.text import Encoder, TextOptions, TextSource

__all__ = ["TEXT_LAYOUTS", "TEXT_OPTIONS", "TextArguments"]

TEXT_LAYOUTS = ("text-folder", "lines", "jsonl", "json", "csv", "tsv", "parquet", "arrow", "datasets")

TEXT_OPTIONS = (
    click.option(
        "--split-text",
        type=click.Choice(("line", "paragraph")),
        help="What a sample of one .txt file is.  [default: line]",
    ),
    click.option(
        "--text-field", metavar="NAME", help="Column with the text, or with ready token ids.  [default: text]"
    ),
    click.option("--label-field", metavar="NAME", help="Column with the labels: whole numbers, or names of classes."),
    click.option("--tokenizer", metavar="bytes|FILE", help="Store token ids: of bytes, or of a tokenizers JSON."),
    click.option("--bos", is_flag=True, help="Begin every document with the tokenizer's bos token."),
    click.option("--eos", is_flag=True, help="End every document with its eos token."),
    click.option(
        "--special",
        multiple=True,
        metavar="ROLE=TOKEN",
        help="Which token is bos, eos, pad or unk, where its name does not say it.",
    ),
    click.option(
        "--vocab-size",
        type=click.IntRange(min=1),
        metavar="N",
        help="Ready ids are below N; where that is unknown they take 4 bytes.",
    ),
    click.option("--max-length", type=click.IntRange(min=1), metavar="N", help="Tokens of a sample, bos and eos too."),
    click.option("--truncation", is_flag=True, help="Cut off what is longer than --max-length, and count it."),
    click.option("--split-long", is_flag=True, help="Make several samples of what is longer: key#0, key#1, ..."),
    click.option(
        "--max-document", type=SIZE, metavar="SIZE", help="A longer document is a bad sample.  [default: 64MiB]"
    ),
)


@dataclass(frozen=True, slots=True)
class TextArguments:
    """What was said of text on the command line; the names are those of the options."""

    split_text: Literal["line", "paragraph"] | None
    text_field: str | None
    label_field: str | None
    tokenizer: str | None
    bos: bool
    eos: bool
    special: tuple[str, ...]
    vocab_size: int | None
    max_length: int | None
    truncation: bool
    split_long: bool
    max_document: int | None

    @property
    def given(self) -> list[str]:
        """The options that were used, as they are written."""
        return [f"--{name.replace('_', '-')}" for name in self.__slots__ if getattr(self, name)]

    def options(self) -> TextOptions:
        """How the text is found in its source."""
        from fastio.converters.text import TextOptions
        from fastio.converters.text.documents import MAX_DOCUMENT_BYTES

        return TextOptions(
            split=self.split_text,
            text_field=self.text_field,
            label_field=self.label_field,
            max_document_bytes=self.max_document or MAX_DOCUMENT_BYTES,
        )

    def encoder(self, source: TextSource) -> Encoder:
        """What makes samples of the source's documents."""
        from fastio.converters.text import Encoder, Sequences, load_tokenizer

        if self.truncation and self.split_long:
            raise click.UsageError("--truncation loses what --split-long keeps: say one of them")
        needing = ("--bos", "--eos", "--special", *(() if source.is_ids else ("--max-length",)))
        without = [name for name in needing if name in self.given]
        if self.tokenizer is None and without:
            raise click.UsageError(f"{without[0]} takes a tokenizer: say --tokenizer bytes, or a tokenizers JSON")
        if self.vocab_size is not None and (self.tokenizer is not None or not source.is_ids):
            raise click.UsageError("--vocab-size is for ready ids without a tokenizer")
        over: Literal["refuse", "truncate", "split"]
        over = "truncate" if self.truncation else "split" if self.split_long else "refuse"
        tokenizer = None if self.tokenizer is None else load_tokenizer(self.tokenizer, self._named())
        sequences = Sequences(bos=self.bos, eos=self.eos, max_length=self.max_length, over=over)
        return Encoder(
            tokenizer, sequences, is_ids=source.is_ids, has_labels=source.has_labels, vocab_size=self.vocab_size
        )

    def _named(self) -> dict[str, str]:
        """Special tokens by role."""
        pairs = [pair.partition("=") for pair in self.special]
        for role, equals, token in pairs:
            if role not in ("bos", "eos", "pad", "unk") or not (equals and token):
                raise click.UsageError(f"--special {role}{equals}{token}: expected bos=TOKEN, eos=, pad= or unk=TOKEN")
        return {role: token for role, _, token in pairs}
