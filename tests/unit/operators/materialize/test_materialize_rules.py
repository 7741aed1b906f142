"""Output, checks and signatures of `materialize`."""

from __future__ import annotations

from typing import Any

from milepost.errors import InvalidRequest
from milepost.jobspec.graph.compatibility import NEW_UID, compare_signatures, state_signatures
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.explain import explained_node
from milepost_testkit import wording
from milepost_testkit.specs.graphs import build_graph

CLICKS = {"page": "string", "at": "timestamp[us, UTC]", "tags": "list<string>", "x": "float64"}
WORST = {"uid": "worst", "kind": "top", "inputs": ["clicks"], "key": ["page"], "order_by": [{"x": "desc"}], "n": 3}
SHOWN = {"uid": "shown", "kind": "materialize", "inputs": ["worst"], "key": ["at", "page"]}
TOTALS = {"uid": "worst", "kind": "aggregate", "inputs": ["clicks"], "key": ["page", "at"],
          "aggregates": {"n": "count(*)"}}  # fmt: skip
LESS = {"uid": "less", "kind": "sql", "inputs": ["worst"], "sql": "SELECT * FROM worst WHERE x > 1"}


def spec(*operators: dict[str, Any]) -> JobSpec:
    source = {"format": "json", "path": "in/*", "schema": CLICKS, "event_time": "at"}
    sink = {"name": "table", "input": operators[-1]["uid"], "format": "parquet", "path": "out", "mode": "upsert"}
    value = {"name": "job", "storage": "lake", "sources": {"clicks": source}, "sinks": [sink]}
    return JobSpec.model_validate({**value, "operators": [*operators]})


def test_rows_without_a_key_become_updates_by_the_key() -> None:
    job = spec(WORST, SHOWN)
    graph = build_graph(job)
    node = graph.nodes["shown"]
    assert (list(node.columns), node.output_kind, node.key) == ([*CLICKS], "updates", ("at", "page"))
    assert (node.event_time, node.deletes, node.level, node.retracts) == (None, True, 2, False)
    assert graph.sink_inputs["table"].key == ("at", "page")
    (state,) = explained_node(job, graph, node)["state"]
    assert (state["holds"], state["grows_with"]) == ("the rows of worst", "rows of worst")


def test_rows_are_deleted_unless_their_key_only_has_columns_of_a_stable_key() -> None:
    assert not build_graph(spec(TOTALS, SHOWN)).nodes["shown"].deletes
    assert build_graph(spec(TOTALS, SHOWN | {"key": ["at", "page", "n"]})).nodes["shown"].deletes


def test_inputs_and_keys_that_do_not_fit_are_refused() -> None:
    for operators in (
        (SHOWN | {"inputs": ["clicks"]},),
        (WORST, SHOWN | {"key": ["tags"]}),
        (WORST, SHOWN | {"key": ["absent"]}),
    ):
        with wording.raises(InvalidRequest):
            build_graph(spec(*operators))


def test_its_state_depends_on_the_key_and_on_the_rows_that_it_reads() -> None:
    before = spec(WORST, SHOWN)
    for after in (
        spec(WORST, SHOWN | {"key": ["page", "at"]}),
        spec(TOTALS, SHOWN),
        spec(WORST, LESS, SHOWN | {"inputs": ["less"]}),
    ):  # fmt: skip
        old, new = (state_signatures(job, build_graph(job)) for job in (before, after))
        assert {row["name"]: row["verdict"] for row in compare_signatures(old, new)}["shown"] == NEW_UID
