"""The epoch DAG has the shape that DESIGN 8.3 promises, and one broken spec hurts only its own job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAlias, AssetAny

from milepost.airflow.compat import AirflowFailException, AssetOrTimeSchedule, CronTriggerTimetable
from milepost.airflow.dags import load_jobs
from milepost.airflow.dags.dag_factory import BROKEN_TAG, epoch_dag, job_dags
from milepost.airflow.dags.epoch_tasks import execution_timeout
from milepost.airflow.operators import tasks
from milepost.airflow.provider.asset_uris import sink_assets
from milepost.airflow.spec_cache import parsed_spec
from milepost.errors import NotFound
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost_testkit import wording
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.specs.spec_edits import edit_spec

SPEC = """
name: {name}
storage: state
sources:
  flights:
    format: csv
    path: landing/*.csv
    schema: {{carrier: string, delay: int32}}
operators:
  - {{uid: carriers, kind: aggregate, inputs: [flights], key: [carrier], aggregates: {{flights: count(*)}}}}
sinks:
  - {{name: carriers, input: carriers, format: parquet, path: lake/carriers, mode: upsert}}
  - {{name: remote, input: carriers, format: parquet, path: "${{env:SOMEWHERE}}/remote", mode: upsert}}
checkpointing: {{timeout: 20m}}
"""
SCHEDULE = 'schedule: {cron: "*/10 * * * *", timezone: Europe/Vienna}\n'
AIRFLOW = "airflow: {owner: ops, tags: [milepost, air], retries: 5, pool: heavy}\n"

MODULES_AFTER_PARSING = """
import json, runpy, sys, time
import airflow.sdk
after_airflow = time.process_time()
dags = [name for name, value in runpy.run_path(sys.argv[1]).items() if isinstance(value, airflow.sdk.DAG)]
print(json.dumps({"modules": sorted(sys.modules), "seconds": time.process_time() - after_airflow, "dags": dags}))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where parsed specs are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "milepost" / "specs"


def write(folder: Path, name: str, *more: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(SPEC.format(name=name) + "".join(more))
    return path


def of_job(name: str) -> list[str]:
    return [f"{name}__{kind}" for kind in ("epoch", "operate")]


def dag_of(folder: Path, *more: str) -> DAG:
    return epoch_dag(load_job(write(folder, "flights", *more)))


def test_one_run_is_one_epoch_in_seven_tasks(tmp_path: Path) -> None:
    dag = dag_of(tmp_path)
    assert dag.dag_id == "flights__epoch"
    assert [task.task_id for task in dag.topological_sort() if task.task_id != "abort_checkpoint"] == [
        "trigger_checkpoint", "run_epoch", "validate", "complete_checkpoint", "notify_complete", "subsume",
    ]  # fmt: skip
    assert set(dag.task_ids) - {"abort_checkpoint"} == {*tasks.BEFORE_THE_COMMIT_POINT, "notify_complete", "subsume"}
    assert (dag.max_active_runs, dag.catchup) == (1, False)


def test_abort_follows_only_the_tasks_before_the_commit_point(tmp_path: Path) -> None:
    """I9, DESIGN 4.5: what is completed is never aborted; a sink that is down delays, it does not abort."""
    abort = dag_of(tmp_path).get_task("abort_checkpoint")
    assert abort.upstream_task_ids == set(tasks.BEFORE_THE_COMMIT_POINT)
    assert abort.trigger_rule == "one_failed"
    assert not abort.downstream_task_ids


def test_subsume_runs_when_nothing_before_it_failed(tmp_path: Path) -> None:
    """With no sink to publish `notify_complete` is skipped; `none_failed` still runs what follows (rule 5)."""
    subsume = dag_of(tmp_path).get_task("subsume")
    assert subsume.upstream_task_ids == {"notify_complete"}
    assert subsume.trigger_rule == "none_failed"


def test_one_sink_is_published_by_one_task_and_several_by_one_each(tmp_path: Path) -> None:
    """Mapped over one entry, it would cost each epoch a further hop of the scheduler; the id is the same."""
    job = load_job(write(tmp_path, "flights"))
    none, one, two = [job.spec.model_copy(update={"sinks": job.spec.sinks[:count]}) for count in (0, 1, 2)]
    dags = [epoch_dag(replace(job, spec=spec)) for spec in (none, one, two)]
    notify = [dag.get_task("notify_complete") for dag in dags]
    assert [task.is_mapped for task in notify] == [False, False, True]
    assert notify[1].outlets == [AssetAlias("milepost.flights")] and notify[1].retries == notify[2].retries == 2
    followed = [[(task.task_id, task.downstream_task_ids) for task in dag.topological_sort()] for dag in dags]
    assert followed[0] == followed[1] == followed[2]


def test_the_epoch_must_end_before_its_lease(tmp_path: Path) -> None:
    """I10."""
    assert dag_of(tmp_path).get_task("run_epoch").execution_timeout == timedelta(minutes=18)
    assert execution_timeout(timedelta(seconds=2)) < timedelta(seconds=2)


def test_schedule_and_airflow_settings_come_from_the_spec(tmp_path: Path) -> None:
    assert dag_of(tmp_path).schedule is None
    dag = dag_of(tmp_path, SCHEDULE, AIRFLOW)
    assert dag.schedule.expression == "*/10 * * * *"
    assert dag.schedule.timezone == "Europe/Vienna"
    run = dag.get_task("run_epoch")
    assert (run.owner, run.retries, run.pool, dag.tags) == ("ops", 5, "heavy", {"milepost", "air", "flights"})


def test_the_form_has_two_switches_that_are_off(tmp_path: Path) -> None:
    dag = dag_of(tmp_path)
    assert {name: dag.params[name] for name in dag.params} == {"until_caught_up": False, "take_over": False}
    for name in dag.params:
        with pytest.raises(Exception, match="not of type 'boolean'"):
            dag.params.get_param(name).resolve(value="yes")


def test_sinks_are_assets_and_show_no_value_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 9: what is shown is the unresolved spec."""
    monkeypatch.setenv("SOMEWHERE", "s3://secret-bucket")
    job = load_job(write(tmp_path, "flights"))
    assert sink_assets(job) == {"carriers": f"file://{tmp_path}/lake/carriers", "remote": "milepost://flights/remote"}
    outlets = epoch_dag(job).get_task("notify_complete").partial_kwargs["outlets"]
    assert outlets == [AssetAlias("milepost.flights")]


