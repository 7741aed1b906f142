"""Facets of a run and of its job: which checkpoint, under which parent, why it ended so, and what the job is."""

from __future__ import annotations

from typing import Any

from openlineage.client import facet_v2 as facets

from milepost import __version__
from milepost.epoch import iso_ms
from milepost.jobspec.job import JobSpec, SqlOperator
from milepost.jobspec.job.operators import ProcessOperator
from milepost.openlineage.settings import ParentRun
from milepost.protocol.records import CheckpointFailureReason, Run

INTEGRATION = "MILEPOST"

STOPPED = frozenset(
    {
        CheckpointFailureReason.QUALITY_GATE_FAILED,
        CheckpointFailureReason.LEADER_LOST,
        CheckpointFailureReason.LEADER_TAKEN_OVER,
        CheckpointFailureReason.ABORTED_BY_USER,
        CheckpointFailureReason.INTERRUPTED,
        CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN,
    }
)
"""Reasons by which somebody stopped an epoch that had not failed: ABORT. All others are FAIL."""


def job_facets(spec: JobSpec, job_type: str = "EPOCH") -> dict[str, Any]:
    """Return the facets of a job: an epoch has a beginning and an end, so it is BATCH.

    Its source code is the spec's SQL, which has no secret in it: `${env:…}` stands in no SQL.
    """
    facet = facets.job_type_job
    emission = facet.EmissionPattern(eventTrigger="EVENT_BASED", eventContentMode="ACCUMULATIVE")
    found: dict[str, Any] = {
        "jobType": facet.JobTypeJobFacet("BATCH", INTEGRATION, jobType=job_type, emissionPattern=emission),
        "ownership": facets.ownership_job.OwnershipJobFacet(
            [facets.ownership_job.Owner(spec.airflow.owner, "MAINTAINER")]
        ),
        "documentation": facets.documentation_job.DocumentationJobFacet(_described(spec)),
    }
    queries = [f"-- {one.uid}\n{one.sql}" for one in spec.operators if isinstance(one, SqlOperator)]
    if queries and job_type == "EPOCH":
        found["sql"] = facets.sql_job.SQLJobFacet(";\n".join(queries), dialect="spark")
    classes = [f"{one.uid}: {one.function}" for one in spec.operators if isinstance(one, ProcessOperator)]
    if classes and job_type == "EPOCH":
        found["sourceCode"] = facets.source_code_job.SourceCodeJobFacet("PYTHON", "\n".join(classes))
    return found


def _described(spec: JobSpec) -> str:
    operators = ", ".join(f"{one.uid} ({one.kind})" for one in spec.operators)
    through = f", through {operators}" if operators else ""
    tables = ", ".join(sink.name for sink in spec.sinks) or "no table"
    return f"Milepost job {spec.name}: from {', '.join(spec.sources)}{through}, to {tables}."


def engine_facet() -> facets.RunFacet:
    """Return what runs epochs."""
    return facets.processing_engine_run.ProcessingEngineRunFacet(
        version=__version__, name="Milepost", openlineageAdapterVersion=__version__
    )


def parent_facet(parent: ParentRun | None, run: Run | None) -> dict[str, Any]:
    """Return the parent of a run, if it is known: of an epoch of another DAG run it is not."""
    of_another = run is not None and parent is not None and parent.dag_run not in (None, (run.dag_id, run.run_id))
    if parent is None or of_another:
        return {}
    facet = facets.parent_run
    return {"parent": facet.ParentRunFacet(facet.Run(parent.run_id), facet.Job(parent.namespace, parent.job))}


def nominal_time(run: Run, trigger_time_ms: int) -> facets.RunFacet:
    """Return for when an epoch was due: the logical date of its DAG run, else when it was triggered."""
    return facets.nominal_time_run.NominalTimeRunFacet(run.logical_date or iso_ms(trigger_time_ms))


def error_facet(reason: CheckpointFailureReason, more: list[str]) -> facets.RunFacet:
    """Return why an epoch was given up, in words of ours: an error's own may quote a row.

    Args:
        more: what else may be said.
    """
    text = "; ".join([f"{reason.value}: {reason.meaning}", *more])
    return facets.error_message_run.ErrorMessageRunFacet(text, "PYTHON")
