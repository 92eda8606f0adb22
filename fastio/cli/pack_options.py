"""Options of `fastio pack` alone: pictures, text and parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import click

from fastio.cli.screen import SIZE, WholeNumber
from fastio.cli.source_options import OF_TEXT, SOURCE_OPTIONS, Option, SourceArguments, option_of, taken
from fastio.types.units import counted, number, size

if TYPE_CHECKING:
    from fastio.converters import PackReport, Part, Raw, Source, Transcode
    from fastio.converters.sources.pictured_chats import PicturedChats
    from fastio.converters.text import Encoder, HuggingFaceTokenizer, Sequences, TextOptions, TextSamples, TextSource
    from fastio.converters.text.chat_template import ChatTemplate
    from fastio.converters.text.encode import TextTokens
    from fastio.store.files.remote_options import Remote
    from fastio.store.kinds.recognise import Recognised

__all__ = [
    "PictureArguments",
    "TextArguments",
    "part_line",
    "part_option",
    "picture_options",
    "text_options",
]


_LONGEST_SIDE = 65_500
_SIDE = WholeNumber(1, _LONGEST_SIDE)


def _size(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Parse the height and width of a picture."""
    del context, option
    if value is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,4})[xX]([1-9][0-9]{0,4})", value)
    if match is None or not max(int(match[1]), int(match[2])) <= _LONGEST_SIDE:
        raise click.BadParameter(f"{value!r}: expected height and width in pixels, as in 224x224")
    return int(match[1]), int(match[2])


_OPTIONS: tuple[Option, ...] = (
    *SOURCE_OPTIONS,
    click.option(
        "--restart",
        type=WholeNumber(0, 65_535),
        metavar="K",
        help="Write JPEGs with a restart marker every K MCUs (8 works well): same pixels, but crops decode "
        "faster. Resized pictures have one every 8 MCUs by default; 0 turns that off.",
    ),
    click.option("--short-side", type=_SIDE, metavar="N", help="Shrink larger pictures to this short side, as JPEG."),
    click.option("--max-side", type=_SIDE, metavar="N", help="Shrink larger pictures to this long side, as JPEG."),
    click.option(
        "--resize",
        callback=_size,
        metavar="HxW",
        help="Resize all pictures to this height and width: JPEGs stay JPEGs, others become PNG; with --raw, "
        "RGB pixels.",
    ),
    click.option(
        "--quality", type=WholeNumber(1, 100), metavar="Q", help="JPEG quality of resized pictures.  [default: 90]"
    ),
    click.option(
        "--subsampling",
        type=click.Choice(("4:2:0", "4:2:2", "4:4:4")),
        help="Colour subsampling of resized JPEGs.  [default: 4:2:0]",
    ),
    click.option(
        "--raw",
        is_flag=True,
        help="Store decoded pixels instead of files, for small pictures of one size (see --resize).",
    ),
    click.option(
        "--jump/--no-jump",
        default=None,
        help="Note in the index (about 1% more bytes) where to start within each JPEG of 8 KiB and more: files stay "
        "as they are, crops decode faster, damaged files are found.  [default: jump; for --resume and --part, as "
        "the shards that are there]",
    ),
    click.option(
        "--shuffle",
        type=WholeNumber(0),
        metavar="SEED",
        help="Store the samples in a random order, drawn from their names and SEED.",
    ),
)


