"""Store a job's spec with its DAGs, as docs of a task."""

from __future__ import annotations

from milepost.jobspec.load import LoadedJob


def spec_as_docs(job: LoadedJob) -> dict[str, str]:
    """Return the operator arguments that store the job's spec as docs of one task, with `${env:…}` unresolved.

    Airflow stores them with the DAG. Its UI shows them, and our pages read the job from there, so that the API server
    does not need the spec files.
    """
    return {"doc": str(job.path), "doc_yaml": job.text}
