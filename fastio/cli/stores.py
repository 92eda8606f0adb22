"""``fastio seal``, ``merge``, ``repair``, ``index`` and ``stage``: what is done to whole stores."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from fastio.cli.group import Sections
from fastio.cli.options import REMOTE_NAMES, remote_options
from fastio.cli.result import echo_json
from fastio.cli.screen import meter, printable, steps
from fastio.cli.source_kind import source_kind_option
from fastio.cli.source_options import UNPACKED_NAMES, unpacked_options
from fastio.types.units import counted, size

if TYPE_CHECKING:
    from fastio.store.files.remote_options import Remote
    from fastio.store.foreign.index import IndexReport
    from fastio.store.kinds.unpacked import Unpacked
    from fastio.store.sets.merge import MergeReport
    from fastio.store.sets.repair import RepairReport
    from fastio.store.staging import StageReport

__all__ = [
    "index",
    "merge",
    "repair",
    "seal",
    "stage",
]


@click.command()
@click.argument("out")
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace the set of this name by the shards that it does not list, and remove its own.",
)
@remote_options
def seal(out: str, *, overwrite: bool, remote: Remote) -> None:
    """
    Make a set of the shards OUT that parts have packed.

    OUT is named as it was packed, such as 'train-%06d.tar'; the source is not needed. The last part seals by itself.
    If a shard is missing or damaged, it is named and nothing is written. A damaged set object is made anew.

    \b
    Example:
      fastio seal 'photos-%06d.tar'
    """
    from fastio.converters import seal as run

    made = run(out, overwrite=overwrite, remote=remote)
    size_bytes = sum(member.size for member in made.members)
    shards = counted(len(made.members), "shard")
    click.echo(f"{made.path}: a set of {shards}, {counted(len(made), 'sample')}, {size(size_bytes)}")


# ``fastio merge``: makes one set of the shards of several, without copying them.


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="STORE...")
@click.option("--out", required=True, metavar="NAME.fastio-set", help="The set object to write.")
@click.option("--overwrite", is_flag=True, help="Replace a set object that exists; its shards stay where they are.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@remote_options
def merge(paths: tuple[str, ...], *, out: str, overwrite: bool, as_json: bool, remote: Remote) -> None:
    """
    Make one set of several, without copying their shards.

    The samples of the STOREs come one store after the other. The new set lists the shards where they lie, so it does
    not open once one of them has been removed or replaced.

    Each STORE is a set object, shards by a pattern, a folder of shards or one tar file, all packed by fastio. Fields,
    classes and tokenizers must agree, and no two samples may have the same key. Shards in the folder of the new set
    are listed by name, so that the folder can be moved; others by their whole path or URL. Fields of `fastio add-field`
    that all STOREs have are those of the new set, too.

    \b
    Example:
      fastio merge 2023.fastio-set 2024.fastio-set --out all.fastio-set
      fastio merge s3://bucket/a-%06d.tar s3://bucket/b-%06d.tar --out s3://bucket/all.fastio-set
    """
    from fastio.store.sets.merge import merge_stores

    report = merge_stores(paths, out, overwrite=overwrite, remote=remote)
    if as_json:
        echo_json("merge", dataclasses.asdict(report))
    else:
        _print_merged(report)


def _print_merged(report: MergeReport) -> None:
    for store in report.merged:
        click.echo(f"{store.path}: {_holds(store.samples, store.shards, store.size_bytes)}")
    added = f"; with {', '.join(report.fields)}, added to each" if report.fields else ""
    click.echo(f"{report.path}: {_holds(report.samples, report.shards, report.size_bytes)}{added}; nothing was copied")


def _holds(samples: int, shards: int, size_bytes: int) -> str:
    return f"{counted(samples, 'sample')} in {counted(shards, 'shard')}, {size(size_bytes)}"


# ``fastio repair``: writes the missing and damaged shards of a set again.


@click.command()
@click.argument("path", metavar="SET")
@click.option(
    "--against",
    required=True,
    metavar="SRC",
    help="Where good shards come from: another copy of SET (a set object, shards, a folder, here or behind a URL), or "
    "the source that SET was packed from.",
)
@click.option("--labels", metavar="FILE", help="The label file of SRC, if it is a source.")
@source_kind_option("What SRC is, if it is a source; auto decides by the names in it.", with_text=False)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@remote_options
@click.pass_context
def repair(
    ctx: click.Context, path: str, *, against: str, labels: str | None, kind: str, as_json: bool, remote: Remote
) -> None:
    """
    Write missing and damaged shards of a set again.

    Every byte of SET is checked. Shards come from another copy of it, or are packed from its source with the options
    that were used before.

    A shard gets the same bytes as it had, or stays as it is: size and CRC-32 must be those that the set object lists.
    The exit code is 1 if a shard could not be mended. If the set object itself is lost and all shards are whole, use
    fastio seal.

    \b
    Example:
      fastio repair train.fastio-set --against s3://bucket/train.fastio-set
      fastio repair train.fastio-set --against /backup/train
      fastio repair train.fastio-set --against ./imagenet
    """
    from fastio.converters.packing.repair import repair as run

    report = run(path, against, labels=labels, kind=kind, meter=lambda total: meter("checking", total), remote=remote)
    if as_json:
        echo_json("repair", dataclasses.asdict(report))
    else:
        _print_repaired(report)
    if report.left:
        ctx.exit(1)


def _print_repaired(report: RepairReport) -> None:
    for shard in report.repaired:
        click.echo(f"{shard.path}: {shard.problem}: written again from {shard.source}")
    for shard in report.left:
        click.echo(f"{shard.path}: {shard.problem}: NOT MENDED: {shard.reason}")
    click.echo(f"{report.path}: {_summary(report)}")


def _summary(report: RepairReport) -> str:
    whole = report.shards - len(report.repaired) - len(report.left)
    parts = [f"{whole:,} of {counted(report.shards, 'shard')} were whole"]
    if report.repaired:
        parts.append(f"{len(report.repaired):,} written again")
    if report.left:
        parts.append(f"{len(report.left):,} NOT MENDED (listed above)")
    return "; ".join(parts)


# ``fastio index``: adds start points to a store that exists, and makes tar shards of other tools a set.

_NAMED = 5  # damaged pictures in a line


_SECTIONS = {"PATH that is not packed": UNPACKED_NAMES, "PATH behind a URL": REMOTE_NAMES}


@click.command(cls=Sections, sections=_SECTIONS)
@click.argument("path")
@click.option("--to", "folder", metavar="DIR", help="Keep a set object there, and nothing beside PATH.")
@click.option("--overwrite", is_flag=True, help="Replace a set object of this name in DIR.")
@click.option(
    "--jump/--no-jump",
    default=True,
    show_default=True,
    help="Note where to start within each JPEG (about 1% of its bytes), so that crops decode faster.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@unpacked_options()
@remote_options
def index(
    path: str,
    folder: str | None,
    *,
    overwrite: bool,
    jump: bool,
    as_json: bool,
    unpacked: Unpacked,
    remote: Remote,
) -> None:
    """
    Add start points to a store, or to folders; index tar shards.

    PATH is a store, a file or URL, a pattern (x-*.tar, x-%06d.tar), a range (x-{000000..000009}.tar) or a folder; or a
    folder of files, a table that names some, or a container of another program (TFRecord, LMDB, HDF5, zip, ...), which
    get checksums, too: samples that differ from the container's own are left out. All bytes are read once and stay
    where they are, unchanged. The start points of a file go beside it, into x.lmdb.fastio-index, those of a set into
    its next set object; both are used from then on, whenever the store is opened.

    With --to, a set object in DIR lists the files where they lie, with a checksum of every value, and opens like any
    store: for folders that cannot be written, and for shards behind URLs. Shards in DIR itself are listed by name, so
    that the folder can be moved; others by their whole path or URL.

    \b
    Example:
      fastio index photos.lmdb
      fastio index 's3://bucket/x-{000000..000009}.tar' --to ./index
      fastio bench io ./index/x.fastio-set
      fastio index ./pngs --labels labels.csv
    """
    from fastio.store.foreign.index import index_store
    from fastio.store.sets.names import SET_SUFFIX

    if folder is not None and folder.endswith(SET_SUFFIX):
        raise click.UsageError(f"--to {folder}: expected a folder; the set object in it is named after the shards")
    with nullcontext(lambda done, total: None) if as_json else steps("indexing") as progress:
        report = index_store(
            path, folder, options=remote, overwrite=overwrite, jump=jump, progress=progress, unpacked=unpacked
        )
    if as_json:
        echo_json("index", dataclasses.asdict(report))
        return
    for line in _lines(report, has_jump=jump):
        click.echo(printable(line))


def _lines(report: IndexReport, *, has_jump: bool) -> list[str]:
    where = counted(report.files, "file") if report.files else counted(report.shards, "shard")
    lines = [f"{report.path}: {counted(report.samples, 'sample')} in {where}, {size(report.size_bytes)}"]
    if has_jump:
        why = "" if report.start_points else ": they are small, progressive, damaged, no JPEGs, or have restart markers"
        lines.append(f"start points within {counted(report.start_points, 'picture')}{why}")
    stay = "stays" if len(report.damaged) == 1 else "stay"
    if report.problems:
        words = [f"{key} {problem}" for key, problem in list(report.problems.items())[:_NAMED]]
        more = "; ..." if len(report.problems) > _NAMED else ""
        samples = counted(len(report.problems), "damaged sample")
        lines.append(f"{samples}, which {stay}: reading gives a SampleError: {'; '.join(words)}{more}")
    elif report.damaged:
        keys = ", ".join(report.damaged[:_NAMED]) + (", ..." if len(report.damaged) > _NAMED else "")
        damaged = counted(len(report.damaged), "damaged JPEG")
        lines.append(f"{damaged}, which {stay} as packed, without start points: {keys}")
    return lines


# ``fastio stage``: copies a store to a disk of this machine.


@click.command()
@click.argument("path", metavar="SET")
@click.argument("folder", metavar="DIR")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Blocks of 16 MiB under way at once.  [default: 16 of URLs, 4 of local files]",
)
@click.option("--check", is_flag=True, help="Also compare what was copied before; copy damaged files again.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@remote_options
def stage(path: str, folder: str, *, jobs: int | None, check: bool, as_json: bool, remote: Remote) -> None:
    """
    Copy a store to a disk of this machine.

    SET is a path or URL; a set comes with all its shards. DIR is a folder; the one it lies in must exist. Every byte
    that is copied is compared with checksums. Fields of `fastio add-field` come along, into a folder beside the copy.

    Run it again after an interruption: it goes on where it stopped, and trusts files that it has copied already. After
    an error of the copy, --check compares these, too, and copies damaged ones again. Of the processes that stage to one
    folder, one copies and the others wait. The copy is an ordinary store.

    \b
    Example:
      fastio stage s3://bucket/train.fastio-set $TMPDIR
      fastio verify $TMPDIR/train.fastio-set
    """
    from fastio.store.staging import stage as run

    def say(line: str) -> None:
        click.echo(line, err=True)

    label = "comparing and copying" if check else "copying"
    report = run(
        path,
        folder,
        options=remote,
        jobs=jobs,
        meter=lambda total: meter(label, total, "bytes"),
        on_wait=say,
        check=check,
    )
    if as_json:
        echo_json("stage", dataclasses.asdict(report))
        return
    click.echo(
        "; ".join([f"{report.path}: {counted(report.files, 'file')}, {size(report.size_bytes)}", *_done(report)])
    )


def _done(report: StageReport) -> list[str]:
    """Return what was copied, compared and trusted."""
    rest = report.size_bytes - report.fetched_bytes
    done = []
    if report.fetched_bytes:
        rate = size(report.fetched_bytes / max(report.seconds, 1e-6))
        done.append(f"{size(report.fetched_bytes)} copied, every checksum compared; {report.seconds:.1f} s, {rate}/s")
    if report.mended_files:
        was = "was" if report.mended_files == 1 else "were"
        done.append(f"{counted(report.mended_files, 'file')} had been damaged and {was} copied again")
    if report.trusted_bytes:
        there = f"{size(report.trusted_bytes)} were there already" if report.fetched_bytes else "was there already"
        done.append(f"{there}, and not compared again: --check does")
    elif rest:
        done.append(f"{size(rest)} were there already, every checksum compared")
    return done
