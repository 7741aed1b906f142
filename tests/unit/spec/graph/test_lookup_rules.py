"""What a lookup and a static source mean, and what is refused between them."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.spec.graph.compatibility import state_signatures
from milepost.spec.graph.graph import JobGraph, analyse
from milepost.spec.graph.in_flight import input_signatures
from milepost.spec.job.spec import JobSpec
from milepost.spec.values.problems import Problem

ROWS = {"format": "csv", "path": "in/*.csv", "schema": {"at": "timestamp[us, UTC]", "k": "int32", "v": "string"}}
ROWS |= {"event_time": "at"}
NAMES = {"format": "csv", "path": "x/*", "schema": {"id": "int64", "name": "string", "v": "string"}, "static": True}
FOUND = {
    "uid": "found",
    "kind": "lookup",
    "inputs": ["rows", "names"],
    "key": [{"k": "id"}],
    "columns": {"w": "right.v"},
}


def analysed(
    *operators: dict[str, Any], sources: dict[str, Any] | None = None, sinks: tuple[dict[str, Any], ...] = ()
) -> tuple[JobSpec, JobGraph | None, list[Problem]]:
    document = {"name": "job", "storage": "lake", "sources": {"rows": ROWS, "names": NAMES} | (sources or {})}
    spec = JobSpec.model_validate({**document, "operators": list(operators), "sinks": list(sinks)})
    return (spec, *analyse(spec))


def told(*operators: dict[str, Any], **options: Any) -> str:
    _, graph, problems = analysed(*operators, **options)
    assert graph is None
    return " | ".join(f"{'.'.join(map(str, one.path))}: {one.message}" for one in problems)


def test_its_rows_have_the_columns_of_both_and_cost_no_level() -> None:
    """Event time, key and sources are the rows' own; the static source has no level and makes no watermark."""
    once = {"uid": "once", "kind": "deduplicate", "inputs": ["rows"], "key": ["k"]}
    spec, graph, _ = analysed(once, {**FOUND, "inputs": ["once", "names"]})
    assert graph is not None
    node, static = graph.nodes["found"], graph.nodes["names"]
    assert {name: str(type_) for name, type_ in node.columns.items()} == {
        "at": "timestamp[us, UTC]", "k": "int32", "v": "string", "name": "string", "w": "string"
    }  # fmt: skip
    assert (node.event_time, node.key, node.output_kind, node.sources) == ("at", ("k",), "append", ("rows",))
    assert (node.level, node.levels, graph.levels) == (1, (1,), 1)
    assert (static.kind, static.levels, static.sources) == ("static", (), ()) and static not in graph.sources
    assert state_signatures(spec, graph)["sources"].keys() == {"rows"}
    assert not node.is_stateful and [one.uid for one in graph.stateful] == ["once"]


@pytest.mark.parametrize(
    "changes",
    [{"how": "left"}, {"order_by": ["name"]}, {"columns": {"x": "right.v"}}, {"key": [{"v": "name"}]}],
    ids=lambda changes: next(iter(changes)),
)
def test_what_a_lookup_says_is_in_the_signature_of_rows_in_flight_behind_it(changes: dict[str, Any]) -> None:
    sums = {"uid": "sums", "kind": "deduplicate", "inputs": ["found"], "key": ["k"]}

    def signature(found: dict[str, Any]) -> str:
        spec, graph, problems = analysed(found, sums)
        assert graph is not None, problems
        return input_signatures(spec, graph)["sums"]

    assert signature({**FOUND, **changes}) != signature(FOUND)


def test_only_a_static_source_can_be_looked_up_in_and_only_be_looked_up_in() -> None:
    assert "names is a static source, which is no stream" in told({**FOUND, "inputs": ["names", "rows"]})
    assert "names needs `static: true`" in told(FOUND, sources={"names": {**NAMES, "static": False}})
    assert "here is no other" in told({**FOUND, "inputs": ["rows", "other"]}) or "other is no source" in told(
        {**FOUND, "inputs": ["rows", "other"]}
    )
    sql = {"uid": "all", "kind": "sql", "inputs": ["names"], "sql": "SELECT * FROM names"}
    assert "operators.1.inputs.0: names is a static source" in told(FOUND, sql)
    sink = {"name": "names", "input": "names", "format": "parquet", "path": "lake/names", "mode": "append"}
    assert "sinks.0.input: names is a static source" in told(FOUND, sinks=(sink,))
    assert "sources.names: no lookup reads names" in told()
    both = told({**FOUND, "inputs": ["names", "names"]}, sources={"rows": {**NAMES}})
    assert "sources: every source is static" in both


def test_the_rows_are_append_never_updates() -> None:
    totals = {"uid": "totals", "kind": "aggregate", "inputs": ["rows"], "key": ["k"], "aggregates": {"n": "count(*)"}}
    assert "lookup over updates (the rows of totals) is not available" in told(
        totals, {**FOUND, "inputs": ["totals", "names"], "columns": {}}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": {}}, "v would be both rows.v and names.v"),
        ({"columns": {"w": "right.z"}}, "names has no column z beside the key"),
        ({"key": [{"k": "name"}]}, "k is int32, name is string: values of one are not values of the other; CAST"),
        ({"key": [{"k": "no"}]}, "names has no column no"),
        ({"key": [{"no": "id"}]}, "rows has no column no"),
        ({"order_by": ["since"]}, "operators.0.order_by.0: names has no column since"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    assert message in told({**FOUND, **changes})


@pytest.mark.parametrize(
    ("key", "value"),
    [("event_time", None), ("watermark_delay", "1h"), ("idle_timeout", "1h"), ("start", "latest"),
     ("limits_per_epoch", {"max_files": 1}), ("on_change", "ignore"), ("on_missing", "skip"), ("expect_every", "1h"),
     ("bad_records", "dead_letter"), ("forget_after", "1d"), ("on_bad_object", "fail"), ("max_event_time_ahead", "1d")],
)  # fmt: skip
def test_what_is_said_of_a_stream_is_refused_of_a_static_source(key: str, value: Any) -> None:
    assert f"sources.names.{key}: `{key}` is of a stream" in told(FOUND, sources={"names": {**NAMES, key: value}})


def test_a_limit_is_of_a_static_source() -> None:
    limited = {"rows": {**ROWS, "dimension_limit": "1MB"}}
    assert "sources.rows.dimension_limit: `dimension_limit` needs `static: true`" in told(FOUND, sources=limited)
    spec, _, problems = analysed(FOUND, sources={"names": {**NAMES, "dimension_limit": "1MB", "settle": "1s"}})
    assert problems == [] and spec.dimensions["names"].dimension_limit == 1_000_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"key": ["k", "k"]}, "occurs twice"), ({"order_by": ["name", {"name": "desc"}]}, "name occurs twice"),
     ({"order_by": [{"name": "down"}]}, "expected a column, or"), ({"how": "right"}, "how"),
     ({"inputs": ["rows"]}, "inputs")],
)  # fmt: skip
def test_what_the_model_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JobSpec.model_validate({"name": "j", "storage": "l", "sources": {"rows": ROWS}, "operators": [FOUND | changes]})
