"""Output and checks of lookups and static sources."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.jobspec.graph.compatibility import state_signatures
from milepost.jobspec.graph.graph import JobGraph, analyse
from milepost.jobspec.graph.in_flight import input_signatures
from milepost.jobspec.job.spec import JobSpec
from milepost.language.problems import Problem
from milepost_testkit import wording

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
    return " | ".join(f"{'.'.join(map(str, problem.path))}: {problem.message}" for problem in problems)


def test_a_lookup_has_the_columns_of_both_inputs_and_adds_no_level() -> None:
    """Event time, key and sources are those of the rows; the static source has no level and no watermark."""
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
    assert not node.is_stateful and [item.uid for item in graph.stateful] == ["once"]


@pytest.mark.parametrize(
    "changes",
    [{"how": "left"}, {"order_by": ["name"]}, {"columns": {"x": "right.v"}}, {"key": [{"v": "name"}]}],
    ids=lambda changes: next(iter(changes)),
)
def test_the_options_of_a_lookup_are_in_the_signature_of_rows_in_flight_downstream(changes: dict[str, Any]) -> None:
    sums = {"uid": "sums", "kind": "deduplicate", "inputs": ["found"], "key": ["k"]}

    def signature(found: dict[str, Any]) -> str:
        spec, graph, problems = analysed(found, sums)
        assert graph is not None, problems
        return input_signatures(spec, graph)["sums"]

    assert signature({**FOUND, **changes}) != signature(FOUND)


def test_lookups_read_only_static_sources_and_only_lookups_read_them() -> None:
    wording.matches("problems", told({**FOUND, "inputs": ["names", "rows"]}))
    wording.matches("problems", told(FOUND, sources={"names": {**NAMES, "static": False}}))
    wording.matches("problems", told({**FOUND, "inputs": ["rows", "other"]}))
    sql = {"uid": "all", "kind": "sql", "inputs": ["names"], "sql": "SELECT * FROM names"}
    wording.matches("problems", told(FOUND, sql))
    sink = {"name": "names", "input": "names", "format": "parquet", "path": "lake/names", "mode": "append"}
    wording.matches("problems", told(FOUND, sinks=(sink,)))
    wording.matches("problems", told())
    both = told({**FOUND, "inputs": ["names", "names"]}, sources={"rows": {**NAMES}})
    wording.matches("problems", both)


def test_a_lookup_over_updates_is_refused() -> None:
    totals = {"uid": "totals", "kind": "aggregate", "inputs": ["rows"], "key": ["k"], "aggregates": {"n": "count(*)"}}
    wording.matches("problems", told(totals, {**FOUND, "inputs": ["totals", "names"], "columns": {}}))


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": {}},
        {"columns": {"w": "right.z"}},
        {"key": [{"k": "name"}]},
        {"key": [{"k": "no"}]},
        {"key": [{"no": "id"}]},
        {"order_by": ["since"]},
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, Any]) -> None:
    wording.matches("problems", told({**FOUND, **changes}))


@pytest.mark.parametrize(
    ("key", "value"),
    [("event_time", None), ("watermark_delay", "1h"), ("idle_timeout", "1h"), ("start", "latest"),
     ("limits_per_epoch", {"max_files": 1}), ("on_change", "ignore"), ("on_missing", "skip"), ("expect_every", "1h"),
     ("bad_records", "dead_letter"), ("forget_after", "1d"), ("on_bad_object", "fail"), ("max_event_time_ahead", "1d")],
)  # fmt: skip
def test_keys_of_a_stream_are_refused_for_a_static_source(key: str, value: Any) -> None:
    wording.matches("problems", told(FOUND, sources={"names": {**NAMES, key: value}}))


def test_a_dimension_limit_needs_a_static_source() -> None:
    limited = {"rows": {**ROWS, "dimension_limit": "1MB"}}
    wording.matches("problems", told(FOUND, sources=limited))
    spec, _, problems = analysed(FOUND, sources={"names": {**NAMES, "dimension_limit": "1MB", "settle": "1s"}})
    assert problems == [] and spec.dimensions["names"].dimension_limit == 1_000_000


@pytest.mark.parametrize(
    "changes",
    [{"key": ["k", "k"]}, {"order_by": ["name", {"name": "desc"}]},
     {"order_by": [{"name": "down"}]}, {"how": "right"},
     {"inputs": ["rows"]}],
)  # fmt: skip
def test_invalid_lookup_options_are_refused(changes: dict[str, Any]) -> None:
    with wording.raises(ValueError):
        JobSpec.model_validate({"name": "j", "storage": "l", "sources": {"rows": ROWS}, "operators": [FOUND | changes]})