def test_a_dag_file_loads_the_jobs_of_a_sibling_folder(tmp_path: Path) -> None:
    """Wherever Airflow was started; a folder that is not there is an error of the DAG file, not silence."""
    (tmp_path / "jobs").mkdir()
    write(tmp_path / "jobs", "flights")
    namespace: dict[str, Any] = {"__file__": str(tmp_path / "our_jobs.py")}
    load_jobs(namespace, "jobs")
    assert [name for name, value in namespace.items() if isinstance(value, DAG)] == of_job("flights")
    with wording.raises(NotFound) as refused:
        load_jobs(namespace, tmp_path / "job")
    assert str(tmp_path) in str(refused.value)


def test_a_broken_spec_takes_no_other_job_off_the_schedule(tmp_path: Path) -> None:
    write(tmp_path, "flights", SCHEDULE)
    (tmp_path / "taxis.yaml").write_text("name: taxis\nstorages: x\n" + SCHEDULE)
    (tmp_path / "No Yaml.yaml").write_text("{ this is : [ not\n")
    (tmp_path / "notes.txt").write_text("not a spec")
    dags = job_dags(tmp_path)
    assert set(dags) - set(of_job("flights")) == {"taxis__epoch", "taxis__broken", "no-yaml__broken"}
    assert BROKEN_TAG not in dags["flights__epoch"].tags
    broken = dags["taxis__epoch"]
    assert BROKEN_TAG in broken.tags
    assert broken.schedule.expression == "*/10 * * * *", "its failing runs are what tells its owner"
    with pytest.raises(AirflowFailException, match="storages"):
        broken.get_task("trigger_checkpoint").execute({})


def test_a_spec_that_lint_refuses_shows_as_broken_with_file_line_and_problem(tmp_path: Path) -> None:
    """Not only what the schema refuses: it would fail every epoch."""
    path = write(tmp_path, "flights")
    edit_spec(path, {"key: [carrier]": "key: [carier]"})
    write(tmp_path, "taxis")
    dags = job_dags(tmp_path)
    assert set(dags) - set(of_job("taxis")) == {"flights__epoch", "flights__broken"}
    with wording.raises(AirflowFailException):
        dags["flights__epoch"].get_task("trigger_checkpoint").execute({})


