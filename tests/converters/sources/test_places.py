"""Lines and documents named in few characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastio.converters.sources.places import joined_places, places_of, runs_text
from tests.converters.text.build import numbers_in

NUMBERS = st.lists(st.integers(0, 60), unique=True, max_size=40).map(sorted)


@given(NUMBERS)
def test_runs_say_all_numbers(numbers: list[int]) -> None:
    """No number is lost, added or moved."""
    assert numbers == numbers_in(runs_text(numbers))


def test_every_second_line_takes_one_run() -> None:
    """A text with a blank line after each other one takes no more room than a short one."""
    assert "2-2000000/2" == runs_text(range(2, 2_000_001, 2))


@given(st.lists(st.tuples(st.sampled_from(["a.txt", "b:3.txt"]), NUMBERS), max_size=8))
def test_pieces_are_joined_by_file(pieces: list[tuple[str, list[int]]]) -> None:
    """The documents of all pieces stand by their file, in order."""
    expected: dict[str, list[int]] = {}
    for file, numbers in pieces:
        if numbers:
            expected.setdefault(file, []).extend(numbers)
    joined = joined_places(places_of([f"{file}:{number}" for number in numbers]) for file, numbers in pieces)

    assert expected == {file: numbers_in(text) for file, text in joined.items()}


def test_documents_without_a_number_are_named_by_themselves() -> None:
    """A file that is a document has its own entry."""
    assert {"pos/1.txt": "", "c.jsonl": "4"} == places_of(["pos/1.txt", "c.jsonl:4"])
