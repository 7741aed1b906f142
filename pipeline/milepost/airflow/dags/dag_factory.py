"""The DAG factory makes a job's two DAGs from its spec: the epochs, and what a person asks for.

It runs whenever Airflow parses DAG files: nothing heavy is imported, no store is asked, no user code is loaded. What
`lint` says of a spec takes parsers of YAML and SQL, so it is asked once per text and version (`parsed_specs.py`).
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import (
    DAG,
    Asset,
    AssetAny,
    AssetOrTimeSchedule,
    AssetWatcher,
    BaseOperator,
    CronTriggerTimetable,
    get_parsing_context,
)
from airflow.sdk.exceptions import AirflowFailException

from milepost.airflow.dags.dag_settings import START, dag_tags, on_failure, task_defaults
from milepost.airflow.dags.epoch_tasks import epoch_tasks
from milepost.airflow.dags.operate_dag import operate_dag
from milepost.airflow.operators import forms, tasks
from milepost.airflow.operators.dag_ids import (
    BROKEN_TAG,
    broken_dag_id,
    duplicate_dag_id,
    epoch_dag_id,
    operate_dag_id,
)
from milepost.airflow.spec_cache import cached_job_name, parsed_spec
from milepost.airflow.task_output.runbook_links import runbook_link
from milepost.airflow.task_output.task_log import keep_task_log_short
from milepost.errors import CheckpointError, InvalidRequest, NotFound
from milepost.jobspec.job.spec import JobSpec, ScheduleSpec
from milepost.jobspec.load.load import LoadedJob, shown_path, spec_files

log = logging.getLogger(__name__)

_HOURLY = ScheduleSpec(cron="@hourly")
"""How often the run of a broken spec fails: with `catchup` off Airflow starts the first one at once."""


def load_jobs(namespace: dict[str, Any], folder: str | Path) -> None:
    """Put the DAGs of every spec directly in a folder into a DAG file's `globals()`.

    Args:
        folder: of the specs; a relative path begins at the folder of the DAG file.
    Raises:
        NotFound: there is no such folder.
    """
    specs = Path(namespace["__file__"]).parent / folder
    if not specs.is_dir():
        raise NotFound(
            f"there is no folder {specs}: no DAG was made.", hint="Give `load_jobs` the folder of the specs."
        )
    namespace.update(job_dags(specs))


def job_dags(config: Path) -> dict[str, DAG]:
    """Return the DAGs of every spec directly in a folder, by DAG id; for a task its own DAG alone.

    Whatever one spec raises, the other jobs keep their DAGs: Airflow drops all DAGs of a file with an import error.
    The job of such a spec gets the DAGs of `_broken_dags` in place of its own, until the spec is corrected.
    """
    only = get_parsing_context().dag_id
    dags: dict[str, DAG] = {}
    names: set[str] = set()
    broken: list[_BrokenSpec] = []
    for path in spec_files(config):
        if only is not None and _is_of_others(path, only):
            continue
        made = _spec_dags(path, names, only)
        if isinstance(made, _BrokenSpec):
            broken.append(made)
        else:
            names.add(made[0])
            dags |= made[1]
    for spec in broken:  # after the others: the name in it may be that of a job whose spec is valid
        dags |= {dag_id: dag for dag_id, dag in _broken_dags(spec, names).items() if only in (None, dag_id)}
    return dags


def _is_of_others(path: Path, dag_id: str) -> bool:
    """Whether a spec file is known to make other DAGs than this: every task of every job looks at all of them."""
    name = cached_job_name(path)
    if name is None:
        return False
    return dag_id not in {*(own(name) for own in _DAGS), duplicate_dag_id(name), broken_dag_id(path)}


@dataclass(frozen=True, slots=True)
class _BrokenSpec:
    """A spec of which no job is made.

    Attributes:
        dag_id: of the DAG that shows the problem. problem: the whole message.
        stack: of an unexpected exception, else "".
    """

    path: Path
    dag_id: str
    problem: str
    stack: str = ""


def _spec_dags(path: Path, taken: Collection[str], only: str | None) -> tuple[str, dict[str, DAG]] | _BrokenSpec:
    """Return the job's name of a spec file, and its DAGs by id; for a task its own DAG alone.

    Args:
        taken: names of the jobs of other files. only: id of the DAG that a task needs; None: all.
    """
    try:
        job = parsed_spec(path)
        name = job.spec.name
        if name in taken:
            problem = f"{path.name}: another spec in {path.parent} has the job name {name} too; names are unique."
            return _BrokenSpec(path, duplicate_dag_id(name), problem)
        on_failure(job.spec)  # what is wrong with a notifier shows as what is wrong with a spec does, and not later
        made = {dag_id(name): make(job) for dag_id, make in _DAGS.items() if only in (None, dag_id(name))}
        for dag in made.values():
            dag.validate()  # where Airflow does it, an error is one of the whole file
    except CheckpointError as error:
        return _BrokenSpec(path, broken_dag_id(path), error.full_message("\n"))
    except Exception as error:  # whatever is wrong with one spec, the other jobs run
        log.exception("no DAGs can be made of the spec %s", shown_path(path))
        problem = f"{shown_path(path)}: unexpected {type(error).__name__}: {error}\nIts stack is in the task's log."
        return _BrokenSpec(path, broken_dag_id(path), problem, traceback.format_exc())
    return name, made


def epoch_dag(job: LoadedJob) -> DAG:
    """Return the DAG `<job>__epoch`: scheduled as the spec says, or triggered with its form."""
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
        auto_register=False,  # `load_jobs` registers DAGs that are complete
    )
    with dag:
        epoch_tasks(job)
    by_messages = spec.schedule is not None and spec.schedule.sqs is not None
    # Last: Airflow copies a DAG's form into each task that is made under it.
    dag.params = forms.epoch_form(until_caught_up=by_messages)
    return dag


class BrokenSpecOperator(BaseOperator):
    """Stands for an epoch that cannot even be planned: says what is wrong with the spec, and fails.

    Args:
        problem, stack: as of `_BrokenSpec`.
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
    """Return what stands in place of the DAGs of a broken spec's job.

    `<file>__broken` is red at once: Airflow starts it unpaused, and its run fails now and in each hour until the spec
    is corrected. A DAG of its own, because one that Airflow has unpaused stays so: the job must not start with it.
    `<job>__epoch`, where the name can be read, fails as often as the job would have run.

    Args:
        taken: names of jobs that have their DAGs.
    """
    log.warning("%s", spec.problem)
    dags = {spec.dag_id: _broken_dag(spec, spec.dag_id, _HOURLY, unpaused=True)}
    name, schedule = _rescued(spec.path)
    if name is not None and name not in taken:
        dags[epoch_dag_id(name)] = _broken_dag(spec, epoch_dag_id(name), schedule, unpaused=False)
    return dags


