"""What was done to a store's pictures when they were packed, in words, and what would have been better."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.codec.headers import read_headers
from fastio.converters.pictures.counts import jpeg_lines, lossy_mask_lines
from fastio.converters.pictures.jumps import evenly_spaced
from fastio.machine.resources import available_cpus
from fastio.samplers.choice import choose, report
from fastio.samplers.memory import page_cache
from fastio.samplers.order import Division
from fastio.store import SampleStore
from fastio.store.protocol import read_values
from fastio.types.picture_kinds import PICTURE_KINDS
from fastio.types.shuffle_report import ShuffleReport

__all__ = [
    "advice",
    "left_out_columns",
    "list_lines",
    "packing_lines",
    "shuffling_of",
]


_LOOKED_AT = 256  # pictures whose kind is looked at
_LONGEST_S = 1.0  # of decoding by Pillow
_SMALL_SIDE = 64  # pixels; up to here decoded ones are not much more than a PNG


def packing_lines(metadata: Mapping[str, Any]) -> list[str]:
    """Return one line for each change; none if all bytes are those of the source, in its order."""
    lines = [f"in an earlier store: {line}" for said in metadata.get("packing_before") or () for line in _lines(said)]
    lines += _lines(metadata.get("packing") or {})
    if "shuffle" in metadata:
        lines.append(f"stored in a random order, drawn from names and the seed {metadata['shuffle']}")
    lines += [*jpeg_lines(metadata), *_decoded_line(metadata), *_left_out_line(metadata)]
    return [*lines, *_misnamed_line(metadata), *lossy_mask_lines(metadata), *_left_aside_line(metadata)]


def list_lines(store: SampleStore) -> list[str]:
    """Return a line for each field of lists: how many elements samples have, or how many have the value."""
    lines = []
    for field in store.schema.lists:
        counts, element = store.elements(field.name).counts, field.element
        noun = "masks" if element.traits.is_mask else "pictures" if element.traits.is_picture else "values"
        most = int(counts.max(initial=0))
        fewest = int(counts.min(initial=most))
        if field.is_optional:
            lines.append(f"{field.name}: {noun} in {np.count_nonzero(counts):,} of {len(counts):,} samples")
        else:
            numbers = f"{fewest:,} to {most:,}" if fewest < most else f"{most:,}"
            lines.append(f"{field.name}: {numbers} {noun} a sample, {int(counts.sum()):,} in all")
    return lines


def _lines(packing: Mapping[str, Any]) -> list[str]:
    """What one run did to pictures."""
    pictures, kept = packing.get("pictures") or {}, packing.get("kept") or {}
    side = next((name for name in ("short_side", "max_side") if name in packing), None)
    lines = []
    if packing.get("raw"):
        lines.append(_raw_line(packing, pictures))
    elif side is not None or "resize" in packing:
        lines.append(_resized_line(packing, pictures, side))
    if "restart" in packing:
        these = "these, and " if side is not None or "resize" in packing else ""
        rewritten = pictures.get("rewritten", 0)
        result = " whose pixels stay the same; the original bytes are not kept" if rewritten else ""
        lines.append(f"restart markers every {packing['restart']} MCUs: {these}{rewritten:,} JPEGs{result}")
    if pictures.get("fitting"):
        why = "of that size already" if "resize" in packing else "small enough already"
        lines.append(f"unchanged: {_pictures(pictures['fitting'])}, {why}")
    return [*lines, *_kept_lines(kept)]


def _kept_lines(kept: Mapping[str, Any]) -> list[str]:
    """Pictures that stayed as they came, by the reason."""
    if not kept:
        return []
    from fastio.converters.pictures.transcode import KEPT

    return [
        f"unchanged: {_pictures(each['samples'])}, {KEPT.get(why, why)}; the first: {each['first']}"
        for why, each in kept.items()
    ]


def _raw_line(packing: Mapping[str, Any], pictures: Mapping[str, int]) -> str:
    """What was decoded, and to which size."""
    size = f", resized to {_height_width(packing)}, RGB," if "resize" in packing else ""
    alpha = pictures.get("without_alpha", 0)
    lost = f"; {_pictures(alpha)} lost transparency" if alpha else ""
    return (
        f"decoded: {pictures.get('decoded', 0):,} pictures{size} as raw pixels; the original bytes are not kept{lost}"
    )


def _resized_line(packing: Mapping[str, Any], pictures: Mapping[str, int], side: str | None) -> str:
    """What was made smaller, or of one size, and how it was written."""
    every = packing.get("resized_restart", packing.get("restart", 0))
    markers = f"a restart marker every {every} MCUs" if every else "no restart markers"
    style = f"JPEG quality {packing.get('quality')}, {packing.get('subsampling')}, {markers}"
    count = pictures.get("resized", 0)
    if side is not None:
        size = f"made smaller, with loss: {count:,} pictures to a {side.replace('_', ' ')} of {packing[side]}, {style}"
    else:
        as_png = pictures.get("as_png", 0)
        png = f", {as_png:,} of them as PNG" if as_png else ""
        size = f"resized, with loss: {count:,} pictures to {_height_width(packing)}{png}; {style}"
    return f"{size}; the original bytes are not kept" if count else size


def _height_width(packing: Mapping[str, Any]) -> str:
    return "x".join(map(str, packing["resize"]))


def left_out_columns(record: Mapping[str, Any]) -> str:
    """Return one line that names the columns that are not packed, by the record of a source; "" if there are none."""
    names = record.get("left_out") or ()
    what = "of the store's fields," if record.get("kind") == "store" else "column" if len(names) == 1 else "columns"
    return f"left out: {what} {', '.join(map(str, names))}" if names else ""


def _decoded_line(metadata: Mapping[str, Any]) -> list[str]:
    """Fields whose pictures stood in a table as values of another kind."""
    record = metadata.get("source")
    kinds = record.get("decoded") if isinstance(record, Mapping) else None
    if not isinstance(kinds, Mapping):
        return []
    from fastio.converters.sources.column_kinds import COLUMN_KINDS

    fields = {kind: [name for name, each in kinds.items() if each == kind] for kind in dict.fromkeys(kinds.values())}
    words = {kind: COLUMN_KINDS[kind].what if kind in COLUMN_KINDS else kind for kind in fields}
    return [f"decoded: {words[kind]}, as the field {', '.join(names)}" for kind, names in fields.items()]


def _left_out_line(metadata: Mapping[str, Any]) -> list[str]:
    """Columns of the source; older stores name them only where their table is described."""
    records = [metadata.get(name) for name in ("source", "table")]  # or what a program keeps under these names
    line = next(filter(None, (left_out_columns(each) for each in records if isinstance(each, Mapping))), "")
    return [line] if line else []


def _misnamed_line(metadata: Mapping[str, Any]) -> list[str]:
    """Pictures whose content is of another format than their names say."""
    entries = metadata.get("misnamed") or []
    if not entries:
        return []
    first = f"{entries[0]['key']} {entries[0]['problem']}"
    if len(entries) == 1:
        return [f"named wrongly: 1 picture, which keeps its bytes and its name: {first}"]
    return [f"named wrongly: {len(entries):,} pictures, which keep their bytes and their names; the first: {first}"]


_ROW = re.compile(r":\d+\)$")  # the end of "... (table.csv:12)"


def _left_aside_line(metadata: Mapping[str, Any]) -> list[str]:
    """Files that are no samples, counted by the reason."""
    entries = metadata.get("left_aside") or []
    if not entries:
        return []
    reasons = [_ROW.sub(")", each["problem"]) for each in entries]  # rows that a filter leaves out differ in this alone
    firsts = {why: each["key"] for why, each in zip(reversed(reasons), reversed(entries), strict=True)}
    parts = [f"{_such_as(firsts[why], count)} ({why})" for why, count in Counter(reasons).most_common()]
    what = "files and folders" if any(each["key"].endswith("/") for each in entries) else "files"
    total = "" if len(parts) == 1 else f"{len(entries):,} {what}: "
    return [f"left out: {total}{'; '.join(parts)}"]


def _such_as(first: str, count: int) -> str:
    return first if count == 1 else f"{count:,} such as {first}"


def _pictures(count: int) -> str:
    return f"{count:,} {'picture' if count == 1 else 'pictures'}"


def shuffling_of(store: SampleStore) -> ShuffleReport | None:
    """
    Return what ``shuffle=True`` chooses for this store, here and with batches of 256; None if there is nothing to
    shuffle.
    """
    fields = store.schema.payload
    if not fields or len(store) < 2:
        return None
    name = fields[0].name
    total, division, memory = store.total_bytes(name), Division(len(store), 256), page_cache(1)
    choice = choose(total, partial(_labels, store), division, seed=0, memory=memory)
    return report(choice, total, partial(store.value_bytes, name), division, seed=0, memory=memory.nbytes)


def _labels(store: SampleStore) -> NDArray[Any] | None:
    return store.column("label") if "label" in store.schema else None


def advice(store: SampleStore) -> list[str]:
    """Return what packing this store differently would gain, one line each."""
    said = []
    for field in store.schema.payload:
        shapes = store.shapes(field.name) if field.traits.is_image else np.zeros((0, 3), np.int32)
        if len(shapes) and shapes.all() and (shapes == shapes[0]).all() and shapes[0, :2].max() <= _SMALL_SIDE:
            height, width, channels = shapes[0].tolist()
            said.append(
                f"all pictures are {height}x{width}: with --raw they are {height * width * channels:,} B each and need "
                f"no decoding"
            )
        if field.traits.is_image:
            said += _pillow_lines(store, field.name)
    shuffling = shuffling_of(store)
    if shuffling is not None and shuffling.reason == "badly mixed":
        said.append(str(shuffling))
    return said


def _pillow_lines(store: SampleStore, field: str) -> list[str]:
    """Say how fast Pillow decodes pictures that native code does not, if there are any: measured on some of them."""
    looked_at = evenly_spaced(len(store), _LOOKED_AT)
    spans = read_values(store, field, looked_at)
    rows = [PICTURE_KINDS[kind] for kind in read_headers(spans).kind.tolist()]
    positions = [i for i, row in enumerate(rows) if not row.is_decoded]
    if not positions:
        return []
    from fastio.codec.pillow import decode_with_pillow  # imports Pillow, for rare kinds only

    stop = time.perf_counter() + _LONGEST_S

    def decode(position: int) -> bool:
        if time.perf_counter() > stop:
            return False
        decode_with_pillow(spans.view(position), "RGB")
        return True

    from concurrent.futures import ThreadPoolExecutor

    threads = available_cpus()
    try:
        with ThreadPoolExecutor(threads, thread_name_prefix="fastio") as pool:
            decode(positions[0])  # Pillow imports its plugins
            start = time.perf_counter()
            stop = start + _LONGEST_S
            count = sum(pool.map(decode, positions))
            rate = count / (time.perf_counter() - start)
    except ValueError:  # a damaged one, which `verify --decode` names
        return []
    kinds = ", ".join(sorted({rows[i].name for i in positions}))
    share = "all pictures are" if len(positions) == len(rows) else f"{len(positions)} of {len(rows)} pictures are"
    by = f"{rate:,.0f} pictures/s with {threads} {'thread' if threads == 1 else 'threads'}"
    return [f"{share} {kinds}, which Pillow decodes, here {by}; --resize HxW stores PNGs, which fastio decodes itself"]
