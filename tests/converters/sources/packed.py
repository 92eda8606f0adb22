"""Packs a source of another program's making, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio.converters import open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.errors import FastioError
from fastio.store import open_store
from fastio.store.protocol import SampleStore, read_values
from fastio.types.field_types import type_of
from tests.commands import run


def refused(path: Path, *fields: str, **options: Any) -> str:
    """What the source or packing it says against a path; only our own errors are expected."""
    out = path.parent / "out.lmdb"
    with pytest.raises(FastioError) as caught:
        pack(open_source(path, fields=[parse_choice(words) for words in fields], **options), out)
    assert not out.exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def packed(
    path: Path, out: Path, *fields: str, skip: bool = False, **options: Any
) -> tuple[dict[str, str], dict[str, Mapping[str, Any]], dict[str, str]]:
    """
    Types by field, samples by key (bytes of payload, columns as lists), and problems by key.

    What was found is packed, skipped or left out, and ``fastio verify --against`` agrees.
    """
    source = open_source(path, fields=[parse_choice(words) for words in fields], **options)
    report = pack(source, out, on_error="skip" if skip else "raise")
    assert len(source) == report.packed + len(report.skipped)
    assert "all good" in run("verify", out, "--against", path)
    with open_store(out) as store:
        every = np.arange(len(store))
        samples: dict[str, dict[str, Any]] = {key: {} for key in store.keys(every)}
        for field in store.schema.fields:
            for i, key in enumerate(samples):
                if field.is_column:
                    samples[key][field.name] = store.column(field.name)[i].tolist()
                else:
                    samples[key][field.name] = store.spans(field.name, np.array([i])).view(0).tobytes()
        types = {field.name: type_of(field) for field in store.schema.fields}
        skipped = {entry["key"]: entry["problem"] for entry in store.metadata.get("skipped") or ()}
    return types, samples, skipped


def value(path: Path, name: str, index: int, dtype: str = "|u1") -> Any:
    """One value of a store as a flat list."""
    with open_store(path) as store:
        return read_values(store, name, np.array([index])).view(0).view(dtype).tolist()


def lists_of(store: SampleStore, name: str) -> list[list[bytes]]:
    """The elements of each sample."""
    elements = store.elements(name)
    views = iter(elements.spans(name, np.arange(len(elements))).views())
    return [[next(views).tobytes() for _ in range(count)] for count in elements.counts.tolist()]
