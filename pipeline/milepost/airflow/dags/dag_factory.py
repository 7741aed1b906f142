"""Create a job's DAGs from its spec: `<job>__epoch`, `<job>__operate`, and one per schedule of landed sources.

This runs whenever Airflow parses DAG files, so it imports nothing heavy, reads no store and loads no user code. Linting
a spec needs parsers for YAML and SQL, so its result is cached per spec text and version (`spec_cache.py`).
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import (
    DAG,
    Asset,
    AssetAny,
    AssetWatcher,
    BaseOperator,
    get_parsing_context,
)

from milepost.airflow.compat import (
    AirflowFailException,
    AssetOrTimeSchedule,
    CronTriggerTimetable,
    require_shared_streams,
)
from milepost.airflow.dags.dag_settings import START, dag_tags, on_failure, task_defaults
from milepost.airflow.dags.epoch_tasks import epoch_tasks
from milepost.airflow.dags.land_dag import land_dag
from milepost.airflow.dags.operate_dag import operate_dag
from milepost.airflow.operators import forms, tasks
from milepost.airflow.operators.dag_ids import (
    BROKEN_TAG,
    broken_dag_id,
    duplicate_dag_id,
    epoch_dag_id,
    land_dag_id,
    land_dag_prefix,
    operate_dag_id,
)
from milepost.airflow.spec_cache import cached_job_name, parsed_spec
from milepost.airflow.task_output.runbook_links import runbook_link
from milepost.airflow.task_output.task_log import keep_task_log_short
from milepost.errors import CheckpointError, InvalidRequest, NotFound
from milepost.jobspec.job import JobSpec, ScheduleSpec
from milepost.jobspec.load import LoadedJob, shown_path, spec_files

log = logging.getLogger(__name__)

_HOURLY = ScheduleSpec(cron="@hourly")
"""Schedule of the failing runs of a broken spec. With `catchup` off, Airflow starts the first run immediately."""


def load_jobs(namespace: dict[str, Any], folder: str | Path) -> None:
    """Put the DAGs of every spec directly in a folder into a DAG file's `globals()`.

    Args:
        folder: folder of the specs; a relative path is relative to the folder of the DAG file.
    Raises:
        NotFound: the folder does not exist.
    """
    specs = Path(namespace["__file__"]).parent / folder
    if not specs.is_dir():
        raise NotFound(
            f"there is no folder {specs}: no DAG was made.", hint="Give `load_jobs` the folder of the specs."
        )
    namespace.update(job_dags(specs))


def job_dags(config: Path) -> dict[str, DAG]:
    """Return the DAGs of every spec directly in a folder, by DAG id. When a task runs, return only its own DAG.

    An error in one spec must not affect other jobs, because Airflow drops all DAGs of a file with an import error.
    Until the spec is corrected, its job has the DAGs of `_broken_dags` instead.
    """
    only = get_parsing_context().dag_id
    dags: dict[str, DAG] = {}
    names: set[str] = set()
    broken: list[_BrokenSpec] = []
    for path in spec_files(config):
        if only is not None and _has_other_dags(path, only):
            continue
        result = _spec_dags(path, names, only)
        if isinstance(result, _BrokenSpec):
            broken.append(result)
        else:
            names.add(result[0])
            dags |= result[1]
    for spec in broken:  # after the valid specs, because its name may be that of a valid job
        dags |= {dag_id: dag for dag_id, dag in _broken_dags(spec, names).items() if only in (None, dag_id)}
    return dags


def _has_other_dags(path: Path, dag_id: str) -> bool:
    """Return whether the cache shows that a spec file does not create this DAG. Saves each task from parsing all."""
    name = cached_job_name(path)
    if name is None:
        return False
    ids = {epoch_dag_id(name), operate_dag_id(name), duplicate_dag_id(name), broken_dag_id(path)}
    return dag_id not in ids and not dag_id.startswith(land_dag_prefix(name))


@dataclass(frozen=True, slots=True)
class _BrokenSpec:
    """A spec that has no valid job.

    Attributes:
        dag_id: id of the DAG that shows the problem. problem: the complete message.
        stack: stack trace of an unexpected exception, else "".
    """

    path: Path
    dag_id: str
    problem: str
    stack: str = ""


def _spec_dags(path: Path, taken: Collection[str], only: str | None) -> tuple[str, dict[str, DAG]] | _BrokenSpec:
    """Return the job name of a spec file, and its DAGs by id.

    Args:
        taken: job names of other files. only: id of the only DAG to create; None: all.
    """
    try:
        job = parsed_spec(path)
        name = job.spec.name
        if name in taken:
            problem = f"{path.name}: another spec in {path.parent} has the job name {name} too; names are unique."
            return _BrokenSpec(path, duplicate_dag_id(name), problem)
        on_failure(job.spec)  # raises for an invalid notifier, so that it shows like any other error of the spec
        dags = {dag_id: make(job) for dag_id, make in _makers(job.spec).items() if only in (None, dag_id)}
        for dag in dags.values():
            dag.validate()  # Airflow would report the error as an import error of the whole file
    except CheckpointError as error:
        return _BrokenSpec(path, broken_dag_id(path), error.full_message("\n"))
    except Exception as error:  # an error in one spec must not affect the other jobs
        log.exception("no DAGs can be made of the spec %s", shown_path(path))
        problem = f"{shown_path(path)}: unexpected {type(error).__name__}: {error}\nIts stack is in the task's log."
        return _BrokenSpec(path, broken_dag_id(path), problem, traceback.format_exc())
    return name, dags


def epoch_dag(job: LoadedJob) -> DAG:
    """Return the DAG `<job>__epoch`, which runs on the spec's schedule or when triggered."""
    spec = job.spec
    dag = DAG(
        dag_id=epoch_dag_id(spec.name),
        description=f"One epoch of {spec.name}: a checkpoint of state, positions, in-flight data and tables",
        doc_md=_describe(spec),
        schedule=airflow_schedule(spec.schedule, spec.store.conn_id),
        start_date=START,
        catchup=False,
        max_active_runs=1,
        tags=dag_tags(spec),
        on_failure_callback=on_failure(spec),
        default_args=task_defaults(spec),
        render_template_as_native_obj=False,
        auto_register=False,  # `load_jobs` registers complete DAGs
    )
    with dag:
        epoch_tasks(job)
    by_messages = spec.schedule is not None and spec.schedule.sqs is not None
    # Set last, because Airflow copies a DAG's params into each task that is created in it.
    dag.params = forms.epoch_form(until_caught_up=by_messages)
    return dag


