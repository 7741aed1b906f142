"""Keys, values and operator kinds that are planned but not available in this version."""

from __future__ import annotations

from milepost.jobspec.job import spec
from milepost.jobspec.job.operators.join import JoinOperator

UNAVAILABLE_KEYS: dict[type, frozenset[str]] = {JoinOperator: frozenset({"keep"})}
"""Model -> keys. A key set to null means "off", which is what this version does, so it is accepted."""

UNAVAILABLE_VALUES: dict[tuple[type, str], frozenset[str]] = {
    (spec.SourceSpec, "format"): frozenset({"nexmark", "spark"}),
    (JoinOperator, "how"): frozenset({"full"}),
    (spec.QualitySpec, "scope"): frozenset({"table"}),
    (spec.QualitySpec, "engine"): frozenset({"spark"}),
}
"""(model, key) -> values."""

UNAVAILABLE_KINDS = frozenset({"materialize"})
"""Operator kinds."""

OPERATOR_KINDS = ("sql", "aggregate", "window", "deduplicate", "process", "join", "asof", "top", "lookup", "latest")


def not_available(what: str) -> str:
    """Return the standard refusal: `` `kind: join` is not available in this version``."""
    return f"`{what}` is not available in this version"
