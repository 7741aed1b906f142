"""What a trace lists, names and refuses, through rollbacks, deleted objects and late rows; it writes nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from milepost.epoch.traced import RowFilter
from milepost.errors import InvalidRequest, NotFound, SourceChanged
from milepost.jobmaster.tracing.origin import RowOrigin
from milepost.jobmaster.tracing.tracing import TraceLimits
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.traced_job import TracedJob
from milepost_testkit.runners.duckdb_tracer import duckdb_tracer

_HEADER = "id,k,v,t"
_STEPS = ("read the input of", "replay", "replay the listed rows of")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job with two epochs. Only to be copied or read."""
    job = TracedJob.create(tmp_path_factory.mktemp("ran") / "job")
    job.land("orders", "1.csv", _HEADER, "1,a,5,2026-01-01T10:00:00Z", "2,b,7,2026-01-01T10:10:00Z")
    job.land("payments", "1.csv", "k,paid,at", "a,50,2026-01-01T10:05:00Z")
    job.run()
    job.land("orders", "2.csv", _HEADER, "", "3,a,6,2026-01-01T13:00:00Z", "4,a,1,2026-01-01T08:00:00Z")
    job.land("payments", "2.csv", "k,paid,at", "a,60,2026-01-01T13:05:00Z")
    job.run()
    return job.folder


@pytest.fixture
def job(ran: Path, tmp_path: Path) -> TracedJob:
    return TracedJob(Path(shutil.copytree(ran, tmp_path / "job")))


def listed(origin: RowOrigin) -> list[tuple[str, int | None]]:
    return [(place.object, place.line) for item in origin.inputs for place in item.places]


@pytest.mark.deep
def test_lines_are_those_of_the_object_also_after_an_empty_line(job: TracedJob) -> None:
    assert listed(job.origin("totals", {"k": "a"})) == [("1.csv", 2), ("2.csv", 3), ("2.csv", 4)]


def test_an_older_checkpoint_has_the_rows_of_its_own_epochs(job: TracedJob) -> None:
    origin = job.origin("totals", {"k": "a"}, at=1)
    assert origin.is_proven
    assert listed(origin) == [("1.csv", 2)]
    assert origin.row.to_pylist() == [{"k": "a", "n": 1, "s": 5, "top": 5}]


@pytest.mark.deep
def test_after_a_rollback_only_rows_of_the_live_timeline_are_listed(job: TracedJob) -> None:
    roll_back(job.master, 1)
    (job.folder / "landing/orders/2.csv").unlink()
    job.land("orders", "3.csv", _HEADER, "5,a,8,2026-01-01T10:20:00Z")
    job.run()
    origin = job.origin("totals", {"k": "a"})
    assert origin.is_proven
    assert listed(origin) == [("1.csv", 2), ("3.csv", 2)]


@pytest.mark.deep
def test_the_steps_lead_from_the_table_to_the_input(job: TracedJob) -> None:
    steps = job.origin("newest", {"k": "a"}).steps
    assert [(step.uid, step.kind, step.rows) for step in steps] == [
        ("newest", "latest", 1),
        ("valid", "sql", 1),
        ("orders", "source", 1),
    ]


@pytest.mark.deep
def test_a_joined_row_has_one_row_of_each_input(job: TracedJob) -> None:
    origin = job.origin("paid", {"id": 1})
    assert [(item.source, item.count) for item in origin.inputs] == [("payments", 1), ("orders", 1)]


def test_a_late_row_is_listed_neither_for_its_window_nor_missed_in_silence(job: TracedJob) -> None:
    late = "1 row was late at operator hourly: 2.csv, line 4, read by checkpoint 2."
    with pytest.raises(NotFound, match=re.escape(late)):
        job.origin("hourly", {"k": "a", "window_start": "2026-01-01T08:00:00Z"})


def test_a_row_that_was_never_there_is_not_found(job: TracedJob) -> None:
    with pytest.raises(NotFound, match=re.escape("its table has no row with the given k at checkpoint 2.")):
        job.origin("totals", {"k": "z"})


def test_several_rows_are_refused_with_the_columns_in_which_they_differ(job: TracedJob) -> None:
    with pytest.raises(InvalidRequest) as refused:
        job.origin("best", {"k": "a"})
    assert refused.value.message == "sink best: 3 rows of its table match, and they differ. Nothing was read again."
    assert refused.value.hint == "name one of them: they differ in id, v, t, place"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"x": 1}, "its table has no column x"),
        ({"n": "many"}, "the value given for column n is not of its type, int64"),
    ],
)
def test_a_value_that_the_table_cannot_have_is_refused(job: TracedJob, values: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(words)):
        job.origin("totals", values)


