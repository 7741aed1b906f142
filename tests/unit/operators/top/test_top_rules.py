"""Output, checks and signatures of `top`."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from milepost.errors import InvalidRequest
from milepost.jobspec.graph.compatibility import (
    NEW_TABLE,
    NEW_UID,
    compare_signatures,
    state_signatures,
)
from milepost.jobspec.graph.read_updates import with_updates_of
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.explain import explained_edges, explained_node
from milepost.operators.base.operator_spec import order_texts
from milepost.operators.top.spec import TopOperator
from milepost_testkit import wording
from milepost_testkit.specs.graphs import build_graph

CLICKS = {"page": "string", "at": "timestamp[us, UTC]", "tags": "list<string>", "x": "float64"}
TOP = {"uid": "first", "kind": "top", "inputs": ["clicks"], "key": ["page"], "order_by": [{"x": "desc"}, "at"],
       "n": 3, "rank": "place"}  # fmt: skip


def spec(operator: dict[str, Any], *others: dict[str, Any], **sink: Any) -> JobSpec:
    source = {"format": "json", "path": "in/*", "schema": CLICKS, "event_time": "at"}
    shown = {"name": "shown", "input": operator["uid"], "format": "parquet", "path": "out", "mode": "upsert", **sink}
    value = {"name": "job", "storage": "lake", "sources": {"clicks": source}, "sinks": [shown]}
    return JobSpec.model_validate({**value, "operators": [*others, operator]})


def test_top_emits_updates_by_key_and_rank() -> None:
    graph = build_graph(spec(TOP))
    node = graph.nodes["first"]
    assert list(node.columns) == [*CLICKS, "place"] and str(node.columns["place"]) == "int32"
    assert (node.event_time, node.output_kind, node.key, node.level) == (None, "updates", ("page", "place"), 1)
    assert graph.sink_inputs["shown"].key == ("page", "place")


def test_order_by_limit_is_refused_with_the_operator_that_computes_it() -> None:
    sql = {"uid": "all", "kind": "sql", "inputs": ["clicks"], "sql": "SELECT * FROM clicks ORDER BY x LIMIT 3"}
    with wording.raises(InvalidRequest):
        build_graph(spec(TOP | {"inputs": ["all"]}, sql))


AGGREGATE = {"uid": "sums", "kind": "aggregate", "inputs": ["first"], "key": ["page"], "aggregates": {"n": "count(*)"}}
UNRANKED = {name: value for name, value in TOP.items() if name != "rank"}


def test_without_a_rank_only_operators_can_read_the_rows() -> None:
    graph = build_graph(spec(AGGREGATE, UNRANKED))
    node = graph.nodes["first"]
    assert (list(node.columns), node.output_kind, node.key, node.read) == ([*CLICKS], "retract", (), "first.retract")
    assert graph.nodes["sums"].deletes, "the rows of a key may all go"
    (edge,) = [item for item in explained_edges(spec(AGGREGATE, UNRANKED), graph) if item["from"] == "first"]
    assert (edge["mode"], edge["key"], edge["exchanged"]) == ("retract", [], True)
    for mode in ("upsert", "append", "changelog"):
        with wording.raises(InvalidRequest):
            build_graph(spec(UNRANKED, mode=mode))


def test_state_over_retractions_cannot_continue_over_ranks() -> None:
    before, after = (spec(AGGREGATE, job_spec) for job_spec in (TOP, UNRANKED))
    old, new = (state_signatures(job_spec, build_graph(job_spec)) for job_spec in (before, after))
    verdicts = {row["name"]: row["verdict"] for row in compare_signatures(old, new)}
    assert (verdicts["first"], verdicts["sums"]) == ("compatible", NEW_UID)


def test_an_order_round_trips_with_directions() -> None:
    operator = TopOperator.model_validate(TOP)
    assert operator.order_by == (("x", True), ("at", False)) and order_texts(operator.order_by) == ["x desc", "at asc"]
    written = operator.model_dump(mode="json")
    assert written["order_by"] == [{"x": "desc"}, {"at": "asc"}]
    assert TopOperator.model_validate(written) == operator


@pytest.mark.parametrize(
    "changed",
    [
        {"order_by": ["y"]},
        {"order_by": ["tags"]},
        {"rank": "X"},
        {"key": ["pages"]},
    ],
)
def test_what_does_not_fit_its_input_is_refused(changed: dict[str, Any]) -> None:
    with wording.raises(InvalidRequest):
        build_graph(spec({**TOP, **changed}))


@pytest.mark.parametrize(
    "changed",
    [{"n": 0}, {"n": 1_001}, {"order_by": []}, {"order_by": ["x", "x"]}, {"order_by": [{"x": "down"}]},
     {"rank": "__rank"}, {"order_by": [{"x": "desc", "at": "asc"}]}],
)  # fmt: skip
def test_a_missing_order_or_number_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TopOperator.model_validate({**TOP, **changed})


TOTALS = {"uid": "totals", "kind": "aggregate", "inputs": ["clicks"], "key": ["page", "at"],
          "aggregates": {"n": "count(*)"}}  # fmt: skip
RANKS = {**TOP, "inputs": ["totals"], "order_by": [{"n": "desc"}]}


def test_top_reads_updates_as_retractions() -> None:
    """Updates are retracted only for operators; a sink reads them as updates."""
    graph = build_graph(spec(RANKS, TOTALS))
    assert graph.nodes["totals"].retracts and graph.nodes["totals"].read == "totals.retract"
    assert not graph.nodes["first"].retracts and graph.nodes["first"].read == "first"
    again = {**RANKS, "uid": "again", "inputs": ["first"], "key": ["place"], "rank": "r"}
    assert build_graph(spec(again, TOTALS, RANKS)).nodes["first"].retracts


def test_lint_shows_the_mode_of_the_edge_and_that_state_holds_all_rows() -> None:
    job = spec(RANKS, TOTALS)
    graph = build_graph(job)
    modes = {(edge["from"], edge["to"]): edge["mode"] for edge in explained_edges(job, graph)}
    assert modes["totals", "first"] == "retract" and modes["clicks", "totals"] == "append"
    assert modes["first", "shown"] == "upsert(page, place)"
    (state,) = explained_node(job, graph, graph.nodes["first"])["state"]
    wording.matches("explain", state["holds"])
    wording.matches("explain", state["grows_with"])
    (state,) = explained_node(spec(TOP), build_graph(spec(TOP)), build_graph(spec(TOP)).nodes["first"])["state"]


def test_ranks_may_be_deleted_if_rows_are_deleted_or_change_their_key() -> None:
    """The key of the aggregate is never deleted. Ranks keyed by a changing number are, and so is what reads them."""
    by_number = {**RANKS, "uid": "ranks", "key": ["n"], "order_by": ["page"]}
    behind = {**TOP, "inputs": ["ranks"], "key": ["n"], "order_by": ["page"], "rank": "r"}
    graph = build_graph(spec(behind, TOTALS, by_number))
    assert [graph.nodes[uid].deletes for uid in ("totals", "ranks", "first")] == [False, True, True]
    assert (graph.nodes["totals"].stable_key, graph.nodes["ranks"].stable_key) == (("page", "at"), None)
    assert not build_graph(spec(RANKS, TOTALS)).nodes["first"].deletes


WINDOWS = {"uid": "totals", "kind": "window", "inputs": ["clicks"], "key": ["page"], "window": {"tumbling": "1h"},
           "allowed_lateness": "1h", "aggregates": {"n": "count(*)"}}  # fmt: skip


def test_windows_with_updates_store_emitted_rows_if_an_operator_reads_them() -> None:
    job = spec(RANKS, WINDOWS)
    graph = build_graph(job)
    assert graph.nodes["totals"].retracts and not graph.nodes["first"].deletes, "a window stays"
    tables = {state["table"]: state for state in explained_node(job, graph, graph.nodes["totals"])["state"]}
    assert tables["output"]["bound"] == tables[""]["bound"] == "bounded: until the watermark reaches window_end + 1h"
    early = {**WINDOWS, "emit": "early", "allowed_lateness": "0s"}
    assert build_graph(spec(RANKS, early)).nodes["totals"].read == "totals.retract"
    alone = spec(WINDOWS)
    (state,) = explained_node(alone, build_graph(alone), build_graph(alone).nodes["totals"])["state"]
    assert state["table"] == "", "what a sink alone reads is as it ever was"
    final = {**WINDOWS, "allowed_lateness": "0s"}
    assert not build_graph(spec(RANKS, final)).nodes["totals"].retracts


def test_the_output_key_of_a_function_is_in_the_signature_if_emitted_rows_are_stored() -> None:
    def stock(output_key: list[str], *behind: dict[str, Any]) -> JobSpec:
        value = {"uid": "totals", "kind": "process", "inputs": ["clicks"], "key": ["page"], "function": "ops:Stock"}
        return spec(*behind, {**value, "output_key": output_key})

    reader = {**RANKS, "key": ["page"]}
    job_spec, changed_spec = stock(["page"], reader), stock(["page", "day"], reader)
    verdicts = [
        next(row for row in compare_signatures(*(state_signatures(job, build_graph(job)) for job in jobs)))["verdict"]
        for jobs in ((job_spec, changed_spec), (stock(["page"]), stock(["page", "day"])))
    ]
    assert verdicts == [NEW_UID, "compatible"]
    graph = build_graph(job_spec)
    (_, state) = explained_node(job_spec, graph, graph.nodes["totals"])["state"]
    wording.matches("explain", state["grows_with"])
    assert state["name"] == "totals.output"


@pytest.mark.parametrize(
    "changed",
    [{"aggregates": {"n": "count(x)"}}, {"aggregates": {"n": "count(*)", "high": "max(x)"}}, {"uid": "counts"}],
)
def test_the_signature_contains_what_updates_are_made_of(changed: dict[str, Any]) -> None:
    after = {**TOTALS, **changed}
    jobs = spec(RANKS, TOTALS), spec({**RANKS, "inputs": [after["uid"]]}, after)
    before, now = (state_signatures(job_spec, build_graph(job_spec)) for job_spec in jobs)
    row = next(row for row in compare_signatures(before, now) if row["name"] == "first")
    wording.matches("explain", row["detail"])
    assert row["verdict"] == NEW_UID
    if "uid" in changed:
        operators = before["operators"].items()
        before["operators"] = {name: with_updates_of(signature, "totals", "counts") for name, signature in operators}
        row = next(row for row in compare_signatures(before, now) if row["name"] == "first")
        assert row["verdict"] == "compatible", "it is the same operator under another name"


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_table_of_buckets_uses_the_key_of_ranks(format_: str) -> None:
    catalog = {"catalog": {"type": "rest", "uri": "http://c"}, "table": "a.b"} if format_ == "iceberg" else {}
    shown = build_graph(job := spec(TOP, format=format_, **catalog)).sink_inputs["shown"]
    assert (shown.key, shown.routing_key) == (("page", "place"), ("page",))
    signature = state_signatures(job, build_graph(job))
    assert signature["sinks"]["shown"]["buckets by"] == ["page"]
    former = {**signature, "sinks": {"shown": {**signature["sinks"]["shown"], "buckets by": ["page", "place"]}}}
    (row,) = [item for item in compare_signatures(former, signature) if item["name"] == "shown"]
    assert row["verdict"] == NEW_TABLE, "its files would not be those that a changed key is looked for in"
    assert build_graph(spec(TOP, format=format_, mode="changelog", **catalog)).sink_inputs["shown"].op == "upsert"


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [({"n": 2}, NEW_UID), ({"order_by": ["x"]}, NEW_UID), ({"key": ["at"]}, NEW_UID), ({"rank": "r"}, "compatible")],
)
def test_what_decides_the_rows_that_are_kept_is_signed(changed: dict[str, Any], verdict: str) -> None:
    before, after = spec(TOP), spec({**TOP, **changed})
    rows = compare_signatures(*(state_signatures(job_spec, build_graph(job_spec)) for job_spec in (before, after)))
    assert next(row["verdict"] for row in rows if row["name"] == "first") == verdict


def test_rows_that_tie_have_no_key() -> None:
    for ties in (True, "dense"):
        operator = TOP | {"ties": ties, "max_ties": 7}
        graph = build_graph(spec(AGGREGATE, operator))
        node = graph.nodes["first"]
        assert (list(node.columns), node.output_kind, node.key) == ([*CLICKS, "place"], "retract", ())
        (state,) = explained_node(spec(AGGREGATE, operator), graph, node)["state"]
        assert state["holds"] == "the rows of the first 3 ranks per page"
    with wording.raises(InvalidRequest):
        build_graph(spec(TOP | {"max_ties": 7}))


def test_one_row_of_each_key_is_updates_by_the_key() -> None:
    one = UNRANKED | {"n": 1}
    node = build_graph(spec(one)).nodes["first"]
    assert (list(node.columns), node.output_kind, node.key, node.deletes) == ([*CLICKS], "updates", ("page",), False)
    assert (
        build_graph(spec(one | {"inputs": ["totals"], "key": ["n"], "order_by": ["page"]}, TOTALS))
        .nodes["first"]
        .deletes
    )
    assert build_graph(spec(AGGREGATE, one | {"key": []})).nodes["first"].output_kind == "retract"


def test_the_first_rows_of_all_have_no_key_but_the_rank() -> None:
    graph = build_graph(spec(TOP | {"key": []}))
    assert graph.nodes["first"].key == graph.sink_inputs["shown"].key == ("place",)


@pytest.mark.parametrize("changed", [{"ties": True}, {"ties": "dense"}])
def test_state_depends_on_how_rows_tie(changed: dict[str, Any]) -> None:
    before, after = (spec(AGGREGATE, one) for one in (UNRANKED, UNRANKED | changed))
    old, new = (state_signatures(job_spec, build_graph(job_spec)) for job_spec in (before, after))
    assert {row["name"]: row["verdict"] for row in compare_signatures(old, new)}["first"] == NEW_UID
