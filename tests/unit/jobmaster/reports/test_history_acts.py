"""The history states who did what to a job, and why, for acts of people and for every other event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost.jobmaster.job.session import user_name
from milepost.jobmaster.reports.history.actors import actor_of, reason_of
from milepost.jobmaster.reports.history.acts import _OF_PEOPLE
from milepost.jobmaster.reports.history.verbs import _COMPACTED, _VERBS
from milepost.protocol.manifest.transaction.events import EVENT_NAMES, EVENT_TYPES, CheckpointAborted
from milepost.protocol.records.decisions import Actor, Decision
from milepost.views import TimelineNames, act_text
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

UUID = "0b8e6a2e-54b1-4b1e-9d3a-1f1d9c0a7f11"


def acts(job: CountedJob) -> list[str]:
    return [act_text(act) for act in job.master.reports.history_page(50).acts]


def test_every_event_has_a_verb_also_when_it_is_compacted() -> None:
    assert _VERBS.keys() == _COMPACTED.keys() == EVENT_NAMES


def test_an_event_that_someone_decided_on_is_an_act_of_people() -> None:
    """Otherwise the history would list it under the job's own events. An abort is one or the other, by its reason."""
    decided = {event for event in EVENT_TYPES if "decided_by" in event.__dataclass_fields__} - {CheckpointAborted}
    assert not (missing := decided - {*_OF_PEOPLE}), f"add {missing} to _OF_PEOPLE of reports/history/acts.py"


@pytest.mark.parametrize(
    ("session_id", "detail", "actor", "reason"),
    [
        (
            f"cli:ben/{UUID}",
            "ben (command line): milepost rollback --to 3",
            Actor("cli", "ben"),
            "milepost rollback --to 3",
        ),
        (f"cli:{UUID}", "by a person: milepost resume", Actor("cli"), "milepost resume"),
        (
            "airflow:a__operate/manual__1, x",
            "Airflow run a__operate/manual__1, x, triggered by bea, approved by ann",
            Actor("airflow", "bea", "ann", "a__operate", "manual__1, x"),
            "",
        ),
        (
            "airflow:a__operate/r",
            "backfill from checkpoint 2; Airflow run a__operate/r, approved by ann",
            Actor("airflow", None, "ann", "a__operate", "r"),
            "backfill from checkpoint 2",
        ),
        ("airflow:a__epoch/scheduled__1", "", Actor("airflow", None, None, "a__epoch", "scheduled__1"), ""),
        (f"backfill:f00/cli:ben/{UUID}", "", Actor("cli", "ben"), ""),
        (f"import:{UUID}", "restored from x; ben (command line)", Actor("import", "ben"), "restored from x"),
        (
            f"import:{UUID}",
            "restored from x; Airflow run a__operate/r, triggered by bea, approved by ann",
            Actor("airflow", "bea", "ann", "a__operate", "r"),
            "restored from x",
        ),
        ("", "", Actor(), ""),
    ],
)
def test_an_actor_is_found_in_the_session_and_the_detail_of_an_event(
    session_id: str, detail: str, actor: Actor, reason: str
) -> None:
    assert actor_of(session_id, detail) == actor
    assert reason_of(detail, actor) == reason


@pytest.mark.deep
def test_who_acted_is_what_the_event_stores_whatever_its_reason_says(tmp_path: Path) -> None:
    """What was typed may look like the text of another actor, and like the beginning of another act."""
    job = CountedJob.with_epochs(tmp_path / "job", 3)
    why = "backfill from checkpoint 1; Airflow run a/b, triggered by bea, approved by ann: x (command line)"
    job.rollback(2, decision=Decision(Actor("cli", "ben"), why))
    (act,) = job.master.reports.history_page(50).acts
    assert (act.who, act.why) == (Actor("cli", "ben"), why)
    (switch,) = job.master.reports.history_page(50).switches
    assert switch.act == "rollback"