@dataclass(frozen=True, slots=True)
class PictureArguments:
    """The options about pictures as given on the command line, under the options' names."""

    of_source: SourceArguments
    restart: int | None
    short_side: int | None
    max_side: int | None
    resize: tuple[int, int] | None
    quality: int | None
    subsampling: Literal["4:2:0", "4:2:2", "4:4:4"] | None
    raw: bool
    jump: bool | None
    shuffle: int | None

    def check(self) -> None:
        """Raise UsageError for options that exclude each other."""
        sizes = {"--short-side": self.short_side, "--max-side": self.max_side, "--resize": self.resize}
        sides = [name for name, value in sizes.items() if value]
        if len(sides) > 1:
            raise click.UsageError(f"{' and '.join(sides)} set different sizes: give one of them")
        if self.restart == 0 and not sides:
            raise click.UsageError("--restart 0 is for resized pictures: add --short-side, --max-side or --resize")
        if self.raw and (self.short_side or self.max_side or self.restart is not None):
            raise click.UsageError("--raw keeps pixels, the other options make JPEGs: give one of them")
        for name, value in (("--quality", self.quality), ("--subsampling", self.subsampling)):
            if value is not None and (not sides or self.raw):
                raise click.UsageError(f"{name} is for resized JPEGs: add --short-side, --max-side or --resize")

    def chosen(self) -> Transcode | Raw | None:
        """Return how to change the pictures, or None to keep them unchanged."""
        from fastio.converters import Raw, Transcode

        if self.raw:
            return Raw(self.resize)
        if not (self.restart or self.short_side or self.max_side or self.resize):
            return None
        return Transcode(
            restart=self.restart or 0,
            resized_restart=8 if self.restart is None else self.restart,
            short_side=self.short_side,
            max_side=self.max_side,
            resize=self.resize,
            quality=self.quality or 90,
            subsampling=self.subsampling or "4:2:0",
        )

    @property
    def given(self) -> list[str]:
        """The options given, also of the source, but for those that text has, too."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "of_source"}
        own = (name for name in SourceArguments.__slots__ if name not in OF_TEXT)
        values |= {name: getattr(self.of_source, name) for name in own}
        given = (name for name, value in values.items() if value is not None and value is not False and value != ())
        return [*map(option_of, given)]

    def source(
        self,
        src: Recognised,
        tokens: TextTokens | None = None,
        remote: Remote | None = None,
        vocab_size: int | None = None,
        chat: str | None = None,
    ) -> Source:
        """
        Open SRC, in the order in which to store it; ``tokens`` makes token ids of text in its fields, ``vocab_size`` is
        for files of them, ``chat`` is the column of chats in a table.
        """
        if src.kind.takes_ids and self.shuffle is not None:
            raise click.UsageError(f"--shuffle {self.shuffle}: a stream of tokens has an order: drop it")
        if tokens is None:
            source = self.of_source.open(src, remote=remote, vocab_size=vocab_size, chat=chat)
        else:
            from fastio.converters.fields.types import parse_choice
            from fastio.converters.sources.derived import TokenizedSource, as_text

            choices, of_tokens = as_text([parse_choice(words) for words in self.of_source.fields])
            source = TokenizedSource(self.of_source.open(src, choices, remote), of_tokens, tokens)
        return source if self.shuffle is None else source.shuffled(self.shuffle)


def picture_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets them as one argument ``pictures``."""

    @wraps(command)
    def with_options(*args: Any, **options: Any) -> None:
        options["of_source"] = taken(options)
        pictures = PictureArguments(**{name: options.pop(name) for name in PictureArguments.__slots__})
        pictures.check()
        command(*args, pictures=pictures, **options)

    given: Callable[..., None] = with_options
    for option in reversed(_OPTIONS):
        given = option(given)
    return given


# The options of ``fastio pack`` for text, gathered into one argument.

