"""Facets of runs and jobs: engine, parent run, nominal time, error, job type and code."""

from __future__ import annotations

from typing import Any

from openlineage.client import facet_v2 as facets

from milepost import __version__
from milepost.epoch import iso_ms
from milepost.jobspec.job import JobSpec
from milepost.openlineage.settings import ParentRun
from milepost.operators.process import ProcessOperator
from milepost.operators.sql import SelectSpec
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
"""Reasons that stop an epoch without a failure of its own: ABORT. All other reasons are FAIL."""


def job_facets(spec: JobSpec, job_type: str = "EPOCH") -> dict[str, Any]:
    """Return the facets of a job. Its type is BATCH, because an epoch has a start and an end.

    The source code is the spec's SQL, which contains no secret: `${env:…}` is not allowed in SQL.
    """
    facet = facets.job_type_job
    emission = facet.EmissionPattern(eventTrigger="EVENT_BASED", eventContentMode="ACCUMULATIVE")
    about: dict[str, Any] = {
        "jobType": facet.JobTypeJobFacet("BATCH", INTEGRATION, jobType=job_type, emissionPattern=emission),
        "ownership": facets.ownership_job.OwnershipJobFacet(
            [facets.ownership_job.Owner(spec.airflow.owner, "MAINTAINER")]
        ),
        "documentation": facets.documentation_job.DocumentationJobFacet(_described(spec)),
    }
    selects = (operator for operator in spec.operators if isinstance(operator, SelectSpec))
    queries = [f"-- {operator.uid}\n{operator.query}" for operator in selects]
    if queries and job_type == "EPOCH":
        about["sql"] = facets.sql_job.SQLJobFacet(";\n".join(queries), dialect="spark")
    classes = [f"{item.uid}: {item.function}" for item in spec.operators if isinstance(item, ProcessOperator)]
    if classes and job_type == "EPOCH":
        about["sourceCode"] = facets.source_code_job.SourceCodeJobFacet("PYTHON", "\n".join(classes))
    return about


def _described(spec: JobSpec) -> str:
    operators = ", ".join(f"{operator.uid} ({operator.kind})" for operator in spec.operators)
    through = f", through {operators}" if operators else ""
    tables = ", ".join(sink.name for sink in spec.sinks) or "no table"
    return f"Milepost job {spec.name}: from {', '.join(spec.sources)}{through}, to {tables}."


def engine_facet() -> facets.RunFacet:
    """Return the facet of the engine that runs epochs."""
    return facets.processing_engine_run.ProcessingEngineRunFacet(
        version=__version__, name="Milepost", openlineageAdapterVersion=__version__
    )


def parent_facet(parent: ParentRun | None, run: Run | None) -> dict[str, Any]:
    """Return the parent facet of a run. It is empty if there is no parent, or if the run is of another DAG run."""
    of_another = run is not None and parent is not None and parent.dag_run not in (None, (run.dag_id, run.run_id))
    if parent is None or of_another:
        return {}
    facet = facets.parent_run
    return {"parent": facet.ParentRunFacet(facet.Run(parent.run_id), facet.Job(parent.namespace, parent.job))}


def nominal_time(run: Run, trigger_time_ms: int) -> facets.RunFacet:
    """Return the nominal time of an epoch: the logical date of its DAG run, or else the time of its trigger."""
    return facets.nominal_time_run.NominalTimeRunFacet(run.logical_date or iso_ms(trigger_time_ms))


def error_facet(reason: CheckpointFailureReason, more: list[str]) -> facets.RunFacet:
    """Return the error facet of an aborted epoch. It never contains an error's own text, which may quote a row.

    Args:
        more: details that are safe to publish.
    """
    text = "; ".join([f"{reason.value}: {reason.meaning}", *more])
    return facets.error_message_run.ErrorMessageRunFacet(text, "PYTHON")
