"""What Spark answers to the SQL between updates and state is signed, part by part, and compared."""

from __future__ import annotations

from milepost.epoch.spark_answers import SparkAnswers, check_answers, recorded_by, signed
from milepost.errors import InvalidRequest
from milepost.jobspec.graph.compatibility import compare_signatures, state_signatures
from milepost_testkit import wording
from milepost_testkit.specs.graphs import build_graph
from tests.unit.operators.sql.test_sql_rules import spec, sql, sums

ASKED = {"made": SparkAnswers("one", "asked")}


def test_answers_are_recorded_with_each_operator_that_reads_them_and_no_other() -> None:
    job = spec(sql("SELECT page FROM totals"), sums("made"), sums("totals", uid="others"))
    before = state_signatures(job, build_graph(job))
    after = signed(before, ASKED)
    assert recorded_by(after) == {"totals": {}, "sums": ASKED, "others": {}}
    assert signed(before, {}) == before and recorded_by({}) == {}
    told = {row["name"]: row["detail"] for row in compare_signatures(after, before) if row["kind"] == "operator"}
    assert set(told.values()) == {"unchanged"}, "the next epoch asks, and compares before it makes any row"


def test_other_answers_to_rows_of_state_are_refused_with_the_way_out() -> None:
    """Another Spark that answers the same is none."""
    recorded = {"sums": ASKED}
    check_answers("job", recorded, {"made": SparkAnswers("one", "of another Spark")})
    check_answers("job", {"sums": {}}, {"made": SparkAnswers("two", "asked")})
    with wording.raises(InvalidRequest):
        check_answers("job", recorded, {"made": SparkAnswers("two", "asked")})
