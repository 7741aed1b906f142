"""Output, checks and signatures of `history`."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.graph.compatibility import NEW_UID, compare_signatures, state_signatures
from milepost.jobspec.graph.in_flight import consumed_columns
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.explain import explained_node
from milepost.language.types import to_arrow
from milepost_testkit import wording
from milepost_testkit.specs.graphs import build_graph

ORDERS = {"id": "int64", "op": "string", "lsn": "int64", "tags": "list<string>", "at": "timestamp[us, UTC]"}
HISTORY = {"uid": "versions", "kind": "history", "inputs": ["orders"], "key": ["id"], "sequence_by": ["at"]}
DELETES = HISTORY | {"delete_when": "op = 'D'", "track": ["op", "tags"]}


def spec(*operators: dict[str, Any], **columns: str) -> JobSpec:
    orders = {"format": "json", "path": "in/*", "schema": {**ORDERS, **columns}, "event_time": "at"}
    shown = {"name": "shown", "input": operators[-1]["uid"], "format": "parquet", "path": "out", "mode": "upsert"}
    value = {"name": "job", "storage": "lake", "sources": {"orders": orders}, "sinks": [shown]}
    return JobSpec.model_validate({**value, "operators": list(operators)})


def test_versions_are_updates_by_key_and_begin() -> None:
    job = spec(HISTORY)
    graph = build_graph(job)
    node = graph.nodes["versions"]
    assert list(node.columns) == [*ORDERS, "valid_from", "valid_to", "is_current"]
    types = [str(to_arrow(type_)) for type_ in list(node.columns.values())[-3:] if type_ is not None]
    assert types == ["timestamp[us, tz=UTC]", "timestamp[us, tz=UTC]", "bool"]
    assert (node.event_time, node.output_kind, node.key, node.level) == (None, "updates", ("id", "valid_from"), 1)
    assert not node.deletes and graph.sink_inputs["shown"].key == ("id", "valid_from")
    (state,) = explained_node(job, graph, node)["state"]
    assert (state["holds"], state["grows_with"]) == ("a row per id and at", "distinct id, at")


def test_versions_can_be_deleted_if_rows_can_or_if_columns_are_tracked() -> None:
    assert build_graph(spec(DELETES)).nodes["versions"].deletes
    assert build_graph(spec(HISTORY | {"track": ["op"]})).nodes["versions"].deletes
    graph = build_graph(spec(HISTORY | {"delete_when": "op = 'D'"}))
    assert graph.nodes["versions"].deletes and graph.nodes["versions"].has_conditions


def test_only_columns_of_the_table_and_the_sequence_are_sent() -> None:
    job = spec(DELETES | {"columns": ["id", "op", "tags"]})
    assert consumed_columns(job, build_graph(job), "versions") == {"id", "op", "tags", "at"}
    assert consumed_columns(spec(HISTORY), build_graph(spec(HISTORY)), "versions") is None


def test_an_aggregate_and_sql_read_the_versions() -> None:
    current = {"uid": "current", "kind": "sql", "inputs": ["versions"],
               "sql": "SELECT id, op, valid_from FROM versions WHERE is_current"}  # fmt: skip
    per_op = {"uid": "per_op", "kind": "aggregate", "inputs": ["current"], "key": ["op"],
              "aggregates": {"n": "count(*)"}}  # fmt: skip
    graph = build_graph(spec(HISTORY, current, per_op))
    assert graph.nodes["versions"].retracts and graph.nodes["per_op"].deletes
    assert build_graph(spec(HISTORY, current)).nodes["current"].key == ("id", "valid_from")


@pytest.mark.parametrize(
    ("changed", "columns"),
    [
        ({"sequence_by": ["ta"]}, {}),
        ({"sequence_by": ["tags"]}, {}),
        ({"sequence_by": ["id"]}, {}),
        ({"columns": ["op"]}, {}),
        ({"columns": ["id", "opp"]}, {}),
        ({"delete_when": "opp = 'D'"}, {}),
        ({"track": ["id"]}, {}),
        ({"track": ["opp"]}, {}),
        ({"track": ["op"], "columns": ["id"]}, {}),
        ({}, {"Valid_To": "string"}),
        ({"columns": ["id", "is_current"]}, {"is_current": "bool"}),
    ],
)
def test_what_does_not_fit_its_input_is_refused(changed: dict[str, Any], columns: dict[str, str]) -> None:
    with wording.raises(InvalidRequest):
        build_graph(spec({**HISTORY, **changed}, **columns))


def test_updates_are_refused_and_columns_that_are_omitted_may_have_any_name() -> None:
    totals = {"uid": "totals", "kind": "aggregate", "inputs": ["orders"], "key": ["id"],
              "aggregates": {"at": "max(at)"}}  # fmt: skip
    with wording.raises(InvalidRequest):
        build_graph(spec(totals, {**HISTORY, "inputs": ["totals"]}))
    build_graph(spec(HISTORY | {"columns": ["id"]}, valid_to="string"))


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (HISTORY, HISTORY | {"sequence_by": ["lsn"]}, NEW_UID),
        (HISTORY, HISTORY | {"key": ["op"]}, NEW_UID),
        (HISTORY, HISTORY | {"track": ["op"]}, NEW_UID),
        (DELETES, HISTORY | {"track": ["op", "tags"]}, NEW_UID),
        (HISTORY, HISTORY | {"delete_when": "op = 'D'"}, NEW_UID),
        (DELETES, DELETES | {"delete_when": "op = 'X'"}, "compatible"),
        (HISTORY | {"columns": ["id"]}, HISTORY | {"columns": ["id", "op"]}, "compatible"),
    ],
)
def test_what_decides_the_published_versions_is_signed(
    before: dict[str, Any], after: dict[str, Any], verdict: str
) -> None:
    old, new = (state_signatures(job, build_graph(job)) for job in (spec(before), spec(after)))
    rows = compare_signatures(old, new)
    assert next(row["verdict"] for row in rows if row["name"] == "versions") == verdict
