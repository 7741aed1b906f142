"""The plan of the next epoch: none, new input, rows in flight, within the budget, or the last one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.epoch.metadata import CheckpointMetadata, OperatorSnapshot, StateTableSnapshot
from milepost.epoch.plan import InputRecord, SourceInput, decode_input_record, encode_input_record
from milepost.epoch.timing.throughput import ThroughputEstimate
from milepost.errors import InvalidRequest, JobNotRunnable, StateCorrupt
from milepost.jobmaster import JobMaster, NothingToDo, Session, Triggered
from milepost.jobmaster.compatibility.rows_in_flight import restored_firing
from milepost.jobmaster.job.input.next_input import has_due_timer, plan_epoch, plan_sources
from milepost.jobspec.graph.in_flight import input_signatures
from milepost.protocol.exchange.watermarks import END_OF_TIME_US
from milepost.protocol.records.manifest_state import JobStatus
from milepost.sources.contract import SourceObject
from milepost.sources.planning.consumed import MAX_RUNS
from milepost.sources.planning.forgetting import ForgottenRows
from milepost.spark.driver import runner as spark_runner
from milepost.state.buffers.channel_state import ChannelStateHandle
from milepost.state.runs.handles import StateHandle
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

UNLIMITED = {"    limits_per_epoch: {max_files: 1}\n": ""}
BUDGET = {"timeout: 10m}": "timeout: 10m, epoch_budget: 10s, max_in_flight: 1KB}"}
AGGREGATE = "- {uid: latest, kind: aggregate, inputs: [rows], key: [k], aggregates: {rows: count(*)}}"
WINDOW = {
    "{k: int64, v: string}": '{k: int64, v: string, t: "timestamp[us, UTC]"}\n    event_time: t',
    AGGREGATE: f"{AGGREGATE}\n  - {{uid: hourly, kind: window, inputs: [rows], key: [k], window: {{tumbling: 1h}}, "
    "aggregates: {rows: count(*)}}",
}
PAIRED = "key: [k], columns: {other: right.v, other_t: right.t}}"
JOIN = {
    **WINDOW,
    AGGREGATE: f"{AGGREGATE}\n  - {{uid: hourly, kind: join, inputs: [rows, rows], within: [0s, 1h], {PAIRED}",
}
ASOF = {**WINDOW, AGGREGATE: f"{AGGREGATE}\n  - {{uid: hourly, kind: asof, inputs: [rows, rows], {PAIRED}"}


def job(folder: Path, *edits: Mapping[str, str]) -> SparklessJob:
    return SparklessJob.create(folder, {old: new for edit in edits for old, new in edit.items()})


def snapshot(job: SparklessJob, uid: str = "latest", in_flight: int = 0) -> OperatorSnapshot:
    """An operator of one subtask, with so many bytes in flight."""
    signature = input_signatures(job.loaded().spec, job.context.graph)[uid]
    channel = ChannelStateHandle(
        f"chk-{1:020d}/t{2:020d}/channel/a",
        10,
        "a" * 64,
        uid,
        range(128),
        1,
        in_flight,
        oldest_us=None,
        signature=signature,
    )
    return OperatorSnapshot(
        tables={
            "": StateTableSnapshot(("k",), ("k",), pa.schema([("k", pa.int64())]), (StateHandle(uid, range(128), 128),))
        },
        firing=(None,),
        channels=(channel if in_flight else None,),
        processed_bytes=(100,),
        rows_in=1,
        rows_out=1,
        late_rows=0,
        dropped_rows=0,
    )


def with_operators(
    operators: Mapping[str, OperatorSnapshot], throughput: ThroughputEstimate | None = None
) -> Callable[[CheckpointMetadata], CheckpointMetadata]:
    """The epoch's metadata as that of an epoch with these operators, at this throughput."""
    unaligned = any(one.in_flight_bytes for one in operators.values())
    return lambda metadata: replace(
        metadata, operators=operators, throughput=throughput or ThroughputEstimate(), unaligned=unaligned
    )


def base_of(job: SparklessJob) -> CheckpointMetadata:
    context = job.context
    state = context.head().state
    base = context.base_metadata(state, state.timeline().head)
    assert base is not None
    return base


