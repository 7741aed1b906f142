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
from milepost.language.sql import branches, normalized_tokens, relation_starts, sql_tokens
from milepost.operators.base import OperatorSpec
from milepost.operators.sql import SelectSpec

_DIGEST_LENGTH = 16
_WITHOUT = {"uid", "inputs", "renamed_from", "ttl", "allowed_lateness", "tombstone_ttl"}


def statement_of(spec: JobSpec, name: str) -> str | None:
    """Return the SQL statement to which a node belongs; None: a source or an operator of the spec itself."""
    statement = name.partition("__")[0]
    return statement if statement in spec.statements else None


def reads_statement(spec: JobSpec, name: str) -> bool:
    """Return whether a node is a step of a SQL statement, or reads one, directly or through other operators."""
    inputs = {operator.uid: operator.inputs for operator in spec.operators}
    waiting, seen = [name], {name}
    while waiting:
        uid = waiting.pop()
        if statement_of(spec, uid) is not None and uid in inputs:
            return True
        waiting += [one for one in inputs.get(uid, ()) if one not in seen]
        seen.update(waiting)
    return False


def state_fingerprint(spec: JobSpec, uid: str, seen: dict[str, str] | None = None) -> str:
    """Return the digest of all definitions that the state of an operator depends on.

    The aggregates themselves are not included. Whether the recorded state determines them is decided by its columns.
    """
    operator = spec.operator(uid)
    definition = _definition(operator)
    definition.pop("aggregates", None)
    seen = {} if seen is None else seen
    return _digest(definition, [fingerprint(spec, name, seen) for name in operator.inputs])


def fingerprint(spec: JobSpec, name: str, seen: dict[str, str] | None = None) -> str:
    """Return the digest of all definitions from the sources to a node.

    Args:
        seen: digests that are known. A source that is not in it counts by its name.
    """
    seen = {} if seen is None else seen
    if name not in seen and name in spec.sources:
        return name
    if name not in seen:
        operator = spec.operator(name)
        inputs = {uid: fingerprint(spec, uid, seen) for uid in operator.inputs}
        definition = {"sql": _named(operator, inputs)} if isinstance(operator, SelectSpec) else _definition(operator)
        seen[name] = _digest(definition, [*inputs.values()])
    return seen[name]


def _named(operator: SelectSpec, names: Mapping[str, str]) -> list[str]:
    """Return the tokens of a query with other names of its inputs.

    Only the words that name a relation are replaced: in `SELECT w AS k FROM w`, the first `w` is a column.
    """
    tokens, relations = sql_tokens(operator.query), relation_words(operator)
    texts = zip(tokens, normalized_tokens(operator.query, tokens), strict=True)
    return [names.get(text, text) if token.start in relations else text for token, text in texts]


def relation_words(operator: SelectSpec) -> set[int]:
    """Return the offsets of the words of a query that name its inputs."""
    return set[int]().union(*(relation_starts(select.sql) for select in branches(operator.query, operator.inputs)))


def _definition(operator: OperatorSpec) -> dict[str, Any]:
    return operator.model_dump(mode="json", exclude=_WITHOUT, exclude_defaults=True)


def _digest(definition: Mapping[str, Any], inputs: Sequence[str]) -> str:
    text = json.dumps([definition, inputs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