class BrokenSpecOperator(BaseOperator):
    """Fails with the problem of an invalid spec.

    Args:
        problem, stack: as in `_BrokenSpec`.
    """

    ui_color = "#f7e8e8"

    def __init__(self, *, problem: str, stack: str, **kwargs: Any) -> None:
        super().__init__(doc=problem, **kwargs)
        self.problem, self.stack = problem, stack

    def execute(self, context: Any) -> None:
        keep_task_log_short()
        if self.stack:
            self.log.error("%s", self.stack)
        raise AirflowFailException(f"{self.problem}\nRunbook: {runbook_link(InvalidRequest(self.problem))}")


def _broken_dags(spec: _BrokenSpec, taken: Collection[str]) -> dict[str, DAG]:
    """Return the DAGs that stand in for those of a broken spec's job.

    `<file>__broken` fails immediately: Airflow creates it unpaused, and it fails hourly until the spec is corrected.
    It is a separate DAG, because an unpaused DAG stays unpaused, and the corrected job must not start by itself.
    `<job>__epoch` fails on the job's schedule, if name and schedule can be read.

    Args:
        taken: names of jobs that have valid DAGs.
    """
    log.warning("%s", spec.problem)
    dags = {spec.dag_id: _broken_dag(spec, spec.dag_id, _HOURLY, unpaused=True)}
    name, schedule = _salvage(spec.path)
    if name is not None and name not in taken:
        dags[epoch_dag_id(name)] = _broken_dag(spec, epoch_dag_id(name), schedule, unpaused=False)
    return dags


