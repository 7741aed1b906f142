"""The law: with nothing in flight, each node's rows are its batch query over its inputs' rows, less its late ones.

Random graphs and histories; and, by hand, the least history at which each rule would break. `make law` runs thousands.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given

from milepost.errors import SubtaskDeclined
from milepost.jobspec.job.spec import JobSpec
from milepost.spark.worker.worker_memory import MemoryBudget
from milepost.state.layers.key_groups import subtask_of_key_group
from milepost_testkit import profiles, wording
from milepost_testkit.law.examples import Example, JobExample, Step, examples, job_examples, source_document
from milepost_testkit.law.plane import Checkpoint, EpochOptions, Plane
from milepost_testkit.law.run import hold, hold_job
from milepost_testkit.models.data.captured import Begin, Captured
from milepost_testkit.models.data.kinds.lookups import DOCUMENT, STATIC
from milepost_testkit.models.data.oracle import Broken, check, hold_same
from milepost_testkit.rows.key_hashes import KEYED
from milepost_testkit.specs.graphs import build_graph

EVENTS = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))])
MINUTE_US = 60_000_000
HOURLY = {"uid": "hourly", "kind": "window", "inputs": ["a"], "key": ["k"], "window": {"tumbling": "1h"},
          "aggregates": {"n": "count(*)", "total": "sum(v)"}}  # fmt: skip
ONCE = {"uid": "once", "kind": "deduplicate", "inputs": ["a"], "key": ["k", "t"], "ttl": "1h"}
TOTALS = {"uid": "totals", "kind": "aggregate", "inputs": ["a"], "key": ["k"], "aggregates": {"n": "count(*)"}}

Rows = list[tuple[str | None, int, float]]
"""Key, value, and minutes since 1970."""


def events(rows: Rows) -> pa.Table:
    times = [round(minute * MINUTE_US) for _, _, minute in rows]
    return pa.table([[k for k, _, _ in rows], [v for _, v, _ in rows], pa.array(times, EVENTS.field("t").type)], EVENTS)


def spec_of(
    *operators: dict[str, Any], delay: str = "0s", buffer: str = "64KB", static: dict[str, Any] | None = None
) -> JobSpec:
    """Return a job with these operators, and a sink of each whose rows a sink can publish."""
    source = source_document("a", delay) | {"schema": {"k": "string", "v": "int64", "t": "timestamp[us, UTC]"}}
    document = {
        "name": "law", "storage": "../store", "sources": {"a": source, **(static or {})}, "operators": list(operators),
        "spark": {"buffer_size": buffer}, "checkpointing": {"max_parallelism": 8, "aligned_timeout": "1s"},
    }  # fmt: skip
    nodes = build_graph(JobSpec.model_validate(document)).nodes
    sinks = [
        {"name": f"s{place}", "input": one["uid"], "format": "parquet", "path": f"../lake/{place}",
         "mode": "append" if nodes[one["uid"]].output_kind == "append" else "upsert"}
        for place, one in enumerate(operators)
        if one["kind"] != "sql" and nodes[one["uid"]].output_kind != "retract"
    ]  # fmt: skip
    return JobSpec.model_validate(document | {"sinks": sinks})


class History:
    """Epochs of a job one after another, held to the law at their end."""

    def __init__(self, folder: Path, *operators: dict[str, Any], delay: str = "0s", buffer: str = "64KB") -> None:
        self.plane = Plane(spec_of(*operators, delay=delay, buffer=buffer), folder)
        self.head = Checkpoint()

    def epoch(self, *objects: Rows, **options: Any) -> Checkpoint:
        put = [
            self.plane.put("a", f"{self.head.number}-{place}.parquet", events(rows))
            for place, rows in enumerate(objects)
        ]
        self.head = self.plane.epoch(self.head, {"a": tuple(put)}, EpochOptions(**options))
        return self.head

    def check(self) -> None:
        plane = self.plane
        whole = {one.number: one.lineage for one in plane.checkpoints if not one.in_flight}
        check(plane.spec, plane.graph, plane.captured, plane.schemas, whole)


@pytest.mark.long
@profiles.examples(share=0.15, suppress_health_check=list(HealthCheck))
@given(examples())
def test_every_node_is_its_batch_query_whatever_its_graph_and_history(example: Example) -> None:
    """Parallelism, slices, epochs that are cut, tries that are run again, vetoes, rollbacks, hashes that collide."""
    with tempfile.TemporaryDirectory() as folder:
        hold(example, Path(folder))


@pytest.mark.long
@profiles.examples(share=0.03, suppress_health_check=list(HealthCheck))
@given(example=job_examples(feed=True, served=True, landed=True))
@pytest.mark.usefixtures("database")
def test_nodes_and_tables_keep_the_law_through_rollbacks_backfills_and_failed_tries(example: JobExample) -> None:
    """And where a source leaves the spec and returns, and a table in Postgres is emptied behind the job's back."""
    with tempfile.TemporaryDirectory() as folder:
        hold_job(example, Path(folder, "job"))


