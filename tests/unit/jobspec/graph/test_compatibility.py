"""A changed spec is compared with recorded state, operator by operator, before an epoch is planned."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from milepost.jobspec.graph.compatibility import (
    COMPATIBLE,
    NEW_TABLE,
    NEW_TABLE_OR_BACKFILL,
    NEW_UID,
    NON_RESTORED,
    compare_signatures,
    state_signatures,
)
from milepost.jobspec.job.spec import JobSpec
from milepost_testkit import wording
from milepost_testkit.specs.graphs import build_graph

BASE: dict[str, Any] = {
    "name": "job",
    "storage": "lake",
    "sources": {
        "rows": {
            "format": "csv",
            "path": "s3://in/a/*.csv",
            "schema": {"k": "string", "v": "int32", "t": "timestamp[us, UTC]"},
            "event_time": "t",
        }
    },
    "operators": [
        {"uid": "clean", "kind": "sql", "inputs": ["rows"], "sql": "SELECT * FROM rows"},
        {"uid": "seen", "kind": "deduplicate", "inputs": ["clean"], "key": ["k", "t"], "ttl": "1d"},
        {"uid": "sums", "kind": "aggregate", "inputs": ["seen"], "key": ["k"], "aggregates": {"s": "sum(v)"}},
        {"uid": "hourly", "kind": "window", "inputs": ["seen"], "key": ["k"], "window": {"tumbling": "1h"},
         "aggregates": {"n": "count(*)"}},
    ],
    "sinks": [{"name": "sums", "input": "sums", "format": "parquet", "path": "out/sums", "mode": "upsert"}],
}  # fmt: skip


def signatures(value: dict[str, Any]) -> dict[str, Any]:
    spec = JobSpec.model_validate(value)
    return json.loads(json.dumps(state_signatures(spec, build_graph(spec))))


def verdicts(change: Any) -> dict[str, str]:
    changed = copy.deepcopy(BASE)
    change(changed)
    rows = compare_signatures(signatures(BASE), signatures(changed))
    return {row["uid"]: row["verdict"] for row in rows if row["detail"] != "unchanged"}


def set_operator(index: int, **values: Any) -> Any:
    return lambda value: value["operators"][index].update(values)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda value: None, {}),
        (set_operator(0, sql="SELECT k, v + 1 AS v, t FROM rows"), {}),
        (set_operator(1, ttl="9h"), {}),
        (set_operator(1, ttl="9d"), {"seen": NEW_UID}),
        (set_operator(1, ttl=None), {"seen": NEW_UID}),
        (set_operator(3, allowed_lateness="1h"), {"hourly": NEW_UID}),
        (lambda value: value.update(spark={"parallelism": 5}, checkpointing={"retained": 3}), {}),
        (set_operator(2, key=["k", "t"]), {"sums": NEW_UID, "sink sums": NEW_TABLE}),
        (set_operator(3, window={"tumbling": "2h"}), {"hourly": NEW_UID}),
        (set_operator(3, uid="daily"), {"daily": COMPATIBLE, "hourly": NON_RESTORED}),
        (lambda v: v["sources"]["rows"].update(path="s3://in/b/*.csv"), {}),
        (lambda v: v["sources"]["rows"].update(path="s3://other/a/*.csv"), {"source rows": NEW_UID}),
        (lambda v: v["sinks"][0].update(path="out/other"), {"sink sums": NEW_TABLE}),
        (lambda v: v["operators"].append(v["operators"][2] | {"uid": "others"}), {"others": COMPATIBLE}),
        (lambda v: (v["operators"].append(v["operators"][2] | {"uid": "others"}), v["sinks"][0].update(input="others")),
         {"others": COMPATIBLE, "sink sums": NEW_TABLE_OR_BACKFILL}),
        (lambda v: v["sinks"][0].update(name="other"), {"sink other": COMPATIBLE, "sink sums": COMPATIBLE}),
        (lambda v: v.update(checkpointing={"max_parallelism": 64}), {"job": NEW_UID}),
    ],
)  # fmt: skip
def test_each_change_has_the_expected_verdict(change: Any, expected: dict[str, str]) -> None:
    """DESIGN 8.2: compatible / needs --allow-non-restored-state / needs a new uid or a backfill."""
    assert verdicts(change) == expected


def test_a_verdict_says_what_changed() -> None:
    changed = copy.deepcopy(BASE)
    changed["operators"][3]["window"] = {"tumbling": "2h"}
    rows = {row["uid"]: row["detail"] for row in compare_signatures(signatures(BASE), signatures(changed))}
    wording.matches("explain", rows["hourly"])


def test_an_input_that_changes_from_append_to_updates_needs_a_new_uid_downstream() -> None:
    spec = JobSpec.model_validate(BASE)
    graph = build_graph(spec)
    turned = replace(graph, nodes=graph.nodes | {"seen": replace(graph.nodes["seen"], output_kind="updates")})
    rows = compare_signatures(state_signatures(spec, graph), state_signatures(spec, turned))
    changed = {row["uid"]: (row["verdict"], row["detail"]) for row in rows if row["verdict"] != COMPATIBLE}
    detail = "modes of its inputs was [append], is [updates]"
    assert changed == {"sums": (NEW_UID, detail), "hourly": (NEW_UID, detail)}


def test_input_modes_that_were_not_recorded_are_compatible() -> None:
    before = signatures(BASE)
    for operator in before["operators"].values():
        del operator["modes of its inputs"]
    assert {row["verdict"] for row in compare_signatures(before, signatures(BASE))} == {COMPATIBLE}


def test_a_sink_whose_operator_was_not_recorded_is_compatible() -> None:
    """Earlier versions did not record the operator whose rows an upsert table shows."""
    before = signatures(BASE)
    del before["sinks"]["sums"]["rows_of"]
    assert {row["verdict"] for row in compare_signatures(before, signatures(BASE))} == {COMPATIBLE}


def test_a_permanent_ttl_cannot_become_a_duration() -> None:
    """State does not record when its keys were seen, so none of them could expire."""
    before, after = copy.deepcopy(BASE), copy.deepcopy(BASE)
    before["operators"][1]["ttl"] = None
    rows = {row["uid"]: row for row in compare_signatures(signatures(before), signatures(after))}
    wording.matches("explain", rows["seen"]["detail"])
    assert rows["seen"]["verdict"] == NEW_UID


def with_event_time(column_type: str, event_time: Any) -> dict[str, Any]:
    value = copy.deepcopy(BASE)
    value["sources"]["rows"] |= {"schema": {"k": "string", "v": "int32", "t": column_type}, "event_time": event_time}
    value["operators"].append(
        {"uid": "own", "kind": "process", "inputs": ["rows"], "key": ["k"], "function": "ops:Own"}
    )
    return value


@pytest.mark.parametrize(
    ("column_type", "before", "after", "expected"),
    [
        ("int64", {"column": "t", "unit": "s"}, {"column": "t", "unit": "ms"}, {"seen", "hourly", "own"}),
        ("string", {"column": "t", "format": "dd.MM.yyyy"}, {"column": "t", "format": "MM.dd.yyyy"},
         {"seen", "hourly", "own"}),
        ("string", {"column": "t", "format": "dd.MM.yyyy"}, {"column": "t", "format": "dd.MM.yyyy[ HH:mm]"}, set()),
        ("string", {"column": "t", "format": "dd.MM.yyyy[ HH:mm]"}, {"column": "t", "format": "dd.MM.yyyy HH:mm"},
         {"seen", "hourly", "own"}),
        ("date", "t", {"column": "t", "timezone": "Europe/Berlin"}, {"seen", "hourly", "own"}),
        ("date", "t", {"column": "t", "timezone": "UTC"}, set()),
        ("date", "t", {"column": "t"}, set()),
    ],
)  # fmt: skip
def test_operators_that_depend_on_event_time_are_refused_when_it_changes(
    column_type: str, before: Any, after: Any, expected: set[str]
) -> None:
    """Aggregates without event time are compatible. A class may depend on event time, so it is not."""
    old, new = (signatures(with_event_time(column_type, event_time)) for event_time in (before, after))
    assert {row["uid"] for row in compare_signatures(old, new) if row["verdict"] != COMPATIBLE} == expected


def test_event_times_that_were_not_recorded_are_compatible() -> None:
    before = signatures(with_event_time("int64", {"column": "t", "unit": "s"}))
    for operator in before["operators"].values():
        operator.pop("event_time of source rows", None)
    after = signatures(with_event_time("int64", {"column": "t", "unit": "ms"}))
    assert {row["verdict"] for row in compare_signatures(before, after)} == {COMPATIBLE}
