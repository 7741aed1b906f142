"""Output of process operators."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.jobspec.graph.sink_input import SinkInput
from milepost.jobspec.job.spec import JobSpec
from milepost_testkit.specs.graphs import build_graph

SOURCE = {"format": "json", "path": "in/*", "schema": {"k": "int64", "day": "date"}}
CATALOG = {"type": "rest", "uri": "http://c"}


def shown(output_key: list[str], **sink: Any) -> SinkInput:
    operator = {"uid": "last", "kind": "process", "inputs": ["rows"], "key": ["k"], "function": "ops:Last"}
    table = {"name": "shown", "input": "last", "format": "delta", "path": "out", "mode": "upsert", **sink}
    value = {"name": "job", "storage": "lake", "sources": {"rows": SOURCE}, "sinks": [table]}
    operators = [{**operator, "output_key": output_key}]
    return build_graph(JobSpec.model_validate({**value, "operators": operators})).sink_inputs["shown"]


@pytest.mark.parametrize("sink", [{}, {"format": "iceberg", "catalog": CATALOG, "table": "a.b"}])
def test_buckets_of_a_process_operator_use_its_own_key(sink: dict[str, Any]) -> None:
    rows = shown(["k"], **sink)
    assert (rows.key, rows.routing_key, rows.deletes) == (("k",), ("k",), True)
    assert (wide := shown(["day", "k"], **sink)).routing_key == ("k",) and wide.key == ("day", "k")
    assert shown(["k", "day"], **sink, mode="changelog").op == "upsert"
    assert shown(["k", "day"], format="parquet").routing_key is None