SESSIONS = {"uid": "sessions", "kind": "window", "inputs": ["a"], "key": ["k"], "window": {"session": {"gap": "30m"}},
            "aggregates": {"n": "count(*)"}, "allowed_lateness": "2h"}  # fmt: skip
SMALL = {"uid": "small", "kind": "sql", "inputs": ["totals"], "sql": "SELECT k, n FROM totals WHERE n < 3"}
NUMBERS = {"uid": "numbers", "kind": "sql", "inputs": ["totals"], "sql": "SELECT n, explode(array(n)) AS x FROM totals"}


@pytest.mark.parametrize(
    ("operators", "read"),
    [((SESSIONS,), "sessions"), ((TOTALS, SMALL), "small"), ((TOTALS, NUMBERS), "numbers"), ((TOTALS,), "totals")],
    ids=["merged sessions", "a filter of updates", "exploded updates", "updates without deletes"],
)
def test_a_ranking_without_a_key_has_no_row_of_a_place_that_has_ended(
    operators: tuple[dict[str, Any], ...], read: str, tmp_path: Path
) -> None:
    """Two sessions of a key become one by a late row; a total leaves the rows that pass the filter."""
    ranks = {"uid": "ranks", "kind": "top", "inputs": [read], "key": [], "order_by": ["n"], "n": 3, "rank": "place"}
    history = History(tmp_path, *operators, ranks)
    history.epoch([("a", 1, 0.0), ("a", 1, 40.0), ("b", 1, 10.0), ("c", 1, 100.0)])
    history.check()
    history.epoch([("a", 1, 20.0), ("c", 1, 130.0)])
    history.check()


def test_a_row_is_late_at_the_microsecond_at_which_its_window_is_done(tmp_path: Path) -> None:
    """Watermark 60 min: the window [0, 60) is done, and a row of it is late; [60, 120) takes the row at its start."""
    history = History(tmp_path, HOURLY)
    history.epoch([("a", 1, 10.0), ("a", 2, 60.0)])
    history.epoch([("a", 3, 59.99), ("a", 4, 60.0), ("b", 5, 121.0)])
    assert (history.plane.captured.rows("hourly.late"), history.plane.captured.rows("hourly")) == (1, 2)
    history.check()


def test_a_row_is_late_for_deduplicate_one_microsecond_before_watermark_less_ttl(tmp_path: Path) -> None:
    history = History(tmp_path, ONCE)
    history.epoch([("a", 1, 0.0), ("a", 2, 60.0)])
    history.epoch([("a", 3, 0.0), ("b", 4, 0.0), ("b", 5, -1 / MINUTE_US)])
    assert (history.plane.captured.rows("once.late"), history.plane.captured.rows("once")) == (1, 3)
    history.check()


def test_a_window_is_emitted_once_however_many_epochs_follow_and_wherever_they_run(tmp_path: Path) -> None:
    history = History(tmp_path, HOURLY, delay="10m")
    history.epoch([("a", 1, 10.0), ("b", 1, 20.0), ("a", 2, 70.0)], parallelism=2)
    for minute, parallelism in ((75.0, 1), (130.0, 3), (131.0, 2)):
        history.epoch([("a", 2, minute)], parallelism=parallelism, budget=MemoryBudget(1))
    assert history.plane.captured.rows("hourly") == 3
    history.check()


def test_every_key_is_there_after_the_number_of_subtasks_has_changed(tmp_path: Path) -> None:
    history = History(tmp_path, TOTALS, ONCE)
    keys = [(name, 1, 0.0) for name in "abcdefghijklmnop"]
    for parallelism in (2, 3, 1, 4):
        history.epoch(list(keys), parallelism=parallelism)
    assert history.plane.captured.rows("once") == len(keys)
    history.check()


CURRENT = {"uid": "current", "kind": "latest", "inputs": ["a"], "key": ["k"], "sequence_by": ["t"]}
PER_VALUE = {"uid": "per_value", "kind": "aggregate", "inputs": ["current"], "key": ["v"],
             "aggregates": {"n": "count(*)", "till": "count(t)"}}  # fmt: skip


