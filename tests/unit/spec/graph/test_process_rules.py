"""Where the rows of a process function may go is decided from the spec alone."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.protocol.records.errors import InvalidRequest
from milepost.spec.graph.graph import SinkInput
from milepost.spec.job.spec import JobSpec
from tests.harness.jobs.graphs import build_graph

SOURCE = {"format": "json", "path": "in/*", "schema": {"k": "int64", "day": "date"}}
CATALOG = {"type": "rest", "uri": "http://c"}


def shown(output_key: list[str], **sink: Any) -> SinkInput:
    operator = {"uid": "last", "kind": "process", "inputs": ["rows"], "key": ["k"], "function": "ops:Last"}
    table = {"name": "shown", "input": "last", "format": "delta", "path": "out", "mode": "upsert", **sink}
    value = {"name": "job", "storage": "lake", "sources": {"rows": SOURCE}, "sinks": [table]}
    operators = [{**operator, "output_key": output_key}]
    return build_graph(JobSpec.model_validate({**value, "operators": operators})).sink_inputs["shown"]


@pytest.mark.parametrize("sink", [{}, {"format": "iceberg", "catalog": CATALOG, "table": "a.b"}])
def test_a_table_of_buckets_shows_the_rows_of_the_operators_own_key_alone(sink: dict[str, Any]) -> None:
    """Buckets are of the sink's key, and a subtask has the rows of the operator's: it would write others' buckets."""
    rows = shown(["k"], **sink)
    assert (rows.key, rows.deletes) == (("k",), True)
    with pytest.raises(InvalidRequest, match=r"not available in this version for an `output_key`.* mode: changelog"):
        shown(["k", "day"], **sink)
    assert shown(["k", "day"], **sink, mode="changelog").op == "upsert"
    assert shown(["k", "day"], format="parquet").key == ("k", "day")
