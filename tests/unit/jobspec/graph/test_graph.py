"""The job graph: levels, columns, event time, keys, output modes, and which inputs are refused."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.graph.graph import JobGraph
from milepost.jobspec.job.spec import JobSpec
from milepost_testkit import wording
from milepost_testkit.specs.graphs import build_graph


def spec(operators: list[dict[str, Any]], sinks: list[dict[str, Any]] | None = None, **source: Any) -> JobSpec:
    """A job over one source `rows` with columns k, v, t (event time)."""
    columns = {"k": "string", "v": "int32", "t": "timestamp[us, UTC]", "f": "float64"}
    rows = {"format": "csv", "path": "in/*.csv", "schema": columns, "event_time": "t", **source}
    value = {"name": "job", "storage": "lake", "sources": {"rows": rows}, "operators": operators, "sinks": sinks or []}
    return JobSpec.model_validate(value)


def sql(uid: str, text: str, source: str = "rows") -> dict[str, Any]:
    return {"uid": uid, "kind": "sql", "inputs": [source], "sql": text}


def aggregate(uid: str, source: str = "rows", key: str = "k", **aggregates: str) -> dict[str, Any]:
    return {
        "uid": uid,
        "kind": "aggregate",
        "inputs": [source],
        "key": [key],
        "aggregates": aggregates or {"n": "count(*)"},
    }


def window(uid: str, source: str = "rows", **more: Any) -> dict[str, Any]:
    value = {"uid": uid, "kind": "window", "inputs": [source], "key": ["k"], "window": {"tumbling": "1h"}}
    return {**value, "aggregates": {"n": "count(*)"}, **more}


def unique(uid: str, source: str = "rows", **more: Any) -> dict[str, Any]:
    return {"uid": uid, "kind": "deduplicate", "inputs": [source], "key": ["k", "t"], **more}


def sink(source: str, mode: str, name: str = "out") -> dict[str, Any]:
    return {"name": name, "input": source, "format": "parquet", "path": f"out/{name}", "mode": mode}


def refusal(job: JobSpec) -> str:
    with wording.raises(InvalidRequest) as caught:
        build_graph(job)
    return caught.value.message


def types(graph: JobGraph, uid: str) -> dict[str, str]:
    return {name: str(type_) for name, type_ in graph.nodes[uid].columns.items()}


def test_a_level_is_one_exchange_and_sql_costs_none() -> None:
    """DESIGN 4.2: the graph is cut into levels by longest path; sources and sql are free."""
    graph = build_graph(
        spec(
            [
                aggregate("late_definition", "again"),
                sql("again", "SELECT k, v + 1 AS v, t FROM seen", "seen"),
                unique("seen", "clean"),
                sql("clean", "SELECT k, v, t FROM rows"),
                aggregate("direct"),
                window("hourly", "seen"),
            ]
        )
    )
    assert {uid: node.level for uid, node in graph.nodes.items()} == {
        "rows": 0, "clean": 0, "direct": 1, "seen": 1, "again": 1, "late_definition": 2, "hourly": 2,
    }  # fmt: skip
    assert graph.levels == 2
    assert {node.uid for node in graph.at_level(1)} == {"seen", "direct"}
    order = list(graph.nodes)
    assert all(order.index(source) < order.index(uid) for uid in order for source in graph.nodes[uid].inputs)
    assert graph.nodes["rows"].consumers == ("clean", "direct")
    assert all(node.sources == ("rows",) for node in graph.nodes.values())


def union(uid: str, *texts: str, inputs: list[str]) -> dict[str, Any]:
    return {"uid": uid, "kind": "sql", "inputs": inputs, "sql": " UNION ALL ".join(texts)}


def test_a_union_has_rows_at_every_level_of_its_inputs_and_its_readers_are_above_all_of_them() -> None:
    graph = build_graph(
        spec(
            [
                unique("seen"),
                union("both", "SELECT k, v, t FROM rows", "SELECT k, v AS w, t FROM seen", inputs=["rows", "seen"]),
                sql("more", "SELECT k, v, t FROM both WHERE v > 0", "both"),
                window("hourly", "more"),
                aggregate("totals", "rows"),
            ]
        )
    )
    levels = {uid: (node.level, node.levels) for uid, node in graph.nodes.items()}
    assert levels == {
        "rows": (0, (0,)), "seen": (1, (1,)), "both": (1, (0, 1)), "more": (1, (0, 1)), "hourly": (2, (2,)),
        "totals": (1, (1,)),
    }  # fmt: skip
    both = graph.nodes["both"]
    assert (both.key, both.event_time, both.sources) == ((), "t", ("rows",))
    assert types(graph, "both") == {"k": "string", "v": "int32", "t": "timestamp[us, UTC]"}


@pytest.mark.parametrize(
    ("second", "event_time", "types_"),
    [
        ("SELECT t, k FROM rows", "t", ["timestamp[us, UTC]", "string"]),
        ("SELECT t AS at, k FROM rows", None, ["timestamp[us, UTC]", "string"]),
        ("SELECT k, t FROM rows", None, ["None", "None"]),
        ("SELECT t + interval 1 day AS t, k FROM rows", None, ["None", "string"]),
    ],
)
def test_a_union_has_an_event_time_if_all_inputs_have_it_by_name_and_position(
    second: str, event_time: str | None, types_: list[str]
) -> None:
    """A column has a type if all inputs have the same; otherwise only Spark knows it."""
    graph = build_graph(spec([union("both", "SELECT t, k FROM rows", second, inputs=["rows"])]))
    assert graph.nodes["both"].event_time == event_time
    assert list(types(graph, "both").values()) == types_


def test_a_union_of_a_window_and_a_source_has_no_event_time() -> None:
    ends = "SELECT window_end, k FROM w"
    graph = build_graph(spec([window("w"), union("a", ends, ends, inputs=["w"])]))
    assert graph.nodes["a"].event_time == "window_end"
    columns = {"k": "string", "v": "int32", "window_end": "timestamp[us, UTC]", "f": "float64"}
    operators = [window("w"), union("a", ends, "SELECT window_end, k FROM rows", inputs=["w", "rows"])]
    graph = build_graph(spec(operators, schema=columns, event_time="window_end"))
    assert graph.nodes["a"].event_time is None


def test_a_job_without_stateful_operators_has_no_exchange() -> None:
    assert build_graph(spec([sql("a", "SELECT * FROM rows")], [sink("a", "append")])).levels == 0


def test_columns_and_types_follow_the_operators() -> None:
    graph = build_graph(
        spec(
            [
                sql("clean", "SELECT K, v AS amount, v + 1 AS more, t FROM rows"),
                aggregate(
                    "totals", "clean", n="count(*)", s="sum(amount)", m="max(amount)", a="avg(more)", x="max(more)"
                ),
                window("hourly", "clean", aggregates={"s": "sum(amount)"}),
            ]
        )
    )
    assert types(graph, "clean") == {"k": "string", "amount": "int32", "more": "None", "t": "timestamp[us, UTC]"}
    assert types(graph, "totals") == {
        "k": "string", "n": "int64", "s": "int64", "m": "int32", "a": "float64", "x": "None",
    }  # fmt: skip
    assert types(graph, "hourly") == {
        "k": "string", "window_start": "timestamp[us, UTC]", "window_end": "timestamp[us, UTC]", "s": "int64",
    }  # fmt: skip


def test_partition_columns_follow_the_columns_of_the_file() -> None:
    graph = build_graph(spec([], partitions={"dt": "date"}))
    assert list(graph.nodes["rows"].columns) == ["k", "v", "t", "f", "dt"]


def test_output_modes_and_keys() -> None:
    """DESIGN 8.1, "Two kinds of output"."""
    graph = build_graph(spec([aggregate("a"), window("w"), unique("u"), sql("s", "SELECT t, k FROM u", "u")]))
    shown = {uid: (node.output_kind, node.key, node.event_time) for uid, node in graph.nodes.items()}
    assert shown == {
        "rows": ("append", (), "t"),
        "a": ("updates", ("k",), None),
        "w": ("append", ("k", "window_start", "window_end"), "window_end"),
        "u": ("append", ("k", "t"), "t"),
        "s": ("append", ("k", "t"), "t"),
    }


def test_sinks_know_what_they_read() -> None:
    sinks = [
        sink("a", "upsert", "a"),
        sink("w", "append", "w"),
        sink("w.late", "append", "late"),
        sink("w", "upsert", "w2"),
    ]
    graph = build_graph(spec([aggregate("a"), window("w")], sinks))
    shown = {name: (s.uid, s.part, s.key, list(s.columns)) for name, s in graph.sink_inputs.items()}
    assert shown == {
        "a": ("a", "", ("k",), ["k", "n"]),
        "w": ("w", "", (), ["k", "window_start", "window_end", "n"]),
        "late": ("w", ".late", (), ["k", "v", "t", "f"]),
        "w2": ("w", "", ("k", "window_start", "window_end"), ["k", "window_start", "window_end", "n"]),
    }
    assert graph.nodes["w"].sinks == ("w", "w2")
    assert graph.nodes["w"].late_sinks == ("late",)


@pytest.mark.long
@pytest.mark.parametrize(
    ("operators", "sinks"),
    [
        ([aggregate("a"), aggregate("b", "a", "n", m="last(n)")], []),
        (
            [aggregate("a"), sql("b", "SELECT upper(k) AS k, n FROM a", "a")],
            [sink("b", "upsert")],
        ),
        ([aggregate("a"), sql("b", "SELECT n FROM a", "a")], [sink("b", "changelog")]),
        ([aggregate("a"), sql("b", "SELECT n FROM a", "a")], [sink("b", "append")]),
        (
            [aggregate("a"), sql("b", "SELECT n FROM a", "a"), unique("u", "b", key=["n"])],
            [],
        ),
        ([aggregate("a"), sql("b", "SELECT k, explode(n) AS n FROM a", "a")], []),
        (
            [aggregate("a"), sql("b", "SELECT k FROM a", "a"), unique("u", "b", key=["k"])],
            [],
        ),
        ([aggregate("a"), sql("b", "SELECT k FROM a", "a")], [sink("b", "append")]),
        ([aggregate("a"), unique("b", "a", key=["k"])], []),
        (
            [aggregate("a"), union("b", "SELECT k FROM rows", "SELECT k FROM a", inputs=["rows", "a"])],
            [sink("b", "upsert")],
        ),
        (
            [unique("u"), union("b", "SELECT k FROM rows", "SELECT k FROM rows", inputs=["rows", "u"])],
            [],
        ),
        (
            [union("b", "SELECT k FROM rows", "SELECT k, v FROM rows", inputs=["rows"])],
            [],
        ),
        (
            [unique("u"), union("b", "SELECT k FROM rows", "SELECT k FROM w", inputs=["rows", "u"])],
            [],
        ),
        (
            [union("b", "SELECT k FROM rows", "SELECT nope AS k FROM rows", inputs=["rows"])],
            [],
        ),
        ([union("b", "SELECT k FROM rows", inputs=["rows"])], [sink("b", "upsert")]),
        (
            [unique("u"), union("b", "SELECT t, k FROM u", "SELECT t, k FROM u", inputs=["u"])],
            [sink("b", "upsert")],
        ),
        (
            [
                union("a", "SELECT k FROM rows", "SELECT k FROM b", inputs=["rows", "b"]),
                union("b", "SELECT k FROM rows", "SELECT k FROM a", inputs=["rows", "a"]),
            ],
            [],
        ),
        ([aggregate("a"), window("b", "a")], []),
        ([aggregate("a")], [sink("a", "append")]),
        ([], [sink("rows", "upsert")]),
        ([unique("u", ttl="1d"), sql("s", "SELECT k FROM u", "u")], [sink("s", "upsert")]),
        (
            [unique("u")],
            [sink("u.late", "append")],
        ),
        ([sql("s", "SELECT k, t AS time FROM rows"), window("w", "s")], []),
        (
            [sql("s", "SELECT k, t + interval 1 day AS t FROM rows"), window("w", "s")],
            [],
        ),
        (
            [window("w"), sql("s", "SELECT k, window_start FROM w", "w"), window("v", "s")],
            [],
        ),
        ([window("w", allowed_lateness="1h"), window("v", "w")], []),
        ([window("w"), window("v", "w", key=["window_start"])], []),
        ([sql("s", "SELECT k, v AS t FROM rows"), unique("u", "s", ttl="1d")], []),
        ([aggregate("a", key="q")], []),
        ([aggregate("a", s="sum(k)")], []),
        (
            [window("w", allowed_lateness="1h")],
            [sink("w", "append")],
        ),
        ([window("w", aggregates={"k": "count(*)"})], []),
        ([window("w", aggregates={"window_end": "count(*)"})], []),
        ([sql("a", "SELECT * FROM b", "b"), sql("b", "SELECT * FROM a", "a")], []),
        ([sql("a", "SELECT * FROM a", "a")], []),
        (
            [aggregate("a"), {**aggregate("b"), "renamed_from": "a"}],
            [],
        ),
        (
            [{**aggregate("b"), "renamed_from": "a"}, {**aggregate("c"), "renamed_from": "a"}],
            [],
        ),
        ([aggregate("a"), aggregate("a")], []),
        ([], [sink("rows", "append"), sink("rows", "append")]),
    ],
)
def test_inputs_that_an_operator_or_sink_cannot_read_are_refused(
    operators: list[dict[str, Any]], sinks: list[dict[str, Any]]
) -> None:
    refusal(spec(operators, sinks))


def test_a_window_with_allowed_lateness_emits_updates_by_key_and_window() -> None:
    """DESIGN 8.1: append with lateness 0, updates with more."""
    graph = build_graph(spec([window("w", allowed_lateness="1h")], [sink("w", "upsert")]))
    assert graph.nodes["w"].output_kind == "updates"
    assert graph.sink_inputs["out"].key == ("k", "window_start", "window_end")


def test_an_explode_emits_the_element_type_and_drops_the_key() -> None:
    """The event time is kept: each row has that of the row it was exploded from."""
    columns = {"k": "string", "t": "timestamp[us, UTC]", "tags": "list<string>"}
    parts = sql("parts", "SELECT k, t, explode(tags) AS tag FROM seen", "seen")
    graph = build_graph(spec([unique("seen"), parts, window("hourly", "parts")], format="json", schema=columns))
    assert types(graph, "parts") == {"k": "string", "t": "timestamp[us, UTC]", "tag": "string"}
    assert (graph.nodes["parts"].key, graph.nodes["parts"].event_time) == ((), "t")
    refusal(spec([sql("a", "SELECT explode(k) AS e FROM rows")], format="json", schema=columns))


def test_a_list_or_struct_cannot_be_a_key() -> None:
    columns = {"k": "list<string>", "t": "timestamp[us, UTC]"}
    refusal(spec([aggregate("a")], format="json", schema=columns))


def test_a_window_over_a_source_without_event_time_is_refused() -> None:
    refusal(spec([window("w")], event_time=None))


def test_an_invalid_operator_causes_no_problems_downstream() -> None:
    job = spec(
        [sql("s", "SELECT nope FROM rows"), aggregate("a", "s"), aggregate("b", key="zz")], [sink("a", "upsert")]
    )
    lines = refusal(job).splitlines()
    assert len(lines) == 3


@pytest.mark.parametrize("type_", ["timestamp[ns]", "list<timestamp[ns, UTC]>", "struct<a: timestamp[ns]>"])
def test_sql_over_nanoseconds_is_refused_because_spark_would_truncate_them(type_: str) -> None:
    """Spark has microseconds. Rows that SQL does not read keep their nanoseconds."""
    source = {"format": "parquet", "schema": {"k": "string", "t": "timestamp[us]", "fine": type_}}
    refusal(spec([sql("a", "SELECT k FROM rows")], **source))
    assert build_graph(spec([unique("u")], **source)).levels == 1
