"""Settings that all DAGs of a job share: owner, pool, retries, asset URIs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param

from milepost.jobspec.job import JobSpec
from milepost.jobspec.load import LoadedJob

if TYPE_CHECKING:
    from milepost.airflow.runs.notifiers import OnFailure

START = datetime(2020, 1, 1, tzinfo=UTC)
"""`start_date` of every DAG. Any past time works, because of `catchup=False`."""

MAX_ACTIVE_RUNS = 16
"""Of `<job>__operate`. The job's manifest resolves conflicts between concurrent acts, so they need no queue."""

RETRY_DELAY = timedelta(seconds=10)
MAX_RETRY_DELAY = timedelta(minutes=5)


def task_defaults(spec: JobSpec) -> dict[str, Any]:
    """Return the `default_args` of a job's DAGs."""
    defaults: dict[str, Any] = {
        "owner": spec.airflow.owner,
        "retries": spec.airflow.retries,
        "retry_delay": RETRY_DELAY,
        "retry_exponential_backoff": True,
        "max_retry_delay": MAX_RETRY_DELAY,
    }
    if spec.airflow.pool:
        defaults["pool"] = spec.airflow.pool
    return defaults


def dag_tags(spec: JobSpec) -> set[str]:
    """Return the tags of a job's DAGs. The job's name is one, so that Airflow's list can show them together."""
    return {*spec.airflow.tags, spec.name}


def on_failure(spec: JobSpec) -> list[OnFailure] | None:
    """Return the failure callbacks of a job's DAGs; None: there are none. Raises InvalidRequest: invalid notifier."""
    if not spec.airflow.on_failure:
        return None
    from milepost.airflow.runs.notifiers import OnFailure

    return [OnFailure(notifier) for notifier in spec.airflow.on_failure]


@contextmanager
def form_dag(job: LoadedJob, dag_id: str, description: str, doc_md: str, form: dict[str, Param]) -> Iterator[DAG]:
    """Create a DAG without a schedule and with a form. Its tasks are created in the block.

    Several runs may be active: a run that waits a day for approval, or replays for hours, must not delay an abort.
    """
    with DAG(
        dag_id=dag_id,
        description=description,
        doc_md=doc_md,
        schedule=None,
        start_date=START,
        catchup=False,
        max_active_runs=MAX_ACTIVE_RUNS,
        is_paused_upon_creation=False,  # only a person triggers it, so it can always be active
        tags=dag_tags(job.spec),
        on_failure_callback=on_failure(job.spec),
        default_args=task_defaults(job.spec),
        render_template_as_native_obj=False,
        auto_register=False,  # `load_jobs` registers complete DAGs
    ) as dag:
        yield dag
    dag.params = form  # last, because Airflow copies a DAG's params into each task that is created in it