@pytest.mark.long
def test_behind_the_newest_rows_a_key_that_moves_leaves_its_former_group(tmp_path: Path) -> None:
    """A row is replaced within an epoch, in the next one, by one that shows the same, and on other subtasks."""
    history = History(tmp_path, CURRENT, PER_VALUE, PER_VALUE | {"uid": "again", "inputs": ["per_value"], "key": ["n"]}
                      | {"aggregates": {"m": "count(*)", "values": "sum(v)"}})  # fmt: skip
    history.epoch([("a", 1, 1.0), ("b", 1, 1.0), ("c", 2, 1.0), ("a", 2, 2.0)], parallelism=2)
    history.epoch([("b", 2, 2.0)], [("c", 3, 2.0), ("c", 2, 3.0), ("a", 9, 0.0)], parallelism=3)
    history.epoch([("a", 4, 5.0), ("b", 4, 5.0), ("c", 4, 5.0)], parallelism=1, budget=MemoryBudget(1))
    history.check()
    assert history.plane.captured.rows("per_value.retract") == 2 + 3 + 2, "two; 1 goes, 2 is another one; 2 goes"


PARTIAL = {"uid": "partial", "kind": "latest", "inputs": ["a"], "key": ["v"], "sequence_by": ["t"],
           "ignore_nulls": True, "unchanged": "-"}  # fmt: skip


def test_a_text_that_means_unchanged_replaces_no_value_and_is_never_shown(tmp_path: Path) -> None:
    history = History(tmp_path, PARTIAL)
    history.epoch([("a", 1, 1.0), ("-", 1, 2.0), (None, 1, 3.0), ("-", 2, 1.0)], parallelism=2)
    history.epoch([("b", 2, 0.0), ("-", 1, 4.0), ("-", 3, 4.0), ("c", 3, 4.0)], parallelism=3)
    history.check()


PER_HOUR = {"uid": "per_hour", "kind": "aggregate", "inputs": ["hourly"], "key": ["window_start"],
            "aggregates": {"n": "count(*)", "total": "sum(total)"}}  # fmt: skip
BUSIEST = {"uid": "busiest", "kind": "top", "inputs": ["hourly"], "key": ["k"], "order_by": [{"n": "desc"}], "n": 1,
           "rank": "place"}  # fmt: skip


LATE, EARLY = {"allowed_lateness": "1h"}, {"emit": "early"}
TUMBLING, SLIDING, SESSION = (
    {"window": window}
    for window in ({"tumbling": "1h"}, {"sliding": {"size": "1h", "slide": "30m"}}, {"session": {"gap": "30m"}})
)


@pytest.mark.parametrize(
    "options",
    [
        LATE | TUMBLING,
        EARLY | SLIDING,
        LATE | SESSION,
        *(pytest.param(one, marks=pytest.mark.deep) for one in (EARLY | TUMBLING, LATE | SLIDING, EARLY | SESSION)),
    ],
    ids=lambda options: "-".join([*(str(one) for one in options if one != "window"), *options["window"]]),
)
def test_windows_that_are_emitted_again_are_retracted_downstream(tmp_path: Path, options: dict[str, Any]) -> None:
    """Fired and again within an epoch, in later ones, on other subtasks, and never after they were forgotten."""
    history = History(tmp_path, HOURLY | options, PER_HOUR, BUSIEST)
    history.epoch([("a", 1, 10.0), ("b", 1, 20.0), ("a", 2, 40.0)], parallelism=2)
    history.epoch([("a", 2, 61.0), ("b", 1, 50.0)], [("a", 5, 59.0)], parallelism=3)
    history.epoch([("a", 3, 30.0), ("b", 3, 70.0), ("c", 3, 59.0)], parallelism=1, budget=MemoryBudget(1))
    history.epoch([("a", 1, 130.0), ("b", 1, 90.0)], parallelism=2)
    history.epoch([("a", 7, 30.0), ("b", 7, 100.0), ("c", 1, 300.0)], parallelism=1)
    history.epoch([])
    history.check()
    taken_back = [rows.column("__weight").to_pylist() for _, _, rows in history.plane.captured.pieces["hourly.retract"]]
    assert sum(column.count(-1) for column in taken_back) >= 2


OVERALL = {"uid": "overall", "kind": "aggregate", "inputs": ["hourly"], "key": ["k"],
           "aggregates": {"last_n": "last(n)", "first_total": "first(total)", "most": "max(n)", "least": "min(total)",
                          "kinds": "count(distinct n)", "at": "arg_max(window_start, n)"}}  # fmt: skip