def planned(job: SparklessJob, *, drain: bool = False) -> InputRecord | None:
    base = base_of(job)
    return plan_epoch(job.context, base, job.context.graph, plan_sources(job.context, base, ()), drain=drain)


def objects(record: InputRecord | None) -> list[str]:
    assert record is not None
    return [obj.key for source in record.sources for obj in source.objects]


def test_an_epoch_is_empty_iff_nothing_is_new_and_nothing_is_in_flight(tmp_path: Path) -> None:
    """DESIGN 3: rows in flight are work, even without new input."""
    small = job(tmp_path)
    small.land("a.csv")
    small.epoch(with_operators({"latest": snapshot(small, in_flight=10)}))
    record = planned(small)
    assert record is not None and objects(record) == [] and not record.final
    small.epoch(with_operators({"latest": snapshot(small)}))
    assert planned(small) is None
    answer = small.master.triggers.trigger(Session.cli())
    assert isinstance(answer, NothingToDo) and answer.status == "empty"


def test_while_too_much_is_in_flight_no_new_input_is_planned(tmp_path: Path) -> None:
    """Back-pressure: only rows in flight are processed, and the checkpoint records the reason."""
    small = job(tmp_path, UNLIMITED, BUDGET)
    small.land("a.csv")
    small.epoch(with_operators({"latest": snapshot(small, in_flight=1_000)}))
    small.land("b.csv")
    assert objects(planned(small)) == ["b.csv"], "the limit itself is not too much"
    small.epoch(with_operators({"latest": snapshot(small, in_flight=1_001)}))
    small.land("c.csv")
    record = planned(small)
    assert record is not None and objects(record) == []
    wording.matches("input", record.held_back)
    assert (record.sources[0].pending_objects, record.sources[0].pending_bytes) == (1, len("k,v\n1,a\n"))
    shown = small.master.reports.show(small.epoch(with_operators({"latest": snapshot(small)})))
    assert shown.held_back == record.held_back and shown.objects == 0
    assert small.master.reports.show(2).in_flight_bytes == 1_001 and small.master.reports.show(2).unaligned is True
    assert small.master.reports.status().in_flight_bytes == 0
    assert objects(planned(small)) == ["c.csv"]


@pytest.mark.deep
@pytest.mark.parametrize(("in_flight", "read"), [(1_000, ["new.csv"]), (1_001, [])])
def test_a_source_that_is_held_back_to_no_object_forgets_nothing(
    tmp_path: Path, in_flight: int, read: list[str]
) -> None:
    """Versions leave the consumed set with the run that an epoch appends. Without consumed objects there is no run."""
    small = job(tmp_path, UNLIMITED, BUDGET, {"settle: 0s": "settle: 0s\n    forget_after: 1d"})
    for number in range(MAX_RUNS):
        old = small.land(f"{number}.csv")
        os.utime(old, (number * 86_400, number * 86_400))
        left = in_flight if number == MAX_RUNS - 1 else 0
        small.epoch(with_operators({"latest": snapshot(small, in_flight=left)}))
        old.unlink()
    small.land("new.csv")
    record = planned(small)
    assert objects(record) == read
    assert record is not None and (record.sources[0].forgets is not None) == bool(read)


@pytest.mark.parametrize(
    ("in_flight", "in_flight_ms", "expected"),
    [
        (0, 0.0, ["b.csv", "c.csv"]),  # 7 s of the 10 are for processing: 16 bytes at 0.4 s fit
        (100, 3_500.0, ["b.csv"]),  # half of that is for what is in flight
        (100, 7_000.0, []),  # all of it
    ],
)
def test_a_budget_scales_the_plan_by_the_measured_pace(
    tmp_path: Path, in_flight: int, in_flight_ms: float, expected: list[str]
) -> None:
    """The plan includes what fits in addition to rows in flight. The rest is left for later epochs."""
    small = job(tmp_path, UNLIMITED, BUDGET)
    small.land("a.csv")
    small.epoch(
        with_operators({"latest": snapshot(small, in_flight=in_flight)}, ThroughputEstimate(400.0, in_flight_ms))
    )
    for name in ("b.csv", "c.csv", "d.csv"):
        small.land(name)
    record = planned(small)
    assert objects(record) == expected
    assert record is not None and record.sources[0].pending_objects == 3 - len(expected)
    assert record.held_back is not None
    wording.matches("input", record.held_back)


