"""Options and arguments that several commands share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fastio.cli.screen import SIZE, WholeNumber
from fastio.cli.source_options import UNPACKED_NAMES, unpacked_options

if TYPE_CHECKING:
    from fastio.measure.loop.data import DataOptions
    from fastio.measure.trainer.step import Amp, StepOptions, Workload
    from fastio.store.beside.joined import Beside
    from fastio.store.files.remote_options import Remote
    from fastio.store.kinds.unpacked import Unpacked

__all__ = [
    "BESIDE_NAMES",
    "DATA_NAMES",
    "DATA_SECTIONS",
    "MODEL_NAMES",
    "MODEL_OPTION_NAMES",
    "REMOTE_NAMES",
    "beside_options",
    "command_argument",
    "data_options",
    "for_model",
    "hidden_secrets",
    "max_pixels_option",
    "model_options",
    "refuse_model_options",
    "remote_options",
    "split_fields",
]


# The argument COMMAND: the command line of a training, after a command's own options or among them.


def command_argument(*, required: bool = False) -> Callable[[Any], Any]:
    """
    Return the argument COMMAND: a script, ``-m module`` or function with its arguments, including its options.

    The click.command needs ``ignore_unknown_options``. An unknown option before COMMAND's first word is an error.
    """
    return click.argument("command", nargs=-1, required=required, type=click.UNPROCESSED, callback=_checked)


def _checked(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    del parameter
    if words and words[0].startswith("-") and words[0] != "-m":
        from difflib import get_close_matches

        name = words[0].partition("=")[0]
        options = [option for known in ctx.command.params for option in known.opts if option.startswith("--")]
        raise click.NoSuchOption(name, possibilities=get_close_matches(name, options, n=1), ctx=ctx)
    return words


# The option --max-pixels of commands that decode pictures.


def max_pixels_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--max-pixels N`` to a command; it sets Pillow's limit for this process, which fastio follows."""
    return click.option(
        "--max-pixels",
        type=WholeNumber(min=0),
        metavar="N",
        callback=_set,
        expose_value=False,
        help="Refuse pictures of more than N pixels; 0: no limit.  [default: 178956970, as Pillow does]",
    )(command)