@pytest.mark.long
def test_values_of_windows_are_of_those_that_are_there_when_they_come_again(tmp_path: Path) -> None:
    """In slices, at several parallelisms; first and last are by the end of the window."""
    history = History(tmp_path, HOURLY | {"allowed_lateness": "3h", "emit": "early"}, OVERALL)
    for epoch, parallelism in enumerate((2, 1, 3)):
        rows = [(f"k{number % 3}", number % 4, (number * 37) % 180 + 20.0 * epoch) for number in range(30 + epoch)]
        history.epoch(rows, parallelism=parallelism, budget=MemoryBudget(1))
    assert history.plane.captured.rows("overall") > 3
    history.check()


@pytest.mark.deep
def test_a_window_that_one_subtask_fired_and_another_takes_over_is_retracted_once(tmp_path: Path) -> None:
    """Subtasks differ in how far they have fired while rows are in flight: the one that goes on has the least of it."""
    history = History(tmp_path, HOURLY | {"allowed_lateness": "3h"}, PER_HOUR)
    many: list[Rows] = [[(name, 1, 60.0 + number % 30) for number in range(200) for name in "abcdef"] for _ in range(4)]
    history.epoch([(name, 1, 10.0) for name in "abcdefghij"], parallelism=3)
    history.epoch(*many, [("g", 1, 200.0)], parallelism=3, cut_ms=20)
    for parallelism in (1, 2, 3):
        history.epoch([("g", parallelism, 20.0), ("a", 1, 30.0)], parallelism=parallelism, cut_ms=20)
    while history.head.in_flight:
        history.epoch([], parallelism=2)
    history.check()


def test_nothing_fires_beyond_rows_that_are_in_flight(tmp_path: Path) -> None:
    """Rows of one window, too many for the epoch's time: the watermark passes its end before the rest is taken up."""
    history = History(tmp_path, HOURLY)
    many: list[Rows] = [[("a", number, number % 60) for number in range(300)] for _ in range(4)]
    history.epoch(*many, [("b", 0, 200.0)], cut_ms=4)
    assert history.head.in_flight and not history.plane.captured.rows("hourly")
    history.epoch([("c", 0, 201.0)], cut_ms=4)
    history.epoch([("c", 0, 261.0)])
    assert not history.head.in_flight and not history.plane.captured.rows("hourly.late")
    history.check()


def test_nothing_fires_beyond_rows_that_one_sender_of_two_leaves_in_flight(tmp_path: Path) -> None:
    """Rows of the other one have a later stamp, of an epoch in which the window's end was passed already."""
    first = {"uid": "first", "kind": "deduplicate", "inputs": ["a"], "key": ["k"], "ttl": "30d"}
    history = History(tmp_path, first, HOURLY | {"inputs": ["first"]}, buffer="1B")
    names = pa.table({"k": [f"k{number}" for number in range(60)]})
    owners = subtask_of_key_group(KEYED.key_groups(names, ("k",), 8), 8, 2)
    quick, slow = (
        [name for name, owner in zip(names["k"].to_pylist(), owners, strict=True) if owner == at] for at in (0, 1)
    )
    history.epoch([(quick[0], 1, 70.0), *((name, 1, 10.0) for name in slow[:20])], parallelism=2, cut_ms=8)
    for name in quick[1:3]:
        history.epoch([(name, 1, 80.0)], parallelism=2, cut_ms=8)
        channels = history.head.states["first"].channels
        assert channels[0] is None and channels[1] is not None, "one sender is done, the other one is not"
    history.epoch([], parallelism=2)
    history.epoch([("end", 1, 200.0)], parallelism=2)
    assert not history.head.in_flight and not history.plane.captured.rows("hourly.late")
    assert history.plane.captured.rows("hourly") == 20 + 3
    history.check()


RANKS = {"uid": "ranks", "kind": "top", "inputs": ["totals"], "key": ["k"], "order_by": [{"n": "desc"}, "v"], "n": 3,
         "rank": "place"}  # fmt: skip
EXTREMES = {
    "uid": "extremes",
    "kind": "aggregate",
    "inputs": ["totals"],
    "key": ["k"],
    "aggregates": {"least": "min(n)", "most": "max(n)", "ns": "count(distinct n)", "at": "arg_max(v, n)"},
}


@pytest.mark.parametrize("reader", [RANKS, EXTREMES], ids=["top", "values"])
def test_a_cut_between_a_retraction_and_its_new_row_is_repaired(tmp_path: Path, reader: dict[str, Any]) -> None:
    """Retractions in flight, at another parallelism each time; all is that of the totals once they have come."""
    history = History(tmp_path, TOTALS | {"key": ["k", "v"]}, reader)
    left = 0
    for epoch, (parallelism, cut_ms) in enumerate(((2, 12), (3, 16), (1, 14), (2, 18), (3, 13))):
        keys = [(f"k{number % 7}", number % 60, 0.0) for number in range(epoch, 400, epoch + 1)]
        history.epoch(keys, parallelism=parallelism, cut_ms=cut_ms)
        channels = history.head.states[reader["uid"]].channels
        left += sum(one.buffers for one in channels if one is not None)
    assert left, "rows of mode retract were in flight"
    history.epoch(parallelism=2)
    assert not history.head.in_flight
    history.check()


