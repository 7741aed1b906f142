"""Faults of Airflow itself: two schedulers share the work, and one, its workers or the database go away meanwhile.

Each strikes runs that wait at named phases of an epoch, each with a write in flight that reaches the store afterwards.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime

import httpx
import psutil
import pytest

from milepost.errors import NEW_RUN
from milepost_testkit.airflow.e2e_job import TASKS, E2eJob, has_line
from milepost_testkit.airflow.held_epochs import HeldEpoch, HeldJobs, Phase, is_quiet, land_next
from milepost_testkit.airflow.two_schedulers import SCHEDULERS, TwoSchedulers
from milepost_testkit.proxies.holding_proxy import HoldingProxy
from milepost_testkit.servers.s3_servers import Ministack

pytestmark = pytest.mark.deep

EVERY_MINUTE = "schedule: {cron: '* * * * *', timezone: UTC}\n"
FAULT_S = 240.0
MINUTE_S = 60.0
CLEARS = 15
STARTED = ("running", "success", "failed", "up_for_retry")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, ministack: Ministack) -> Iterator[HeldJobs]:
    folder = tmp_path_factory.mktemp("two")
    two = TwoSchedulers(folder, ministack.environment())
    with pytest.MonkeyPatch.context() as patch, HoldingProxy(ministack.port) as proxy:
        for name, value in ministack.environment().items():
            patch.setenv(name, value)
        try:
            two.start()
            yield HeldJobs(two, proxy, ministack.new_bucket())
        finally:
            proxy.release_all()
            two.stop()


def test_a_task_that_is_killed_in_any_phase_is_tried_again(jobs: HeldJobs) -> None:
    """I3, I10: the worker of every second task is killed as well, so that nothing reports its end to Airflow.

    One worker is not killed but asked to shut down, as on a machine that is drained: it notifies its task.
    """
    held = jobs.hold(*Phase)
    for number, epoch in enumerate(held):
        worker = epoch.task.parent()
        assert worker is not None
        if epoch.phase is Phase.STATE:
            worker.terminate()
        else:
            for process in [worker, epoch.task] if number % 2 else [epoch.task]:
                process.kill()
        psutil.wait_procs([epoch.task], timeout=FAULT_S)
        assert not epoch.task.is_running() or epoch.task.status() == psutil.STATUS_ZOMBIE
    _end_well(jobs, held)
    for epoch in held:
        assert epoch.tries() > 1
        if epoch.phase is Phase.STATE:
            said = epoch.job.log(epoch.run_id, epoch.phase.task_id, 1)
            assert has_line(said, "Task failed with exception", epoch.phase.task_id) and 'File "' not in said, said


def test_a_scheduler_that_is_killed_with_its_workers_is_made_up_for_by_the_other(jobs: HeldJobs) -> None:
    """Airflow has no leader: the one that is left finds the other's tasks orphaned, and starts them once more."""
    held = jobs.hold(*Phase)
    victim, lost = _busier(jobs.two, held)
    jobs.two.lose_machine(victim)
    assert victim in jobs.two.ended()
    for epoch in held:
        epoch.write.release()
    for epoch in held:
        assert epoch.job.wait(epoch.run_id) == "success", "the other scheduler alone is enough"
    assert victim in jobs.two.ended()
    _end_well(jobs, held)
    assert all(epoch.tries() > 1 for epoch in lost)


def test_tasks_outlive_their_scheduler_and_a_second_copy_is_started(jobs: HeldJobs) -> None:
    """I3: two processes of one task act for one run; storage lets one of them through."""
    held = jobs.hold(*Phase)
    victim, lost = _busier(jobs.two, held)
    jobs.two.tree(victim)[0].kill()
    for epoch in lost:
        jobs.two.until(lambda epoch=epoch: epoch.tries() > 1, f"{epoch.phase} is started again", FAULT_S)
    _end_well(jobs, held)


@pytest.mark.parametrize("seconds", [0.0, MINUTE_S], ids=["until both have met it", "a minute"])
def test_tasks_that_end_during_a_database_outage_are_recovered_after_it(jobs: HeldJobs, seconds: float) -> None:
    """What an epoch has written counts, whether or not Airflow heard of it. It is gone until both schedulers saw it."""
    two = jobs.two
    held = jobs.hold(*Phase)
    before = {name: two.database_errors(name) for name in SCHEDULERS}
    with two.without_database():
        back = time.monotonic() + seconds
        for epoch in held:
            epoch.write.release()  # the task does its part, and nobody can be told
        two.airflow.until(
            lambda: time.monotonic() > back and all(two.database_errors(name) > before[name] for name in SCHEDULERS),
            "both schedulers have met it",
            FAULT_S,
        )
    _end_well(jobs, held)