@pytest.mark.deep
def test_after_deleted_input_the_list_begins_at_the_state_of_a_retained_checkpoint(job: TracedJob) -> None:
    (job.folder / "landing/orders/1.csv").unlink()
    origin = job.origin("totals", {"k": "a"})
    assert origin.is_proven
    assert listed(origin) == [("2.csv", 3), ("2.csv", 4)]
    assert origin.cut is not None
    assert (origin.cut.checkpoint_id, origin.cut.reason) == (
        1,
        "1 object of the recorded ranges cannot be read again: 1.csv",
    )
    assert [(then.name, then.rows.to_pylist()) for then in origin.cut.state] == [
        ("totals", [{"k": "a", "n": 1, "s": 5, "top": 5}])
    ]


def test_a_trace_may_begin_at_a_retained_checkpoint(job: TracedJob) -> None:
    origin = job.origin("totals", {"k": "b"}, limits=TraceLimits(since=1))
    assert not origin.is_proven, "the row is the one of checkpoint 1"
    assert (origin.epochs, listed(origin)) == (1, [])
    assert origin.problem == "published by checkpoint 1, before the cut; its input is not listed"


@pytest.mark.long
@pytest.mark.parametrize("sink", ["newest", "paid", "best"])
def test_a_row_that_was_published_before_the_cut_is_not_proven(job: TracedJob, sink: str) -> None:
    origin = job.origin(sink, {"id": 1} if sink == "paid" else {"k": "b"}, limits=TraceLimits(since=1))
    assert not origin.is_proven
    assert origin.problem == "published by checkpoint 1, before the cut; its input is not listed"
    assert (origin.steps, origin.inputs) == ((), ())


def test_a_window_that_fired_after_the_cut_is_proven_by_its_state(job: TracedJob) -> None:
    origin = job.origin("hourly", {"k": "b"}, limits=TraceLimits(since=1))
    assert origin.is_proven
    assert origin.cut is not None and [table.rows.num_rows for table in origin.cut.state] == [1]


@pytest.mark.deep
def test_state_of_another_window_of_the_key_proves_no_window_of_before_the_cut(job: TracedJob) -> None:
    job.land("orders", "3.csv", _HEADER, "5,a,2,2026-01-01T16:00:00Z")
    job.land("payments", "3.csv", "k,paid,at", "a,1,2026-01-01T16:00:00Z")
    job.run()
    values = {"k": "a", "window_start": "2026-01-01T10:00:00Z"}
    origin = job.origin("hourly", values, limits=TraceLimits(since=2))
    assert not origin.is_proven
    assert origin.problem == "published by checkpoint 2, before the cut; its input is not listed"
    assert origin.cut is not None and origin.cut.state == (), "the state is of the window of 13:00"
    later = job.origin("hourly", {**values, "window_start": "2026-01-01T13:00:00Z"}, limits=TraceLimits(since=2))
    assert later.is_proven
    assert later.cut is not None and len(later.cut.state) == 1


@pytest.mark.parametrize("values", [{"window_start": "2026-01-01T07:00:00Z"}, {"window_end": "2026-01-01T11:00:00Z"}])
def test_late_rows_of_other_windows_are_not_named(job: TracedJob, values: dict[str, str]) -> None:
    with pytest.raises(NotFound) as refused:
        job.origin("hourly", {"k": "a", "n": 9, **values})
    assert "late" not in refused.value.message


@pytest.mark.deep
@pytest.mark.parametrize("values", [{"window_start": "2026-01-01T08:00:00Z"}, {"window_end": "2026-01-01T09:00:00Z"}])
def test_a_late_row_is_named_by_one_bound_of_its_window(job: TracedJob, values: dict[str, str]) -> None:
    with pytest.raises(NotFound, match=re.escape("1 row was late at operator hourly: 2.csv, line 4,")):
        job.origin("hourly", {"k": "a", **values})


def test_no_late_row_is_named_where_no_value_leads_to_one(job: TracedJob) -> None:
    with pytest.raises(NotFound) as refused:
        job.origin("hourly", {"n": 9})
    assert "late" not in refused.value.message


def test_a_trace_begins_only_at_an_older_retained_checkpoint(job: TracedJob) -> None:
    with pytest.raises(NotFound, match=re.escape("checkpoint 2 is not a retained checkpoint before 2; those are: 1.")):
        job.origin("totals", {"k": "a"}, limits=TraceLimits(since=2))


