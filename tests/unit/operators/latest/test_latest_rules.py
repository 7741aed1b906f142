"""Output, checks and signatures of `latest`, and of SQL over updates."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.graph.compatibility import NEW_UID, compare_signatures, state_signatures
from milepost.jobspec.graph.in_flight import consumed_columns, input_signatures
from milepost.jobspec.job.spec import JobSpec
from milepost_testkit import wording
from milepost_testkit.specs.graphs import build_graph

ORDERS = {"id": "int64", "op": "string", "lsn": "int64", "tags": "list<string>", "at": "timestamp[us, UTC]"}
LATEST = {"uid": "current", "kind": "latest", "inputs": ["orders"], "key": ["id"], "sequence_by": ["lsn"],
          "delete_when": "op = 'D'"}  # fmt: skip


def spec(*operators: dict[str, Any], sink: dict[str, Any] | None = None, **source: Any) -> JobSpec:
    orders = {"format": "json", "path": "in/*", "schema": ORDERS, "event_time": "at", **source}
    shown = {"name": "shown", "input": operators[-1]["uid"], "format": "parquet", "path": "out", "mode": "upsert"}
    value = {"name": "job", "storage": "lake", "sources": {"orders": orders}, "sinks": [shown | (sink or {})]}
    return JobSpec.model_validate({**value, "operators": list(operators)})


def sql(text: str, source: str = "current", uid: str = "open") -> dict[str, Any]:
    return {"uid": uid, "kind": "sql", "inputs": [source], "sql": text}


def test_latest_emits_updates_by_key_with_deletes_if_delete_when_is_given() -> None:
    graph = build_graph(spec(LATEST))
    node = graph.nodes["current"]
    assert list(node.columns) == list(ORDERS) and node.deletes and node.has_conditions
    assert (node.event_time, node.output_kind, node.key, node.level) == (None, "updates", ("id",), 1)
    assert graph.sink_inputs["shown"].deletes and graph.sink_inputs["shown"].key == ("id",)
    plain = build_graph(spec({**LATEST, "delete_when": None}))
    assert not plain.nodes["current"].deletes and not plain.sink_inputs["shown"].deletes


def test_columns_selects_and_orders_the_columns_of_the_table() -> None:
    job = spec({**LATEST, "columns": ["at", "id"]})
    graph = build_graph(job)
    assert list(graph.nodes["current"].columns) == ["at", "id"]
    assert consumed_columns(job, graph, "current") == {"at", "id", "lsn"}, "the condition is evaluated before"
    assert consumed_columns(spec(LATEST), build_graph(spec(LATEST)), "current") is None


def test_late_rows_have_the_columns_of_the_input() -> None:
    late = {"input": "current.late", "mode": "append"}
    graph = build_graph(spec({**LATEST, "tombstone_ttl": "1h", "columns": ["id"]}, sink=late))
    assert list(graph.sink_inputs["shown"].columns) == list(ORDERS) and not graph.sink_inputs["shown"].deletes


@pytest.mark.parametrize(
    "changed",
    [
        {"sequence_by": ["lns"]},
        {"sequence_by": ["tags"]},
        {"columns": ["lsn"]},
        {"columns": ["id", "opp"]},
        {"delete_when": "opp = 'D'"},
        {"delete_when": "op = 'D', id = 1"},
        {"delete_when": "max(id) = 1"},
        {"delete_when": "at < now()"},
        {"delete_when": "op = 'D' ORDER BY id"},
        {"delete_when": None, "tombstone_ttl": "1h"},
        {"key": ["tags"]},
        {"ignore_nulls": True, "tombstone_ttl": "1h"},
    ],
)
def test_what_does_not_fit_its_input_is_refused(changed: dict[str, Any]) -> None:
    with wording.raises(InvalidRequest):
        build_graph(spec({**LATEST, **changed}))


def test_a_ttl_needs_event_time_and_sparks_times_have_microseconds() -> None:
    with wording.raises(InvalidRequest):
        build_graph(spec({**LATEST, "tombstone_ttl": "1h"}, event_time=None))
    with wording.raises(InvalidRequest):
        build_graph(spec(LATEST, schema={**ORDERS, "at": "timestamp[ns, UTC]"}))


def test_over_updates_a_filter_emits_deletes_and_the_key_is_traced() -> None:
    totals = {"uid": "totals", "kind": "aggregate", "inputs": ["orders"], "key": ["id", "op"],
              "aggregates": {"n": "count(*)"}}  # fmt: skip
    plain = build_graph(spec(totals, sql("SELECT n * 2 AS n, op AS kind, id FROM totals", "totals")))
    assert plain.nodes["open"].key == ("id", "kind") and plain.nodes["open"].output_kind == "updates"
    assert not plain.nodes["open"].deletes
    graph = build_graph(spec(totals, sql("SELECT * FROM totals WHERE n > 1", "totals")))
    assert graph.nodes["open"].deletes and graph.sink_inputs["shown"].deletes
    further = build_graph(spec(LATEST, sql("SELECT * FROM current"), sql("SELECT id FROM open", "open", "ids")))
    assert further.nodes["ids"].deletes and list(further.nodes["ids"].columns) == ["id"]


def test_aggregates_and_ranks_of_latest_rows_may_be_deleted() -> None:
    per_day = {"uid": "per_day", "kind": "aggregate", "inputs": ["current"], "key": ["op"],
               "aggregates": {"n": "count(*)", "total": "sum(lsn)"}}  # fmt: skip
    graph = build_graph(spec(LATEST, per_day))
    assert graph.nodes["current"].retracts and graph.nodes["current"].read == "current.retract"
    assert graph.nodes["per_day"].deletes and graph.nodes["per_day"].level == 2
    kept = {**LATEST, "delete_when": None}
    assert build_graph(spec(kept, per_day)).nodes["per_day"].deletes, "a row may move from one op to another"
    top = {
        "uid": "first",
        "kind": "top",
        "inputs": ["current"],
        "key": ["id"],
        "order_by": ["lsn"],
        "n": 1,
        "rank": "r",
    }
    assert [build_graph(spec(operator, top)).nodes["first"].deletes for operator in (LATEST, kept)] == [True, False]
    before, after = spec(LATEST, per_day), spec({**LATEST, "columns": ["id", "op", "lsn"]}, per_day)
    rows = compare_signatures(*(state_signatures(job_spec, build_graph(job_spec)) for job_spec in (before, after)))
    verdicts = {row["name"]: row["verdict"] for row in rows}
    assert verdicts["current"] == "compatible" and verdicts["per_day"] == NEW_UID, "its rows have changed"


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({"sequence_by": ["at"]}, NEW_UID),
        ({"key": ["op"]}, NEW_UID),
        ({"tombstone_ttl": "1h"}, NEW_UID),
        ({"delete_when": "op = 'X'"}, "compatible"),
        ({"columns": ["id", "op"]}, "compatible"),
        ({"ignore_nulls": True}, NEW_UID),
        ({"unchanged": "__same"}, NEW_UID),
    ],
)
def test_what_decides_the_rows_that_are_kept_is_signed(changed: dict[str, Any], verdict: str) -> None:
    before, after = spec(LATEST), spec({**LATEST, **changed})
    rows = compare_signatures(*(state_signatures(job_spec, build_graph(job_spec)) for job_spec in (before, after)))
    assert next(row["verdict"] for row in rows if row["name"] == "current") == verdict


def test_rows_in_flight_depend_on_the_delete_condition() -> None:
    job_spec, changed_spec = spec(LATEST), spec({**LATEST, "delete_when": "op = 'X'"})
    assert input_signatures(job_spec, build_graph(job_spec)) != input_signatures(
        changed_spec, build_graph(changed_spec)
    )


def test_buckets_use_the_exchange_key_even_if_it_is_renamed() -> None:
    hourly = {"uid": "hourly", "kind": "window", "inputs": ["orders"], "key": ["id"], "window": {"tumbling": "1h"},
              "aggregates": {"n": "count(*)"}, "allowed_lateness": "1h"}  # fmt: skip
    text = "SELECT n, window_start AS begins, window_end AS ends, id AS who FROM hourly"
    (shown,) = build_graph(spec(hourly, sql(text, "hourly"), sink={"format": "delta"})).sink_inputs.values()
    assert (shown.key, shown.routing_key) == (("who", "begins", "ends"), ("who",))
    early = hourly | {"emit": "early"}
    with wording.raises(InvalidRequest):
        build_graph(spec(early, sql(text, "hourly"), sink={"format": "delta"}))
