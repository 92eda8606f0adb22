"""Shows samples of a store: as pictures with labels, or as one picture of rows and columns."""

from __future__ import annotations

import colorsys
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from fastio.codec.copied import pixels_of
from fastio.codec.pillow import PLUGIN_ERRORS, decode_mask_with_pillow, open_picture, teach_pillow
from fastio.converters.sources.source import damaged
from fastio.converters.text.decode import tokenizer_of
from fastio.errors import FastioError
from fastio.store import SampleStore
from fastio.store.kinds.scan import Problem
from fastio.store.protocol import read_values
from fastio.types.schema import Field

__all__ = [
    "contact_sheet",
    "main_picture",
    "shown_lists",
    "shown_samples",
]


_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_GAP = 8
_TEXT_BYTES = 400  # of a text that stands for the label
_TEXT_IDS = 400  # of token ids that are shown as text
_DAMAGED = "damaged: differs from its checksum"
_BACKGROUND, _INK, _FAINT = (255, 255, 255), (20, 20, 20), (110, 110, 110)


@dataclass(frozen=True, slots=True)
class ShownSample:
    """A sample's picture, fitted into a square, or the reason why there is none."""

    key: str
    label: str
    picture: Image.Image | str


def main_picture(store: SampleStore) -> Field | None:
    """Return the field whose pictures are shown: encoded ones, else raw ones, else masks; None if there are none."""
    encoded = store.schema.picture
    if encoded is not None and not encoded.traits.is_mask:
        return encoded
    return next((field for field in store.schema.payload if field.is_raw_picture), encoded)


def shown_samples(store: SampleStore, *, count: int, size: int, seed: int | None = None) -> list[ShownSample]:
    """
    Return ``count`` samples, each fitted into ``size`` x ``size`` pixels. Raises FastioError if the store has no
    images. Masks are shown if there is nothing else: in their palette, or a colour for each class.

    Without ``seed``, the samples are spread evenly over the store, so that all classes of a sorted store may appear;
    with it, they are drawn at random. A sample whose bytes differ from their checksum, or that cannot be decoded,
    comes with the reason. The mask, the boxes and the points beside a picture are drawn over it.
    """
    field = main_picture(store)
    if field is None or len(store) == 0:
        raise FastioError(f"{store.path}: has no images to show: `fastio ls` lists its samples")
    indices = _chosen(len(store), count, seed)
    return _shown(store, field, indices, _labels(store, indices), size)


def shown_lists(store: SampleStore, *, count: int, size: int, seed: int | None = None) -> list[list[ShownSample]]:
    """
    Return all pictures of each of ``count`` samples of a store with lists of pictures, as ``shown_samples`` has one.

    The main picture comes first, with the sample's label; then those of each list, by their field and number. A sample
    without any has one white cell that says so. Token ids follow as their text, in a cell of its own.
    """
    indices = _chosen(len(store), count, seed)
    rows: list[list[ShownSample]] = [[] for _ in indices]
    labels = _labels(store, indices)
    main = main_picture(store)
    if main is not None:
        for row, shown in zip(rows, _shown(store, main, indices, labels, size), strict=True):
            row.append(shown)
    for field in _picture_lists(store):
        elements = store.elements(field.name)
        which, counts = elements.of(indices)
        names = [f"{field.name} {i + 1} of {count}" for count in counts.tolist() for i in range(count)]
        cells = iter(_shown(elements, field.element, which, names, size))
        for row, number in zip(rows, counts.tolist(), strict=True):
            row.extend(islice(cells, number))
    blank = Image.new("RGB", (size, size), _BACKGROUND)
    for row, key, label in zip(rows, store.keys(indices), labels, strict=True):
        if not row:
            row.append(ShownSample(key, f"no picture: {label}", blank))
        elif main is None:
            row[0] = replace(row[0], label=f"{label}: {row[0].label}")
    for row, text in zip(rows, _decoded(store, indices), strict=False):
        row.append(ShownSample(row[0].key, "text", _written(text, size)))
    return rows


def _decoded(store: SampleStore, indices: NDArray[np.int64]) -> list[str]:
    """The text of the first token ids of these samples; nothing if the store has none, or not their tokenizer."""
    field = next((each for each in store.schema.payload if each.traits.is_tokens and not each.is_list), None)
    tokenizer = None if field is None else tokenizer_of(store.metadata)
    if field is None or tokenizer is None:
        return []
    values = read_values(store, field.name, indices).views()
    ids = [np.frombuffer(value[: _TEXT_IDS * field.unit_bytes], field.dtype) for value in values]
    return [tokenizer.decode(each).decode("utf-8", "replace") for each in ids]


