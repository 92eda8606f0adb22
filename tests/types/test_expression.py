"""Expressions over columns: what they mean, where they are wrong, and that nothing in them is ever run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import SchemaError
from fastio.types.expression import ColumnValues, Expression

COLUMNS: Mapping[str, ColumnValues] = {
    "width": ColumnValues(np.array([100, 400, 500, 800], np.uint16)),
    "score": ColumnValues(np.array([1.5, np.nan, 5.0, -2.0], np.float32)),
    "label": ColumnValues(np.array([0, 1, 2, 1]), ["dog", "cat", "big cat"]),
    "city": ColumnValues(np.array(["Kyïv", "Oslo", "", "Rome"])),
    "is_day": ColumnValues(np.array([True, False, True, True])),
    "my column": ColumnValues([3, None, 5, 6]),
    "nothing": ColumnValues([None, None, None, None]),
    "grade": ColumnValues([7, None, 12, 7], texts=["07", None, "12", "7"]),
}


def true_of(text: str) -> list[int]:
    """The positions of the samples for which an expression is true."""
    mask = Expression(text, where="a.lmdb").mask(4, COLUMNS.__getitem__, list(COLUMNS))
    assert (mask.dtype, mask.shape) == (np.bool_, (4,))
    return np.flatnonzero(mask).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("width >= 400", [1, 2, 3]),
        ("400 <= width < 800", [1, 2]),
        ("width == 400 or width == 800", [1, 3]),
        ("width in (100, 800)", [0, 3]),
        ("width not in [100, 800]", [1, 2]),
        ("not width > 400", [0, 1]),
        ("width >= 400 and score > 0 or is_day and label == 'dog'", [0, 2]),
        ("width * width > 200000", [2, 3]),
        ("width / 3 > 133.4 - 0.1", [1, 2, 3]),
        ("-width < -450", [2, 3]),
        ("width - 450 < 0", [0, 1]),
        ("score != 5", [0, 3]),  # a missing value is not other than 5: nothing is known of it
        ("not score == 5", [0, 3]),
        ("score is None", [1]),
        ("score is not None and score < 2", [0, 3]),
        ("label == 'cat'", [1, 3]),
        ("label != 'cat'", [0, 2]),
        ("label in ('dog', 'big cat')", [0, 2]),
        ("label in ('dog', 1)", [0, 1, 3]),
        ("label >= 1", [1, 2, 3]),
        ("label.endswith('cat')", [1, 2, 3]),
        ("city == 'Kyïv'", [0]),
        ("city.startswith('K') or city.contains('m')", [0, 3]),
        ("city < 'P' and city > ''", [0, 1]),
        ("is_day", [0, 2, 3]),
        ("not is_day", [1]),
        ("is_day == (width > 400)", [1, 2, 3]),
        ("column('my column') >= 5", [2, 3]),
        ("column('my column') is None", [1]),
        ("nothing > 3 or not nothing == 'a' or nothing + 1 > 0 or nothing in (1, 2)", []),
        ("nothing is None and not (nothing and width > 3) or width == 100", [0]),
        ("grade == 7", [0, 3]),
        ("grade == '7'", [3]),
        ("grade.startswith('0')", [0]),
        ("True", [0, 1, 2, 3]),
        ("1 > 2", []),
        ("width\n >=\n 800", [3]),
        ("'Kyïv' == city", [0]),
    ],
)
def test_what_they_mean(text: str, expected: list[int]) -> None:
    """Comparisons, logic with missing values, classes by name and number, arithmetic of wide numbers, text."""
    assert expected == true_of(text)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("widht > 3", 1, "no column 'widht': did you mean 'width'?"),
        ("width > 3 and qqqq", 15, "no column 'qqqq': there are width, score"),
        ("width = 3", 7, "for equality, write =="),
        ("width >", 1, "is no expression"),
        ("", 1, "is no expression"),
        ("width", 1, "is a number, where a comparison is expected"),
        ("width > 3 and city", 15, "is a text, where a comparison is expected"),
        ("city == 'Kyïv' and width == 'a'", 20, "cannot compare a number with a text"),
        ("width in 3", 10, "expected values in brackets after in"),
        ("width in ()", 10, "expected values in brackets after in"),
        ("width is 3", 10, "expected None after is"),
        ("width == None", 10, "is not known here"),
        ("label == 'catt'", 10, "no class has this name: did you mean 'cat'?"),
        ("city + 'a' == 'b'", 1, "is a text, where a number is expected"),
        ("width.startswith('1')", 1, "is a number, but .startswith() is for text"),
        ("city.upper() == 'A'", 1, "is not known here"),
        ("city.contains(city)", 1, "expected .startswith, .endswith, .contains of one text"),
        ("width ** 2 > 3", 1, "is not known here"),
        ("width * 9000000000000000000 > 3", 1, "cannot be computed: overflow"),
        ("width > 99999999999999999999", 9, "is too large"),
        ("__import__('os').system('true')", 1, "expected .startswith"),
        ("open('a')", 1, "is not known here"),
        ("[width for width in (1, 2)]", 1, "is not known here"),
        ("width if is_day else 3", 1, "is not known here"),
        ("(lambda: True)()", 1, "is not known here"),
        ("width.real > 3", 1, "is not known here"),
        ("(width := 3) > 2", 2, "is not known here"),
        ("column('width', 'city') > 2", 1, "is not known here"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, place: int, problem: str) -> None:
    """Anything but the language is refused in one line: the expression, the part, its character, what was expected."""
    with pytest.raises(SchemaError) as caught:
        true_of(text)

    assert f"a.lmdb: {text!r}, at " in str(caught.value)
    assert f"(character {place}): " in str(caught.value)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_short_floats_compare_as_they_are_stored(dtype: str) -> None:
    """A number is rounded to the column's type, as by NumPy; one that it cannot hold, and what is computed, is not."""
    values = np.array([0.1, 0.7, 0.69, 0.71, np.nan, np.inf], dtype)
    columns = {"score": ColumnValues(values), "same": ColumnValues(values.astype("f8"))}

    def chosen(text: str) -> list[int]:
        mask = Expression(text, where="x").mask(len(values), columns.__getitem__, tuple(columns))
        return np.flatnonzero(mask).tolist()

    assert [1, 3, 5] == chosen("score >= 0.7") == chosen("0.7 <= score") == np.flatnonzero(values >= 0.7).tolist()
    assert [1] == chosen("score == 0.7") == chosen("score in (0.5, 0.7)") == chosen("0.7 <= score <= 0.7")
    assert [0, 2] == chosen("score < 0.7")
    assert [0, 1, 2, 3, 5] == chosen("score == same")
    assert [0, 1, 2, 3] == chosen("score < 1e300")
    assert [1] == chosen("-score == -0.7") if dtype == "f8" else [] == chosen("-score == -0.7")


