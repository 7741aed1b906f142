"""Find the jobs of DAGs in Airflow's database, where one task documents the spec."""

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
from milepost.airflow.operators.dag_ids import BROKEN_TAG, epoch_dag_id
from milepost.airflow.page.frame.access import Rights
from milepost.errors import CheckpointError, InvalidRequest, NotFound
from milepost.jobspec.load import LoadedJob, from_json

if TYPE_CHECKING:
    from airflow.serialization.definitions.dag import SerializedDAG

_OUR_MODULES = "milepost."


@dataclass(frozen=True, slots=True)
class DocumentedSpec:
    """A spec in the documentation of a task. json: "" if an earlier version of Milepost documented it."""

    text: str
    path: str
    json: str

    def load(self) -> LoadedJob:
        """Return the job of the spec. Raises InvalidRequest: it is not valid for this server's version of Milepost."""
        return replace(from_json(self.json, self.text, pathlib.Path(self.path)), find_connection=airflow_connection)


@dataclass(frozen=True, slots=True)
class DagSpecs:
    """The specs that a DAG documents. broken: problem of the invalid spec that the DAG stands in for, or ""."""

    specs: tuple[DocumentedSpec, ...] = ()
    broken: str = ""


@dataclass(frozen=True, slots=True)
class DagJob:
    """A job, and the DAG that is named in the URLs of its pages."""

    dag_id: str
    loaded: LoadedJob

    def shows_values_to(self, rights: Rights) -> bool:
        """Return whether a user may see data values, such as refused rows and messages that quote them."""
        return self.loaded.spec.airflow.viewers_see_values or rights.may_trigger(self.dag_id)


def jobs_of_dag(dag_id: str) -> dict[str, LoadedJob]:
    """Return the jobs that have tasks in a DAG, by name, in alphabetical order.

    Raises:
        NotFound: Airflow has no such DAG, or the DAG documents no spec.
        InvalidRequest: the DAG stands in for a job with an invalid spec, or a documented spec is not valid for this
            server's version of Milepost.
    """
    dag = SerializedDagModel.get_dag(dag_id)
    documented = DagSpecs() if dag is None else specs_of(dag)
    if documented.broken:
        raise InvalidRequest(documented.broken, hint="Correct the spec. Airflow reads it again by itself.")
    loaded = [spec.load() for spec in documented.specs]
    if not loaded:
        raise NotFound(
            f"DAG {dag_id} is not a DAG of a job: none of its tasks documents a spec.",
            hint="If it should be one, see the DAG's own page for the problem of its spec.",
        )
    return {job.spec.name: job for job in sorted(loaded, key=lambda job: job.spec.name)}


def jobs_of_deployment(readable: Collection[str]) -> tuple[list[DagJob], dict[str, str]]:
    """Return each job of Airflow's DAGs once, in order of names, and the problem of each refused spec by DAG id.

    A job that has several DAGs is listed with its `__epoch` DAG.

    Args:
        readable: ids of the DAGs that the user may read.
    """
    jobs: dict[tuple[str, str], DagJob] = {}
    refused: dict[str, str] = {}
    for dag_id, documented in sorted(specs_of_dags(readable).items()):
        if documented.broken and documented.broken not in refused.values():  # a broken spec has up to two DAGs
            refused[dag_id] = documented.broken
        for spec in documented.specs:
            try:
                job = spec.load()
            except CheckpointError as error:
                refused[dag_id] = error.message
                continue
            key = (job.spec.name, job.storage_url)
            if key not in jobs or dag_id == epoch_dag_id(job.spec.name):
                jobs[key] = DagJob(dag_id, job)
    return sorted(jobs.values(), key=lambda job: (job.loaded.spec.name, job.dag_id)), refused


def specs_of_dags(readable: Collection[str]) -> dict[str, DagSpecs]:
    """Return the specs that Airflow's current DAGs document, by DAG id.

    One query returns ids and digests. A DAG is deserialized again only when its digest has changed.
    """
    query = (
        select(SerializedDagModel.dag_id, SerializedDagModel.dag_hash)
        .join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
        .join(DagModel, DagModel.dag_id == SerializedDagModel.dag_id)
        .where(~DagModel.is_stale)
        .order_by(DagVersion.version_number)  # the newest version of a DAG comes last and wins in the dict
    )
    with create_session() as session:
        newest = {dag_id: digest for dag_id, digest in session.execute(query) if dag_id in readable}
        changed = [dag_id for dag_id, digest in newest.items() if dag_id not in _CACHE or _CACHE[dag_id][0] != digest]
        for row in SerializedDagModel.get_latest_serialized_dags(dag_ids=changed, session=session) if changed else ():
            _CACHE[row.dag_id] = (newest[row.dag_id], specs_of(row.dag) if _is_ours(row.data) else DagSpecs())
    return {dag_id: _CACHE[dag_id][1] for dag_id in newest if dag_id in _CACHE}


_CACHE: dict[str, tuple[str, DagSpecs]] = {}
"""DAG id -> digest of the DAG when it was last read, and the specs it documents; no specs if it is not ours."""


def _is_ours(data: dict[str, Any] | None) -> bool:
    """Return whether a serialized DAG has a task of ours, without deserializing it."""
    tasks = (data or {}).get("dag", {}).get("tasks", ())
    return any(str(task.get("__var", {}).get("_task_module", "")).startswith(_OUR_MODULES) for task in tasks)


def specs_of(dag: SerializedDAG) -> DagSpecs:
    """Return the specs that a DAG documents."""
    ours = [task for task in dag.tasks if not task.is_mapped and task._task_module.startswith(_OUR_MODULES)]
    documented = (task for task in ours if task.doc_yaml)
    specs = tuple(DocumentedSpec(str(task.doc_yaml), str(task.doc), task.doc_json or "") for task in documented)
    broken = "\n".join(str(task.doc) for task in ours if task.doc) if BROKEN_TAG in dag.tags else ""
    return DagSpecs(specs, broken)
