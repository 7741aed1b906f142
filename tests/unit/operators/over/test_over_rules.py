"""Output, checks and signatures of `over`."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from milepost.errors import InvalidRequest
from milepost.jobspec.graph.compatibility import NEW_UID, compare_signatures, state_signatures
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.explain import explained_node
from milepost.operators.over import FUNCTIONS, UNAVAILABLE, OverOperator, parse_over
from milepost_testkit import wording
from milepost_testkit.specs.graphs import build_graph

CLICKS = {"page": "string", "at": "timestamp[us, UTC]", "tags": "list<string>", "x": "float64", "i": "int32",
          "price": "decimal(12,2)"}  # fmt: skip
NEWEST = {"uid": "newest", "kind": "latest", "inputs": ["clicks"], "key": ["i"], "sequence_by": ["at"]}
VALUED = {"uid": "valued", "kind": "over", "inputs": ["newest"], "key": ["page"], "order_by": [{"at": "desc"}],
          "row_key": ["i"], "functions": {"place": "row_number()", "mean": "avg(price) rows 9 preceding"}}  # fmt: skip


def spec(*operators: dict[str, Any]) -> JobSpec:
    source = {"format": "json", "path": "in/*", "schema": CLICKS, "event_time": "at"}
    pages = {"format": "json", "path": "pages/*", "schema": {"page": "string", "size": "int64"}, "static": True}
    sources = {"clicks": source} | ({"pages": pages} if any("pages" in one["inputs"] for one in operators) else {})
    sink = {"name": "table", "input": operators[-1]["uid"], "format": "parquet", "path": "out", "mode": "upsert"}
    value = {"name": "job", "storage": "lake", "sources": sources, "sinks": [sink]}
    return JobSpec.model_validate({**value, "operators": [*operators]})


def test_each_row_of_the_input_has_the_values_of_the_functions() -> None:
    job = spec(NEWEST, VALUED)
    graph = build_graph(job)
    node = graph.nodes["valued"]
    assert {name: str(node.columns[name]) for name in [*node.columns][-2:]} == {
        "place": "int32", "mean": "decimal(16,6)",
    }  # fmt: skip
    assert (node.event_time, node.output_kind, node.key, node.level, node.deletes) == (
        None, "updates", ("page", "i"), 2, True,
    )  # fmt: skip
    assert graph.nodes["newest"].retracts and graph.sink_inputs["table"].key == ("page", "i")
    (state,) = explained_node(job, graph, node)["state"]
    assert (state["holds"], state["grows_with"]) == ("the rows of newest", "distinct i of newest")


def test_rows_leave_unless_partition_and_row_key_are_a_stable_key() -> None:
    assert not build_graph(spec(NEWEST | {"key": ["i", "page"]}, VALUED)).nodes["valued"].deletes
    assert not build_graph(spec(NEWEST, VALUED | {"key": []})).nodes["valued"].deletes
    assert build_graph(spec(NEWEST | {"delete_when": "x > 1"}, VALUED | {"key": []})).nodes["valued"].deletes


@pytest.mark.parametrize(
    ("call", "type_"),
    [("sum(i)", "int64"), ("sum(x)", "float64"), ("sum(price)", "decimal(22,2)"), ("avg(i)", "float64"),
     ("count(tags)", "int64"), ("lag(tags, 3)", "list<string>"), ("max(price)", "decimal(12,2)"), ("rank()", "int32"),
     ("first_value(at)", "timestamp[us, UTC]")],
)  # fmt: skip
def test_types_are_those_of_spark(call: str, type_: str) -> None:
    node = build_graph(spec(NEWEST, VALUED | {"functions": {"value": call}})).nodes["valued"]
    assert str(node.columns["value"]) == type_


def test_a_call_round_trips_with_its_frame() -> None:
    for text in (
        "row_number()", "lag(x, 1)", "lead(`a b`, 0)", "count(*)", "count(x) rows between 3 preceding and 1 preceding",
        "sum(x) rows between unbounded preceding and current row", "avg(x) rows between 1 following and 2 following",
        "max(x) rows between current row and unbounded following",
    ):  # fmt: skip
        assert str(parse_over(text)) == text
    assert str(parse_over("SUM( x )  ROWS 9  Preceding ")) == "sum(x) rows between 9 preceding and current row"
    assert str(parse_over("lag(x)")) == "lag(x, 1)"
    operator = OverOperator.model_validate(VALUED)
    assert OverOperator.model_validate(operator.model_dump(mode="json")) == operator


@pytest.mark.parametrize(
    "call",
    [
        "sum(x) range between 1 preceding and current row",
        "sum(x) groups 1 preceding",
        "sum(x) rows between 1 following and 1 preceding",
        "sum(x) rows between unbounded following and unbounded following",
        "sum(x) rows between unbounded preceding and unbounded preceding",
        "sum(x) rows 2 following",
        "sum(x) rows",
        "sum(x) rows 1000000000 preceding",
        f"sum(x) rows {'9' * 5000} preceding",
        "lag(x, 1000000000)",
        "rank() rows 1 preceding",
        "lag(x) rows 1 preceding",
        "lag(x) ignore nulls",
        "lag(x, 1, 0)",
        "lag(x, -1)",
        "lag()",
        "sum(x, 2)",
        "rank(x)",
        "sum(*)",
        "median(x)",
        "sum(distinct x)",
        "count(x) filter (where x > 1)",
        7,
        *(f"{name}()" for name in UNAVAILABLE),
    ],
)
def test_calls_that_are_not_available_are_refused_by_name(call: Any) -> None:
    with wording.raises(ValueError):
        parse_over(call)


@pytest.mark.parametrize(
    "changed",
    [{"row_key": ["pages"]}, {"row_key": ["tags"]}, {"key": ["tags"]}, {"order_by": ["y"]}, {"order_by": ["tags"]},
     {"order_by": []}, {"functions": {"X": "count(*)"}}, {"functions": {"n": "sum(page)"}}, {"inputs": ["clicks"]},
     {"functions": {"n": "max(tags)"}}, {"functions": {"n": "lag(pages)"}}],
)  # fmt: skip
def test_what_does_not_fit_its_input_is_refused(changed: dict[str, Any]) -> None:
    with wording.raises(InvalidRequest):
        build_graph(spec(NEWEST, {**VALUED, **changed}))


def test_append_rows_with_a_key_may_be_read_and_their_state_grows_with_them() -> None:
    once = {"uid": "once", "kind": "deduplicate", "inputs": ["clicks"], "key": ["i"]}
    valued = VALUED | {"inputs": ["once"]}
    job = spec(once, valued)
    graph = build_graph(job)
    assert not graph.nodes["valued"].deletes
    (state,) = explained_node(job, graph, graph.nodes["valued"])["state"]
    assert state["grows_with"] == "rows of once"
    with wording.raises(InvalidRequest):
        build_graph(spec(once, valued | {"row_key": ["x"]}))


@pytest.mark.parametrize("between", [None, "sql", "lookup"])
def test_rows_of_which_a_forgotten_key_may_return_are_refused(between: str | None) -> None:
    once = {"uid": "once", "kind": "deduplicate", "inputs": ["clicks"], "key": ["i"], "ttl": "1h"}
    steps = {"sql": {"uid": "step", "kind": "sql", "inputs": ["once"], "sql": "SELECT i, page, x FROM once"},
             "lookup": {"uid": "step", "kind": "lookup", "inputs": ["once", "pages"], "key": ["page"]}}  # fmt: skip
    valued = {**VALUED, "order_by": ["x"], "functions": {"n": "sum(x)"}}
    operators = [once, valued | {"inputs": ["once"]}]
    if between is not None:
        operators = [once, steps[between], valued | {"inputs": ["step"]}]
    with wording.raises(InvalidRequest):
        build_graph(spec(*operators))
    build_graph(spec(*[{key: one[key] for key in one if key != "ttl"} for one in operators]))


def test_a_list_of_functions_is_needed() -> None:
    for changed in ({"functions": {}}, {"order_by": ["x", "x"]}, {"row_key": ["i", "i"]}):
        with pytest.raises(ValidationError):
            OverOperator.model_validate({**VALUED, **changed})
    assert {*UNAVAILABLE}.isdisjoint(FUNCTIONS)


def test_its_state_depends_on_all_that_decides_published_rows() -> None:
    before = spec(NEWEST, VALUED)
    for changed in (
        {"key": ["page", "x"]},
        {"order_by": ["at"]},
        {"row_key": ["i", "x"]},
        {"functions": VALUED["functions"] | {"n": "count(*)"}},  # type: ignore[operator]
    ):
        after = spec(NEWEST, {**VALUED, **changed})
        old, new = (state_signatures(job, build_graph(job)) for job in (before, after))
        assert {row["name"]: row["verdict"] for row in compare_signatures(old, new)}["valued"] == NEW_UID
