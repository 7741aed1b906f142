"""A guess at bad JSON lines saves the parser calls, and decides nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from milepost.language.types import parse_type
from milepost.sources.json_lines.expected_values import ExpectedValues
from milepost.sources.kernel.diagnosis import RawRecord, split_bad_records

COLUMNS = {"n": "int32", "x": "float64", "name": "string", "ok": "bool", "at": "timestamp[us, UTC]", "l": "list<int64>"}
EXPECTED = ExpectedValues({name: parse_type(text) for name, text in COLUMNS.items()}, "at")
AT = '"at": "2026-01-01T10:00:00Z"'
FINE = [
    f"{{{AT}}}",
    f'{{"n": -2147483648, "x": 1, "name": "a", "ok": true, {AT}, "l": [1]}}',
    f'{{"n": null, "x": 1.5e3, "more": {{}}, {AT}}}',
    '{"at": "2026-01-01 10:00:00.123456+02:00"}',
]
BAD = [
    "", "[1]", "1", f'{{"n": 1, {AT}', "not JSON", "[" * 5000, f'{{"n": 2147483648, {AT}}}', f'{{"n": true, {AT}}}',
    f'{{"n": "1", {AT}}}', f'{{"x": "a", {AT}}}', f'{{"name": 1, {AT}}}', f'{{"ok": 1, {AT}}}', '{"at": null}', "{}",
    '{"at": "2026-01-01T10:00:00"}', '{"at": "soon"}', '{"at": 5}', '{"n": ' + "9" * 5000 + "}",
]  # fmt: skip


@pytest.mark.parametrize("line", FINE)
def test_a_good_line_does_not_look_bad(line: str) -> None:
    assert not EXPECTED.looks_bad(line)


@pytest.mark.parametrize("line", BAD, ids=lambda line: line[:30])
def test_a_bad_line_looks_bad(line: str) -> None:
    assert EXPECTED.looks_bad(line)


def test_the_first_column_that_does_not_fit_its_type_is_returned_by_index() -> None:
    assert EXPECTED.first_mismatch({"n": 1, "name": 5, "ok": 5}) == 2
    assert EXPECTED.first_mismatch({"at": "2026-01-01T10:00:00Z"}) == len(COLUMNS)


def chosen(seed: int) -> Callable[[RawRecord], bool]:
    return lambda record: random.Random(f"{seed} {record.line}").random() < 0.3


@pytest.mark.parametrize(
    "guess",
    [None, lambda _: True, lambda _: False, chosen(1), chosen(2), lambda record: record.text == "bad"],
    ids=["none", "all", "nothing", "some", "others", "the right ones"],
)
def test_the_bad_records_are_the_same_whatever_the_guess(guess: Callable[[RawRecord], bool] | None) -> None:
    at_random = random.Random(3)
    records = [RawRecord(line, at_random.choice(["good"] * 30 + ["bad"])) for line in range(3_000)]
    good, bad = split_bad_records(records, lambda some: all(one.text == "good" for one in some), guess)
    assert good == [one for one in records if one.text == "good"]
    assert bad == [one for one in records if one.text == "bad"]


def test_a_right_guess_calls_the_engine_once_per_bad_record() -> None:
    """Beside what halves the records into groups that are guessed at: 15 calls, and one for those that seem good."""
    records = [RawRecord(line, "bad" if line % 100 == 7 else "good") for line in range(4_096)]
    asked = [0]

    def accepts(some: list[RawRecord]) -> bool:
        asked[0] += 1
        return all(one.text == "good" for one in some)

    assert len(split_bad_records(records, accepts, lambda record: record.text == "bad")[1]) == 41
    assert asked[0] == 15 + 8 + 41
