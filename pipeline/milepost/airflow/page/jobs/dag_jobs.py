"""The jobs of DAGs, read from what Airflow keeps of them, where a task documents its spec."""

from __future__ import annotations

import pathlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from milepost.airflow.connections import airflow_connection
from milepost.airflow.operators.job_specs import BROKEN_TAG, epoch_dag_id
from milepost.errors import CheckpointError, InvalidRequest, NotFound
from milepost.jobspec.load.load import LoadedJob, from_text

if TYPE_CHECKING:
    from airflow.serialization.definitions.dag import SerializedDAG

_OURS = "milepost."


@dataclass(frozen=True, slots=True)
class DocumentedSpec:
    """A spec as a task documents it."""

    text: str
    path: str

    def load(self) -> LoadedJob:
        """Raises InvalidRequest: it is not valid for the version of Milepost that this server has."""
        return replace(from_text(self.text, pathlib.Path(self.path)), find_connection=airflow_connection)


@dataclass(frozen=True, slots=True)
class DagSpecs:
    """The specs that a DAG documents; broken: the problem of the invalid spec that it stands in for, or ""."""

    specs: tuple[DocumentedSpec, ...] = ()
    broken: str = ""


@dataclass(frozen=True, slots=True)
class DagJob:
    """A job, and the DAG through which its pages are reached."""

    dag_id: str
    loaded: LoadedJob


def jobs_of_dag(dag_id: str) -> dict[str, LoadedJob]:
    """Return the jobs that have tasks in a DAG as Airflow keeps it, in order of their names.

    Raises:
        NotFound: Airflow knows no such DAG, or no valid spec has a task in it.
        InvalidRequest: it stands in place of a job whose spec is not valid, or a spec of it is not valid for the
            version of Milepost that this server has.
    """
    dag = SerializedDagModel.get_dag(dag_id)
    documented = DagSpecs() if dag is None else specs_of(dag)
    if documented.broken:
        raise InvalidRequest(documented.broken, hint="Correct the spec: Airflow reads it again by itself.")
    loaded = [spec.load() for spec in documented.specs]
    if not loaded:
        raise NotFound(
            f"DAG {dag_id} is not a DAG of a job: no task of it documents a job's spec.",
            hint="If it should be one, look at the DAG's own page for what is wrong with its spec.",
        )
    return {job.spec.name: job for job in sorted(loaded, key=lambda job: job.spec.name)}


def jobs_of_deployment(readable: Collection[str]) -> tuple[list[DagJob], dict[str, str]]:
    """Return each job of Airflow's DAGs once, by name, and of DAGs with a spec that is refused why.

    Args:
        readable: ids of the DAGs to look at.
    """
    found: dict[tuple[str, str], DagJob] = {}
    refused: dict[str, str] = {}
    for dag_id, told in sorted(specs_of_dags(readable).items()):
        if told.broken and told.broken not in refused.values():  # a broken spec has up to two DAGs
            refused[dag_id] = told.broken
        for spec in told.specs:
            try:
                job = spec.load()
            except CheckpointError as error:
                refused[dag_id] = error.message
                continue
            known = (job.spec.name, job.storage_url)
            if known not in found or dag_id == epoch_dag_id(job.spec.name):
                found[known] = DagJob(dag_id, job)
    return sorted(found.values(), key=lambda one: (one.loaded.spec.name, one.dag_id)), refused


def specs_of_dags(readable: Collection[str]) -> dict[str, DagSpecs]:
    """Return what Airflow's current DAGs say of jobs, by DAG id.

    A DAG is read again when it has changed: until then one query of ids and digests is all that is asked.
    """
    query = (
        select(SerializedDagModel.dag_id, SerializedDagModel.dag_hash)
        .join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
        .join(DagModel, DagModel.dag_id == SerializedDagModel.dag_id)
        .where(~DagModel.is_stale)
        .order_by(DagVersion.version_number)  # of each DAG the newest comes last
    )
    with create_session() as session:
        newest = {dag_id: digest for dag_id, digest in session.execute(query) if dag_id in readable}
        changed = [dag_id for dag_id, digest in newest.items() if dag_id not in _KEPT or _KEPT[dag_id][0] != digest]
        for row in SerializedDagModel.get_latest_serialized_dags(dag_ids=changed, session=session) if changed else ():
            _KEPT[row.dag_id] = (newest[row.dag_id], specs_of(row.dag) if _is_ours(row.data) else DagSpecs())
    return {dag_id: _KEPT[dag_id][1] for dag_id in newest if dag_id in _KEPT}


_KEPT: dict[str, tuple[str, DagSpecs]] = {}
"""DAG id -> the digest of the DAG that was read last, and what it says of jobs: nothing, if it is not ours."""


def _is_ours(data: dict[str, Any] | None) -> bool:
    """Say whether a DAG has a task of ours, without making the DAG of it."""
    tasks = (data or {}).get("dag", {}).get("tasks", ())
    return any(str(task.get("__var", {}).get("_task_module", "")).startswith(_OURS) for task in tasks)


def specs_of(dag: SerializedDAG) -> DagSpecs:
    """Return what a DAG says of jobs."""
    ours = [task for task in dag.tasks if not task.is_mapped and task._task_module.startswith(_OURS)]
    specs = tuple(DocumentedSpec(str(task.doc_yaml), str(task.doc)) for task in ours if task.doc_yaml)
    broken = "\n".join(str(task.doc) for task in ours if task.doc) if BROKEN_TAG in dag.tags else ""
    return DagSpecs(specs, broken)