_TEXT_OPTIONS = (
    click.option(
        "--document",
        type=click.Choice(("line", "paragraph")),
        help="What a document of a single .txt file is.  [default: line]",
    ),
    click.option(
        "--text-column",
        metavar="NAME",
        help="Pack SRC as text alone: the column with the text, or with token ids.  [default: text]",
    ),
    click.option(
        "--chat",
        metavar="NAME",
        help="Pack chats as token ids, and which of them count in the loss: the column of lists of turns, or prompt "
        "(with completion), or instruction (with output). Pictures of the table are packed beside them. Preferences: "
        "prompt (with chosen and rejected, or completion and label), or chosen (with rejected).",
    ),
    click.option(
        "--chat-template",
        metavar="FILE|none",
        help="The Jinja template that writes chats; none joins prompts and answers that are text, and ends them with "
        "eos.  [default: chat_template.jinja or tokenizer_config.json beside the tokenizer]",
    ),
    click.option(
        "--loss",
        type=click.Choice(("assistant", "last", "all", "completion")),
        help="What of a chat counts in the loss: the assistant's turns, the last of them, all, or what follows the "
        "prompt.  [default: assistant; with prompt or instruction completion]",
    ),
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
        help="Which token is bos, eos, pad or unk, or, in chats, image: a picture's; if its name does not tell.",
    ),
    click.option(
        "--vocab-size",
        type=WholeNumber(min=1),
        metavar="N",
        help="Token ids in the column or file are below N; of a column, they take 4 bytes if that is unknown.",
    ),
    click.option(
        "--max-length", type=WholeNumber(min=1), metavar="N", help="Most tokens per sample, including bos and eos."
    ),
    click.option(
        "--too-long",
        type=click.Choice(("refuse", "truncate", "split")),
        help="What becomes of a document that exceeds --max-length: a bad sample, cut and counted, or several samples: "
        "key#0, key#1, ...  [default: refuse]",
    ),
    click.option(
        "--overlap",
        type=WholeNumber(min=1),
        metavar="N",
        help="With --too-long split: each sample of a document begins with the last N tokens of the one before.",
    ),
    click.option(
        "--concat",
        is_flag=True,
        help="Write a stream of token ids for TokenStream: documents of any length, one after the other; where each "
        "begins is kept. Needs --eos or --bos.",
    ),
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

    document: Literal["line", "paragraph"] | None
    text_column: str | None
    chat: str | None
    chat_template: str | None
    loss: Literal["assistant", "last", "all", "completion"] | None
    tokenizer: str | None
    bos: bool
    eos: bool
    special: tuple[str, ...]
    vocab_size: int | None
    max_length: int | None
    too_long: Literal["refuse", "truncate", "split"] | None
    overlap: int | None
    concat: bool
    per_sample: bool
    max_document: int | None

    @property
    def given(self) -> list[str]:
        """The options that were given, as the user writes them."""
        return [f"--{name.replace('_', '-')}" for name in self.__slots__ if getattr(self, name)]

    @property
    def is_of_ids(self) -> bool:
        """Whether no option was given that files of token ids do not take."""
        return {"--vocab-size"}.issuperset(self.given)

    def options(self, of_source: SourceArguments) -> TextOptions:
        """Return how to find the text and its labels in its source."""
        from fastio.converters.sources.streams import MAX_DOCUMENT_BYTES
        from fastio.converters.text import TextOptions

        return TextOptions(
            split=self.document,
            text_field=self.text_column,
            label_field=of_source.label_of_text,
            max_document_bytes=self.max_document or MAX_DOCUMENT_BYTES,
            without=of_source.ignore_columns,
            chat=self.chat,
        )

    def encoder(self, source: TextSource) -> Encoder:
        """Return what turns the source's documents into samples."""
        from fastio.converters.text import Encoder, Sequences, load_tokenizer

        needing = ("--bos", "--eos", "--special", *(() if source.is_ids else ("--max-length",)))
        without = [name for name in needing if name in self.given]
        if self.tokenizer is None and without:
            raise click.UsageError(f"{without[0]} needs a tokenizer: add --tokenizer bytes or --tokenizer FILE")
        if self.vocab_size is not None and (self.tokenizer is not None or not source.is_ids):
            raise click.UsageError("--vocab-size is for columns of token ids, without --tokenizer")
        if self.per_sample and self.tokenizer is None and not source.is_ids:
            raise click.UsageError("--per-sample is for token ids, text always is: add --tokenizer bytes or FILE")
        if self.concat:
            self._check_concat(source)
        tokenizer = None if self.tokenizer is None else load_tokenizer(self.tokenizer, self._named())
        over = "concat" if self.concat else self.too_long or "refuse"
        sequences = Sequences(self.bos, self.eos, self.max_length, over, self.overlap or 0)
        return Encoder(
            tokenizer,
            sequences,
            is_ids=source.is_ids,
            has_labels=source.has_labels,
            vocab_size=self.vocab_size,
            is_per_sample=self.per_sample,
        )

    def _check_concat(self, source: TextSource) -> None:
        """Raise UsageError for what makes no stream."""
        if self.tokenizer is None and not source.is_ids:
            raise click.UsageError("--concat is for token ids: add --tokenizer bytes or --tokenizer FILE")
        other = next(
            (name for name in ("--max-length", "--too-long", "--overlap", "--per-sample") if name in self.given), None
        )
        if other is not None:
            raise click.UsageError(f"--concat keeps documents of any length in one stream: drop {other}")
        if self.tokenizer is not None and not (self.eos or self.bos):
            raise click.UsageError(
                "--concat joins documents, between which a model sees no border: add --eos (or --bos)"
            )

    def samples(self, src: Recognised, kind: str, of_source: SourceArguments) -> TextSamples:
        """Open SRC as text, with what makes samples of its documents."""
        from fastio.converters.text import TextSamples, open_text

        if self.chat is not None:
            return self._chats(src, kind, of_source)
        alone = next((name for name in ("--chat-template", "--loss") if name in self.given), None)
        if alone is not None:
            raise click.UsageError(f"{alone} is for chats: add --chat COLUMN, such as --chat messages")
        source = open_text(src, kind=kind, options=self.options(of_source))
        return TextSamples(source, self.encoder(source))

    def _chats(self, src: Recognised, kind: str, of_source: SourceArguments) -> TextSamples:
        """Open SRC as chats, with what makes samples of them."""
        from fastio.converters.sources.text_chats import ChatTable
        from fastio.converters.text import TextSamples, open_text
        from fastio.converters.text.preference import encoder_of

        tokenizer, template = self._templated(src)
        source = open_text(src, kind=kind, options=self.options(of_source))
        assert isinstance(source, ChatTable)
        form, sequences = source.chat.form, self._of_chats
        encoder = encoder_of(form, tokenizer, template, self.loss, sequences, is_per_sample=self.per_sample)
        return TextSamples(source, encoder)

    def pictured(self, src: Recognised, pictures: PictureArguments) -> PicturedChats | None:
        """
        Open SRC as a table of chats and pictures, with what makes token ids of the chats; None if it has no column of
        pictures, or none is left.
        """
        from fastio.converters.sources.pictured_chats import PicturedChats
        from fastio.converters.text.chat import ChatEncoder, default_loss
        from fastio.converters.text.image_token import ImageToken

        other = next((name for name in ("--document", "--text-column", "--max-document") if name in self.given), None)
        if other is not None:
            raise click.UsageError(f"{other} has no effect, because the columns of a chat are packed together: drop it")
        tokenizer, template = self._templated(src)
        source = pictures.source(src, chat=self.chat)
        if not any(field.element.traits.is_picture for field in source.schema.payload):
            return None
        assert self.tokenizer is not None
        image = ImageToken.of(tokenizer, template, self.tokenizer, self._named("image").get("image"))
        loss = self.loss or default_loss(source.metadata["source"]["form"])
        return PicturedChats(source, ChatEncoder(tokenizer, template, loss, self._of_chats, self.per_sample, image))

    @property
    def _of_chats(self) -> Sequences:
        """What the options say of the length of chats."""
        from fastio.converters.text import Sequences

        return Sequences(self.bos, self.eos, self.max_length, self.too_long or "refuse", self.overlap or 0)

    def _templated(self, src: Recognised) -> tuple[HuggingFaceTokenizer, ChatTemplate]:
        """Return the tokenizer and the template of chats. Raises UsageError for options that these do not take."""
        from fastio.converters.text import HuggingFaceTokenizer
        from fastio.converters.text.chat_template import ChatTemplate

        if src.copy is not None:
            raise click.UsageError(f"{src.copy.url}: --chat is for tables of this machine: copy the table first")
        if self.tokenizer is None or self.tokenizer == "bytes":
            raise click.UsageError("--chat needs the tokenizer of a model: add --tokenizer FILE, its tokenizer.json")
        if self.vocab_size is not None:
            raise click.UsageError("--vocab-size is for columns of token ids, without --tokenizer")
        if self.concat:
            raise click.UsageError("--concat makes a stream of documents, chats are samples: drop --concat or --chat")
        named = {role: token for role, token in self._named("image").items() if role != "image"}
        tokenizer = HuggingFaceTokenizer.load(self.tokenizer, named)
        return tokenizer, ChatTemplate.load(tokenizer, self.tokenizer, self.chat_template, named=named)

    def tokens(self) -> TextTokens:
        """Return what makes token ids of the text in fields, ``--field caption=caption:tokens``."""
        from fastio.converters.text import Sequences, load_tokenizer
        from fastio.converters.text.encode import TextTokens
        from fastio.machine import available_cpus

        needed = ("--tokenizer", "--bos", "--eos", "--special", "--max-length", "--too-long")
        other = next((name for name in self.given if name not in needed), None)
        if other is not None:
            raise click.UsageError(f"{other} is for samples of text alone, not for a --field of text")
        if self.tokenizer is None:
            raise click.UsageError(f"{self.given[0]} needs a tokenizer: add --tokenizer bytes or --tokenizer FILE")
        if self.too_long == "split":
            raise click.UsageError("--too-long split is for samples of text alone, not for a --field of text")
        over: Literal["refuse", "truncate"] = "truncate" if self.too_long == "truncate" else "refuse"
        sequences = Sequences(bos=self.bos, eos=self.eos, max_length=self.max_length, over=over)
        return TextTokens(load_tokenizer(self.tokenizer, self._named()), sequences, jobs=available_cpus())

    def _named(self, *further: str) -> dict[str, str]:
        """Return special tokens by role, of which some take ``further`` ones."""
        pairs, roles = [pair.partition("=") for pair in self.special], ("bos", "eos", "pad", "unk", *further)
        for role, equals, token in pairs:
            if role not in roles or not (equals and token):
                others = f"{'=, '.join(roles[1:-1])}= or {roles[-1]}=TOKEN"
                raise click.UsageError(f"--special {role}{equals}{token}: expected {roles[0]}=TOKEN, {others}")
        return {role: token for role, _, token in pairs}