def test_with_nothing_in_flight_at_least_one_object_is_planned(tmp_path: Path) -> None:
    """An epoch makes progress, however slow the last one was."""
    small = job(tmp_path, UNLIMITED, BUDGET)
    small.land("a.csv")
    small.epoch(with_operators({"latest": snapshot(small)}, ThroughputEstimate(1e9, 0.0)))
    for name in ("b.csv", "c.csv"):
        small.land(name)
    assert objects(planned(small)) == ["b.csv"]


def test_a_timer_is_due_only_where_firing_is_behind_the_operators_input(tmp_path: Path) -> None:
    """Without rows in flight the firing watermark has reached its input, so no timer can be due."""
    small = job(tmp_path, WINDOW)
    small.land("a.csv")
    small.epoch(with_operators({"hourly": snapshot(small, "hourly")}))
    base, graph = base_of(small), small.context.graph
    idle = base.operators["hourly"].tables[""]
    due_at_50 = replace(idle, handles=(StateHandle("hourly", range(128), 128, (), ((3, 50),), 1),))
    waiting = replace(base.operators["hourly"], tables={"left": idle, "right": due_at_50})

    def due(watermark: int | None, firing: int | None) -> bool:
        source = replace(base.sources["rows"], watermark_us=watermark)
        operator = replace(waiting, firing=(firing,))
        return has_due_timer(replace(base, sources={"rows": source}, operators={"hourly": operator}), graph)

    assert due(50, 49) and due(50, None) and due(80, 60)
    assert not due(49, 10), "the timer is later"
    assert not due(80, 80) and not due(80, END_OF_TIME_US), "it has fired"
    assert not due(None, None)


def test_rows_in_flight_are_refused_by_a_spec_that_makes_them_differently(tmp_path: Path) -> None:
    """DESIGN 4.3: refused before anything is planned, with recovery steps."""
    small = job(tmp_path)
    small.land("a.csv")
    small.epoch(with_operators({"latest": snapshot(small, in_flight=10)}))
    file = tmp_path / "config" / "small.yaml"
    text = file.read_text()
    sql = '- {uid: only, kind: sql, inputs: [rows], sql: "SELECT k, v FROM rows WHERE k > 0"}'
    file.write_text(
        text.replace("- {uid: latest", f"{sql}\n  - {{uid: latest").replace(
            "latest, kind: aggregate, inputs: [rows]", "latest, kind: aggregate, inputs: [only]"
        )
    )
    with wording.raises(InvalidRequest) as told:
        small.master.triggers.trigger(Session.cli())
    assert "--until-caught-up" in told.value.hint
    assert small.context.head().state.timeline().pending is None
    file.write_text(text)
    assert isinstance(small.master.triggers.trigger(Session.cli()), Triggered)


def test_a_drain_ends_with_one_epoch_that_reads_nothing_and_finishes_the_job(tmp_path: Path) -> None:
    """The last epoch runs when nothing is new and nothing in flight. No epoch runs after it."""
    small = job(tmp_path)
    small.land("a.csv")
    first = small.epoch(with_operators({"latest": snapshot(small, in_flight=10)}))
    record = planned(small, drain=True)
    assert record is not None and not record.final, "rows in flight come first"
    small.epoch(with_operators({"latest": snapshot(small)}))
    session = Session.cli()
    assert isinstance(small.master.triggers.trigger(session, drain=True), Triggered)
    pending = small.rebind(session)
    completed = small.complete(
        session, pending, with_operators({"latest": replace(snapshot(small), firing=(END_OF_TIME_US,))})
    )
    shown = small.master.reports.show(completed.checkpoint_id)
    assert shown.final and shown.watermark == "end" and shown.sources["rows"].finished
    assert shown.operators["latest"].firing_watermark == "end"
    assert not small.master.reports.show(first).final
    # Its session dies here. What a start finds undone after the commit point, it does first.
    answer = small.master.triggers.trigger(Session.cli())
    assert isinstance(answer, NothingToDo) and answer.status == "drained"
    assert small.context.head().state.status is JobStatus.FINISHED
    with pytest.raises(JobNotRunnable):
        small.master.triggers.trigger(Session.cli(), drain=True)


