"""Checks that documents are text: valid UTF-8 without NUL, and not empty."""

from __future__ import annotations

import numpy as np

from fastio.converters.text.documents import Documents

__all__ = ["checked"]


def checked(documents: Documents) -> Documents:
    """Return the documents that are text; the others become problems with a sentence each."""
    problems = {int(i): "is empty" for i in np.flatnonzero(documents.sizes == 0)}
    if not _all_valid(documents):
        data = documents.data
        for i, (start, size) in enumerate(zip(documents.starts.tolist(), documents.sizes.tolist(), strict=True)):
            sentence = _sentence(data[start : start + size].tobytes())
            if sentence:
                problems[i] = sentence
    return documents.without(problems)


def _all_valid(documents: Documents) -> bool:
    """
    Whether nothing is wrong with any document, looking at all of them at once.

    The data as a whole being valid says it of each document, if none begins or ends within a character.
    """
    data, starts = documents.data, documents.starts
    if not data.all():
        return False
    try:
        str(data.data, "utf-8")
    except UnicodeDecodeError:
        return False
    stops = starts + documents.sizes
    edges = np.concatenate((starts[documents.sizes > 0], stops[stops < len(data)]))
    return not bool(((data[edges] & 0xC0) == 0x80).any())


def _sentence(text: bytes) -> str:
    """What is wrong with one document, or nothing."""
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "is not UTF-8: it begins like UTF-16; convert it"
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as exc:
        return f"is not UTF-8: byte {exc.start} is 0x{text[exc.start]:02x} ({exc.reason}); convert it"
    at = text.find(b"\0")
    return f"holds a NUL (byte {at}): is it text?" if at >= 0 else ""