def _broken_dag(spec: _BrokenSpec, dag_id: str, schedule: ScheduleSpec | None, *, unpaused: bool) -> DAG:
    """Return a DAG that fails each run with the problem of a spec.

    Args:
        schedule: when it runs. unpaused: whether Airflow creates it unpaused.
    """
    dag = DAG(
        dag_id=dag_id,
        description=f"{shown_path(spec.path)} is not a valid job spec",
        doc_md=f"This job's spec is not valid:\n\n```\n{spec.problem.replace('`', chr(39))}\n```\n",
        schedule=airflow_schedule(schedule),
        start_date=START,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False if unpaused else None,
        tags={"milepost", BROKEN_TAG},
        auto_register=False,
    )
    with dag:
        BrokenSpecOperator(task_id=tasks.TRIGGER, problem=spec.problem, stack=spec.stack, retries=0)
    return dag


def _salvage(path: Path) -> tuple[str | None, ScheduleSpec | None]:
    """Return job name and schedule of a broken spec, each None if it cannot be read.

    A schedule by a queue is None too: a DAG that always fails would only consume the messages.
    """
    from milepost.jobspec.load import MAX_CHARACTERS, Unreadable, read_document
    from milepost.protocol.records import JOB_NAME_PATTERN

    try:
        with path.open(encoding="utf-8") as stream:
            value = read_document(stream.read(MAX_CHARACTERS + 1)).value
    except (Unreadable, UnicodeDecodeError, OSError):
        return None, None
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or JOB_NAME_PATTERN.fullmatch(name) is None:
        return None, None
    try:
        schedule = ScheduleSpec.model_validate(value.get("schedule"))
    except ValueError:
        return name, None
    return name, schedule if schedule.sqs is None else None


def _makers(spec: JobSpec) -> dict[str, Callable[[LoadedJob], DAG]]:
    """Return the functions that create the DAGs of a job, by DAG id."""
    landing = {land_dag_id(spec.name, every): partial(land_dag, every=every) for every in spec.land_schedules}
    return {epoch_dag_id(spec.name): epoch_dag, operate_dag_id(spec.name): operate_dag, **landing}


def airflow_schedule(
    schedule: ScheduleSpec | None, conn_id: str | None = None
) -> CronTriggerTimetable | AssetOrTimeSchedule | AssetAny | None:
    """Return the `schedule` argument of a DAG: times, updates of any of several assets, or both.

    Args:
        conn_id: id of the Connection with credentials for the queue.
    """
    if schedule is None:
        return None
    assets = [Asset(uri) for uri in filter(None, (schedule.asset, *(schedule.any_of or ())))]
    if schedule.sqs is not None:
        assets = [_watched_queue(schedule.sqs, conn_id)]
    if schedule.cron is None:
        return AssetAny(*assets)
    times = CronTriggerTimetable(schedule.cron, timezone=schedule.timezone)
    return AssetOrTimeSchedule(timetable=times, assets=AssetAny(*assets)) if assets else times


def _watched_queue(queue_url: str, conn_id: str | None) -> Asset:
    """Return the asset of a queue. It is updated when the triggerer receives messages.

    Raises: InvalidRequest: this version of Airflow cannot watch it.
    """
    require_shared_streams(queue_url)
    from milepost.airflow.provider.new_objects import NewObjectsTrigger

    trigger = NewObjectsTrigger(queue_url=queue_url, conn_id=conn_id)
    return Asset(queue_url, watchers=[AssetWatcher(name=f"messages of {queue_url}", trigger=trigger)])


def _describe(spec: JobSpec) -> str:
    operators = ", ".join(f"`{operator.uid}` ({operator.kind})" for operator in spec.operators) or "none"
    sinks = ", ".join(f"`{sink.name}` ({sink.mode})" for sink in spec.sinks) or "none"
    operate = operate_dag_id(spec.name)
    return (
        f"### {spec.name}\n\n"
        "One run of this DAG is one epoch. Before `complete_checkpoint`, none of its rows are visible. After it, all "
        "of them become visible. A failed run is aborted and leaves no trace in the tables; the next run reads its "
        "input again.\n\n"
        "To roll back to a checkpoint, to process input again with the current code, and for all other operations, "
        f"trigger [{operate}](/dags/{operate}). Airflow's own backfill of this DAG is harmless: a run for a date that "
        "a later epoch covers does nothing.\n\n"
        f"* sources: {', '.join(f'`{name}`' for name in spec.sources)}\n"
        f"* operators: {operators}\n"
        f"* sinks: {sinks}\n"
    )
