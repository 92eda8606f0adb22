"""``fastio compute`` and ``add-field``: new fields of a store, from a function of the user's or from another store."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from fastio.cli.group import Sections
from fastio.cli.options import (
    BESIDE_NAMES,
    REMOTE_NAMES,
    beside_options,
    max_pixels_option,
    remote_options,
    split_fields,
)
from fastio.cli.pack_options import part_line, part_option
from fastio.cli.screen import SIZE, WholeNumber, meter, printable, problem_table
from fastio.types.units import counted, number, per_second, size

if TYPE_CHECKING:
    from fastio.converters import PackReport, Part
    from fastio.store.beside.joined import Beside
    from fastio.store.files.remote_options import Remote

__all__ = ["add_field", "compute"]

_SECTIONS = {
    "Batches": ("read", "batch_size", "crop", "threads", "max_pixels"),
    "Sets of shards": ("shard_size", "resume", "part"),
    "Stores beside STORE": BESIDE_NAMES,
    "STORE or OUT behind a URL": REMOTE_NAMES,
}
_ADDING = {
    "Keys": ("on", "stems", "allow"),
    "Sets of shards": ("shard_size", "append", "resume", "part"),
    "OTHER behind a URL": REMOTE_NAMES,
}


@click.command(cls=Sections, sections=_SECTIONS)
@click.argument("store")
@click.argument("out")
@click.argument("function")
@click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="NAME=TYPE",
    help="Write this field of what FUNCTION returns, as this type: embedding=float16[512]; may be repeated.  "
    "[default: all, by their values]",
)
@click.option("--read", metavar="NAME,...", help="Read only these fields of STORE.  [default: all]")
@click.option(
    "--batch-size", type=WholeNumber(min=1), metavar="N", default=64, show_default=True, help="Samples per batch."
)
@click.option(
    "--crop", type=WholeNumber(min=1), metavar="N", help="Resize each picture and crop its centre to N pixels."
)
@click.option("--threads", type=WholeNumber(min=1), metavar="N", help="Threads that decode.  [default: all CPUs]")
@click.option(
    "--on-error",
    type=click.Choice(("raise", "skip")),
    default="raise",
    show_default=True,
    help="Stop at the first bad sample, or leave it out and list it.",
)
@click.option("--allow-nan", is_flag=True, help="Write NaN and infinity, too.  [default: their samples are bad]")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@click.option(
    "--shard-size", type=SIZE, metavar="SIZE", help="Bytes per shard, for an OUT like out-%06d.tar.  [default: 1GiB]"
)
@click.option("--resume", is_flag=True, help="Compute only the shards that are missing or damaged.")
@part_option
@max_pixels_option
@beside_options
@remote_options
def compute(  # noqa: PLR0913 - an option each
    store: str,
    out: str,
    function: str,
    *,
    fields: Sequence[str],
    read: str | None,
    batch_size: int,
    crop: int | None,
    threads: int | None,
    on_error: Literal["raise", "skip"],
    allow_nan: bool,
    overwrite: bool,
    shard_size: int | None,
    resume: bool,
    part: Part | None,
    beside: Beside,
    remote: Remote,
) -> None:
    """
    Write what a function of yours makes of STORE as the store OUT.

    OUT has the keys of STORE. FUNCTION is MODULE:NAME or script.py:NAME: it takes a batch as FastLoader makes it, and
    returns a dict of values by field, one for each sample. A class is made once, and its object is called. Attributes
    ``transforms`` and ``read`` say how batches are made; ``version`` tells --resume of other weights. --beside OUT and
    fastio.beside(STORE, OUT) then read both.

    \b
    Example:
      fastio compute photos.lmdb embeddings.h5 embed.py:embed --read image --crop 224
      fastio compute photos.lmdb 'latents-%06d.tar' encode.py:Encoder --field latent=float16[4,32,32] --resume
      fastio compute photos.lmdb 'latents-%06d.tar' encode.py:Encoder --part auto    # in each task of an array
    """
    from fastio.computing.computed import compute as run
    from fastio.converters.packing.packer import check_one_file
    from fastio.store import check_target

    types = dict(_field(text) for text in fields)
    check_one_file(out, resume=resume, append=False, part=part)
    check_target(out, overwrite=overwrite or resume or part is not None, shard_bytes=shard_size)
    called = _function(function)
    with beside.open(store, remote=remote) as opened, meter("computing", len(opened)) as progress:
        report = run(
            opened,
            out,
            called,
            fields=types or None,
            read=_names(read),
            transforms=_transforms(crop),
            batch_size=batch_size,
            threads=threads or 0,
            allow_nan=allow_nan,
            on_error=on_error,
            shard_bytes=shard_size,
            overwrite=overwrite,
            resume=resume,
            part=part,
            progress=progress,
            remote=remote,
        )
    if report.skipped:
        problem_table([(problem.key, problem.problem) for problem in report.skipped])
    click.echo(_line(report) if part is None else part_line(report, part))
    if not report.missing:
        click.echo(f"read both: fastio.beside({printable(store)!r}, {printable(out)!r})")


def _function(name: str) -> Callable[[Any], Any]:
    """Return the function of this name, or an object of the class."""
    from fastio.errors import FastioError
    from fastio.measure.loop.user_code import is_function_name, load_function

    what = "takes a batch and returns a dict of values"
    if not is_function_name(name):
        raise FastioError(f"{name}: expected MODULE:FUNCTION or script.py:FUNCTION that {what}")
    found = load_function(name, what=what, arguments=None)
    if inspect.isclass(found):
        load_function(name, what=what, arguments=0)
        made = found()
        if not callable(made):
            raise FastioError(f"{name}: its objects cannot be called: expected a method __call__ that {what}")
        called: Callable[[Any], Any] = made
        return called
    return load_function(name, what=what, arguments=1)


def _field(text: str) -> tuple[str, str]:
    name, _, words = text.partition("=")
    if not name or not words:
        raise click.UsageError(f"--field {text!r}: expected NAME=TYPE, such as embedding=float32[512]")
    return name, words


def _names(read: str | None) -> str | tuple[str, ...] | None:
    names = split_fields(read)
    return names[0] if names is not None and len(names) == 1 else names


def _transforms(crop: int | None) -> list[Any] | None:
    if crop is None:
        return None
    from fastio.transforms import CenterCrop, Resize

    return [Resize(crop), CenterCrop(crop)]


def _line(report: PackReport) -> str:
    new = report.packed - report.kept_samples
    before = f"; {number(report.kept_samples)} were there" if report.kept_samples else ""
    skipped = f", left out {counted(len(report.skipped), 'sample')} (listed above)" if report.skipped else ""
    return (
        f"{printable(report.path)}: computed {counted(new, 'sample')} in {report.seconds:.2f} s "
        f"({per_second(new / max(report.seconds, 1e-9))} samples/s){before}{skipped}; {size(report.store_bytes)}"
    )


# ``fastio add-field``: fields of another store or table become those of a store that exists.


@click.command("add-field", cls=Sections, sections=_ADDING)
@click.argument("store")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--from", "source", metavar="OTHER", required=True, help="A store of any format, or a typed table.")
@click.option("--named", metavar="FIELD,...", help="What OTHER calls the field, or each of them.  [default: NAME]")
@click.option("--on", metavar="COLUMN", default="key", help="The column of a table OTHER that has the keys.")
@click.option("--stems", is_flag=True, help="Compare keys without extensions: 1.jpg is 1.txt.")
@click.option(
    "--allow",
    metavar="WHAT,...",
    help="Do not refuse keys of OTHER that are extra (left out) or double (the first counts).",
)
@click.option("--overwrite", is_flag=True, help="Replace the field, or all that were added together.")
@click.option("--shard-size", type=SIZE, metavar="SIZE", help="Bytes per shard, beside a set.  [default: 1GiB]")
@click.option("--append", is_flag=True, help="Beside a set that has grown: add the field to its new samples alone.")
@click.option("--resume", is_flag=True, help="Beside a set: write only the shards that are missing or damaged.")
@part_option
@remote_options
def add_field(  # noqa: PLR0913 - an option each
    store: str,
    names: Sequence[str],
    *,
    source: str,
    named: str | None,
    on: str,
    stems: bool,
    allow: str | None,
    overwrite: bool,
    shard_size: int | None,
    append: bool,
    resume: bool,
    part: Part | None,
    remote: Remote,
) -> None:
    """
    Add fields of another store to STORE.

    NAME is a field that OTHER has for samples with the same keys. If several are named, all of them are added, or none.
    Nothing of STORE is written: the fields lie in a folder beside it, STORE.fields, in the order of its samples, and in
    shards if STORE is a set. All commands and loaders then read STORE with these fields.

    \b
    Example:
      fastio add-field photos.lmdb latents --from latents.h5
      fastio add-field 'photos-%06d.tar' caption score --from captions.parquet --on file_name
      fastio add-field 'photos-%06d.tar' latents --from latents.h5 --part auto    # in each task of an array
    """
    from fastio.computing.adding import add_field as run
    from fastio.computing.adding import place_of_fields
    from fastio.store import open_store

    odd: tuple[Literal["extra", "double"], ...] = ("extra", "double")
    given = split_fields(allow) or ()
    unknown = next((name for name in given if name not in odd), None)
    if unknown is not None:
        raise click.UsageError(f"--allow {unknown!r}: expected extra, double: no sample may lack the field")
    own = split_fields(named)
    if own is not None and len(own) != len(names):
        raise click.UsageError(f"--named {named}: expected {counted(len(names), 'field')}, got {len(own)}")
    twice = next((each for each in (names, own or ()) if len(set(each)) < len(each)), None)
    if twice is not None:
        raise click.UsageError(f"{' '.join(twice)}: names a field twice")
    place_of_fields(store)
    with open_store(store) as opened:
        count = len(opened)
    with meter("adding", count) as progress:
        report = run(
            store,
            names,
            source,
            field=own,
            on=on,
            stems=stems,
            allow=[name for name in odd if name in given],
            shard_bytes=shard_size,
            overwrite=overwrite,
            append=append,
            resume=resume,
            part=part,
            progress=progress,
            remote=remote,
        )
    if part is not None:
        click.echo(part_line(report, part))
    if not report.missing:
        done = (
            f" in {report.seconds:.2f} s: {printable(report.path)}, {size(report.store_bytes)}" if part is None else ""
        )
        click.echo(f"{printable(store)}: added {', '.join(names)} to {counted(count, 'sample')}{done}")