VERSIONS = {"uid": "versions", "kind": "history", "inputs": ["a"], "key": ["k"], "sequence_by": ["t"],
            "delete_when": "v < 0", "track": ["v"], "columns": ["v", "k"]}  # fmt: skip
PER_VERSION_VALUE = {
    "uid": "per_value",
    "kind": "aggregate",
    "inputs": ["versions"],
    "key": ["v"],
    "aggregates": {"n": "count(*)", "current": "count(*) filter (where is_current)", "until": "max(valid_to)"},
}


@pytest.mark.long
def test_versions_follow_late_rows_and_deletes_through_rescaling_and_rows_in_flight(tmp_path: Path) -> None:
    """Rows arrive from the newest to the oldest, and deletes after the versions that they end."""
    history = History(tmp_path, VERSIONS, PER_VERSION_VALUE)
    names = [f"k{number}" for number in range(40)]
    for epoch, (parallelism, cut_ms) in enumerate(((2, None), (3, 12), (1, 14), (2, 13))):
        rows = [(name, (number + epoch) % 4 - (epoch == 3), 20.0 - 5 * epoch) for number, name in enumerate(names)]
        history.epoch([*rows, *((name, -1, 17.0 - 2 * epoch) for name in names[epoch::5])],
                      parallelism=parallelism, cut_ms=cut_ms)  # fmt: skip
    history.epoch([("k1", 2, 5.0), ("k1", 2, 6.0), (None, 1, 1.0)], parallelism=2)
    assert not history.head.in_flight
    history.check()


NEWEST = {"uid": "newest", "kind": "latest", "inputs": ["a"], "key": ["k"], "sequence_by": ["t"]}
GROUPED = {"uid": "grouped", "kind": "top", "inputs": ["newest"], "key": ["v"], "order_by": ["k"], "n": 1000}
BY_NAME = {"uid": "by_name", "kind": "materialize", "inputs": ["grouped"], "key": ["k"]}


@pytest.mark.deep
def test_a_row_that_moves_between_subtasks_upstream_is_shown_twice_only_while_it_is_in_flight(tmp_path: Path) -> None:
    """`grouped` has a row in a new group before it is retracted from the old one. Only then two rows have a name."""
    history = History(tmp_path, NEWEST, GROUPED, BY_NAME)
    names = [f"k{number}" for number in range(60)]
    history.epoch([(name, number % 7, 0.0) for number, name in enumerate(names)], parallelism=2)
    crowded = 0
    for epoch, (parallelism, cut_ms) in enumerate(((2, 12), (3, 16), (1, 14), (2, 18), (3, 13)), 1):
        rows = [(name, (number * 5 + epoch) % 11, epoch) for number, name in enumerate(names)]
        history.epoch(rows, parallelism=parallelism, cut_ms=cut_ms)
        states = history.head.states
        upstream = [one for uid in ("newest", "grouped") for one in states[uid].channels if one is not None]
        settled = [one for one in states["by_name"].channels if one is None]
        crowded += bool(upstream and settled)
    assert crowded, "a subtask had no rows in flight, and operators upstream had some"
    history.epoch(parallelism=2)
    assert not history.head.in_flight
    history.check()


VALUED = {
    "uid": "valued",
    "kind": "over",
    "inputs": ["newest"],
    "key": ["v"],
    "order_by": [{"t": "desc"}],
    "row_key": ["k"],
    "functions": {"place": "row_number()", "before": "lag(t)", "few": "count(*) rows 1 preceding", "ties": "count(*)"},
}
PER_PLACE = {"uid": "per_place", "kind": "aggregate", "inputs": ["valued"], "key": ["place"],
             "aggregates": {"n": "count(*)", "last": "max(before)"}}  # fmt: skip


@pytest.mark.long
def test_rows_change_their_partition_through_rescaling_and_rows_in_flight(tmp_path: Path) -> None:
    history = History(tmp_path, NEWEST, VALUED, PER_PLACE)
    names = [f"k{number}" for number in range(40)]
    for epoch, (parallelism, cut_ms) in enumerate(((2, None), (3, 12), (1, 14), (2, 13), (3, 16))):
        rows = [(name, (number * (epoch + 1)) % 7, epoch + number % 3) for number, name in enumerate(names[epoch:])]
        history.epoch(rows, parallelism=parallelism, cut_ms=cut_ms)
    history.epoch(parallelism=2)
    assert not history.head.in_flight
    history.check()


