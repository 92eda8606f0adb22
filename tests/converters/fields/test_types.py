"""Paths into JSON, and what they lead to nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from fastio.converters.fields.types import PathCheck, missing_part, value_at


@pytest.mark.parametrize(
    ("document", "path", "expected"),
    [
        ({"a": {"b": 3}}, "a.b", 3),
        ([{"a": 1}, {"a": 2}], "a", [1, 2]),
        ({"a": [{"b": 1}, {}]}, "a.b", [1, None]),
        (None, "a", None),
        ({"a": None}, "a.b", None),
        ({"a": []}, "a.b", []),
    ],
)
def test_values(document: Any, path: str, expected: Any) -> None:
    """Objects by name, lists member by member, None where there is nothing."""
    assert expected == value_at(document, path.split("."))


def test_a_path_through_a_number() -> None:
    """What has no names is no place to look for one."""
    with pytest.raises(KeyError, match="b"):
        value_at({"a": 3}, ["a", "b"])


@pytest.mark.parametrize(
    ("document", "path", "expected"),
    [
        ({"bbox": [], "kind": 1}, "bboxx", "no 'bboxx' in 'it', only 'bbox', 'kind'"),
        ([{"a": {"b": 1}}, {"a": {}}], "a.c", "no 'c' in 'it.a', only 'b'"),
        ([{"a": 1}, {"b": 2}], "b", ""),
        ([], "b", ""),
        (None, "b", ""),
        ({"b": None}, "b", ""),
    ],
)
def test_missing_parts(document: Any, path: str, expected: str) -> None:
    """The first part that no object has, and what there is instead; null and empty lists say nothing."""
    assert expected == missing_part("it", document, path.split("."))


def test_one_document_with_the_part_is_enough() -> None:
    """Only what is in no document at all is a mistake of who typed the path."""
    check = PathCheck("it", ["b"])
    assert "no 'b' in 'it', only 'a'" == check.look_at({"a": 1}, None) == check.missing
    assert "" == check.look_at({"b": 2}, 2) == check.missing
    assert "no 'b' in 'it', only 'c'" == check.look_at({"c": 1}, None)
    assert "" == check.missing
