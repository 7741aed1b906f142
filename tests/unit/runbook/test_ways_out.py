"""Every command that the runbook suggests is typed literally, in its situation, and leads to a healthy job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deltalake import DeltaTable

from milepost.errors import CheckpointError, CheckpointExpired, SparkLost
from milepost.jobmaster import Session
from milepost.jobmaster.reports.health.conditions import Condition
from milepost.runbook.pages import page_files, read_page
from milepost.spark import driver
from milepost_testkit.commands.suggested_commands import READING, Typist, suggested_commands
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.sparkless.backfill_job import mortal_session
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec
from tests.unit.runbook import test_provoked as provoked

Patch = pytest.MonkeyPatch
Mend = Callable[[SparklessJob], object]


def nothing(job: SparklessJob) -> None:
    """The cause has passed by itself, or with the end of the patch."""


def spec_of(job: SparklessJob) -> Path:
    return job.folder / "config" / "small.yaml"


def edit(old: str, new: str) -> Mend:
    return lambda job: edit_spec(spec_of(job), {old: new})


def land(name: str, text: str = "k,v\n1,a\n") -> Mend:
    return lambda job: job.land(name, text)


@dataclass(frozen=True)
class Situation:
    """Where a page is read.

    Attributes:
        provoke: makes it below a folder. mend: the correction that the page asks for before the job goes on.
        mended: mend by the verb of a command, where another one, or none, comes before it.
        values: of the placeholders of commands.
    """

    provoke: Callable[[Path, Patch], object]
    mend: Mend = nothing
    mended: Mapping[str, Mend] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)

    def make(self, folder: Path, patch: Patch) -> SparklessJob:
        with suppress(CheckpointError, ZeroDivisionError):
            self.provoke(folder, patch)
        return SparklessJob(folder)


def raised_by_spark(error: CheckpointError) -> Callable[[Path, Patch], object]:
    """An epoch that ends as the runner on Spark reports it; Spark itself raises these in the tests of `WITH_SPARK`."""

    def provoke(folder: Path, patch: Patch) -> None:
        def fail(plan: object) -> None:
            raise error

        job = provoked.with_an_epoch(folder)
        job.land("2.csv")
        job.master.epochs.run(Session.cli(), SparklessRunner(before=fail))

    return provoke


def changed_table(folder: Path, patch: Patch) -> None:
    """Another engine deletes a row of the job from its Delta table."""
    job = CountedJob.with_epochs(
        folder, 2, {"format: parquet, path: ../lake/table": "format: delta, path: ../lake/table"}
    )
    DeltaTable(str(folder / "lake" / "table")).delete("k = 1")
    job.land([3])
    job.run()


def deleted_file(folder: Path, patch: Patch) -> None:
    """A file that the head has published is deleted."""
    job = CountedJob.with_epochs(folder, 2)
    published = sorted((folder / "lake" / "table").rglob("*.parquet"))[-1]
    published.rename(folder / "copy.parquet")
    (folder / "place").write_text(str(published))
    job.land([3])
    job.run()


def restore_file(job: SparklessJob) -> None:
    (job.folder / "copy.parquet").rename((job.folder / "place").read_text())


def corrupt_head(folder: Path, patch: Patch) -> None:
    job = CountedJob.with_epochs(folder, 2)
    head = sorted((folder / "store").rglob("_metadata"))[-1]
    (folder / "copy").write_bytes(head.read_bytes())
    head.write_bytes(head.read_bytes()[:100])
    job.land([3])
    job.run()


def restore_head(job: SparklessJob) -> None:
    head = sorted((job.folder / "store").rglob("_metadata"))[-1]
    head.write_bytes((job.folder / "copy").read_bytes())


def renamed(folder: Path, patch: Patch) -> None:
    job = CountedJob.with_epochs(folder, 1)
    job.edit("uid: unique", "uid: distinct")
    job.edit("input: unique", "input: distinct")


def begin_another_table(job: SparklessJob) -> None:
    edit_spec(spec_of(job), {"name: table": "name: by_v", "lake/table": "lake/by_v"})


def drained(folder: Path, patch: Patch) -> None:
    job = CountedJob.with_epochs(folder, 2)
    job.master.epochs.run(Session.cli(), SparklessRunner(), drain=True)


def canceled_with_savepoint(folder: Path, patch: Patch) -> None:
    job = provoked.with_an_epoch(folder)
    job.master.savepoints.create("before")
    job.master.savepoints.cancel()


def interrupted_backfill(folder: Path, patch: Patch) -> None:
    """Its process died amid the second of its epochs."""
    job = CountedJob.with_epochs(folder, 3)
    epochs: list[object] = []

    def die(plan: object) -> None:
        epochs.append(plan)
        if len(epochs) > 1:
            raise KeyboardInterrupt

    with mortal_session() as session, suppress(KeyboardInterrupt):
        back_fill(job.master, SparklessRunner(before=die), from_checkpoint=0, session=session)


def relax_and_land(job: SparklessJob) -> None:
    edit_spec(spec_of(job), {"max_value: 90": "max_value: 99"})
    job.land("a.csv")


def correct_and_land(job: SparklessJob) -> None:
    edit_spec(spec_of(job), {"storages:": "storage:"})
    job.land("a.csv")


PLAIN = {"ID": "1", "SINK": "table", "TIME": "2026-01-01", "D": "8760h"}
IGNORES = edit("settle: 0s", "settle: 0s\n    on_change: ignore")
ANOTHER_KEY = edit("key: [v]", "key: [k]")

SITUATIONS: dict[str, tuple[Situation, ...]] = {
    **{name: (Situation(provoke),) for name, provoke in provoked.ERRORS.items()},
    **{condition.value: (Situation(provoke),) for condition, provoke in provoked.STATES.items()},
    "checkpoint-expired": (Situation(raised_by_spark(CheckpointExpired("it was still running at its deadline"))),),
    "environment-unusable": (Situation(provoked.environment_unusable, edit("spark: {conn_id: here}\n", "")),),
    "invalid-request": (
        Situation(provoked.invalid_request, correct_and_land),
        Situation(changed_table),
    ),
    "job-not-runnable": (Situation(provoked.job_not_runnable), Situation(provoked.is_canceled)),
    "quality-gate-failed": (Situation(provoked.quality_gate_failed, land("1.csv"), values={"ID": "0"}),),
    "source-changed": (Situation(provoked.source_changed, IGNORES, {"rollback": nothing}, {"ID": "0"}),),
    "source-replaced": (Situation(provoked.source_replaced, provoked.move_log_away),),
    "position-expired": (
        Situation(provoked.position_expired, provoked.bring_back, values={"S": "feed"}),
        Situation(provoked.position_expired, nothing, values={"S": "feed"}),
    ),
    "source-went-back": (
        Situation(provoked.source_went_back, provoked.bring_back, values={"S": "feed"}),
        Situation(provoked.source_went_back, nothing, values={"S": "feed"}),
    ),
    "input-voided": (Situation(provoked.input_voided, values={"ID": "1", "S": "feed"}),),
    "source-unreachable": (Situation(provoked.source_unreachable, provoked.answer),),
    "spark-lost": (Situation(raised_by_spark(SparkLost("the Spark of the epoch is gone"))),),
    "state-corrupt": (
        Situation(corrupt_head, restore_head, {"rollback": nothing}),
        Situation(deleted_file, restore_file, {"rollback": nothing}),
    ),
    "subtask-declined": (Situation(provoked.subtask_declined, land("1.csv")),),
    "backfill-unfinished": (Situation(interrupted_backfill, values={"ID": "0"}),),
    "canceled": (Situation(canceled_with_savepoint, values={"SAVEPOINT": "before"}),),
    "finished": (Situation(drained, values={"ID": "2"}),),
    "initializing": (Situation(provoked.is_initializing, land("a.csv")),),
    "input-refused": (Situation(provoked.is_input_refused, IGNORES),),
    "no-input": (Situation(provoked.is_no_input, land("a.csv")),),
    "landing-failed": (Situation(provoked.is_landing_failed, provoked.answer),),
    "overdue": (Situation(provoked.is_overdue, land("a.csv")),),
    "stale": (Situation(provoked.is_stale, edit("max_age: 1d", "max_age: 36500d")),),
    "rows-missing": (Situation(provoked.is_rows_missing, land("a.csv")),),
    "rules-unmet": (Situation(provoked.is_rules_unmet, relax_and_land),),
    "spec-refused": (
        Situation(provoked.is_spec_refused, ANOTHER_KEY, {"backfill": begin_another_table}),
        Situation(renamed),
    ),
}
"""Of each page where it is read; each of its commands leads out of one of these at least, and is typed in all."""

UNPLAYED: dict[tuple[str, str], str] = {
    ("spark-lost", "milepost spark-server"): "starts a server that stays: tests/integration/servers",
}
"""Commands of a page that are not played here, each with the reason and where it is played."""

NEVER_ENDS = "milepost status JOB --watch"
"""Typed in tests/unit/cli/reading/test_watch.py."""


def commands_of(name: str) -> list[str]:
    """Return the commands of a page. `milepost X` without a job only names a command."""
    found = re.findall(r"`(milepost [^`]+)`", " ".join(read_page(name).text.split()))
    whole = (one for one in found if "JOB" in one.split() or one in ("milepost jobs", "milepost --version"))
    return [one for one in dict.fromkeys(whole) if one != NEVER_ENDS and (name, one) not in UNPLAYED]


def acts(command: str) -> bool:
    return "JOB" in command.split() and command.split()[1] not in READING


PAGES = [*page_files()]
PLACES = [
    pytest.param(name, number, marks=[pytest.mark.deep] if number else [])
    for name in PAGES
    for number in range(len(SITUATIONS.get(name, ())))
]
PLAYED = [
    (*place.values, command) for place in PLACES for command in commands_of(str(place.values[0])) if acts(command)
]


def marks_of(name: str, number: int, command: str) -> list[pytest.MarkDecorator]:
    """Leave to `make test-all` what is neither the first command of its page nor the first use of its command."""
    before = PLAYED[: PLAYED.index((name, number, command))]
    is_first = all(one[0] != name for one in before) or all(one[2] != command for one in before)
    return [pytest.mark.deep] if number or not is_first else [pytest.mark.long]


ACTS = [
    pytest.param(*one, id="-".join([*map(str, one[:2]), one[2].removeprefix("milepost ")]), marks=marks_of(*one))
    for one in PLAYED
]


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: Patch) -> None:
    """The commands run their epochs in this process."""
    monkeypatch.setattr(driver, "spark_runner", SparklessRunner)


@pytest.fixture
def patch() -> Iterator[Patch]:
    """Patches that provoke a situation; undone where its cause passes."""
    with Patch.context() as patched:
        yield patched


def test_each_page_has_a_situation_and_each_command_that_is_not_played_a_reason() -> None:
    assert set(PAGES) == SITUATIONS.keys()
    assert all(commands_of(name) for name in PAGES)
    suggested = {
        (name, command) for name in PAGES for command in re.findall(r"`(milepost [^`]+)`", read_page(name).text)
    }
    assert UNPLAYED.keys() <= suggested


@pytest.mark.long
@pytest.mark.parametrize(("name", "number"), PLACES)
def test_suggested_commands_that_only_read_succeed(
    name: str, number: int, tmp_path: Path, patch: Patch, monkeypatch: Patch
) -> None:
    """They print a result, or an error that names the fault."""
    situation = SITUATIONS[name][number]
    job = situation.make(tmp_path / "job", patch)
    monkeypatch.chdir(job.folder)
    typist = Typist(spec_of(job), {**PLAIN, **situation.values})
    looking = [command for command in commands_of(name) if not acts(command)]
    assert looking
    for command in looking:
        typist.type(command)


@pytest.mark.parametrize(("name", "number", "command"), ACTS)
def test_a_suggested_command_leads_to_a_healthy_job(
    name: str, number: int, command: str, tmp_path: Path, patch: Patch, monkeypatch: Patch
) -> None:
    situation = SITUATIONS[name][number]
    job = situation.make(tmp_path / "job", patch)
    monkeypatch.chdir(job.folder)
    typist = Typist(spec_of(job), {**PLAIN, **situation.values})
    patch.undo()
    situation.mended.get(command.split()[1], situation.mend)(job)
    typist.carry_out(command)
    typist.until_healthy()
    job.land("proof.csv", "k,v\n77,proof\n")
    typist.carry_out("milepost run JOB --until-caught-up")
    assert typist.type("milepost status JOB").exit_code == 0, typist.typed


@pytest.mark.long
@pytest.mark.parametrize("name", [*provoked.ERRORS, *provoked.WITH_SPARK])
def test_the_commands_of_an_error_lead_to_a_healthy_job(
    name: str, tmp_path: Path, patch: Patch, monkeypatch: Patch
) -> None:
    situation = SITUATIONS[name][0]
    with pytest.raises((CheckpointError, ZeroDivisionError)) as caught:
        situation.provoke(tmp_path / "job", patch)
    job, hint = SparklessJob(tmp_path / "job"), getattr(caught.value, "hint", "")
    monkeypatch.chdir(job.folder)
    patch.undo()
    situation.mend(job)
    typist = Typist(spec_of(job), {**PLAIN, **situation.values})
    for command in suggested_commands(hint):
        words = command.split()
        typed = " ".join(["milepost", words[1], *("JOB" if word == "small" else word for word in words[2:])])
        typist.type(typed) if words[1] in READING else typist.carry_out(typed)
    typist.until_healthy()


@pytest.mark.deep
@pytest.mark.parametrize("condition", provoked.STATES, ids=lambda one: one.value)
def test_the_next_steps_of_status_lead_to_a_healthy_job(condition: Condition, tmp_path: Path, patch: Patch) -> None:
    situation = SITUATIONS[condition.value][0]
    job = situation.make(tmp_path / "job", patch)
    patch.undo()
    situation.mend(job)
    Typist(spec_of(job)).until_healthy()


def test_the_commands_of_a_message_are_found_in_its_prose() -> None:
    message = "fix the cause, then: milepost resume small; milepost realign small table lets its state count; or wait"
    assert suggested_commands(message) == ["milepost resume small", "milepost realign small table"]
    assert suggested_commands("`milepost run small --take-over`, or milepost run small lets them") == [
        "milepost run small --take-over",
        "milepost run small",
    ]
    assert suggested_commands("Runbook: milepost runbook busy") == []