OWN = {"uid": "own", "kind": "sql", "inputs": ["a"], "sql": "SELECT k, v, t, t + v * INTERVAL 1 MINUTE AS until FROM a"}
NEAR = {"uid": "near", "kind": "join", "inputs": ["own", "a"], "key": ["k"], "within": ["-1m", "until - t"],
        "columns": {"other": "right.v", "at": "right.t"}}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("how", ["inner", "left", "full", "semi", "anti"])
def test_rows_match_up_to_their_own_bound_through_rescaling_and_rows_in_flight(tmp_path: Path, how: str) -> None:
    columns = {} if how in ("semi", "anti") else {"columns": NEAR["columns"]}
    near = {name: value for name, value in NEAR.items() if name != "columns"} | columns | {"how": how}
    history = History(tmp_path, OWN, near)
    names = [f"k{number}" for number in range(12)]
    for epoch, (parallelism, cut_ms) in enumerate(((2, None), (3, 12), (1, 14), (2, 13))):
        rows = [(name, (number * 3 + epoch) % 8, 4.0 * epoch + number % 3) for number, name in enumerate(names)]
        rows += [(None, 9, 4.0 * epoch), ("k1", None, 4.0 * epoch + 1)]
        history.epoch(rows, parallelism=parallelism, cut_ms=cut_ms)
    history.epoch([("end", 0, 60.0)], parallelism=2)
    assert not history.head.in_flight and history.plane.captured.rows("near")
    history.check()


FEW = {"uid": "few", "kind": "sql", "inputs": ["newest"],
       "sql": "SELECT v % 5 AS n, v AS of, k AS other, t AS since FROM newest WHERE v > 3"}  # fmt: skip
JOINED = {"uid": "joined", "kind": "join", "inputs": ["newest", "few"], "key": [{"v": "n"}]}


@pytest.mark.parametrize(
    ("how", "condition"),
    [
        ("left", ["v <> right.of"]),
        ("full", ["v <> right.of"]),
        ("semi", []),
        *(
            pytest.param(how, condition, marks=pytest.mark.deep)
            for how, condition in (
                ("inner", []), ("left", []), ("right", ["k < right.other"]), ("full", []), ("anti", []),
                ("inner", ["k < right.other"]), ("anti", ["v <> right.of"]),
                ("semi", ["k <= right.other", "t >= right.since"]),
            )
        ),
    ],
)  # fmt: skip
def test_a_join_of_current_rows_is_that_of_both_sides_through_cuts_slices_and_rescales(
    tmp_path: Path, how: str, condition: list[str]
) -> None:
    """A row moves from key to key on both sides in one epoch, and rows of both sides are in flight."""
    counts = TOTALS | {"inputs": ["joined"], "key": ["v"]}
    history = History(tmp_path, NEWEST, FEW, JOINED | {"how": how, "condition": condition}, counts)
    for epoch, (parallelism, cut_ms) in enumerate(((2, None), (3, 14), (1, 12), (2, 16), (3, None))):
        rows = [(f"k{number % 40}", (number * 7 + epoch) % 9, epoch) for number in range(epoch, 60)]
        options = {"budget": MemoryBudget(1)} if cut_ms is None else {"cut_ms": cut_ms}
        history.epoch(rows, parallelism=parallelism, **options)
    while history.head.in_flight:
        history.epoch(parallelism=2)
    history.check()
    retracted = [rows for _, _, rows in history.plane.captured.pieces["joined.retract"]]
    assert min(min(rows.column("__weight").to_pylist()) for rows in retracted) == -1


def test_a_name_with_two_rows_is_refused_in_the_epoch_that_leaves_nothing_in_flight(tmp_path: Path) -> None:
    history = History(tmp_path, NEWEST, GROUPED | {"inputs": ["a"]}, BY_NAME)
    history.epoch([("a", 1, 0.0), ("b", 2, 0.0)], parallelism=2)
    with wording.raises(SubtaskDeclined):
        history.epoch([("a", 2, 0.0)], parallelism=2)


@pytest.mark.parametrize(
    "cut_ms", [1, 3, 6, *(pytest.param(cut_ms, marks=pytest.mark.deep) for cut_ms in (2, 4, 5, 7, 8))]
)
def test_each_epoch_makes_progress_however_little_time_it_has(tmp_path: Path, cut_ms: int) -> None:
    """Also where the time is up between the moment at which a subtask meets its barrier and its first buffer."""
    history = History(tmp_path, TOTALS, RANKS | {"order_by": ["n"]})
    for parallelism in (2, 1):
        history.epoch([("a", 1, 1.0), ("b", 1, 2.0), ("c", 1, 3.0)], parallelism=parallelism, cut_ms=cut_ms)
    for _ in range(20):
        if history.head.in_flight:
            history.epoch([], parallelism=1, cut_ms=cut_ms)
    assert not history.head.in_flight
    history.check()


