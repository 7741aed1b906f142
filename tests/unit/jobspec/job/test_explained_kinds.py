"""Every kind of operator is explained: its state, the bound of its state, and which rows are late."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.jobspec.graph.event_time import EVENT_TIME_RULES
from milepost.jobspec.graph.graph import STATEFUL_KINDS
from milepost.jobspec.load.lint import lint_report
from milepost.jobspec.load.load import from_text, load_job
from milepost.language import arrow_schema
from milepost.operators.base.operator_spec import StatefulSpec
from milepost.operators.build import build_operator
from milepost.operators.contract import OperatorInput
from milepost.operators.kinds import KINDS
from milepost_testkit.processes.processes import REPOSITORY

ALL_KEYS = REPOSITORY / "config" / "examples" / "all_keys.yaml"
SPEC = """\
name: small
storage: ../store
sources:
  rows: {format: csv, path: ../landing/*.csv, schema: {k: int64, v: int64, at: "timestamp[us, UTC]"}, event_time: at}
operators:
  - {uid: kept, inputs: [rows], OPERATOR}
"""


@pytest.mark.deep
def test_the_example_has_every_kind_and_each_has_a_state_bound() -> None:
    """A kind that fails here is missing in the example."""
    nodes = lint_report(load_job(ALL_KEYS))["nodes"]
    missing = KINDS.keys() - {node["kind"] for node in nodes}
    assert not missing, f"use {sorted(missing)} in config/examples/all_keys.yaml, with a sink or a reader"
    assert {node["kind"] for node in nodes if node["state"]} == set(STATEFUL_KINDS)
    assert set(EVENT_TIME_RULES) == {"source", *KINDS}
    for state in (state for node in nodes for state in node["state"]):
        assert state["holds"] and state["bound"].startswith(("bounded", "grows without bound with: "))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_declares_all_that_the_graph_needs(kind: str) -> None:
    """A kind that fails here lacks a method of `OperatorSpec`, or its folder has another name."""
    spec = KINDS[kind]
    assert not inspect.isabstract(spec) and spec.event_time_rule
    assert spec.__module__ == f"milepost.operators.{kind}.spec"
    operators = [operator for operator in load_job(ALL_KEYS).spec.operators if operator.kind == kind]
    assert all(operator.state_bounds() for operator in operators if isinstance(operator, StatefulSpec))


def test_the_explained_tables_are_the_tables_of_the_operator() -> None:
    """They are named as in `milepost state`. Classes of process operators are not loaded here; they have one table."""
    job = load_job(ALL_KEYS)
    graph = job.graph()
    for node in graph.stateful:
        if node.kind == "process":
            continue
        operator = job.spec.operator(node.uid)
        assert isinstance(operator, StatefulSpec)
        read = [graph.nodes[name] for name in node.inputs]
        conditions = [pa.field(name, pa.bool_()) for name, _ in node.conditions]
        schemas = [pa.schema([*arrow_schema(producer.columns), *conditions]) for producer in read]
        inputs = zip(schemas, read, strict=True)
        operator_inputs = [OperatorInput(schema, producer.event_time, producer.shift_us) for schema, producer in inputs]
        tables = build_operator(operator, operator_inputs).tables
        assert [bound.table for bound in operator.state_bounds()] == list(tables), node.uid


def explained(operator: str, inputs: str = "rows") -> dict[str, Any]:
    text = SPEC.replace("[rows], OPERATOR", f"[{inputs}], {operator}")
    report = lint_report(from_text(text, Path("/jobs/config/small.yaml")))
    node: dict[str, Any] = report["nodes"][-1]
    return node


@pytest.mark.parametrize(
    ("operator", "bounds"),
    [
        ("kind: deduplicate, key: [k], ttl: 3d", ["bounded: until the watermark passes event time + 3d"]),
        ("kind: deduplicate, key: [k, v]", ["grows without bound with: distinct k, v"]),
        ("kind: latest, key: [k], sequence_by: [v]", ["grows without bound with: distinct k"]),
        (
            "kind: latest, key: [k], sequence_by: [v], delete_when: v < 0",
            ["grows without bound with: distinct k, including deleted ones"],
        ),
        (
            "kind: latest, key: [k], sequence_by: [v], delete_when: v < 0, tombstone_ttl: 1d",
            ["grows without bound with: distinct k that are not deleted"],
        ),
        ("kind: aggregate, key: [k], aggregates: {n: count(*)}", ["grows without bound with: distinct k"]),
        (
            "kind: window, key: [k], window: {tumbling: 1h}, aggregates: {n: count(*)}, allowed_lateness: 2h",
            ["bounded: until the watermark reaches window_end + 2h"],
        ),
        (
            "kind: window, key: [k], window: {sliding: {size: 1h, slide: 5m}}, aggregates: {n: count(*)}",
            ["bounded: until the watermark reaches start of the pane + 1h"],
        ),
        (
            "kind: window, key: [k], window: {session: {gap: 30m}}, aggregates: {n: count(*)}",
            ["bounded: until the watermark reaches its last event time + 30m"],
        ),
        (
            "kind: window, key: [k], window: {session: {gap: 1m}}, aggregates: {n: count(distinct v)}",
            ["bounded: until the watermark reaches its last event time + 1m"] * 2,
        ),
    ],
)
def test_options_are_in_the_bound(operator: str, bounds: list[str]) -> None:
    assert [state["bound"] for state in explained(operator)["state"]] == bounds


def test_each_side_of_a_join_has_its_own_bound() -> None:
    operator = "kind: join, key: [k], within: [-1h, 2h], columns: {w: right.v, then: right.at}"
    node = explained(operator, "rows, rows")
    assert [(state["name"], state["bound"]) for state in node["state"]] == [
        ("kept.left", "bounded: until the watermark passes event time + 2h"),
        ("kept.right", "bounded: until the watermark passes event time + 1h"),
    ]
    assert (node["mode"], node["event_time"], node["holds_back"]) == ("append", "at", "2h")
    assert [(late["output"], late["sinks"]) for late in node["late"]] == [
        ("kept.late.rows", []),
        ("kept.late.rows.2", []),
    ]


def test_an_as_of_join_removes_rows_and_keeps_the_newest_version_of_a_key() -> None:
    node = explained("kind: asof, key: [{k: v}], columns: {k2: right.k, since: right.at}", "rows, rows")
    assert [(state["name"], state["bound"]) for state in node["state"]] == [
        ("kept.left", "bounded: until the watermark passes event time"),
        ("kept.right", "grows without bound with: distinct v"),
    ]


@pytest.mark.deep
def test_edges_have_the_mode_key_and_event_time_of_their_rows() -> None:
    edges = {(edge["from"] + edge["part"], edge["to"]): edge for edge in lint_report(load_job(ALL_KEYS))["edges"]}
    exchanged = edges["clean", "unique"]
    assert (exchanged["mode"], exchanged["event_time"], exchanged["exchanged"]) == ("append", "time_hour", True)
    assert not edges["clean", "moments"]["exchanged"], "SQL runs where the rows are"
    shown = edges["carriers", "by_carrier"]
    assert (shown["sink"], shown["mode"], shown["key"]) == (True, "upsert(carrier)", ["carrier"])
    assert edges["hourly.late", "late_flights"]["event_time"] == "time_hour", "as it came"
    assert edges["flights.bad", "bad_flights"]["event_time"] is None