def _set(ctx: click.Context, parameter: click.Parameter, most: int | None) -> None:
    del ctx, parameter
    if most is None:
        return
    from PIL import Image

    # Pillow refuses from twice this number on: N is rounded up to an even number.
    Image.MAX_IMAGE_PIXELS = -(-most // 2) or None
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the user has chosen the limit


# The options of all commands that open a store which may lie behind a URL, gathered into one argument.

REMOTE_NAMES = ("storage_option", "cache_dir", "cache_limit", "download_retry", "download_timeout")

_OPTION = "--storage-option"
_REMOTE_OPTIONS = (
    click.option(
        _OPTION,
        "storage_option",
        multiple=True,
        metavar="KEY=VALUE",
        help="For a URL: an option of its client, such as endpoint=http://127.0.0.1:9000; may be repeated.",
    ),
    click.option("--cache-dir", metavar="DIR", help="For a URL: keep what is read in this folder."),
    click.option("--cache-limit", type=SIZE, metavar="SIZE", help="How much DIR may hold: 200GB."),
    click.option(
        "--download-retry", type=WholeNumber(min=0), metavar="N", help="Attempts after the first.  [default: 5]"
    ),
    click.option(
        "--download-timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="How long one request may take.  [default: 60]",
    ),
)


def remote_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets them as one argument ``remote``."""

    @wraps(command)
    def with_options(
        *args: Any,
        storage_option: Sequence[str],
        cache_dir: str | None,
        cache_limit: int | None,
        download_retry: int | None,
        download_timeout: float | None,
        **rest: Any,
    ) -> None:
        given = {"download_retry": download_retry, "download_timeout": download_timeout}
        others = {name: value for name, value in given.items() if value is not None}
        if cache_limit is not None and cache_dir is None:
            raise click.UsageError("--cache-limit says how much --cache-dir may hold: add it")
        command(*args, remote=_gathered(storage_option, cache_dir, cache_limit, others), **rest)

    with_all: Callable[..., None] = with_options
    for option in reversed(_REMOTE_OPTIONS):
        with_all = option(with_all)
    return with_all


def hidden_secrets(arguments: Sequence[str]) -> list[str]:
    """
    Return a command line without what must not stand in a report.

    >>> hidden_secrets(["ls", "--storage-option", "secret_access_key=x", "--storage-option=region=eu"])
    ['ls', '--storage-option', 'secret_access_key=***', '--storage-option=region=eu']
    """
    from fastio.store.files.remote_options import SECRET

    shown: list[str] = []
    for number, argument in enumerate(arguments):
        option, sign, own = argument.partition("=")
        is_joined = option == _OPTION and bool(sign)
        text = own if is_joined else argument
        if is_joined or (number and arguments[number - 1] == _OPTION):
            key, sign, _ = text.partition("=")
            text = f"{key}=***" if sign and SECRET.search(key) else text
        shown.append(f"{_OPTION}={text}" if is_joined else text)
    return shown


def _gathered(storage: Sequence[str], cache_dir: str | None, cache_limit: int | None, others: dict[str, Any]) -> Remote:
    from fastio.store.files.remote_options import Remote

    pairs = [option.partition("=") for option in storage]
    bad = next((key for key, sign, _ in pairs if not key or not sign), None)
    if bad is not None:
        raise click.UsageError(f"{_OPTION} {bad!r}: expected KEY=VALUE, e.g. endpoint=http://127.0.0.1:9000")
    try:
        return Remote({key: value for key, _, value in pairs}, cache_dir=cache_dir, cache_limit=cache_limit, **others)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc


# The options of commands that open a store with others beside it, gathered into one argument.

BESIDE_NAMES = ("beside", "on", "stems", "allow", "rename")

_BESIDE_OPTIONS = (
    click.option(
        "--beside",
        multiple=True,
        metavar="OTHER",
        help="A store or typed table with more fields of the same samples, found by their keys; may be repeated.",
    ),
    click.option("--stems", is_flag=True, help="With --beside: compare keys without extensions: 1.jpg is 1.txt."),
    click.option("--on", metavar="COLUMN", help="The column of a table OTHER that has the keys.  [default: key]"),
    click.option(
        "--allow",
        metavar="WHAT,...",
        help="With --beside: do not refuse keys that are missing, extra (both left out) or double (the first counts).",
    ),
    click.option(
        "--rename",
        multiple=True,
        metavar="NAME=NEW",
        help="With --beside: another name for a field of OTHER (or OTHER:NAME); NAME= leaves it out; may be repeated.",
    ),
)


def beside_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets them as one argument ``beside``."""

    @wraps(command)
    def with_options(
        *args: Any,
        beside: Sequence[str],
        on: str | None,
        stems: bool,
        allow: str | None,
        rename: Sequence[str],
        **rest: Any,
    ) -> None:
        command(*args, beside=_beside(beside, on, allow, rename, stems=stems), **rest)

    with_all: Callable[..., None] = with_options
    for option in reversed(_BESIDE_OPTIONS):
        with_all = option(with_all)
    return with_all


def _beside(others: Sequence[str], on: str | None, allow: str | None, rename: Sequence[str], *, stems: bool) -> Beside:
    from fastio.store.beside.joined import ODD_KEYS, Beside

    asked = {"--on": on, "--stems": stems, "--allow": allow, "--rename": rename}
    given = [name for name, value in asked.items() if value]
    if not others and given:
        raise click.UsageError(f"{given[0]} is for --beside: add it")
    allowed = [name for name in ODD_KEYS if name in (split_fields(allow) or ())]
    unknown = next((name for name in split_fields(allow) or () if name not in ODD_KEYS), None)
    if unknown is not None:
        raise click.UsageError(f"--allow {unknown!r}: expected some of {', '.join(ODD_KEYS)}")
    pairs = [option.partition("=") for option in rename]
    bad = next((name for name, sign, _ in pairs if not name or not sign), None)
    if bad is not None:
        raise click.UsageError(f"--rename {bad!r}: expected NAME=NEW, or NAME= to leave it out")
    return Beside(
        tuple(others), tuple(allowed), tuple((name, new or None) for name, _, new in pairs), on or "key", stems
    )


# The options that all commands share which open DATA as a loader.

_Option = Callable[[Callable[..., None]], Callable[..., None]]
DATA_NAMES = ("batch_size", "threads", "workers", "in_place", "shuffle", "crop", "augment", "fields", "window", "dtype")
DATA_SECTIONS = {
    "Loading": DATA_NAMES,
    "Stores beside DATA": BESIDE_NAMES,
    "DATA that is not packed, read in place": UNPACKED_NAMES,
}

_DATA_OPTIONS = (
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        metavar="N",
        help="Native threads that read a store.  [default: all available CPUs]",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=0),
        metavar="N",
        help="Worker processes that read a folder.  [default: all available CPUs]",
    ),
    click.option(
        "--in-place", is_flag=True, help="Read folders by native threads, too, as FastLoader does, and not by Pillow."
    ),
    click.option("--shuffle", is_flag=True, help="Shuffle, as in training."),
    click.option(
        "--crop", type=click.IntRange(min=1), metavar="N", help="Resize each picture and crop its centre to N pixels."
    ),
    click.option("--augment", is_flag=True, help="Flip pictures at random; with --crop, crop at random too."),
    click.option("--fields", metavar="NAME,...", help="Read only these fields of a store.  [default: all]"),
    click.option(
        "--window",
        type=click.IntRange(min=1),
        metavar="N",
        help="Read a stream of token ids in windows of N; with --shuffle, at random places.  [default: 1025 of files "
        "of ids]",
    ),
    click.option("--dtype", metavar="TYPE", help="That of the ids of a .bin: uint16, uint32, ..."),
)


