"""Row rules: Arrow in the tasks refuses the rows that Great Expectations refuses, and rejects each of them once."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.jobspec.job import QualitySpec
from milepost.language import range_bound
from milepost.quality.gx import POSITIONS, build_expectations, exception_of, silence_library, validate_rows
from milepost.quality.row_rules import RowRules
from milepost_testkit import profiles

_P = "expect_column_values_to_"
INTEGERS = st.one_of(st.integers(-3, 3), st.sampled_from([2**53, 2**53 + 1, 2**60, 2**60 + 1, -(2**63), 2**63 - 1]))
FLOATS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 2.5, 1e308, float("inf"), float("-inf"), float("nan"), 0.1]))
TEXTS = st.one_of(st.sampled_from(["", "a", "b", "ab", "A\n", "é", "😀", "nan", "None", "1"]), st.text(max_size=4))
TIMES = st.datetimes(datetime.fromisoformat("0001-01-02"), datetime.fromisoformat("9999-12-30"))
DAYS = st.dates()
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "n": (pa.int64(), INTEGERS),
    "i": (pa.int8(), st.integers(-128, 127)),
    "f": (pa.float64(), FLOATS),
    "g": (pa.float32(), st.floats(width=32)),
    "s": (pa.string(), TEXTS),
    "b": (pa.bool_(), st.booleans()),
    "d": (pa.decimal128(6, 2), st.decimals(-3, 3, places=2)),
    "t": (pa.timestamp("us"), TIMES),
    "z": (pa.timestamp("us", "UTC"), TIMES.map(lambda at: at.replace(tzinfo=UTC))),
    "day": (pa.date32(), DAYS),
    "l": (pa.list_(pa.int64()), st.lists(st.integers(0, 1), max_size=2)),
}
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -1.5, 2**53, 2**60, float("inf"), -1e300, "2", 127, 128]))
BOUNDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys("nifgd", NUMBERS),
    "t": TIMES.map(lambda at: at.isoformat()),
    "z": TIMES.map(lambda at: at.isoformat() + "Z"),
    "day": st.one_of(DAYS, DAYS.map(date.isoformat)),
}
MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "n": INTEGERS,
    "i": st.integers(-200, 200),
    "f": st.one_of(st.integers(-3, 3), st.sampled_from([0.0, -0.0, 2.5, 0.1])),
    "g": st.one_of(st.integers(-3, 3), st.sampled_from([0.0, 0.1])),
    "s": TEXTS,
    "b": st.booleans(),
    "d": st.integers(-3, 3),
}
LENGTHS = st.integers(0, 4)


@st.composite
def ranges(draw: st.DrawFn, bounds: st.SearchStrategy[Any]) -> dict[str, Any]:
    low, high = sorted(draw(st.tuples(bounds, bounds)), key=range_bound)
    given_bounds = draw(
        st.sampled_from([{"min_value": low}, {"max_value": high}, {"min_value": low, "max_value": high}])
    )
    return given_bounds | draw(st.dictionaries(st.sampled_from(["strict_min", "strict_max"]), st.booleans()))


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    """An expectation that can reject rows, with arguments that Great Expectations accepts."""
    kind = draw(
        st.sampled_from(["null", "not_null", "between", "in", "not_in", "match", "not_match", "length", "long"])
    )
    rule: dict[str, Any]
    if kind in ("null", "not_null"):
        rule = {
            "type": f"{_P}{'not_' if kind == 'not_null' else ''}be_null",
            "column": draw(st.sampled_from([*VALUES])),
        }
    elif kind == "between":
        column = draw(st.sampled_from([*BOUNDS]))
        rule = {"type": f"{_P}be_between", "column": column, **draw(ranges(BOUNDS[column]))}
    elif kind in ("in", "not_in"):
        column = draw(st.sampled_from([*MEMBERS]))
        members = draw(st.lists(st.one_of(MEMBERS[column], st.none()), max_size=3))
        name = "be_in_set" if kind == "in" else "not_be_in_set"
        rule = {"type": _P + name, "column": column, "value_set": members}
    elif kind in ("match", "not_match"):
        regex = draw(st.sampled_from(["^a", "a$", "(?i)A", "b|é", r"\d", "", "^(a|b)+$", r"\Aa\Z"]))
        rule = {"type": f"{_P}{'not_' if kind == 'not_match' else ''}match_regex", "column": "s", "regex": regex}
    elif kind == "length":
        rule = {"type": "expect_column_value_lengths_to_equal", "column": "s", "value": draw(LENGTHS)}
    else:
        rule = {"type": "expect_column_value_lengths_to_be_between", "column": "s", **draw(ranges(LENGTHS))}
    return rule | {"on_fail": draw(st.sampled_from(["drop", "quarantine"]))}


TABLES = (
    st.integers(1, 12)
    .flatmap(
        lambda size: st.fixed_dictionaries(
            {
                name: st.lists(st.one_of(values, st.none()), min_size=size, max_size=size).map(
                    lambda column, type_=type_: pa.array(column, type_)
                )
                for name, (type_, values) in VALUES.items()
            }
        )
    )
    .map(pa.table)
)


def suite(*expectations: dict[str, Any]) -> QualitySpec:
    return QualitySpec.model_validate({"sink": "x", "expectations": list(expectations)}, strict=False)


@pytest.mark.long
@profiles.examples(share=3)
@given(TABLES, st.lists(rules(), min_size=1, max_size=6))
def test_tasks_refuse_the_rows_that_great_expectations_refuses(table: pa.Table, wanted: list[dict[str, Any]]) -> None:
    spec = suite(*wanted)
    with silence_library():
        answers = validate_rows(build_expectations(spec), table, POSITIONS, nullable=table.column_names)
    refused: dict[int, set[int]] = {}
    for number, answer in answers.items():
        assert exception_of(answer) is None, wanted[number]
        refused[number] = {int(position) for position in answer.result.get("unexpected_index_list") or ()}
    numbered = table.append_column("row", pa.array(range(table.num_rows)))
    split = RowRules.of(spec, numbered.schema).split(numbered)
    for number, counts in split.counts.rules.items():
        result = answers[number].result
        found = (counts.elements, counts.missing, counts.refused)
        assert found == (result["element_count"], result.get("missing_count"), len(refused[number])), wanted[number]
    stored = set().union(*(refused[number] for number, rule in enumerate(wanted) if rule["on_fail"] == "quarantine"))
    every = set().union(*refused.values())
    assert split.accepted["row"].to_pylist() == sorted({*range(table.num_rows)} - every)
    assert ([] if split.quarantined is None else split.quarantined["row"].to_pylist()) == sorted(stored)
    assert (split.counts.dropped, split.counts.quarantined) == (len(every - stored), len(stored))
