"""`milepost rollback` and `start --from` on the command line: output, prompts, exit codes and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost, milepost_on_terminal
from milepost_testkit.jobs.sparkless.counted_job import CountedJob


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    return CountedJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", 4)


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


@pytest.mark.deep
def test_a_dry_run_prints_the_plan_and_changes_nothing(job: CountedJob) -> None:
    version = job.small.context.head().version
    shown = milepost("rollback", job.spec_path, "--to", "2", "--dry-run")
    assert shown.exit_code == 0 and shown.error == []
    lines = shown.stdout.splitlines()
    wording.matches("rollback", shown.stdout, replace=wording.SIZES)
    plan = milepost("rollback", job.spec_path, "--to", "2", "--dry-run", "--json").document()
    assert [checkpoint["checkpoint_id"] for checkpoint in plan["discarded"]] == [3, 4]
    assert plan["text"] == lines[:-1]
    assert job.small.context.head().version == version


@pytest.mark.deep
def test_without_a_terminal_it_requires_yes(job: CountedJob) -> None:
    for options in ([], ["--json"]):
        refused = milepost("rollback", job.spec_path, "--to", "2", *options)
        assert refused.exit_code == 2
        wording.matches("rollback", refused.stderr + refused.stdout, replace=wording.SIZES)
    assert_clear_error(milepost("rollback", job.spec_path, "--to", "2"), 2, "--yes", golden="rollback")
    assert job.live_ids == [1, 2, 3, 4]
    done = milepost("rollback", job.spec_path, "--to", "2", "--yes")
    assert done.exit_code == 0
    wording.matches("rollback", done.stdout, replace=wording.SIZES)
    job.assert_tables_equal_the_oracle()
    again = milepost("rollback", job.spec_path, "--to", "2", "--yes")
    assert again.exit_code == 0
    wording.matches("rollback", again.stdout, replace=wording.SIZES)
    answer = milepost("rollback", job.spec_path, "--to", "4", "--yes", "--json").document()
    assert (answer["outcome"], answer["checkpoint_id"], answer["discarded"]) == ("rolled_back", 4, [])
    assert answer["next_step"] == f"milepost run {job.spec_path}"


@pytest.mark.long
@pytest.mark.parametrize("answer", ["n", "y"])
def test_a_rollback_shows_its_plan_and_prompts_on_a_terminal(job: CountedJob, answer: str) -> None:
    code, output = milepost_on_terminal("rollback", job.spec_path, "--to", "2", answer=answer)
    assert code == 0, output
    assert job.live_ids == ([1, 2] if answer == "y" else [1, 2, 3, 4])
    wording.matches("rollback", output.splitlines(), replace={r"\[y/N\].*": "[y/N]", **wording.SIZES})


def test_exit_codes_distinguish_the_reasons_of_a_refusal(job: CountedJob) -> None:
    assert_clear_error(milepost("rollback", job.spec_path, "--to", "9", "--yes"), 3, golden="rollback")
    assert_clear_error(milepost("rollback", job.spec_path, "--to", "noon", "--yes"), 2, golden="rollback")
    missing = milepost("rollback", job.spec_path)
    assert missing.exit_code == 2 and "--to" in missing.stderr
    job.land([5])
    job.master.triggers.trigger(Session.cli())
    assert_clear_error(milepost("rollback", job.spec_path, "--to", "2", "--yes"), 4, "--take-over", golden="rollback")
    done = milepost("rollback", job.spec_path, "--to", "2", "--yes", "--take-over")
    assert done.exit_code == 0
    wording.matches("rollback", done.stdout, replace=wording.SIZES)


def test_list_status_show_and_history_distinguish_timelines(job: CountedJob) -> None:
    milepost("rollback", job.spec_path, "--to", "3", "--yes")
    job.run()
    timeline = job.small.context.head().state.live
    rows = [line.split() for line in milepost("list", job.spec_path).stdout.splitlines()[2:]]
    wording.matches("list", " ".join(rows.pop(2)))
    assert [row[:3] for row in rows] == [
        ["5", timeline, "completed"],
        ["4", "main", "completed"],
        ["3", "main", "completed"],
        ["2", "main", "completed"],
        ["1", "main", "completed"],
    ]
    status = milepost("status", job.spec_path)
    assert status.exit_code == 0
    wording.matches("status", status.stdout, replace=wording.LAG)
    document = milepost("status", job.spec_path, "--json").document()
    assert document["timelines"] == [
        {"timeline": "main", "role": "abandoned", "parent": None, "head": 4, "pending": None},
        {"timeline": timeline, "role": "live", "parent": {"timeline": "main", "checkpoint_id": 3}, "head": 5,
         "pending": None},
    ]  # fmt: skip
    shown = milepost("show", job.spec_path, "4").stdout.splitlines()
    wording.matches("show", shown[:2])
    history = " ".join(milepost("history", job.spec_path).stdout.split())
    events = milepost("history", job.spec_path, "--json").document()["events"]
    (switched,) = [event for event in events if event["event"] == "TimelineSwitched"]
    assert switched["sinks"] == ["seen", "table"]
    assert switched["what"] in history and "milepost rollback --to 3" in history
    wording.matches("history", switched["detail"])


def test_start_from_a_checkpoint_rolls_back_and_opens_the_next_incarnation(job: CountedJob) -> None:
    assert_clear_error(milepost("start", job.spec_path, "--from", "2"), 2, "milepost rollback", golden="start")
    assert milepost("cancel", job.spec_path, "--yes").exit_code == 0
    assert_clear_error(milepost("start", job.spec_path, "--from", "9"), 3, golden="start")
    started = milepost("start", job.spec_path, "--from", "2")
    wording.matches("start", started.stdout, replace=wording.SIZES)
    job.run(2)
    job.assert_tables_equal_the_oracle()
    cancelled = milepost("cancel", job.spec_path, "--yes", "--json")
    assert json.loads(cancelled.stdout)["ok"]