def data_options(batch_default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """
    Add these options to a command, which gets them as one argument ``options``.

    ``batch_default`` is the text that the help shows as the default batch size.
    """
    batch_size = click.option(
        "--batch-size",
        type=click.IntRange(min=1),
        metavar="N",
        default=256,
        help=f"Samples per batch.  [default: {batch_default}]",
    )
    return lambda command: _with_options(command, (batch_size, *_DATA_OPTIONS))


def _with_options(command: Callable[..., None], options: Sequence[_Option]) -> Callable[..., None]:
    @unpacked_options("DATA")
    @remote_options
    @beside_options
    @wraps(command)
    def with_options(  # noqa: PLR0913 - an option each
        *args: Any,
        batch_size: int,
        threads: int | None,
        workers: int | None,
        in_place: bool,
        shuffle: bool,
        crop: int | None,
        augment: bool,
        fields: str | None,
        unpacked: Unpacked,
        window: int | None,
        dtype: str | None,
        remote: Remote,
        beside: Beside,
        **rest: Any,
    ) -> None:
        names = split_fields(fields)
        made: dict[str, Any] = {"shuffle": shuffle, "crop": crop, "augment": augment, "fields": names, "remote": remote}
        made |= {"unpacked": unpacked, "beside": beside}
        made |= {"window": window, "dtype": dtype}
        options = _packed(batch_size, threads, workers, in_place=in_place, **made)
        command(*args, options=options, **rest)

    given: Callable[..., None] = with_options
    for option in reversed(options):
        given = option(given)
    return given


def split_fields(text: str | None) -> tuple[str, ...] | None:
    """
    Return the names in what was given as --fields.

    >>> split_fields("image, mask"), split_fields(None)
    (('image', 'mask'), None)
    """
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _packed(batch_size: int, threads: int | None, workers: int | None, **others: Any) -> DataOptions:
    from fastio.measure.loop.data import DataOptions

    return DataOptions(batch_size=batch_size, threads=threads, workers=workers, **others)


# The options of commands that train one of fastio's networks.

MODEL_NAMES = ("cifar10cnn", "resnet50", "transformer")
MODEL_OPTION_NAMES = ("amp", "tf32", "channels_last", "compiled", "device")

_MODEL_OPTIONS = (
    click.option(
        "--amp",
        type=click.Choice(("off", "fp16", "bf16")),
        default="off",
        show_default=True,
        help="Mixed precision; fp16 with a GradScaler.",
    ),
    click.option(
        "--tf32", is_flag=True, help="Multiply float32 as TF32: faster on a GPU, but only 10 bits of mantissa."
    ),
    click.option("--channels-last", is_flag=True, help="Keep weights and pictures in channels_last memory format."),
    click.option(
        "--compile", "compiled", is_flag=True, help="Compile the network with torch.compile; drops a short last batch."
    ),
    click.option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.  [default: cuda if there is one]"),
)


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """
    Add these options to a command, which gets a function that builds StepOptions as its argument ``step_options``.
    """

    @wraps(command)
    def with_options(
        *args: Any, amp: Amp, tf32: bool, channels_last: bool, compiled: bool, device: str | None, **rest: Any
    ) -> None:
        def step_options() -> StepOptions:
            from fastio.measure.trainer.distributed import local_device
            from fastio.measure.trainer.step import StepOptions

            return StepOptions(
                device=local_device(device), amp=amp, tf32=tf32, channels_last=channels_last, compiled=compiled
            )

        command(*args, step_options=step_options, **rest)

    for option in reversed(_MODEL_OPTIONS):
        with_options = option(with_options)
    return with_options


def refuse_model_options() -> None:
    """Raise UsageError if one of these options is given but no model is trained."""
    context = click.get_current_context()
    for name in MODEL_OPTION_NAMES:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = "compile" if name == "compiled" else name.replace("_", "-")
            raise click.UsageError(f"--{option} has no effect without --model")


def for_model(workload: Workload, data: str, options: DataOptions) -> DataOptions:
    """Return the options with the model's own batch size, unless one was given or the loader is the user's."""
    from dataclasses import replace

    from fastio.measure.loop.data import is_function

    asked = click.get_current_context().get_parameter_source("batch_size")
    if is_function(data) or asked is not ParameterSource.DEFAULT:
        return options
    return replace(options, batch_size=workload.batch_size)