def drained(folder: Path, *edits: Mapping[str, str]) -> SparklessJob:
    small = job(folder, *edits)
    small.land("a.csv")
    small.epoch()
    session = Session.cli()
    small.master.triggers.trigger(session, drain=True)
    ended = {
        uid: replace(snapshot(small, uid), firing=(END_OF_TIME_US,))
        for uid in [node.uid for node in small.context.graph.stateful]
    }
    small.complete(session, small.rebind(session), with_operators(ended))
    small.master.triggers.trigger(Session.cli())
    small.master.restores.start()
    return small


def test_a_restarted_drained_job_continues_operators_without_event_time(tmp_path: Path) -> None:
    """An aggregate has no event time, so its firing watermark is reset."""
    small = drained(tmp_path)
    assert planned(small) is None and planned(small, drain=True) is None
    small.land("b.csv")
    assert isinstance(small.master.triggers.trigger(Session.cli()), Triggered)
    assert restored_firing(base_of(small), "latest") == (None,)


@pytest.mark.deep
@pytest.mark.parametrize("timed", [WINDOW, JOIN, ASOF], ids=["window", "join", "asof"])
def test_what_has_event_time_is_not_continued_once_it_is_drained(tmp_path: Path, timed: Mapping[str, str]) -> None:
    """Every new row would be late. This is refused before anything is planned, instead of producing an empty table."""
    small = drained(tmp_path, timed)
    small.land("b.csv")
    with wording.raises(InvalidRequest):
        small.master.triggers.trigger(Session.cli())


def test_an_input_record_is_read_as_it_was_written_and_another_format_is_refused() -> None:
    """The input record of every epoch is stored and must stay readable for replays."""
    source = SourceInput("rows", (SourceObject("a.csv", "1", 2, 3),), (), {"hidden": 1}, 4, 5, 6, ("b: why",))
    record = InputRecord((source,), final=True, held_back="why")
    body = encode_input_record(record)
    assert decode_input_record(body) == record
    for found in (b'"milepost.input/1"', b'"milepost.input/3"'):
        with wording.raises(StateCorrupt):
            decode_input_record(body.replace(b'"milepost.input/2"', found))


def test_an_input_record_says_what_leaves_and_one_from_before_says_nothing() -> None:
    source = SourceInput("rows", (), (), {}, 0, 0, None, forgets=ForgottenRows(((0, 2), (5, 6)), 9, 1_000))
    body = encode_input_record(InputRecord((source,)))
    assert decode_input_record(body).sources == (source,)
    document = json.loads(body)
    del document["sources"]["rows"]["forgets"]
    assert decode_input_record(json.dumps(document).encode()).sources == (replace(source, forgets=None),)


def test_a_job_that_never_ran_has_nothing_to_drain(tmp_path: Path) -> None:
    """Without a checkpoint there is no state that could fire."""
    answer = JobMaster(job(tmp_path).loaded()).triggers.trigger(Session.cli(), drain=True)
    assert isinstance(answer, NothingToDo) and answer.status == "empty"


@pytest.mark.deep
def test_the_command_drains_a_job_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`milepost run --drain` processes unread input, then runs the last epoch. The job is then FINISHED."""
    small = job(tmp_path)
    for name in ("a.csv", "b.csv"):
        small.land(name)
    runner = SparklessRunner()
    monkeypatch.setattr(spark_runner, "SparkEpochRunner", lambda: runner)
    spec = tmp_path / "config" / "small.yaml"
    drained = milepost("run", spec, "--drain")
    assert drained.exit_code == 0, drained.stderr
    assert [plan.alignment.final for plan in runner.plans] == [False, False, True]
    wording.matches("run", drained.stdout, replace=wording.SIZES)
    assert small.context.head().state.status is JobStatus.FINISHED
    assert milepost("list", spec, "--json").document()["checkpoints"][0]["watermark"] == "end"
    again = milepost("run", spec, "--drain")
    assert again.exit_code == 1
    wording.matches("run", again.stderr)
    # Started again, an aggregate goes on: its firing watermark begins anew.
    small.master.restores.start()
    small.land("c.csv")
    assert milepost("run", spec).exit_code == 0
    assert runner.plans[-1].firing == {"latest": (None, None)}
    assert small.master.reports.read("table").to_pylist() == [{"k": 1, "rows": 3}]