def text_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets them as one argument ``text``."""

    @wraps(command)
    def with_options(*args: Any, **options: Any) -> None:
        text = TextArguments(**{name: options.pop(name) for name in TextArguments.__slots__})
        command(*args, text=text, **options)

    for option in reversed(_TEXT_OPTIONS):
        with_options = option(with_options)
    return with_options


# The option ``--part``: which part of a set one process packs.


def _part(context: click.Context, option: click.Parameter, value: str | None) -> Part | None:
    """Parse ``i/n``, or find the part that ``auto`` stands for."""
    if value is None:
        return None
    from fastio.converters import Part

    try:
        return Part.parse(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc), context, option) from exc


part_option = click.option(
    "--part",
    callback=_part,
    metavar="I/N",
    help="Pack part I of N, counted from 0, of the shards; auto: as SLURM, torchrun or Kubernetes say.",
)


def part_line(report: PackReport, part: Part) -> str:
    """Return one line that says what a part did, and whether the set is complete."""
    kept = f", {number(report.kept_shards)} of them whole already" if report.kept_shards else ""
    line = (
        f"part {part}: {counted(report.shards, 'shard')} with {counted(report.samples, 'sample')}{kept}, "
        f"{size(report.store_bytes)}, in {report.seconds:.2f} s"
    )
    if not report.missing:
        return f"{line}; all shards are there: the set is complete"
    missing = counted(len(report.missing), "shard")
    return f"{line}; {missing} missing: the last part makes the set, or: fastio seal '{report.path}'"
