"""``fastio verify``: checks whether a store still holds what was packed."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from fastio.cli.group import Sections
from fastio.cli.options import REMOTE_NAMES, max_pixels_option, remote_options
from fastio.cli.screen import meter, problem_table
from fastio.cli.source_options import UNPACKED_NAMES, unpacked_options
from fastio.types.units import counted, size

if TYPE_CHECKING:
    from fastio.converters import Source
    from fastio.converters.inspect.verify import VerifyReport
    from fastio.converters.text import TextSamples
    from fastio.store import SampleStore
    from fastio.store.files.remote_options import Remote
    from fastio.store.kinds.unpacked import Unpacked

__all__ = ["verify"]


_SECTIONS = {"PATH that is not packed; with --against, SRC": UNPACKED_NAMES, "PATH behind a URL": REMOTE_NAMES}


@click.command(cls=Sections, sections=_SECTIONS)
@click.argument("path")
@click.option("--decode", is_flag=True, help="Also decode every image, and parse JSON and text.")
@click.option("--against", metavar="SRC", help="Also compare keys and all fields with the source.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Number of threads.  [default: all available CPUs]"
)
@max_pixels_option
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@unpacked_options()
@remote_options
@click.pass_context
def verify(
    ctx: click.Context,
    path: str,
    *,
    decode: bool,
    against: str | None,
    jobs: int | None,
    as_json: bool,
    unpacked: Unpacked,
    remote: Remote,
) -> None:
    """
    Check every checksum of the store PATH. The exit code is 1 if anything is wrong. PATH may also be files that are not
    packed, which the options of fastio pack describe: they have checksums once fastio index has read them.

    \b
    Example:
      fastio verify train.lmdb --decode
      fastio verify train.lmdb --against ./pngs --labels labels.pkl
      fastio verify train.h5 --against train.lmdb
    """
    from fastio.converters.inspect.verify import verify as run
    from fastio.store.beside.joined import open_with_fields
    from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked

    of_source = unpacked
    if against is not None:
        unpacked = AS_IT_IS
        other = next((name for name in of_source.given() if name not in ("labels", "kind")), None)
        if other is not None:
            raise click.UsageError(
                "with --against, --labels and --source-kind describe SRC; all else, the store knows: drop "
                f"{Unpacked(**{other: of_source.given()[other]}).words()[0]}"
            )
    source: Source | TextSamples | None = None
    with open_with_fields(path, remote=remote, unpacked=unpacked) as store:
        if against is not None:
            source = _source_of(store, against, kind=of_source.kind, labels=of_source.labels)
        total = len(store) * (1 + decode + (source is not None))
    with meter("verifying", total) as progress:
        report = run(
            path, decode=decode, against=source, jobs=jobs, progress=progress, remote=remote, unpacked=unpacked
        )
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(report), "ok": not report.problems}, indent=2))
    else:
        if report.problems:
            problem_table([(problem.key, problem.problem) for problem in report.problems])
        click.echo(_summary(report, against))
        if report.problems:
            _say_what_mends(report.path)
    if report.problems:
        ctx.exit(1)


def _say_what_mends(path: str) -> None:
    from fastio.store.staging.record import mending_command

    command = mending_command(path)
    if command is not None:
        click.echo(f"{path}: {command} mends this copy")


def _source_of(store: SampleStore, against: str, *, kind: str, labels: str | None) -> Source | TextSamples:
    """Return the source that a store is compared with; of text, what encodes it again as the store says."""
    from fastio.converters.inspect.compare import read_again
    from fastio.converters.sources.origin import reopen_source
    from fastio.converters.sources.record import origin_of, recorded_kind
    from fastio.store.formats import names_store
    from fastio.store.kinds.registry import SOURCES
    from fastio.types.schema import text_field

    record = origin_of(store.metadata)
    is_text = text_field(store.schema) is not None and not {"fields", "label_options"} & record.keys()
    kind_packed = SOURCES.get(recorded_kind(record))
    chat = store.metadata.get("chat")
    is_text = is_text or (chat is not None and "image" not in chat)
    is_text = is_text and not (kind_packed is not None and kind_packed.takes_ids)
    if not is_text or names_store(against):
        return reopen_source(store.metadata, against, kind=kind, labels=labels)
    if labels is not None or kind != "auto":
        raise click.UsageError("a store of text knows how it was packed: drop --labels and --source-kind")
    return read_again(store, against)


def _compared(report: VerifyReport) -> str:
    """Return what was compared, and with what; rewritten samples are not called equal in bytes."""
    names = ", ".join(report.fields_compared)
    what = f"keys and {'the fields' if len(report.fields_compared) > 1 else 'field'} {names}{_one_sided(report)}"
    if report.packed_again:
        return (
            f"{what}, with the result of packing the source again with the same options (the store does not "
            "keep original bytes)"
        )
    if report.pixels_compared:
        return f"{what}; {report.pixels_compared:,} were rewritten when packed: compared by pixels, not bytes"
    return what


def _one_sided(report: VerifyReport) -> str:
    """The fields that one side lacks, which are not compared, in parentheses."""
    sides = (("source", report.only_in_store), ("store", report.only_in_source))
    words = [f"the {side} has no {', '.join(names)}" for side, names in sides if names]
    return f" ({'; '.join(words)})" if words else ""


def _summary(report: VerifyReport, against: str | None) -> str:
    sums = (
        "every checksum" if report.checksums else "no checksums in it (not packed by fastio; `fastio index` adds some)"
    )
    done = [f"{counted(report.samples, 'sample')}, {size(report.size_bytes)}: {sums}"]
    if report.decoded:
        done.append(f"{counted(report.decoded, 'image')} decoded")
    if report.parsed:
        done.append(f"{counted(report.parsed, 'document')} parsed")
    if against is not None:
        done.append(f"{report.compared:,} compared with {against}: {_compared(report)}")
    problems = counted(len(report.problems), "PROBLEM", "PROBLEMS")
    has_compared = bool(report.checksums or report.decoded or report.parsed or against is not None)
    good = "all good" if has_compared else "nothing was compared (--decode decodes all pictures)"
    verdict = f"{problems} (listed above)" if report.problems else good
    return f"{report.path}: {'; '.join(done)}; {report.seconds:.2f} s: {verdict}"
