"""The DAG factory makes a job's two DAGs from its spec: the epochs, and what a person asks for.

It runs whenever Airflow parses DAG files: nothing heavy is imported, no store is asked, no user code is loaded. What
`lint` says of a spec takes parsers of YAML and SQL, so it is asked once per text and version (`parsed_specs.py`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial
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
from milepost.airflow.operators.job_specs import BROKEN_TAG, epoch_dag_id, operate_dag_id
from milepost.airflow.parsed_specs import kept_name, parsed_spec
from milepost.airflow.task_output.runbook_links import runbook_link
from milepost.airflow.task_output.task_log import keep_task_log_short
from milepost.protocol.records.errors import CheckpointError, InvalidRequest, NotFound
from milepost.spec.job.spec import JobSpec, ScheduleSpec
from milepost.spec.load.load import LoadedJob, spec_files

log = logging.getLogger(__name__)

DUPLICATE = "__duplicate"


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

    A spec that is not valid takes nothing else down: its job's epoch DAG has one task, which fails with what is wrong,
    and its other DAGs are gone until it is valid.
    """
    asked = get_parsing_context().dag_id
    dags: dict[str, DAG] = {}
    names: set[str] = set()
    for path in spec_files(config):
        if asked is not None and _is_of_others(path, asked):
            continue
        name, makers = _makers(path)
        if name in names:
            message = f"{path.name}: another spec in {config} has the job name of {name} too; names are unique."
            makers = _broken(path, message, f"{epoch_dag_id(name)}{DUPLICATE}", _rescued(path)[1])
        names.add(name)
        dags |= {dag_id: make() for dag_id, make in makers.items() if asked in (None, dag_id)}
    return dags


def _is_of_others(path: Path, dag_id: str) -> bool:
    """Whether a spec file is known to make other DAGs than this: every task of every job looks at all of them."""
    name = kept_name(path)
    return name is not None and dag_id not in {*(own(name) for own in _DAGS), f"{epoch_dag_id(name)}{DUPLICATE}"}


def _makers(path: Path) -> tuple[str, dict[str, Callable[[], DAG]]]:
    """Return the job's name of a spec file, and what makes each of its DAGs, by DAG id."""
    try:
        job = parsed_spec(path)
        on_failure(job.spec)  # what is wrong with a notifier shows as what is wrong with a spec does, and not later
    except CheckpointError as error:
        name, schedule = _rescued(path)
        return name, _broken(path, error.in_full("\n"), epoch_dag_id(name), schedule)
    name = job.spec.name
    return name, {dag_id(name): partial(make, job) for dag_id, make in _DAGS.items()}


def _broken(path: Path, problem: str, dag_id: str, schedule: ScheduleSpec | None) -> dict[str, Callable[[], DAG]]:
    return {dag_id: partial(broken_dag, path, problem, dag_id, schedule)}


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
        problem: the complete message of the loader.
    """

    ui_color = "#f7e8e8"

    def __init__(self, *, problem: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.problem = problem

    def execute(self, context: Any) -> None:
        keep_task_log_short()
        raise AirflowFailException(f"{self.problem}\nRunbook: {runbook_link(InvalidRequest(self.problem))}")


def broken_dag(path: Path, problem: str, dag_id: str, schedule: ScheduleSpec | None) -> DAG:
    """Return a DAG in place of a job whose spec is not valid.

    Raising instead would take the DAGs of all other jobs of the same file off the schedule.

    Args:
        schedule: as far as it can still be read, so that whoever watches for failed runs hears of it.
    """
    log.warning("%s", problem)
    dag = DAG(
        dag_id=dag_id,
        description=f"{path.name} is not a valid job spec",
        doc_md=f"This job's spec is not valid:\n\n```\n{problem.replace('`', chr(39))}\n```\n",
        schedule=airflow_schedule(schedule),
        start_date=START,
        catchup=False,
        max_active_runs=1,
        tags={"milepost", BROKEN_TAG},
    )
    with dag:
        BrokenSpecOperator(task_id=tasks.TRIGGER, problem=problem, retries=0)
    return dag


def _rescued(path: Path) -> tuple[str, ScheduleSpec | None]:
    """Return what can still be read of a broken spec: the job's name, else the file's; the schedule, else none.

    The messages of a queue are left there: a DAG that cannot run would only use them up.
    """
    from milepost.protocol.records.ids import JOB_NAME_PATTERN
    from milepost.spec.load.document import Unreadable, read_document

    stem = re.sub(r"[^a-z0-9_-]+", "-", path.stem.lower()).strip("-_") or "job"
    try:
        value = read_document(path.read_text(encoding="utf-8")).value
    except (Unreadable, UnicodeDecodeError, OSError):
        return stem, None
    if not isinstance(value, dict):
        return stem, None
    stated = value.get("name")
    name = stated if isinstance(stated, str) and JOB_NAME_PATTERN.fullmatch(stated) else stem
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
