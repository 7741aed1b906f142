"""`on_fail`: which expectations, columns and sinks can reject rows, and the messages for all others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.graph import JobGraph
from milepost.jobspec.load.lint import lint_report
from milepost.jobspec.load.load import LoadedJob, from_text
from milepost_testkit import wording

SPEC = """\
name: visits
storage: ../store
sources:
  visits:
    format: parquet
    path: ../landing/*.parquet
    schema: {city: string, minutes: int64, share: float32, paid: bool, fee: "decimal(6,2)", at: "timestamp[us, UTC]",
             day: date, tags: list<string>}
operators:
  - {uid: totals, kind: aggregate, inputs: [visits], key: [city], aggregates: {minutes: sum(minutes)}}
sinks:
  - {name: raw, input: visits, format: parquet, path: ../lake/raw, mode: append}
  - {name: cities, input: totals, format: parquet, path: ../lake/cities, mode: upsert}
"""
REJECTED = "  - {name: refused, input: raw.rejected, format: parquet, path: ../lake/refused, mode: append}\n"
_P = "expect_column_values_to_"


def loaded(sink: str, *rules: dict[str, Any], sinks: str = REJECTED) -> LoadedJob:
    text = f"{SPEC}{sinks}quality:\n  - {{sink: {sink}, expectations: {json.dumps(rules)}}}\n"
    return from_text(text, Path("/jobs/config/visits.yaml"))


def graph(sink: str, *rules: dict[str, Any], sinks: str = REJECTED) -> JobGraph:
    return loaded(sink, *rules, sinks=sinks).graph()


MINUTES = {"type": f"{_P}be_between", "column": "minutes", "min_value": 0, "on_fail": "quarantine"}
DROPPED = MINUTES | {"on_fail": "drop"}


def test_a_sink_of_rejected_rows_has_the_columns_of_the_other_sink_and_the_rule() -> None:
    inputs = graph("raw", MINUTES).sink_inputs
    assert [*inputs] == ["raw", "cities", "refused"]
    assert [*inputs["refused"].columns] == [*inputs["raw"].columns, "_rule", "_object"]
    assert (inputs["refused"].output, inputs["refused"].uid) == ("raw.rejected", "visits")


@pytest.mark.parametrize(
    "rule",
    [
        {"type": f"{_P}be_null", "column": "tags"},
        {"type": f"{_P}not_be_null", "column": "at"},
        {"type": f"{_P}be_between", "column": "share", "max_value": 0.5},
        {"type": f"{_P}be_between", "column": "fee", "min_value": 0, "mostly": 0.9, "severity": "warning"},
        {"type": f"{_P}be_between", "column": "at", "min_value": "2026-01-01T00:00:00Z"},
        {"type": f"{_P}be_between", "column": "day", "min_value": "2026-01-01"},
        {"type": f"{_P}be_in_set", "column": "city", "value_set": ["Bergen", None]},
        {"type": f"{_P}not_be_in_set", "column": "paid", "value_set": [True]},
        {"type": f"{_P}match_regex", "column": "city", "regex": "^[A-Z]"},
        {"type": "expect_column_value_lengths_to_equal", "column": "city", "value": 3},
    ],
)
def test_rules_on_single_rows_are_accepted(rule: dict[str, Any]) -> None:
    assert graph("raw", rule | {"on_fail": "drop"}, sinks="").sink_inputs


@pytest.mark.parametrize(
    "rule",
    [
        {"type": f"{_P}be_unique", "column": "city"},
        {"type": "expect_column_max_to_be_between", "column": "minutes", "max_value": 9},
        {"type": "expect_table_row_count_to_equal", "value": 1},
        {"type": "expect_column_pair_values_to_be_equal", "column_A": "city", "column_B": "city"},
        {"type": f"{_P}be_null", "column": "city", "row_condition": "minutes > 1", "condition_parser": "pandas"},
        {"type": f"{_P}be_null", "column": "city", "severity": "warning"},
        {"type": f"{_P}be_between", "column": "city", "max_value": 9},
        {"type": f"{_P}be_between", "column": "minutes", "max_value": "2026-01-01"},
        {"type": f"{_P}be_between", "column": "at", "max_value": "2026-01-01"},
        {"type": f"{_P}be_between", "column": "at", "max_value": "2026-01-01T00:00:00"},
        {"type": f"{_P}be_between", "column": "day", "min_value": 0, "max_value": "2026-01-01"},
        {"type": f"{_P}be_between", "column": "share", "min_value": "nan"},
        {"type": f"{_P}be_between", "column": "day", "min_value": "2026-01-02", "max_value": "2026-01-01"},
        {"type": f"{_P}be_in_set", "column": "city", "value_set": ["Bergen", 1]},
        {"type": f"{_P}be_in_set", "column": "minutes", "value_set": ["1"]},
        {"type": f"{_P}be_in_set", "column": "fee", "value_set": [1.5]},
        {"type": f"{_P}match_regex", "column": "minutes", "regex": "1"},
        {"type": f"{_P}match_regex", "column": "city", "regex": "("},
        {"type": f"{_P}match_regex", "column": "city"},
        {"type": f"{_P}be_null", "column": "town"},
    ],
)
def test_expectations_that_do_not_apply_to_single_rows_are_refused_with_those_that_do(rule: dict[str, Any]) -> None:
    with wording.raises(InvalidRequest):
        graph("raw", rule | {"on_fail": "drop"}, sinks="")


@pytest.mark.parametrize(
    ("sink", "rule", "sinks"),
    [
        ("cities", DROPPED, ""),
        ("raw", MINUTES, ""),
        ("raw", DROPPED, REJECTED),
        ("raw", MINUTES | {"on_fail": "veto"}, REJECTED),
        ("raw", MINUTES | {"on_fail": "skip"}, ""),
        ("raw", MINUTES, REJECTED.replace("mode: append", "mode: changelog")),
        ("refused", DROPPED, REJECTED),
        ("raw", MINUTES, REJECTED.replace("raw.", "rows.")),
    ],
    ids=[
        "keyed",
        "no-reader",
        "only-dropped",
        "only-veto",
        "no-such-word",
        "changelog",
        "rejected-twice",
        "no-such-sink",
    ],
)
def test_sinks_that_cannot_have_or_show_rejected_rows_are_refused(sink: str, rule: dict[str, Any], sinks: str) -> None:
    with wording.raises(InvalidRequest):
        graph(sink, rule, sinks=sinks)


def test_an_operator_cannot_read_rejected_rows() -> None:
    text = SPEC.replace("inputs: [visits]", "inputs: [raw.rejected]")
    with wording.raises(InvalidRequest):
        from_text(
            f"{text}{REJECTED}quality:\n  - {{sink: raw, expectations: {json.dumps([MINUTES])}}}\n",
            Path("/jobs/config/visits.yaml"),
        ).graph()


@pytest.mark.parametrize("name", ["_rule", "_Object"])
def test_a_table_with_a_column_of_the_name_of_the_rule_cannot_quarantine(name: str) -> None:
    text = SPEC.replace("city: string", f"{name}: string, city: string")
    with wording.raises(InvalidRequest):
        from_text(
            f"{text}{REJECTED}quality:\n  - {{sink: raw, expectations: {json.dumps([MINUTES])}}}\n",
            Path("/jobs/config/visits.yaml"),
        ).graph()


def test_lint_says_where_refused_rows_go_and_which_columns_decide() -> None:
    fee = {"type": f"{_P}not_be_null", "column": "fee", "on_fail": "drop", "mostly": 0.9}
    report = lint_report(loaded("raw", MINUTES, fee))
    assert report["row_rules"] == [
        {
            "sink": "raw",
            "rule": f"{_P}be_between(minutes)",
            "on_fail": "quarantine",
            "mostly": None,
            "sinks": ["refused"],
        },
        {"sink": "raw", "rule": f"{_P}not_be_null(fee)", "on_fail": "drop", "mostly": 0.9, "sinks": []},
    ]
    for table in ("raw", "refused"):
        deciding = [(one["column"], one["subtype"]) for one in report["lineage"][table]["rows"]]
        assert deciding == [("fee", "FILTER"), ("minutes", "FILTER")]
    assert report["lineage"]["refused"]["columns"]["_rule"] == []
    edge = next(one for one in report["edges"] if one["to"] == "refused")
    assert (edge["from"], edge["part"], edge["mode"]) == ("visits", ".rejected", "append")
