"""`kind: process` in a spec: what is checked before its class is loaded, and what only after."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.jobspec.graph.compatibility import compare_signatures, state_signatures
from milepost.jobspec.graph.graph import Outputs, analyse
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.validation import validate_spec
from milepost.language.types import parse_type
from milepost_testkit import wording

PROCESS = {"uid": "p", "kind": "process", "inputs": ["rows"], "key": ["k"], "function": "ops.inner:F"}
DECLARED: Outputs = {"p": {name: parse_type(text) for name, text in {"t": "timestamp[us]", "n": "int64"}.items()}}


def spec(operators: list[dict[str, Any]], sinks: list[dict[str, Any]] | None = None, **more: Any) -> JobSpec:
    document = {
        "name": "job",
        "storage": "s3://bucket",
        "sources": {
            "rows": {
                "format": "csv",
                "path": "s3://landing/*.csv",
                "schema": {"k": "string", "v": "int64", "t": "timestamp[us]"},
                "event_time": "t",
            }
        },
        "operators": operators,
        "sinks": sinks or [],
        **more,
    }
    loaded, problems = validate_spec(document)
    assert loaded is not None, [str(problem.message) for problem in problems]
    return loaded


def after(kind: str, **keys: Any) -> dict[str, Any]:
    return {"uid": "next", "kind": kind, "inputs": ["p"], **keys}


def sink(node: str, mode: str = "append") -> dict[str, Any]:
    return {"name": "out", "input": node, "format": "parquet", "path": "s3://lake/out", "mode": mode}


def messages(job: JobSpec, outputs: Outputs | None = None) -> list[str]:
    return [problem.message for problem in analyse(job, outputs)[1]]


@pytest.mark.parametrize(
    "function", ["ops", "ops:", ":F", "ops/F", "../ops:F", "ops..inner:F", "ops:F.g", "ops:F()", ""]
)
def test_a_function_is_a_module_and_a_class(function: str) -> None:
    _, problems = validate_spec(
        {"name": "j", "storage": "s3://b", "sources": {}, "operators": [{**PROCESS, "function": function}]}
    )
    assert any(
        problem.path == ("operators", 0, "function") and 'expected "module:Class"' in problem.message
        for problem in problems
    )


def test_before_its_class_is_loaded_a_process_operator_has_rows_of_unknown_columns() -> None:
    """`lint` imports no user code (DESIGN 9), so it does not check names downstream of a process operator."""
    graph, problems = analyse(spec([PROCESS, after("aggregate", key=["n"], aggregates={"m": "max(t)"})], [sink("p")]))
    assert graph is not None and problems == []
    node = graph.nodes["p"]
    assert (node.level, node.output_kind, node.key, node.columns_known, node.columns) == (1, "append", (), False, {})
    assert graph.nodes["next"].columns_known and graph.nodes["next"].columns == {"n": None, "m": None}
    assert not graph.sink_inputs["out"].columns_known


def test_once_its_class_is_loaded_the_whole_graph_is_known() -> None:
    graph, problems = analyse(spec([PROCESS, after("aggregate", key=["n"], aggregates={"m": "max(t)"})]), DECLARED)
    assert graph is not None and problems == []
    assert graph.nodes["p"].columns_known and graph.nodes["p"].event_time == "t"
    assert {name: str(type_) for name, type_ in graph.nodes["next"].columns.items()} == {
        "n": "int64", "m": "timestamp[us]",
    }  # fmt: skip


@pytest.mark.parametrize(
    "operator",
    [
        after("sql", sql="SELECT v FROM p"),
        after("aggregate", key=["v"], aggregates={"m": "count(*)"}),
        after("aggregate", key=["n"], aggregates={"m": "max(v)"}),
        after("deduplicate", key=["v"]),
        after("process", key=["v"], function="ops:G"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_name_that_the_class_does_not_declare_is_refused_once_it_is_loaded(operator: dict[str, Any]) -> None:
    assert messages(spec([PROCESS, operator])) == []
    (message,) = messages(spec([PROCESS, operator]), DECLARED)
    wording.matches("problems", message)


def test_event_time_is_kept_only_under_its_name_and_as_a_timestamp() -> None:
    window = after("window", key=["n"], window={"tumbling": "1h"}, aggregates={"m": "count(*)"})
    assert messages(spec([PROCESS, window])) == messages(spec([PROCESS, window]), DECLARED) == []
    for declared in ({"n": parse_type("int64")}, {"n": parse_type("int64"), "t": parse_type("int64")}):
        (message,) = messages(spec([PROCESS, window]), {"p": declared})
        wording.matches("problems", message)


@pytest.mark.parametrize(
    ("operators", "sinks"),
    [
        ([PROCESS], [sink("p", "upsert")]),
        ([PROCESS], [sink("p.late")]),
        ([{**PROCESS, "key": ["kk"]}], []),
        ([PROCESS, after("sql", sql="SELECT max(n) FROM p")], []),
        ([PROCESS, after("sql", sql="SELECT n FROM rows")], []),
        (
            [{**PROCESS, "inputs": ["a"]}, {"uid": "a", "kind": "aggregate", "inputs": ["rows"], "key": ["k"],
             "aggregates": {"n": "count(*)"}}], [],
        ),
    ],
)  # fmt: skip
def test_lint_refuses_what_can_be_checked_without_the_class(
    operators: list[dict[str, Any]], sinks: list[dict[str, Any]]
) -> None:
    (message,) = messages(spec(operators, sinks))
    wording.matches("problems", message)


def test_an_expectation_on_a_column_is_checked_once_the_columns_are_known() -> None:
    suite = {"sink": "out", "expectations": [{"type": "expect_column_values_to_not_be_null", "column": "v"}]}
    job = spec([PROCESS], [sink("p")], quality=[suite])
    assert messages(job) == []
    wording.matches("problems", messages(job, DECLARED))


def test_a_changed_function_continues_the_state_and_a_changed_key_does_not() -> None:
    def signature(**change: Any) -> dict[str, Any]:
        job = spec([{**PROCESS, **change}])
        graph, _ = analyse(job)
        assert graph is not None
        return state_signatures(job, graph)

    def verdict(**change: Any) -> str:
        return compare_signatures(signature(), signature(**change))[0]["verdict"]

    assert verdict(function="other:G") == "compatible"
    assert verdict(key=["v"]) == "needs a new uid or a backfill"
