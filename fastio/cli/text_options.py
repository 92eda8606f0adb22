"""The options of ``fastio pack`` for text, gathered into one argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from fastio.cli.screen import SIZE
from fastio.cli.whole_number import WholeNumber

if TYPE_CHECKING:
    from fastio.converters.record_tokens import TextTokens
    from fastio.converters.text import Encoder, TextOptions, TextSource

__all__ = ["TEXT_OPTIONS", "TextArguments"]

TEXT_OPTIONS = (
    click.option(
        "--split-text",
        type=click.Choice(("line", "paragraph")),
        help="Make one sample of each line or paragraph of a single .txt file.  [default: line]",
    ),
    click.option("--text-field", metavar="NAME", help="Column with the text, or with token ids.  [default: text]"),
    click.option("--label-field", metavar="NAME", help="Column with the labels: whole numbers or class names."),
    click.option(
        "--tokenizer",
        metavar="bytes|FILE",
        help="Store token ids: UTF-8 bytes, or those of a tokenizer.json of Hugging Face tokenizers.",
    ),
    click.option("--bos", is_flag=True, help="Begin every document with the tokenizer's bos token."),
    click.option("--eos", is_flag=True, help="End every document with its eos token."),
    click.option(
        "--special",
        multiple=True,
        metavar="ROLE=TOKEN",
        help="Which token is bos, eos, pad or unk, if its name does not tell.",
    ),
    click.option(
        "--vocab-size",
        type=WholeNumber(min=1),
        metavar="N",
        help="Token ids in the column are below N; ids take 4 bytes if that is unknown.",
    ),
    click.option(
        "--max-length", type=WholeNumber(min=1), metavar="N", help="Most tokens per sample, including bos and eos."
    ),
    click.option("--truncation", is_flag=True, help="Cut off what exceeds --max-length, and count it."),
    click.option("--split-long", is_flag=True, help="Split longer documents into several samples: key#0, key#1, ..."),
    click.option(
        "--per-sample",
        is_flag=True,
        help="Keep the ids of each sample as a value of its own, as WebDataset needs them, not as one array.",
    ),
    click.option(
        "--max-document", type=SIZE, metavar="SIZE", help="Treat a longer document as a bad sample.  [default: 64MiB]"
    ),
)


@dataclass(frozen=True, slots=True)
class TextArguments:
    """The options about text as given on the command line, under the options' names."""

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
    per_sample: bool
    max_document: int | None

    @property
    def given(self) -> list[str]:
        """The options that were given, as the user writes them."""
        return [f"--{name.replace('_', '-')}" for name in self.__slots__ if getattr(self, name)]

    def options(self, without: tuple[str, ...] = ()) -> TextOptions:
        """Return how to find the text in its source; columns in ``without`` are left out."""
        from fastio.converters.text import TextOptions
        from fastio.converters.text.rows import MAX_DOCUMENT_BYTES

        return TextOptions(
            split=self.split_text,
            text_field=self.text_field,
            label_field=self.label_field,
            max_document_bytes=self.max_document or MAX_DOCUMENT_BYTES,
            without=without,
        )

    def encoder(self, source: TextSource) -> Encoder:
        """Return what turns the source's documents into samples."""
        from fastio.converters.text import Encoder, Sequences, load_tokenizer

        if self.truncation and self.split_long:
            raise click.UsageError("--truncation drops what --split-long keeps: give one of them")
        needing = ("--bos", "--eos", "--special", *(() if source.is_ids else ("--max-length",)))
        without = [name for name in needing if name in self.given]
        if self.tokenizer is None and without:
            raise click.UsageError(f"{without[0]} needs a tokenizer: add --tokenizer bytes or --tokenizer FILE")
        if self.vocab_size is not None and (self.tokenizer is not None or not source.is_ids):
            raise click.UsageError("--vocab-size is for columns of token ids, without --tokenizer")
        if self.per_sample and self.tokenizer is None and not source.is_ids:
            raise click.UsageError("--per-sample is for token ids, text always is: add --tokenizer bytes or FILE")
        over: Literal["refuse", "truncate", "split"]
        over = "truncate" if self.truncation else "split" if self.split_long else "refuse"
        tokenizer = None if self.tokenizer is None else load_tokenizer(self.tokenizer, self._named())
        sequences = Sequences(bos=self.bos, eos=self.eos, max_length=self.max_length, over=over)
        return Encoder(
            tokenizer,
            sequences,
            is_ids=source.is_ids,
            has_labels=source.has_labels,
            vocab_size=self.vocab_size,
            is_per_sample=self.per_sample,
        )

    def tokens(self) -> TextTokens:
        """Return what makes token ids of the text in fields, ``--field caption=caption:tokens``."""
        from fastio.converters.record_tokens import TextTokens
        from fastio.converters.text import Sequences, load_tokenizer

        needed = ("--tokenizer", "--bos", "--eos", "--special", "--max-length", "--truncation")
        other = next((name for name in self.given if name not in needed), None)
        if other is not None:
            raise click.UsageError(f"{other} is for samples of text alone, not for a --field of text")
        if self.tokenizer is None:
            raise click.UsageError(f"{self.given[0]} needs a tokenizer: add --tokenizer bytes or --tokenizer FILE")
        over: Literal["refuse", "truncate"] = "truncate" if self.truncation else "refuse"
        sequences = Sequences(bos=self.bos, eos=self.eos, max_length=self.max_length, over=over)
        return TextTokens(load_tokenizer(self.tokenizer, self._named()), sequences)

    def _named(self) -> dict[str, str]:
        """Return special tokens by role."""
        pairs = [pair.partition("=") for pair in self.special]
        for role, equals, token in pairs:
            if role not in ("bos", "eos", "pad", "unk") or not (equals and token):
                raise click.UsageError(f"--special {role}{equals}{token}: expected bos=TOKEN, eos=, pad= or unk=TOKEN")
        return {role: token for role, _, token in pairs}