@pytest.mark.parametrize("refused", [True, False])
def test_a_text_is_linted_once_and_again_after_the_cache_is_lost(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    asked: list[str] = []
    graph = LoadedJob.graph

    def counted(job: LoadedJob) -> object:
        asked.append(job.spec.name)
        return graph(job)

    monkeypatch.setattr(LoadedJob, "graph", counted)
    path = write(tmp_path, "flights")
    if refused:
        edit_spec(path, {"key: [carrier]": "key: [carier]"})
    first = set(job_dags(tmp_path))
    assert (set(job_dags(tmp_path)), len(asked)) == (first, 1)
    (kept,) = cache.iterdir()
    kept.write_text("{ not json")
    assert (set(job_dags(tmp_path)), len(asked)) == (first, 2)
    path.write_text(path.read_text() + "# edited\n")
    assert (set(job_dags(tmp_path)), len(asked)) == (first, 3)
    assert len(list(cache.iterdir())) == 1, "one file per spec"


def test_a_job_is_scheduled_by_updates_of_assets(tmp_path: Path) -> None:
    """Of one, or of any of several: such as the table that another job publishes."""
    write(tmp_path, "one", "schedule: {asset: s3://lake/carriers}\n")
    write(tmp_path, "several", "schedule: {any_of: [s3://lake/carriers, file:///lake/planes]}\n")
    dags = job_dags(tmp_path)
    assert dags["one__epoch"].schedule == AssetAny(Asset("s3://lake/carriers"))
    assert dags["several__epoch"].schedule == AssetAny(Asset("s3://lake/carriers"), Asset("file:///lake/planes"))
    assert dags["one__operate"].schedule is None


def test_a_job_is_scheduled_by_the_messages_of_a_queue(tmp_path: Path) -> None:
    """What Airflow keeps of it has the id of a Connection, and no credentials; its other DAG does not watch it."""
    queue = "https://sqs.eu-west-1.amazonaws.com/123456789012/landing"
    write(tmp_path, "woken", f"schedule: {{sqs: '{queue}'}}\nstore: {{conn_id: lake}}\n")
    dags = job_dags(tmp_path)
    (asset,) = dags["woken__epoch"].schedule.objects
    (watcher,) = asset.watchers
    kept = ("milepost.airflow.provider.new_objects.NewObjectsTrigger", {"queue_url": queue, "conn_id": "lake"})
    assert (asset.uri, watcher.trigger.serialize()) == (queue, kept)
    assert dags["woken__operate"].schedule is None
    assert dags["woken__epoch"].params["until_caught_up"] is True, "no message starts a run for what an epoch leaves"


def test_a_schedule_may_combine_times_and_events(tmp_path: Path) -> None:
    """Airflow drops the events of a paused DAG, and a run that found another session's lease is over."""
    write(tmp_path, "both", "schedule: {sqs: 'https://queue/landing', cron: '@hourly', timezone: Europe/Berlin}\n")
    schedule = job_dags(tmp_path)["both__epoch"].schedule
    assert isinstance(schedule, AssetOrTimeSchedule)
    assert schedule.timetable == CronTriggerTimetable("@hourly", timezone="Europe/Berlin")
    assert [asset.uri for asset in schedule.asset_condition.objects] == ["https://queue/landing"]


def test_a_broken_job_leaves_the_messages_of_its_queue_where_they_are(tmp_path: Path) -> None:
    write(tmp_path, "woken", "schedule: {sqs: 'https://queue/landing'}\nno_such_key: 1\n")
    assert job_dags(tmp_path)["woken__epoch"].schedule is None


def test_a_cached_spec_equals_the_file_including_omitted_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "flights", SCHEDULE, AIRFLOW)
    loaded = load_job(path)
    for job in (parsed_spec(path), parsed_spec(path)):
        assert (job, job.spec.airflow.model_fields_set) == (loaded, loaded.spec.airflow.model_fields_set)


def test_a_task_makes_its_own_dag_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow says which one it needs; with a thousand specs in the folder that is most of what a task waits for."""
    write(tmp_path, "flights")
    write(tmp_path, "taxis")
    (tmp_path / "taxis_copy.yaml").write_text(SPEC.format(name="taxis"))
    for dag_id in ("flights__operate", "taxis__epoch", "taxis__epoch__duplicate"):
        monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", dag_id)
        assert list(job_dags(tmp_path)) == [dag_id]


def test_without_a_cache_folder_a_spec_is_linted_each_time(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    write(tmp_path, "flights")
    assert set(job_dags(tmp_path)) == set(job_dags(tmp_path)) == set(of_job("flights"))


def test_two_specs_of_one_name_do_not_silently_replace_each_other(tmp_path: Path) -> None:
    write(tmp_path, "flights")
    (tmp_path / "flights_copy.yaml").write_text(SPEC.format(name="flights"))
    dags = job_dags(tmp_path)
    assert BROKEN_TAG in dags["flights__epoch__duplicate"].tags
    assert BROKEN_TAG not in dags["flights__epoch"].tags


@pytest.mark.deep
def test_the_dag_file_parses_without_anything_heavy(tmp_path: Path) -> None:
    """DESIGN 2: DAG files parse in under a second; no store, no engine and no user code is loaded."""
    write(tmp_path, "flights")
    write(tmp_path, "taxis")
    environ = os.environ | {
        "MILEPOST_CONFIG": str(tmp_path),
        "AIRFLOW_HOME": str(tmp_path / "home"),
    }
    job_dags(tmp_path)  # what `lint` says of the two is known from here on
    parsed = subprocess.run(
        [sys.executable, "-c", MODULES_AFTER_PARSING, str(REPOSITORY / "dags" / "jobs.py")],
        env=environ, capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    seen = json.loads(parsed.stdout.splitlines()[-1])
    assert seen["dags"] == of_job("flights") + of_job("taxis")
    heavy = {"pyspark", "pyarrow", "great_expectations", "boto3", "botocore", "pandas", "numpy", "duckdb", "sqlglot"}
    assert heavy & set(seen["modules"]) == set()
    assert "milepost.jobmaster.jobmaster" not in seen["modules"]
    assert seen["seconds"] < 1.0, "CPU seconds, beyond those of importing airflow.sdk"