def test_a_state_that_one_process_cannot_restore_is_refused(job: TracedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.jobmaster.tracing.starts.MOST_STATE_BYTES", 100)
    with pytest.raises(InvalidRequest, match="bytes of state, more than the 100 that a trace restores"):
        job.origin("totals", {"k": "a"}, limits=TraceLimits(since=1))


def test_deleted_input_of_the_newest_epoch_is_named(job: TracedJob) -> None:
    (job.folder / "landing/orders/2.csv").unlink()
    with pytest.raises(SourceChanged, match=re.escape("orders: 2.csv: consumed by checkpoint 2")) as refused:
        job.origin("totals", {"k": "a"})
    assert refused.value.hint.startswith("a row is traced only if all recorded input since a retained checkpoint")


def test_a_trace_that_is_cut_says_so_and_lists_nothing(job: TracedJob) -> None:
    with pytest.raises(InvalidRequest, match=r"cut after 0 s, at the input of checkpoint 1 of 2\. There is no list"):
        job.origin("totals", {"k": "a"}, limits=TraceLimits(seconds=0))


def test_more_rows_than_requested_are_counted_and_not_listed(job: TracedJob) -> None:
    (item,) = job.origin("totals", {"k": "a"}, limits=TraceLimits(rows=2)).inputs
    assert (item.count, len(item.places), item.listed.num_rows) == (3, 2, 2)


@pytest.mark.deep
def test_a_row_that_the_spec_of_today_would_not_make_is_not_proven(job: TracedJob) -> None:
    spec = job.folder / "config/traced.yaml"
    spec.write_text(spec.read_text().replace("WHERE v >= 0", "WHERE v >= 2"))
    origin = job.origin("totals", {"k": "a"})
    assert not origin.is_proven
    assert origin.problem is not None and origin.problem.startswith(
        "a replay of all recorded input with the current spec"
    )


def test_a_column_that_the_spec_of_today_no_longer_makes_leaves_the_row_unproven(job: TracedJob) -> None:
    spec = job.folder / "config" / "traced.yaml"
    text = spec.read_text()
    spec.write_text(text.replace("sequence_by: [t, id]}", "sequence_by: [t, id], columns: [id, k, t]}"))
    origin = job.origin("newest", {"k": "a"})
    assert not origin.is_proven and "makes a different row" in (origin.problem or "")


def test_a_trace_writes_nothing(job: TracedJob) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in job.folder.rglob("*") if path.is_file()}

    before = files()
    job.origin("totals", {"k": "a"}, at=1)
    assert files() == before


@pytest.mark.long
def test_lines_are_right_in_an_object_with_records_that_cannot_be_read(tmp_path: Path) -> None:
    dead = {"event_time: t\n": "event_time: t\n    bad_records: dead_letter\n"}
    job = TracedJob.create(tmp_path / "job", dead)
    rows = ["1,a,5,2026-01-01T10:00:00Z", "x,a,1,2026-01-01T10:00:00Z", "2,a,7,2026-01-01T10:10:00Z", "y,a,1,?", ""]
    job.land("orders", "1.csv", _HEADER, *rows, "3,b,1,2026-01-01T10:20:00Z", "4,a,1,2026-01-01T10:20:00Z")
    job.run()
    origin = job.origin("totals", {"k": "a"})
    assert origin.is_proven
    assert listed(origin) == [("1.csv", 2), ("1.csv", 4), ("1.csv", 8)]


@pytest.mark.long
def test_a_late_row_is_not_listed_for_the_window_that_it_missed(job: TracedJob) -> None:
    job.land("orders", "3.csv", _HEADER, "5,a,2,2026-01-01T10:30:00Z", "6,a,1,2026-01-01T16:00:00Z")
    job.land("payments", "3.csv", "k,paid,at", "a,1,2026-01-01T16:00:00Z")
    job.run()
    origin = job.origin("hourly", {"k": "a", "window_start": "2026-01-01T10:00:00Z"})
    assert origin.is_proven
    assert listed(origin) == [("1.csv", 2)]


@pytest.mark.long
def test_a_list_whose_rows_make_another_row_is_not_proven(job: TracedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(found: object) -> RowFilter:
        return lambda source, rows: rows.slice(0, 1)

    monkeypatch.setattr("milepost.jobmaster.tracing.tracing._only", first)
    origin = job.origin("totals", {"k": "a"})
    assert not origin.is_proven
    assert origin.problem == "the operators make a different row from the listed rows alone than from all input"


@pytest.mark.long
def test_each_step_of_a_trace_is_shown_as_it_begins(job: TracedJob) -> None:
    shown: list[str] = []
    job.master.tracing.origin("totals", {"k": "a"}, duckdb_tracer(), progress=shown.append)
    of_epochs = [f"{step} checkpoint {at} of 2" for step in _STEPS for at in (1, 2)]
    assert shown == ["find the row in table totals", "check the recorded input", *of_epochs]
