"""Store a job's spec with its DAGs, as docs of a task."""

from __future__ import annotations

from milepost.jobspec.load import LoadedJob, spec_as_json


def spec_as_docs(job: LoadedJob) -> dict[str, str]:
    """Return the operator arguments that store the job's spec as docs of one task, with `${env:…}` unresolved.

    Airflow stores them with the DAG. Its UI shows them, and our pages read the job from there, so that the API server
    does not need the spec files. The pages of many jobs would take a second to parse the texts of their specs.
    """
    return {"doc": str(job.path), "doc_yaml": job.text, "doc_json": spec_as_json(job.spec)}
