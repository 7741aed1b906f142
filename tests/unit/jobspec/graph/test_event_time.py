"""The event time table of the reference: one test per row, of the graph and of the operator it builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.jobspec.graph.event_time import EVENT_TIME_RULES
from milepost.jobspec.graph.graph import JobGraph, Outputs, analyse
from milepost.jobspec.job.spec import JobSpec
from milepost.language.types import ColumnType
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.base.operator_spec import NOTHING
from milepost.operators.base.two_inputs import SIDES
from milepost.operators.build import build_operator
from milepost.operators.contract import OperatorInput, StatefulOperator
from milepost.operators.sql.spec import SqlOperator
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit.tasks.operators.subtasks import OperatorRun

HOUR_US = 3_600_000_000
TIMES = {"at": "timestamp[us, UTC]", "k": "string"}
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("k", pa.string())])
SOURCE = {"format": "csv", "path": "in/*.csv", "schema": TIMES, "event_time": "at", "watermark_delay": "5m"}


def graph_of(
    *operators: dict[str, Any], outputs: Outputs | None = None, sources: dict[str, Any] | None = None
) -> tuple[JobSpec, JobGraph]:
    """Return a job with these operators, each reading the previous one, and with more sources."""
    names = ["rows", *(operator["uid"] for operator in operators)]
    value = {"name": "job", "storage": "lake", "sources": {"rows": SOURCE, **(sources or {})}}
    chained = [{"inputs": [name], **operator} for name, operator in zip(names, operators, strict=False)]
    spec = JobSpec.model_validate({**value, "operators": chained})
    graph, problems = analyse(spec, outputs)
    assert graph is not None, problems
    return spec, graph


def late(spec: JobSpec, uid: str, folder: Path, time_us: int, stamp_us: int, shift_us: int = 0) -> bool:
    """Return whether a row with this event time and stamp is late for an operator."""
    operator = spec.operator(uid)
    assert not isinstance(operator, SqlOperator)
    built = build_operator(operator, [OperatorInput(SCHEMA, "at", shift_us)])
    run = OperatorRun(built, LocalStore(StoreConfig((folder / f"{uid}{time_us}{stamp_us}{shift_us}").as_uri())))
    rows = pa.table([pa.array([time_us]).cast(SCHEMA.field("at").type), ["a"]], schema=SCHEMA)
    return bool(run.epoch(rows, stamp_us, stamp_us).late.num_rows)


def times_of(graph: JobGraph, uid: str) -> tuple[str | None, int, int]:
    node = graph.nodes[uid]
    return node.event_time, node.shift_us, node.holdback_us


def source(folder: Path) -> None:
    _, graph = graph_of()
    assert times_of(graph, "rows") == ("at", 0, 0)


def sql(folder: Path) -> None:
    kept = {"uid": "kept", "kind": "sql", "sql": "SELECT at, k FROM rows"}
    lost = {"uid": "lost", "kind": "sql", "sql": "SELECT at AS time FROM kept"}
    _, graph = graph_of(kept, lost)
    assert times_of(graph, "kept") == ("at", 0, 0) and times_of(graph, "lost") == (None, 0, 0)


def deduplicate(folder: Path) -> None:
    spec, graph = graph_of({"uid": "once", "kind": "deduplicate", "key": ["k"], "ttl": "1h"})
    assert times_of(graph, "once") == ("at", 0, 0)
    assert not late(spec, "once", folder, 0, HOUR_US) and late(spec, "once", folder, 0, HOUR_US + 1)
    assert late(spec, "once", folder, 0, HOUR_US, shift_us=-1)


def window(folder: Path) -> None:
    hourly = {"uid": "hourly", "kind": "window", "key": ["k"], "window": {"tumbling": "1h"}}
    hourly |= {"aggregates": {"n": "count(*)"}}
    spec, graph = graph_of(hourly, {**hourly, "uid": "again", "allowed_lateness": "2h"})
    assert times_of(graph, "hourly") == ("window_end", -1, 0)
    assert times_of(graph, "again") == ("window_end", -1, 2 * HOUR_US)
    assert not late(spec, "hourly", folder, 0, HOUR_US - 1) and late(spec, "hourly", folder, 0, HOUR_US)
    assert not late(spec, "again", folder, 0, 3 * HOUR_US - 1) and late(spec, "again", folder, 0, 3 * HOUR_US)
    of_sliding, of_session = {"sliding": {"size": "2h", "slide": "1h"}}, {"session": {"gap": "3h"}}
    spec, graph = graph_of({**hourly, "uid": "last", "window": of_sliding}, {**hourly, "window": of_session})
    assert times_of(graph, "last") == ("window_end", -1, 0) == times_of(graph, "hourly")
    assert not late(spec, "last", folder, 0, 2 * HOUR_US - 1) and late(spec, "last", folder, 0, 2 * HOUR_US)
    assert not late(spec, "hourly", folder, 5, 5) and late(spec, "hourly", folder, 4, 5)
    spec, graph = graph_of(hourly)
    end_us = HOUR_US
    assert late(spec, "hourly", folder, end_us, HOUR_US, shift_us=-1), "a window's end is the moment after it"


def aggregate(folder: Path) -> None:
    spec, graph = graph_of({"uid": "totals", "kind": "aggregate", "key": ["k"], "aggregates": {"n": "count(*)"}})
    assert times_of(graph, "totals") == (None, 0, 0)
    assert not late(spec, "totals", folder, -(10**15), 10**15)


def top(folder: Path) -> None:
    spec, graph = graph_of({"uid": "first", "kind": "top", "key": ["k"], "order_by": ["at"], "n": 1, "rank": "place"})
    assert times_of(graph, "first") == (None, 0, 0)
    assert not late(spec, "first", folder, -(10**15), 10**15)


def materialize(folder: Path) -> None:
    totals = {"uid": "totals", "kind": "aggregate", "key": ["k"], "aggregates": {"at": "max(at)"}}
    _, graph = graph_of(totals, {"uid": "by_time", "kind": "materialize", "key": ["at", "k"]})
    assert times_of(graph, "by_time") == (None, 0, 0)


def over(folder: Path) -> None:
    totals = {"uid": "totals", "kind": "aggregate", "key": ["k"], "aggregates": {"at": "max(at)"}}
    valued = {
        "uid": "valued",
        "kind": "over",
        "key": [],
        "order_by": ["at"],
        "row_key": ["k"],
        "functions": {"n": "rank()"},
    }
    _, graph = graph_of(totals, valued)
    assert times_of(graph, "valued") == (None, 0, 0)


def history(folder: Path) -> None:
    versions = {"uid": "versions", "kind": "history", "key": ["k"], "sequence_by": ["at"]}
    spec, graph = graph_of(versions)
    assert times_of(graph, "versions") == (None, 0, 0) and not late(spec, "versions", folder, -(10**15), 10**15)


def latest(folder: Path) -> None:
    current = {"uid": "current", "kind": "latest", "key": ["k"], "sequence_by": ["at"]}
    spec, graph = graph_of(current)
    assert times_of(graph, "current") == (None, 0, 0) and not late(spec, "current", folder, -(10**15), 10**15)
    current |= {"delete_when": "k = ''", "tombstone_ttl": "1h"}
    spec, graph = graph_of(current)
    operator = spec.operator("current")
    assert not isinstance(operator, SqlOperator)
    schema = SCHEMA.append(pa.field(DELETED_COLUMN, pa.bool_()))
    built = build_operator(operator, [OperatorInput(schema, "at")])
    for stamp_us, expected in ((HOUR_US, 0), (HOUR_US + 1, 1)):
        run = OperatorRun(built, LocalStore(StoreConfig((folder / f"{stamp_us}").as_uri())))
        rows = pa.table([pa.array([0]).cast(SCHEMA.field("at").type), ["a"], [True]], schema=schema)
        assert run.epoch(rows, stamp_us, stamp_us).late.num_rows == expected


def process(folder: Path) -> None:
    calls = {"uid": "calls", "kind": "process", "key": ["k"], "function": "ops:Calls"}
    timed, text = ColumnType("timestamp", unit="us", utc=True), ColumnType("string")
    for output, expected in (({"at": timed}, "at"), ({"at": text}, None), ({"time": timed}, None)):
        _, graph = graph_of(calls, outputs={"calls": output})
        assert times_of(graph, "calls") == (expected, 0, 0)


def join(folder: Path) -> None:
    """Rows below the stamp are late, on either side. Its holdback is how much later the right row may be."""
    pairs = {"uid": "pairs", "kind": "join", "inputs": ["rows", "rows"], "key": ["k"], "within": ["-1h", "2h"]}
    pairs |= {"columns": {"then": "right.at"}}
    spec, graph = graph_of(pairs, {**pairs, "uid": "before", "within": ["-2h", "-1h"]})
    assert times_of(graph, "pairs") == ("at", 0, 2 * HOUR_US) and times_of(graph, "before") == ("at", 0, 0)
    _, graph = graph_of({**pairs, "within": ["-3h", "2h"], "how": "right"})
    assert times_of(graph, "pairs") == ("at", 0, 3 * HOUR_US), "a right row may have waited so long"
    operator = spec.operator("pairs")
    assert not isinstance(operator, SqlOperator)
    late_below_the_stamp(build_operator(operator, [OperatorInput(SCHEMA, "at"), OperatorInput(SCHEMA, "at", -1)]))


def asof(folder: Path) -> None:
    """Rows below the stamp are late, on either side. It has no holdback."""
    versions = {"uid": "placed", "kind": "asof", "inputs": ["rows", "rows"], "key": ["k"]}
    spec, graph = graph_of(versions | {"columns": {"since": "right.at"}})
    assert times_of(graph, "placed") == ("at", 0, 0)
    operator = spec.operator("placed")
    assert not isinstance(operator, SqlOperator)
    late_below_the_stamp(build_operator(operator, [OperatorInput(SCHEMA, "at"), OperatorInput(SCHEMA, "at", -1)]))


def late_below_the_stamp(built: StatefulOperator) -> None:
    """Assert this for an operator with two inputs, the second of which is timed by window ends."""
    for position, shift_us in ((0, 0), (1, -1)):
        for time_us, expected in ((5 - shift_us, 0), (4 - shift_us, 1)):
            rows = pa.table([pa.array([time_us]).cast(SCHEMA.field("at").type), [None]], schema=SCHEMA)
            run = built.begin(dict.fromkeys(SIDES), None)  # type: ignore[arg-type]  # a null key is not kept
            assert sum(output.late.num_rows for output in run.rows(position, rows, 5)) == expected


def lookup(folder: Path) -> None:
    """The event time is that of the input, whatever the static source has."""
    found = {"uid": "found", "kind": "lookup", "inputs": ["rows", "names"], "key": ["k"]}
    static = {"format": "csv", "path": "x/*", "schema": {"k": "string"}, "static": True}
    _, graph = graph_of(found, sources={"names": static})
    assert times_of(graph, "found") == ("at", 0, 0) and times_of(graph, "names") == (None, 0, 0)


@pytest.mark.parametrize("kind", [*EVENT_TIME_RULES])
def test_graph_and_operators_behave_as_the_event_time_table_says(kind: str, tmp_path: Path) -> None:
    """The function of this module with the name of the kind checks its row of the table."""
    assert kind in globals(), f"write the function {kind} in this module"
    globals()[kind](tmp_path)


def test_exactly_the_kinds_with_a_late_rule_have_late_rows() -> None:
    """A kind has a late rule if and only if it has an output of late rows."""
    assert {kind for kind, rule in EVENT_TIME_RULES.items() if rule.late != NOTHING} == {
        "window",
        "deduplicate",
        "join",
        "asof",
        "latest",
    }


def test_event_time_of_a_window_passes_through_operators_that_keep_its_column() -> None:
    """So a window can read windows, also through SQL, a deduplication and a process function."""
    hourly = {"uid": "hourly", "kind": "window", "key": ["k"], "window": {"tumbling": "1h"}}
    hourly |= {"aggregates": {"n": "count(*)"}}
    kept = {"uid": "kept", "kind": "sql", "sql": "SELECT k, window_end, n FROM hourly"}
    once = {"uid": "once", "kind": "deduplicate", "key": ["k"], "ttl": "1d"}
    calls = {"uid": "calls", "kind": "process", "key": ["k"], "function": "ops:Calls"}
    daily = {**hourly, "uid": "daily", "window": {"tumbling": "1d"}}
    output = {"k": ColumnType("string"), "window_end": ColumnType("timestamp", unit="us", utc=True)}
    _, graph = graph_of(hourly, kept, once, calls, daily, outputs={"calls": output})
    for uid in ("hourly", "kept", "once", "calls", "daily"):
        assert times_of(graph, uid) == ("window_end", -1, 0)
    assert [graph.nodes[uid].level for uid in ("hourly", "once", "calls", "daily")] == [1, 2, 3, 4]
