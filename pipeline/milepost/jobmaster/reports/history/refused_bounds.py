"""Find the bounds of the rules that refused an epoch, in the spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milepost.jobmaster.reports.tables.table_report import rule_bounds
from milepost.jobspec.job import QualitySpec
from milepost.quality import columns_of


def bounds_of(suites: Sequence[QualitySpec], refusals: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
    """Return the bounds of each refusal's rule; None: the suites do not have the rule."""
    seen: dict[tuple[str, str, str | None], int] = {}
    found = list[dict[str, Any] | None]()
    for refusal in refusals:
        name, kind, column = refusal["sink"], refusal["type"], refusal["column"]
        same = seen.get((name, kind, column), 0)
        seen[name, kind, column] = same + 1
        matching = [
            expectation
            for suite in suites
            if suite.sink == name
            for expectation in suite.expectations
            if expectation.type == kind and (", ".join(columns_of(expectation)) or None) == column
        ]
        # Rules of one type on the same columns cannot be distinguished if only some of them refused.
        found.append(rule_bounds(matching[same]) if len(matching) > same else None)
    return found


def with_bounds(veto: Mapping[str, Any], suites: Sequence[QualitySpec]) -> dict[str, Any]:
    """Return the document of a veto with the bounds of each refusal's rule."""
    refusals = veto.get("refusals", ())
    bounds = bounds_of(suites, refusals)
    return {
        **veto,
        "refusals": [{**refusal, "bounds": one} for refusal, one in zip(refusals, bounds, strict=True)],
    }
