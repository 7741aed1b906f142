"""Valid specs as JSON, which is read again about twenty times as fast as their YAML.

The cache of parsed specs has it, and the documentation of Airflow's tasks.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.load import CACHED_SPECS, LoadedJob, from_spec, from_text, hash_spec


def spec_as_json(spec: JobSpec) -> str:
    """Return the keys that a spec gives, in the order of the spec: sorted columns would be another job."""
    return json.dumps(spec.model_dump(mode="json", by_alias=True, exclude_unset=True))


def from_json(spec: str, text: str, path: Path) -> LoadedJob:
    """Return the job of a spec's JSON, as if its text had been read from `path`.

    The spec is not checked again beyond its keys and values. If this version of Milepost does not know them, the text
    is parsed, and the message has all problems with file and line.

    Raises:
        InvalidRequest: the spec is not valid for this version of Milepost.
    """
    try:
        valid, spec_hash = _validated(spec)
    except ValueError:
        return from_text(text, path)
    return from_spec(valid, spec_hash, text, path)


@lru_cache(maxsize=CACHED_SPECS)
def _validated(spec: str) -> tuple[JobSpec, str]:
    """Return a spec and its hash. Raises ValueError, also if the JSON is empty."""
    valid = JobSpec.model_validate(json.loads(spec))
    return valid, hash_spec(valid)