@pytest.mark.deep
def test_an_act_without_a_decision_is_one_of_the_sessions_actor(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    session = Session.airflow("small__operate", "r1", "manual", None, None, "bea")
    job.master.rollbacks.run(session, job.master.rollbacks.plan(1).approved)
    job.master.savepoints.cancel(session=session)
    job.master.restores.start(session=session)
    log = job.small.context.log
    events = [log.entry(version).event for version in range(1, job.small.context.head().version + 1)]
    assert [event.decided_by for event in events if hasattr(event, "decided_by")] == [Decision(session.actor)] * 3


@pytest.mark.parametrize("name", ["ben", "a/b", "x\x1b[2J", "", "n" * 200])
def test_the_session_of_a_command_line_names_its_user(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names come from the environment, so they must not change how a session is read."""
    monkeypatch.setenv("LOGNAME", name)
    session = Session.cli()
    assert session.session_id.startswith(f"cli:{user_name()}/") and session.session_id.isprintable()
    assert actor_of(session.session_id).person == session.person and len(session.person) <= 60


@pytest.mark.long
def test_an_undo_is_a_return_and_the_head_is_among_the_newest_checkpoints(tmp_path: Path) -> None:
    """The newest act is first. What the undo left is not among the newest checkpoints, though its ids are greater."""
    job = CountedJob.with_epochs(tmp_path / "job", 4)
    job.rollback(2, decision=Decision(Actor("cli", "ben"), "milepost rollback --to 2"))
    job.run(2)
    job.rollback(4)
    page = job.master.reports.newest_page(3)
    assert [report.checkpoint_id for report in page.checkpoints] == [4, 3, 2]
    assert acts(job) == [
        "tester returned to checkpoint 4 from checkpoint 6",
        "ben rolled back from checkpoint 4 to checkpoint 2",
    ]
    assert [act.why for act in page.acts] == ["", "milepost rollback --to 2"]
    moved = [entry["what"] for entry in job.master.reports.history() if entry["event"] == "TimelineSwitched"]
    assert moved == [act.what for act in page.acts]
    first, second = job.small.context.head().state.timelines[1:]
    names = TimelineNames(job.master.reports.history_page(50).origins)
    assert names.name(first.timeline_id).startswith("after the rollback by ben, ")
    assert names.with_id(second.timeline_id).endswith(f" ({second.timeline_id})") and names.name("main") == "main"


@pytest.mark.deep
def test_the_newest_checkpoints_include_aborted_and_pending_ones_of_the_live_timeline(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3)
    job.rollback(2)
    job.run(1)
    job.land([7])
    session = Session.cli()
    number = job.master.triggers.trigger(session).checkpoint_id
    job.master.epochs.abort(session, number, "CHECKPOINT_DECLINED", "no")
    job.master.lifecycle.resume()
    job.master.triggers.trigger(Session.cli())
    page = job.master.reports.newest_page(5)
    assert [(report.checkpoint_id, report.status) for report in page.checkpoints] == [
        (6, "pending"), (5, "aborted"), (4, "completed"), (2, "completed"), (1, "completed"),
    ]  # fmt: skip


def test_a_takeover_names_the_run_and_the_person_that_took_over(tmp_path: Path) -> None:
    job = CountedJob.create(tmp_path / "job")
    job.land([1])
    job.master.triggers.trigger(Session.cli())
    taking = Session.airflow("small__epoch", "manual__1", "manual", None, None, "bea")
    job.master.triggers.trigger(taking, take_over=True)
    (act,) = job.master.reports.history_page(50).acts
    assert act.who == Actor("airflow", "bea", None, "small__epoch", "manual__1")
    wording.matches("history", act_text(act))


def test_resume_cancel_and_start_state_who_did_them(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    session = Session.airflow("small__operate", "r1", "manual", None, None, "bea")
    job.land([2])
    running = Session.cli()
    job.master.epochs.abort(
        running, job.master.triggers.trigger(running).checkpoint_id, "CHECKPOINT_DECLINED", "line 2"
    )
    job.master.lifecycle.resume(session)
    job.master.savepoints.cancel(session=session)
    job.master.restores.start(session=session, decision=Decision(replace(session.actor, approved_by="ann")))
    assert acts(job) == [
        "bea (approved by ann) started the job again at checkpoint 1",
        "bea canceled the job at checkpoint 1",
        "bea resumed the job after CHECKPOINT_DECLINED",
    ]
    entries = job.master.reports.history(20)
    assert {entry["who"] for entry in entries} >= {"bea", None} and all(entry["what"] for entry in entries)


@pytest.mark.long
def test_a_backfill_is_named_as_what_replaced_checkpoints(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3)
    plan = job.master.backfills.plan(from_checkpoint=1)
    job.master.backfills.run(Session.cli(), SparklessRunner(), plan.approved)
    page = job.master.reports.history_page(50)
    assert [switch.act for switch in page.switches] == ["backfill"]
    assert acts(job) == [
        "tester made the backfill live: checkpoint 5 instead of checkpoint 3",
        "tester began a backfill after checkpoint 1",
    ]


def test_a_savepoint_that_an_airflow_run_made_names_the_run_and_not_the_user_of_its_worker(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    session = Session.airflow("small__operate", "r1", "manual", None, None, "bea")
    job.master.savepoints.create("kept", session=session)
    job.master.savepoints.dispose("kept", session)
    page = job.master.reports.history_page(50)
    assert [(act.what, act.who.name, act.who.run_id) for act in page.acts] == [
        ("deleted savepoint kept", "Airflow", "r1"),
        ("created savepoint kept of checkpoint 1", "Airflow", "r1"),
    ]