def _broken_dag(spec: _BrokenSpec, dag_id: str, schedule: ScheduleSpec | None, *, unpaused: bool) -> DAG:
    """Return a DAG whose run fails with the problem of a spec.

    Args:
        schedule: when it runs. unpaused: it does so without a person who switches it on.
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


def _rescued(path: Path) -> tuple[str | None, ScheduleSpec | None]:
    """Return the job's name and its schedule, as far as they can still be read of a broken spec.

    The messages of a queue are left there: a DAG that cannot run would only use them up.
    """
    from milepost.jobspec.load.document import MAX_CHARACTERS, Unreadable, read_document
    from milepost.protocol.records.ids import JOB_NAME_PATTERN

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


_DAGS: dict[Callable[[str], str], Callable[[LoadedJob], DAG]] = {
    epoch_dag_id: epoch_dag,
    operate_dag_id: operate_dag,
}
"""The DAGs of a job: how each gets its id from the job's name, and what makes it."""


def airflow_schedule(
    schedule: ScheduleSpec | None, conn_id: str | None = None
) -> CronTriggerTimetable | AssetOrTimeSchedule | AssetAny | None:
    """Return what a DAG takes as its schedule: times, assets of which one must have been updated, or both.

    Args:
        conn_id: of the Connection whose credentials may read a queue.
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
    """Return the asset of a queue: one that is updated when the triggerer finds messages in it."""
    from milepost.airflow.provider.new_objects import NewObjectsTrigger

    trigger = NewObjectsTrigger(queue_url=queue_url, conn_id=conn_id)
    return Asset(queue_url, watchers=[AssetWatcher(name=f"messages of {queue_url}", trigger=trigger)])


def _describe(spec: JobSpec) -> str:
    operators = ", ".join(f"`{operator.uid}` ({operator.kind})" for operator in spec.operators) or "none"
    sinks = ", ".join(f"`{sink.name}` ({sink.mode})" for sink in spec.sinks) or "none"
    operate = operate_dag_id(spec.name)
    return (
        f"### {spec.name}\n\n"
        "One run of this DAG is one epoch. Before `complete_checkpoint` nothing is visible; after it everything is, "
        "eventually. A failed run is aborted and leaves no trace in the tables; the next one takes up its input.\n\n"
        "To go back to a checkpoint, to process input again with today's code, and for all else that a person may ask "
        f"of the job, trigger [{operate}](/dags/{operate}). Airflow's own backfill of this DAG is harmless: a date "
        "that a later epoch covers does nothing.\n\n"
        f"* sources: {', '.join(f'`{name}`' for name in spec.sources)}\n"
        f"* operators: {operators}\n"
        f"* sinks: {sinks}\n"
    )