def _written(text: str, size: int) -> Image.Image:
    """A text in a cell, in lines that fit; what does not is cut, and ends with three dots."""
    line, font = max(11, size // 10), _font(max(9, size // 12), [text])
    lines = [each for part in text.splitlines() for each in _wrapped(_drawable(part, font), font, size)]
    fitting = size // line
    if len(lines) > fitting:
        lines = [*lines[: fitting - 1], _fitted(f"{lines[fitting - 1]}...", font, size)]
    cell = Image.new("RGB", (size, size), _BACKGROUND)
    draw = ImageDraw.Draw(cell)
    for number, each in enumerate(lines):
        draw.text((0, number * line), each, _INK, font)
    return cell


def _wrapped(text: str, font: _Font, width: int) -> list[str]:
    """A text in lines that are no wider than a cell, broken between words where one of its words fits."""
    lines = [""]
    for word in re.findall(r"\s*\S+", text):
        if lines[-1] and font.getlength(lines[-1] + word) > width:
            lines.append("")
        for character in word if lines[-1] else word.lstrip():
            if lines[-1] and font.getlength(lines[-1] + character) > width:
                lines.append("")
            lines[-1] += character
    return lines


def _picture_lists(store: SampleStore) -> list[Field]:
    return [field for field in store.schema.lists if field.element.traits.is_picture]


def _shown(
    store: SampleStore, field: Field, indices: NDArray[np.int64], labels: Sequence[str], size: int
) -> list[ShownSample]:
    """Return the pictures of these samples in one field, with what is drawn over them."""
    spans, keys = read_values(store, field.name, indices), store.keys(indices)
    picture = _mask_picture if field.traits.is_mask else partial(_picture, field)
    changed = set(damaged(spans).tolist())
    over = read_fields(store, [other for other in drawn_fields(store) if other != field], indices)
    return [
        ShownSample(key, label, _DAMAGED if i in changed else picture(spans.view(i).tobytes(), size, over[i]))
        for i, (label, key) in enumerate(zip(labels, keys, strict=True))
    ]


def contact_sheet(
    store: SampleStore, *, count: int = 40, columns: int = 8, size: int = 128, seed: int | None = None
) -> tuple[Image.Image, list[Problem]]:
    """
    Return a sheet of ``shown_samples``, ``columns`` per row, each with its label (or text) and key below; or of
    ``shown_lists``, where each sample begins a row.

    A sample without a picture becomes a crossed box with the reason, and is listed in the problems returned.
    """
    if _picture_lists(store) and len(store):
        runs = shown_lists(store, count=count, size=size, seed=seed)
    else:
        runs = [shown_samples(store, count=count, size=size, seed=seed)]
    shown = len(runs) if _picture_lists(store) else len(runs[0])
    columns = min(columns, max(map(len, runs)))
    cells = [run[at : at + columns] for run in runs for at in range(0, len(run), columns)]
    heading = f"{store.path}: {shown:,} of {len(store):,} samples"
    texts = (heading, *(text for run in runs for sample in run for text in (sample.key, sample.label)))
    fonts = [_font(pixels, texts) for pixels in (max(11, size // 9), max(10, size // 12))]
    line = max(14, size // 8)
    cell = size + _GAP
    title = 2 * line
    rows = len(cells)
    sheet = Image.new("RGB", (columns * cell + _GAP, title + rows * (cell + 2 * line) + _GAP), _BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    draw.text((_GAP, line // 2), _fitted(heading, fonts[0], sheet.width - 2 * _GAP), _INK, fonts[0])
    problems: list[Problem] = []
    for row, column, sample in (
        (row, column, each) for row, run in enumerate(cells) for column, each in enumerate(run)
    ):
        x, y = _GAP + column * cell, title + row * (cell + 2 * line)
        if isinstance(sample.picture, str):
            draw.rectangle((x, y, x + size - 1, y + size - 1), outline=_FAINT)
            draw.line((x, y, x + size - 1, y + size - 1), _FAINT)
            problems.append(Problem(sample.key, sample.picture))
            below = sample.picture
        else:
            below = sample.label
            picture = sample.picture
            sheet.paste(picture, (x + (size - picture.width) // 2, y + (size - picture.height) // 2))
        draw.text((x, y + size + 1), _fitted(below, fonts[0], size), _INK, fonts[0])
        draw.text((x, y + size + line), _fitted(sample.key.rpartition("/")[2], fonts[1], size), _FAINT, fonts[1])
    return sheet, problems


def _chosen(length: int, count: int, seed: int | None) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    count = min(count, length)
    if seed is None:
        return np.linspace(0, length - 1, count).astype(np.int64)
    return np.sort(np.random.default_rng(seed).choice(length, count, replace=False)).astype(np.int64)


def _labels(store: SampleStore, indices: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Sequence[str]:
    if "label" not in store.schema:
        text = next((field for field in store.schema.payload if field.traits.is_text), None)
        if text is None:
            return [f"#{i}" for i in indices]
        values = read_values(store, text.name, indices).views()
        return [value[:_TEXT_BYTES].tobytes().decode("utf-8", "replace") for value in values]
    names = store.metadata.get("classes") or ()
    values = store.column("label")[indices].tolist()
    if not names:
        return [f"label {value}" for value in values]
    return [str(names[v]) if 0 <= v < len(names) else f"label {v}" for v in values]


def _picture(field: Field, data: bytes, size: int, over: Sequence[tuple[Field, bytes]]) -> Image.Image | str:
    """The image, fitted into the cell, small ones enlarged by whole factors so that their pixels show; or why not."""
    if field.is_raw_picture:
        pixels = pixels_of(field, np.frombuffer(data, np.uint8))
        picture = Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels).convert("RGB")
        stored = picture.size
    else:
        teach_pillow(data)
        try:
            with Image.open(io.BytesIO(data)) as image:
                stored = image.size
                image.draft("RGB", (2 * size, 2 * size))
                picture = image.convert("RGB")
        except PLUGIN_ERRORS as exc:
            return f"cannot be decoded: {exc}"
    fitted = _into_cell(picture, size, Image.Resampling.BICUBIC)
    draw_fields(fitted, stored, over)
    return fitted


def _mask_picture(data: bytes, size: int, over: Sequence[tuple[Field, bytes]]) -> Image.Image | str:
    """The mask, fitted into the cell, in its palette; without one, in a colour for each class; or why not."""
    try:
        with open_picture(data) as image:
            has_colours = image.mode not in ("1", "L", "I", "I;16")
            picture = image.convert("RGB") if has_colours else Image.fromarray(class_colours()[_classes(data)])
    except ValueError as exc:
        return f"cannot be decoded: {exc}"
    fitted = _into_cell(picture, size, Image.Resampling.NEAREST)
    draw_fields(fitted, picture.size, over)
    return fitted


def _classes(data: bytes) -> NDArray[np.uint8]:
    """The lower 8 bits of a mask's numbers."""
    return decode_mask_with_pillow(data).pixels.astype(np.uint8)


def _into_cell(picture: Image.Image, size: int, resampling: Image.Resampling) -> Image.Image:
    if max(picture.size) * 2 <= size:
        factor = size // max(picture.size)
        return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
    picture.thumbnail((size, size), resampling)
    return picture


def _font(pixels: int, texts: Sequence[str]) -> _Font:
    """The font that Pillow brings along, which has ASCII only; DejaVu for other texts, where it is installed."""
    if not all(map(str.isascii, texts)):
        with suppress(OSError):
            return ImageFont.truetype("DejaVuSans.ttf", pixels)
    return ImageFont.load_default(pixels)


def _drawable(text: str, font: _Font) -> str:
    """The text with escapes such as ``\\u65e5`` for what the font would draw as an empty box."""
    if text.isascii() and text.isprintable():
        return text
    unknown = _drawn("\U0010ffff", font)
    return "".join(
        c if c.isprintable() and (c.isascii() or _drawn(c, font) != unknown) else ascii(c)[1:-1] for c in text
    )


def _drawn(character: str, font: _Font) -> bytes:
    cell = Image.new("L", (64, 64))
    ImageDraw.Draw(cell).text((0, 0), character, 255, font)
    return cell.tobytes()


def _fitted(text: str, font: _Font, width: int) -> str:
    """The text, cut in its middle where it is too wide: the ends of file names tell most."""
    text = _drawable(text, font)
    if font.getlength(text) <= width:
        return text
    keep = len(text) - 1
    while keep > 1 and font.getlength(_shortened(text, keep)) > width:
        keep -= 1
    return _shortened(text, keep)


def _shortened(text: str, keep: int) -> str:
    head = (keep + 1) // 2
    return text[:head] + "…" + text[len(text) - (keep - head) :]


# Draws the mask, the boxes and the points of a sample over its picture.

_OPACITY = 0.45  # of a mask; class 0 is often the background and stays clear
_STEP = 0.618034  # of the colour wheel, from one number to the next: neighbours differ


def drawn_fields(store: SampleStore) -> list[Field]:
    """Return the fields that belong over the picture: the first mask, boxes and points."""
    payload = store.schema.payload
    masks = [field for field in payload if field.traits.is_mask]
    return [*masks[:1], *(field for field in payload if field.is_box or field.is_points)]


def draw_fields(picture: Image.Image, size: tuple[int, int], values: Sequence[tuple[Field, bytes]]) -> None:
    """
    Draw values over ``picture``, RGB, which shows a picture of ``size`` (width, height).

    A mask of another size than the picture, and one that cannot be read, is left out: it is no mask of this picture.
    """
    scale = picture.width / size[0], picture.height / size[1]
    for field, data in values:
        if field.traits.is_mask:
            _draw_mask(picture, size, data)
        elif field.fits(np.array([len(data)])).all():
            rows = np.frombuffer(data, field.dtype).astype(np.float64)
            draw = ImageDraw.Draw(picture)
            if field.is_box:
                _draw_boxes(draw, _corners(rows.reshape(-1, 4), field.geometry) * np.array(scale * 2))
            else:
                _draw_points(draw, rows.reshape(-1, 2) * np.array(scale))


def class_colours() -> NDArray[np.uint8]:
    """256 colours, those of neighbouring numbers far apart; 0 is black. The bits of a number, dealt out in turn."""
    numbers, colours = np.arange(256), np.zeros((256, 3), np.uint8)
    for bit in range(8):
        colours[:, bit % 3] |= ((numbers >> bit & 1) << (7 - bit // 3)).astype(np.uint8)
    return colours


def read_fields(
    store: SampleStore, fields: Sequence[Field], indices: NDArray[np.int64]
) -> list[list[tuple[Field, bytes]]]:
    """Return the encoded values of these fields for each sample."""
    columns = [(field, read_values(store, field.name, indices)) for field in fields]
    return [[(field, spans.view(i).tobytes()) for field, spans in columns] for i in range(len(indices))]


def _draw_mask(picture: Image.Image, size: tuple[int, int], data: bytes) -> None:
    try:
        stored = decode_mask_with_pillow(data).pixels
    except ValueError:
        return
    if stored.shape != (size[1], size[0]):
        return
    rows, columns = (np.arange(to) * of // to for to, of in zip(picture.size[::-1], stored.shape, strict=True))
    numbers = stored[rows][:, columns]
    pixels, colours = np.asarray(picture, np.float64), class_colours()[numbers & 255]
    opacity = np.where(numbers == 0, 0.0, _OPACITY)[:, :, None]
    picture.paste(Image.fromarray((pixels * (1 - opacity) + colours * opacity).round().astype(np.uint8)))


def _draw_boxes(draw: ImageDraw.ImageDraw, corners: NDArray[np.float64]) -> None:
    for number, box in enumerate(corners.tolist()):
        left, top, right, bottom = box
        if left <= right and top <= bottom:
            draw.rectangle((left, top, right, bottom), outline=_colour(number + 1))


def _draw_points(draw: ImageDraw.ImageDraw, points: NDArray[np.float64]) -> None:
    for x, y in points[np.isfinite(points).all(axis=1)].tolist():
        draw.ellipse((x - 1, y - 1, x + 1, y + 1), fill=(255, 255, 0), outline=(0, 0, 0))


def _corners(boxes: NDArray[np.float64], form: str) -> NDArray[np.float64]:
    """Return left, top, right and bottom of boxes in any form."""
    if form == "xyxy":
        return boxes
    first, sizes = boxes[:, :2], boxes[:, 2:]
    first = first - sizes / 2 if form == "cxcywh" else first
    return np.concatenate([first, first + sizes], axis=1)


def _colour(number: int) -> tuple[int, int, int]:
    """Return a bright colour for a number; numbers that follow each other have different ones."""
    red, green, blue = colorsys.hsv_to_rgb(number * _STEP % 1.0, 0.9, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)
