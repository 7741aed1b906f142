"""SQL over updates makes what is read of it, and nothing else: rows by their key, rows with weights, or both."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from milepost.operators.base.edges import DELETED_COLUMN
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost.spark.task.outputs import sql_outputs
from milepost.spark.task.row_steps.sql_expression import selects
from milepost_testkit.specs.graphs import build_graph
from tests.unit.operators.sql.test_sql_rules import spec, sql, sums

WEIGHTED = pa.schema([("page", pa.string()), ("n", pa.int64()), ("seen", pa.int64()), (WEIGHT_COLUMN, pa.int64())])
CLICKS = pa.schema([("page", pa.string()), ("n", pa.int64())])


def made(*operators: dict[str, Any], shown: tuple[str, ...] = ("sums",)) -> dict[str, dict[str, str]]:
    return {one.name: dict(one.inputs) for one in sql_outputs(build_graph(spec(*operators, shown=shown)))}


def test_each_output_is_made_of_the_same_kind_of_output() -> None:
    kept, behind = sql("SELECT * FROM totals WHERE n > 0", uid="kept"), sql("SELECT * FROM kept", "kept")
    assert made(kept, behind, shown=("made",)) == {"kept": {"totals": "totals"}, "made": {"kept": "kept"}}
    weighted = {"kept.retract": {"totals": "totals.retract"}, "made.retract": {"kept": "kept.retract"}}
    assert made(kept, behind, sums("made")) == weighted
    assert made(kept, behind, sums("made"), shown=("sums", "kept")) == {"kept": {"totals": "totals"}, **weighted}


def test_a_row_keeps_its_weight_and_one_that_stays_came_once() -> None:
    union = sql("SELECT page FROM totals WHERE n > 0 UNION ALL SELECT page FROM clicks", "clicks", "totals")
    job = spec(union, sums("made"))
    (output,) = sql_outputs(build_graph(job))
    assert output.is_weighted and output.inputs == {"clicks": "clicks", "totals": "totals.retract"}
    schemas = {"clicks": CLICKS, "totals.retract": WEIGHTED}
    first, second = selects(job, output, schemas, {name: (f"n_{name}",) for name in schemas})
    source = "`n_totals.retract`"
    assert first.expression.text == (
        f"CASE WHEN {source} IS NOT NULL AND ({source}.`n` > 0) "
        f"THEN named_struct('page', {source}.`page`, '__weight', {source}.`__weight`) END"
    )
    assert "'__weight', 1L)" in second.expression.text and not first.is_only_branch


def test_a_star_means_the_columns_of_the_spec() -> None:
    job = spec(sql("SELECT * FROM totals"), sums("made"), shown=("sums", "made"))
    for output in sql_outputs(build_graph(job)):
        fields = [one for one in WEIGHTED if output.is_weighted or one.name != WEIGHT_COLUMN]
        (read,) = output.inputs.values()
        (one,) = selects(job, output, {read: pa.schema(fields)}, {read: ("n_t",)})
        assert one.expression.text.count("`n_t`.`page`") == 1
        assert (WEIGHT_COLUMN in one.expression.text, DELETED_COLUMN in one.expression.text) == (
            output.is_weighted,
            False,
        )