def test_what_is_no_text_is_no_expression() -> None:
    """A mask or a function is for indices=."""
    with pytest.raises(TypeError, match="expected an expression as text, such as 'width >= 400'"):
        Expression(lambda width: width > 3, where="a.lmdb")  # type: ignore[arg-type]


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says what to install."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("fastio.types.expression.import_module", missing)
    with pytest.raises(
        SchemaError, match=r"a\.lmdb: expressions need the package pyarrow: pip install 'fastio\[text\]'"
    ):
        true_of("width > 3")


numbers = st.integers(-20, 20)
values = st.sampled_from(["a", "b", "a + b", "a - 3", "2 * b", "-a"]) | numbers.map(str)
comparisons = st.tuples(values, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), values).map(" ".join)
expressions = st.recursive(
    comparisons | st.sampled_from(["a in (1, 2, 3)", "b not in (0, -1)", "1 < a <= b"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda each: f"not {each}"),
    ),
    max_leaves=8,
)


@settings(max_examples=200)
@given(expressions, st.lists(st.tuples(numbers, numbers), max_size=12))
def test_they_mean_what_they_mean_in_python(text: str, rows: list[tuple[int, int]]) -> None:
    """Of whole numbers without gaps, an expression is true where Python says so of each sample."""
    columns = {"a": ColumnValues(np.array([a for a, _ in rows], np.int8)), "b": ColumnValues([b for _, b in rows])}
    mask = Expression(text, where="a.lmdb").mask(len(rows), columns.__getitem__, list(columns))

    assert [bool(eval(text, {"a": a, "b": b})) for a, b in rows] == mask.tolist()
