"""Operators that load downstream of others also run when a forgotten or deleted key returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.jobspec.graph.graph import analyse
from milepost.jobspec.job.spec import JobSpec
from milepost_testkit.law.examples import source_document
from milepost_testkit.law.plane import Checkpoint, EpochOptions, Plane
from milepost_testkit.models.data.oracle import check

pytestmark = pytest.mark.deep

EVENTS = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))])
HOURLY = {"kind": "window", "key": ["k"], "window": {"tumbling": "1h"}, "aggregates": {"v": "count(*)"}}
SESSIONS = HOURLY | {"window": {"session": {"gap": "10m"}}}
LATEST = {"kind": "latest", "key": ["k"], "sequence_by": ["t"]}

FIRST: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "deduplicate": ({"kind": "deduplicate", "key": ["k"]}, ("k",)),
    "deduplicate with ttl": ({"kind": "deduplicate", "key": ["k"], "ttl": "10m"}, ("k",)),
    "latest": (LATEST, ("k",)),
    "latest with tombstone_ttl": (LATEST | {"delete_when": "v < 0", "tombstone_ttl": "10m"}, ("k",)),
    "window": (HOURLY, ("k", "window_start", "window_end")),
    "late window": (HOURLY | {"allowed_lateness": "2h"}, ("k", "window_start", "window_end")),
    "early window": (HOURLY | {"emit": "early"}, ("k", "window_start", "window_end")),
    "session": (SESSIONS, ("k", "window_start", "window_end")),
    "early session": (SESSIONS | {"emit": "early"}, ("k", "window_start")),
    "aggregate": ({"kind": "aggregate", "key": ["k"], "aggregates": {"v": "count(*)"}}, ("k",)),
    "top": ({"kind": "top", "key": ["k"], "order_by": [{"t": "desc"}], "n": 2, "rank": "r"}, ("k", "r")),
    "history": ({"kind": "history", "key": ["k"], "sequence_by": ["t"], "delete_when": "v < 0"}, ("k", "valid_from")),
}
"""Name -> the operator that reads the source, and the key of its rows."""


def readers(key: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return operators that read the rows of another one, which have this key."""
    named = list(key)
    join = {"kind": "join", "key": ["k"], "columns": {"v2": "right.v", "t2": "right.t"}}
    return {
        "totals": {"kind": "aggregate", "key": ["v"], "aggregates": {"n": "count(*)", "most": "max(k)"}},
        "places": {"kind": "top", "key": ["v"], "order_by": ["k"], "n": 2, "rank": "place"},
        "valued": {"kind": "over", "key": ["k"], "row_key": named, "functions": {"n": "count(*)"}},
        "valued_overall": {"kind": "over", "key": [], "row_key": named, "functions": {"n": "sum(v)"}},
        "keyed": {"kind": "materialize", "key": named},
        "once": {"kind": "deduplicate", "key": ["v"]},
        "newest": {"kind": "latest", "key": ["k"], "sequence_by": ["v"]},
        "joined": join | {"how": "left"},
        "alone": {"kind": "join", "key": ["k"], "how": "anti"},
    }


Rows = list[tuple[str, int, int]]
"""Key, value, and minutes since 1970. A value below 0 deletes the key, where an operator has deletes."""

EPOCHS: list[list[Rows]] = [
    [[("a", 1, 10), ("b", 1, 11)], [("a", 2, 12), ("b", -1, 13)]],
    [[("a", -1, 100), ("c", 1, 101)]],  # the watermark passes all ttls
    [[("a", 3, 102), ("b", 3, 101), ("c", 1, 103)]],
    [[("b", 4, 300)], [("a", 4, 301), ("c", -1, 302)]],
    [[("a", 4, 303), ("c", 5, 304)]],
]


def spec_of(*operators: dict[str, Any]) -> JobSpec:
    source = source_document("a", "0s") | {"schema": {"k": "string", "v": "int64", "t": "timestamp[us, UTC]"}}
    return JobSpec.model_validate(
        {"name": "pair", "storage": "../store", "sources": {"a": source, "b": source | {"path": "../landing/b/*"}},
         "operators": list(operators), "sinks": [], "spark": {"buffer_size": "64KB"},
         "checkpointing": {"max_parallelism": 4}}
    )  # fmt: skip


@pytest.mark.parametrize("name", FIRST, ids=lambda name: name.replace(" ", "_"))
def test_each_operator_that_loads_downstream_of_another_runs_when_a_key_returns(name: str, tmp_path: Path) -> None:
    operator, key = FIRST[name]
    first, second = operator | {"uid": "first", "inputs": ["a"]}, []
    for uid, reader in readers(key).items():
        downstream = reader | {"uid": uid, "inputs": ["first", "b"] if reader["kind"] == "join" else ["first"]}
        if not analyse(spec_of(first, downstream))[1]:
            second.append(downstream)
    assert {"totals", "places", "joined", "alone"} <= {one["uid"] for one in second}
    plane, head = Plane(spec_of(first, *second), tmp_path), Checkpoint()
    for epoch, objects in enumerate(EPOCHS):
        put = {
            source: tuple(plane.put(source, f"{epoch}-{at}.parquet", _events(rows)) for at, rows in enumerate(objects))
            for source in ("a", "b")
        }
        head = plane.epoch(head, put, EpochOptions(parallelism=1 + epoch % 2))
    check(
        plane.spec, plane.graph, plane.captured, plane.schemas, {one.number: one.lineage for one in plane.checkpoints}
    )


def _events(rows: Rows) -> pa.Table:
    times = pa.array([minute * 60_000_000 for _, _, minute in rows]).cast(EVENTS.field("t").type)
    return pa.table([[k for k, _, _ in rows], [v for _, v, _ in rows], times], EVENTS)