@pytest.mark.deep
def test_sql_between_updates_and_state_retracts_the_row_that_it_emitted(tmp_path: Path) -> None:
    """A filter that flips, a key that is dropped, rows that come of one, and rows that stay unchanged."""
    text = "SELECT k, e AS m FROM parts UNION ALL SELECT k, v FROM a"
    history = History(
        tmp_path,
        TOTALS | {"key": ["k", "v"]},
        {"uid": "few", "kind": "sql", "inputs": ["totals"], "sql": "SELECT k, v, n FROM totals WHERE n < 3"},
        {"uid": "parts", "kind": "sql", "inputs": ["few"], "sql": "SELECT k, explode(array(v, n)) AS e FROM few"},
        {"uid": "both", "kind": "sql", "inputs": ["parts", "a"], "sql": text},
        RANKS | {"inputs": ["both"], "order_by": ["m"]},
        {"uid": "sums", "kind": "aggregate", "inputs": ["both"], "key": ["m"], "aggregates": {"n": "count(*)"}},
    )
    for parallelism in (2, 1, 3):
        history.epoch([("a", 1, 0.0), ("b", parallelism, 1.0), ("c", 0, 2.0)], parallelism=parallelism)
    taken_back = [rows for _, _, rows in history.plane.captured.pieces["both.retract"]]
    assert min(min(rows.column("__weight").to_pylist()) for rows in taken_back) == -1
    history.check()


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.slice(1),
        lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]),
        lambda rows: rows.set_column(3, "n", pa.array([7] * len(rows), pa.int64())),
    ],
    ids=["a row is missing", "a row comes twice", "a value is another"],
)
def test_the_law_finds_a_node_that_breaks_it(tmp_path: Path, change: Any) -> None:
    """Who judges must be judged first."""
    history = History(tmp_path, HOURLY)
    history.epoch([("a", 1, 10.0), ("b", 2, 20.0), ("a", 2, 60.0)])
    history.check()
    pieces = history.plane.captured.pieces["hourly"]
    ((epoch, stamp_us, rows),) = pieces
    history.plane.captured = Captured({**history.plane.captured.pieces, "hourly": [(epoch, stamp_us, change(rows))]})
    with wording.raises(Broken):
        history.check()


@pytest.mark.parametrize(
    "windows", [{"tumbling": "1h"}, {"sliding": {"size": "1h", "slide": "30m"}}, {"session": {"gap": "30m"}}]
)
def test_the_law_finds_a_window_that_is_emitted_again_unchanged(tmp_path: Path, windows: dict[str, Any]) -> None:
    history = History(tmp_path, HOURLY | {"window": windows, "allowed_lateness": "1h"})
    history.epoch([("a", 1, 10.0), ("b", 1, 130.0)])
    history.epoch([("b", 1, 131.0)])
    history.check()
    pieces = history.plane.captured.pieces["hourly"]
    (first,) = [rows for epoch, _, rows in pieces if epoch == 1]
    pieces.append((2, 0, first))
    with wording.raises(Broken):
        history.check()


def test_the_law_finds_a_subtask_that_fired_further_than_its_inputs(tmp_path: Path) -> None:
    history = History(tmp_path, HOURLY)
    history.epoch([("a", 1, 10.0)])
    history.epoch([("a", 1, 20.0)])
    history.check()
    history.plane.captured.begins[2] = Begin(fired={"hourly": (11 * MINUTE_US,)})
    with wording.raises(Broken):
        history.check()


