"""Sort the names in a spec, as earlier versions did in Airflow.

State that they recorded has its columns in this order.
"""

from __future__ import annotations

import json

from milepost.jobspec.job.spec import JobSpec


def sorted_spec(spec: JobSpec) -> JobSpec:
    """Return a spec in which names that the user chose, such as columns, are sorted."""
    value = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return JobSpec.model_validate(json.loads(json.dumps(value, sort_keys=True)))
