"""DAG settings hold what all DAGs of a job share: owner, pool, retries, asset URIs, the form's frame."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param

from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.load import LoadedJob

if TYPE_CHECKING:
    from milepost.airflow.runs.notifiers import OnFailure

START = datetime(2020, 1, 1, tzinfo=UTC)
"""`start_date` of every DAG: any past moment; with `catchup=False` only later cron times matter."""

MAX_ACTIVE_RUNS = 16
"""Of the DAG of forms. What two acts at once may do to each other is decided by the job's manifest, not by a queue."""

RETRY_DELAY = timedelta(seconds=10)
MAX_RETRY_DELAY = timedelta(minutes=5)

_ASSET_URI = re.compile(r"(?:s3|file)://[^${}]+")


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
    """Return the tags of a job's DAGs: by the job's name Airflow's list shows them beside each other."""
    return {*spec.airflow.tags, spec.name}


def on_failure(spec: JobSpec) -> list[OnFailure] | None:
    """Return whom a job's DAGs tell of a failed run; None: nobody. Raises InvalidRequest: of no such notifier."""
    if not spec.airflow.on_failure:
        return None
    from milepost.airflow.runs.notifiers import OnFailure

    return [OnFailure(one) for one in spec.airflow.on_failure]


def sink_assets(job: LoadedJob) -> dict[str, str]:
    """Return the asset URI of every sink: its location, or a name of ours where that is no plain URI."""
    assets = {}
    for sink in job.spec.sinks:
        # Unresolved on purpose: what is shown never holds a value from the environment.
        location = "" if sink.path is None else sink.path if "${" in sink.path else job.url(sink.path)
        plain = _ASSET_URI.fullmatch(location) is not None
        assets[sink.name] = location if plain else f"milepost://{job.spec.name}/{sink.name}"
    return assets


@contextmanager
def form_dag(job: LoadedJob, dag_id: str, description: str, doc_md: str, form: dict[str, Param]) -> Iterator[DAG]:
    """Make a DAG that only a person triggers, with a form; its tasks are made in the block.

    Several runs may be active: one that waits a day for its approval, or replays for hours, must not hold up an abort.
    """
    with DAG(
        dag_id=dag_id,
        description=description,
        doc_md=doc_md,
        schedule=None,
        start_date=START,
        catchup=False,
        max_active_runs=MAX_ACTIVE_RUNS,
        is_paused_upon_creation=False,  # nothing starts it but a person, who must not have to wait for a switch
        tags=dag_tags(job.spec),
        on_failure_callback=on_failure(job.spec),
        default_args=task_defaults(job.spec),
        render_template_as_native_obj=False,
        auto_register=False,  # `load_jobs` registers DAGs that are complete
    ) as dag:
        yield dag
    dag.params = form  # last: Airflow copies a DAG's form into each task that is made under it
