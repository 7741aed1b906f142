"""Availability refuses by name the keys, values and kinds that are planned and not built."""

from __future__ import annotations

from milepost.spec.job import spec
from milepost.spec.job.operators.join import JoinOperator

UNAVAILABLE_KEYS: dict[type, frozenset[str]] = {JoinOperator: frozenset({"keep"})}
"""Model -> keys. One that is null says "off", which is what this version does: it passes."""

UNAVAILABLE_VALUES: dict[tuple[type, str], frozenset[str]] = {
    (spec.SourceSpec, "format"): frozenset({"nexmark", "spark"}),
    (JoinOperator, "how"): frozenset({"full"}),
    (spec.QualitySpec, "scope"): frozenset({"table"}),
    (spec.QualitySpec, "engine"): frozenset({"spark"}),
}
"""(model, key) -> values."""

UNAVAILABLE_KINDS = frozenset({"materialize"})
"""Kinds of operators."""

OPERATOR_KINDS = ("sql", "aggregate", "window", "deduplicate", "process", "join", "asof", "top", "lookup", "latest")


def not_available(what: str) -> str:
    """Return the one wording of a refusal: `` `kind: join` is not available in this version``."""
    return f"`{what}` is not available in this version"
