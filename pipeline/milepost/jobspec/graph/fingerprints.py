"""Fingerprints of compiled SQL: all text between the sources and an operator.

The state of a SQL statement continues only while its fingerprint is the same, because a table must equal its query.
White space, comments and names of steps are not included, nor are options that have their default, so that a version
with more options continues the state. How long rows are remembered has a rule of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from milepost.jobspec.job.spec import JobSpec
from milepost.language.sql import normalized_tokens, sql_tokens
from milepost.operators.base import OperatorSpec
from milepost.operators.sql import SelectSpec

_DIGEST_LENGTH = 16
_WITHOUT = {"uid", "inputs", "renamed_from", "ttl", "allowed_lateness", "tombstone_ttl"}


def statement_of(spec: JobSpec, name: str) -> str | None:
    """Return the SQL statement to which a node belongs; None: a source or an operator of the spec itself."""
    statement = name.partition("__")[0]
    return statement if statement in spec.statements else None


def state_fingerprint(spec: JobSpec, uid: str) -> str:
    """Return the digest of all definitions that the state of an operator depends on.

    The aggregates themselves are not included. Whether the recorded state determines them is decided by its columns.
    """
    operator = spec.operator(uid)
    definition = _definition(operator)
    definition.pop("aggregates", None)
    return _digest(definition, [fingerprint(spec, name) for name in operator.inputs])


def fingerprint(spec: JobSpec, name: str, seen: dict[str, str] | None = None) -> str:
    """Return the digest of all definitions from the sources to a node. A source counts by its name."""
    seen = {} if seen is None else seen
    if name in spec.sources:
        return name
    if name not in seen:
        operator = spec.operator(name)
        definition = _definition(operator)
        if isinstance(operator, SelectSpec):
            names = {uid: fingerprint(spec, uid, seen) for uid in operator.inputs}
            tokens = normalized_tokens(operator.query, sql_tokens(operator.query))
            definition = {"sql": [names.get(text, text) for text in tokens]}
        seen[name] = _digest(definition, [fingerprint(spec, uid, seen) for uid in operator.inputs])
    return seen[name]


def _definition(operator: OperatorSpec) -> dict[str, Any]:
    return operator.model_dump(mode="json", exclude=_WITHOUT, exclude_defaults=True)


def _digest(definition: Mapping[str, Any], inputs: Sequence[str]) -> str:
    text = json.dumps([definition, inputs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
