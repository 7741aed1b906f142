"""Joins whose state a time of the left row bounds, compiled from SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from milepost.jobspec.load.lint import lint_report
from milepost.jobspec.load.load import LoadedJob, from_text
from milepost.jobspec.load.sql_text import SqlText
from milepost_testkit.jobs.sql_job import document


def job(sql: str) -> LoadedJob:
    return from_text(json.dumps(document(sql)), Path("/jobs/shop.yaml"), SqlText.of("shop.sql", sql))


DUE = (
    "WITH o AS (SELECT *, ordered_at + INTERVAL 1 HOUR 30 MINUTES AS due, ordered_at + INTERVAL 2 MINUTES AS opens "
    "FROM orders) "
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("joined", "within"),
    [
        ("o JOIN payments p ON o.id = p.order_id AND paid_at BETWEEN ordered_at AND due", ["0s", "due - ordered_at"]),
        ("o, payments p WHERE id = order_id AND due >= paid_at AND ordered_at - INTERVAL 5 MINUTES <= paid_at",
         ["-5m", "due - ordered_at"]),
        ("o LEFT JOIN payments p ON id = order_id AND paid_at BETWEEN ordered_at AND due AND p.amount > 1",
         ["0s", "due - ordered_at"]),
        ("o JOIN payments p ON id = order_id AND paid_at BETWEEN ordered_at AND due AND p.amount > o.amount",
         ["0s", "due - ordered_at"]),
        ("o JOIN payments p ON id = order_id AND paid_at BETWEEN ordered_at AND due AND paid_at <= ordered_at + DAY",
         ["0s", "1d"]),
        ("o JOIN payments p ON id = order_id AND paid_at <= due", None),
        ("o JOIN payments p ON paid_at BETWEEN ordered_at AND due", None),
        ("o JOIN payments p ON id = order_id AND due >= paid_at AND paid_at >= ordered_at AND paid_at < due",
         ["0s", "due - ordered_at"]),
        ("o JOIN payments p ON id = order_id AND paid_at BETWEEN due AND ordered_at + INTERVAL 9 HOURS", None),
        ("payments p JOIN o ON id = order_id AND paid_at BETWEEN ordered_at AND due", None),
        ("o LEFT JOIN payments p ON id = order_id AND WITHIN_A_DAY AND paid_at >= opens",
         [["0s", "opens - ordered_at"], "1d"]),
        ("o LEFT JOIN payments p ON id = order_id AND WITHIN_A_DAY AND paid_at <= due",
         ["0s", ["1d", "due - ordered_at"]]),
        ("o LEFT SEMI JOIN payments p ON id = order_id AND paid_at BETWEEN opens AND due AND paid_at >= ordered_at",
         [["0s", "opens - ordered_at"], "due - ordered_at"]),
        ("o FULL JOIN payments p ON id = order_id AND WITHIN_A_DAY AND paid_at BETWEEN opens AND due",
         [["0s", "opens - ordered_at"], ["1d", "due - ordered_at"]]),
        ("o JOIN payments p ON id = order_id AND paid_at BETWEEN opens AND ordered_at + DAY AND paid_at >= ordered_at",
         ["0s", "1d"]),
        ("o JOIN payments p ON id = order_id AND paid_at BETWEEN opens AND due AND paid_at >= ordered_at",
         ["0s", "due - ordered_at"]),
        ("o LEFT SEMI JOIN payments p ON id = order_id AND paid_at >= opens AND paid_at <= due", None),
        ("o LEFT SEMI JOIN payments p ON id = order_id AND paid_at >= ordered_at AND paid_at >= opens", None),
    ],
)  # fmt: skip
def test_a_time_of_the_left_row_bounds_the_state_of_a_join(joined: str, within: list[Any] | None) -> None:
    joined = joined.replace("WITHIN_A_DAY", "paid_at BETWEEN ordered_at AND ordered_at + DAY")
    joined = joined.replace("DAY", "INTERVAL 1 DAY")
    spec = job(f"CREATE STREAMING TABLE v AS {DUE}SELECT o.id FROM {joined}").spec
    (join,) = [operator for operator in spec.operators if operator.kind == "join"]
    assert join.model_dump(mode="json")["within"] == within


def test_a_bound_that_is_no_column_is_computed_before_the_join() -> None:
    """The end of a bound of a join is included: without it, it is the microsecond before."""
    condition = "id = order_id AND paid_at >= ordered_at AND paid_at < due + INTERVAL 10 MINUTES"
    loaded = job(f"CREATE STREAMING TABLE v AS {DUE}SELECT o.id FROM o JOIN payments p ON {condition}")
    assert "`due` + INTERVAL 599999999 MICROSECONDS AS `bound_" in loaded.spec.operator("v__left_payments").sql
    (statement,) = lint_report(loaded)["statements"]
    assert [state["until"] for state in statement["state"]] == [
        "the watermark passes due + 10m",
        "the watermark passes event time",
    ]


def test_an_outer_join_with_another_comparison_keeps_its_rows() -> None:
    condition = "id = order_id AND paid_at >= ordered_at AND paid_at <= due AND p.amount > o.amount"
    query = f"{DUE}SELECT o.id, count(*) AS n FROM o LEFT JOIN payments p ON {condition} GROUP BY id"
    loaded = job(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert loaded.spec.operator("v__join_payments").within is None


def test_lint_warns_if_another_order_of_relations_would_bound_the_state_of_a_join() -> None:
    joined = "payments p JOIN o ON id = order_id AND paid_at BETWEEN ordered_at AND due"
    (statement,) = lint_report(job(f"CREATE STREAMING TABLE v AS {DUE}SELECT o.id FROM {joined}"))["statements"]
    assert [one["message"] for one in statement["warnings"]] == [
        "this join stores all rows; name o first, so that due bounds them"
    ]


def test_a_constant_bound_leaves_a_time_of_the_left_row_to_a_filter() -> None:
    """So the output has an event time, as that of any join with constant bounds."""
    bounds = "paid_at BETWEEN ordered_at AND due AND paid_at <= ordered_at + INTERVAL 1 DAY"
    loaded = job(
        f"CREATE STREAMING TABLE v AS {DUE}SELECT o.id, ordered_at FROM o JOIN payments p ON id = order_id AND {bounds}"
    )
    assert "WHERE (`payments__paid_at` BETWEEN `ordered_at` AND `due`)" in loaded.spec.operator("v").sql
    assert loaded.graph().nodes["v"].event_time == "ordered_at"