def test_two_schedulers_make_one_epoch_of_each_object_however_often_runs_are_triggered(jobs: HeldJobs) -> None:
    """Rules 1 and 4: alongside the schedule, several people trigger runs at the same moment."""
    job = jobs.add("twice", EVERY_MINUTE)
    land_next(job)
    land_next(job)
    moment = datetime(2026, 1, 1, tzinfo=UTC).isoformat()

    def trigger(run_id: str, logical_date: str | None) -> str | None:
        try:
            return job.airflow.rest.trigger(job.dag_id, dag_run_id=run_id, logical_date=logical_date)
        except httpx.HTTPStatusError as refused:
            assert refused.response.status_code == httpx.codes.CONFLICT
            return None

    asked = [("a", moment), ("b", moment), ("c", None), ("d", None), ("c", None)]
    with ThreadPoolExecutor(len(asked)) as people:
        made = [*people.map(lambda one: trigger(*one), asked)]

    assert (made[:2].count(None), made[3], {made[2], made[4]}) == (1, "d", {"c", None}), made
    for run_id in filter(None, made):
        assert job.wait(run_id) == "success"
    assert job.master.reports.status().unread_objects == 0
    land_next(job)
    job.airflow.until(
        lambda: not job.master.reports.status().unread_objects, "the schedule reads what lands later", FAULT_S
    )
    jobs.assert_peace(job)
    job.airflow.rest.set_paused(job.dag_id, True)  # not before: a run of a paused DAG stays where it is
    dates = [run["logical_date"] for run in job.airflow.rest.runs(job.dag_id) if run["run_type"] == "scheduled"]
    assert dates and len(dates) == len(set(dates))


def test_tasks_that_are_cleared_at_random_lose_and_double_nothing(jobs: HeldJobs, seed: int) -> None:
    """Rule 3: a cleared task goes on with what is pending, or does nothing; else it says that a new run is needed."""
    job, draw = jobs.add("cleared"), random.Random(seed)
    runs: list[str] = []
    for _ in range(CLEARS):
        if not runs or draw.random() < 0.6:
            land_next(job)
            runs.append(job.trigger())
        run_id, task_id, moment = draw.choice(runs), draw.choice(TASKS), draw.choice(TASKS)
        newest = runs[-1]
        job.airflow.until(
            lambda newest=newest, moment=moment: is_quiet(job) or job.states(newest).get(moment) in STARTED,
            f"{moment} of {newest} begins",
        )
        downstream = draw.random() < 0.5
        print(f"clearing {task_id} of {run_id} (downstream: {downstream}) when {newest} is at {moment}")
        job.airflow.rest.clear(job.dag_id, run_id, task_id, downstream=downstream)
    jobs.two.until(lambda: is_quiet(job), "no task is left", FAULT_S)
    for run_id in runs:
        if job.airflow.rest.run(job.dag_id, run_id)["state"] == "failed":
            _says_what_to_do(job, run_id)
    jobs.assert_peace(job)


def _end_well(jobs: HeldJobs, held: list[HeldEpoch]) -> None:
    """The held writes arrive late. Nothing is done except restarting ended processes, and all is well."""
    for epoch in held:
        with suppress(TimeoutError):
            epoch.write.release()
    jobs.assert_peace(*(epoch.job for epoch in held))
    for epoch in held:
        assert epoch.job.airflow.rest.run(epoch.job.dag_id, epoch.run_id)["state"] == "success"


def _busier(two: TwoSchedulers, held: list[HeldEpoch]) -> tuple[str, list[HeldEpoch]]:
    """The scheduler that runs most of the tasks that are held, and those."""
    by_name = {name: {process.pid for process in two.tree(name)} for name in SCHEDULERS}
    running = {name: [epoch for epoch in held if epoch.task.pid in pids] for name, pids in by_name.items()}
    victim = max(running, key=lambda name: len(running[name]))
    assert running[victim]
    return victim, running[victim]


def _says_what_to_do(job: E2eJob, run_id: str) -> None:
    failed = [task_id for task_id, state in job.states(run_id).items() if state == "failed"]
    texts = [job.log(run_id, task_id) for task_id in failed]
    assert any(NEW_RUN in text for text in texts), (failed, texts)