@pytest.mark.long
def test_what_fired_without_a_source_that_was_idle_is_late_also_in_a_replay_without_the_epoch_that_fired(
    tmp_path: Path,
) -> None:
    """It comes back behind: in an epoch that began without it, and in the one after that."""
    pairs = {"uid": "pairs", "kind": "join", "inputs": ["a", "b"], "key": ["k"], "within": ["-1h", "1h"], "how": "semi"}
    document = spec_of(TOTALS).model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["sources"]["b"] = document["sources"]["a"] | {"path": "../landing/b/*.parquet"}
    document["operators"] = [pairs, HOURLY | {"inputs": ["pairs"]}]
    document["sinks"][0] |= {"input": "hourly", "mode": "append"}
    plane, idle = Plane(JobSpec.model_validate(document), tmp_path), frozenset("b")
    epochs: list[tuple[list[float], list[float], EpochOptions]] = [
        ([10.0, 190.0], [10.0], EpochOptions(parallelism=2)),
        ([], [], EpochOptions(idle=idle)),
        ([200.0], [180.0, 185.0], EpochOptions(parallelism=2, idle_before=idle)),
        ([210.0], [188.0, 191.0], EpochOptions()),
    ]
    lineages = []
    for history in (epochs, [epochs[0], *epochs[2:]]):
        head = Checkpoint()
        for *times, options in history:
            objects = {}
            for name, minutes in zip("ab", times, strict=True):
                rows = events([("k", 1, minute) for minute in minutes])
                objects[name] = (plane.put(name, f"{head.number}.parquet", rows),)
            head = plane.epoch(head, objects, options)
        lineages.append(head.lineage)
    live, replay = lineages
    check(plane.spec, plane.graph, plane.captured, plane.schemas, {at[-1]: at for at in lineages})
    hold_same(plane.spec, plane.graph, plane.captured, plane.schemas, (live, replay))
    assert plane.captured.rows("pairs.late.b") == 2 * 3, "190 fired without it"


def test_a_node_that_never_had_a_row_keeps_the_law(tmp_path: Path) -> None:
    """Also one whose rows may be deleted."""
    absent = {"uid": "absent", "kind": "join", "inputs": ["a", "a"], "key": ["k"], "how": "anti"}
    history = History(tmp_path, absent, BUSIEST | {"inputs": ["absent"], "key": [], "order_by": ["v"]})
    history.epoch()
    history.check()


def test_a_step_of_zero_is_one_plain_epoch() -> None:
    """What shrinking ends at is what a person would try first."""
    assert Step.read(0, ((),), cuts=False) == Step(0, ((),), EpochOptions())


@pytest.mark.parametrize(("how", "order"), [("left", "desc"), ("inner", "asc")])
def test_rows_are_looked_up_in_what_their_epoch_holds(how: str, order: str, tmp_path: Path) -> None:
    """Other rows each epoch; a law of another kind of lookup, or of the other order, is broken by them."""
    lookup = {"uid": "found", "kind": "lookup", "inputs": ["a", STATIC], "key": [{"k": "dk"}], "how": how,
              "order_by": [{"label": order}], "columns": {"df": "right.df"}}  # fmt: skip
    plane, head = Plane(spec_of(lookup, static={STATIC: DOCUMENT}), tmp_path), Checkpoint()
    for number in range(3):
        rows = events([(key, number, 10.0) for key in ("a", "b", "c", None, "other")])
        head = plane.epoch(head, {"a": (plane.put("a", f"{number}.parquet", rows),)}, EpochOptions(parallelism=2))
    wholes = {head.number: head.lineage}
    check(plane.spec, plane.graph, plane.captured, plane.schemas, wholes)
    for wrong in ({"how": "left" if how == "inner" else "inner"}, {"order_by": (("label", order == "asc"),)}):
        operators = (plane.spec.operators[0].model_copy(update=wrong),)
        with wording.raises(Broken):
            check(
                plane.spec.model_copy(update={"operators": operators}),
                plane.graph,
                plane.captured,
                plane.schemas,
                wholes,
            )


@pytest.mark.parametrize(
    "options",
    [TUMBLING, EARLY | SLIDING, LATE | SESSION,
     *(pytest.param(one, marks=pytest.mark.deep) for one in (SLIDING, SESSION, LATE | TUMBLING, LATE | SLIDING))],
)  # fmt: skip
def test_windows_without_a_key_are_over_all_rows_in_one_subtask(tmp_path: Path, options: dict[str, Any]) -> None:
    """At any parallelism, with distinct values, and with a reader if they may be emitted again."""
    calls = {"n": "count(*)", "total": "sum(v)", "names": "count(distinct k)"}
    again = [PER_HOUR] if {"allowed_lateness", "emit"} & {*options} else []
    history = History(tmp_path, HOURLY | {"key": [], "aggregates": calls} | options, *again)
    history.epoch([("a", 1, 10.0), ("b", 1, 20.0), ("a", 2, 40.0)], parallelism=2)
    history.epoch([("a", 2, 61.0), ("b", 1, 50.0)], [("c", 5, 59.0)], parallelism=3)
    history.epoch([("a", 3, 30.0), ("b", 3, 70.0), ("c", 3, 59.0)], parallelism=1, budget=MemoryBudget(1))
    history.epoch([("a", 1, 130.0), ("b", 1, 90.0)], parallelism=2)
    history.epoch([("a", 7, 30.0), ("c", 1, 300.0)], parallelism=3)
    history.epoch([])
    history.check()
    assert history.plane.captured.rows("hourly") >= 2
