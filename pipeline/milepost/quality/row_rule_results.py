"""Add what row rules refused to the verdict on the rows that remain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from milepost.jobspec.job import Expectation, QualitySpec
from milepost.quality.evidence import Evidence
from milepost.quality.gate import expectation_result
from milepost.quality.merged_verdict import judge_counts
from milepost.quality.partial_results import ExpectationMetrics
from milepost.quality.row_rules import RejectedRows, RuleCounts
from milepost.quality.verdict import REFUSED, REQUIRED, ExpectationResult, Verdict, VerdictStatus, status_of


def with_row_rules(
    suite: QualitySpec, verdict: Verdict, evidence: Mapping[int, Evidence], rejected: RejectedRows
) -> tuple[Verdict, dict[int, Evidence]]:
    """Return the verdict of all expectations of a suite, in its order.

    If all rows were rejected, the verdict has only the row rules, since no other expectation judged anything.

    Args:
        verdict, evidence: of `suite.judged_together`, the expectations that are no row rules.
    """
    if not suite.row_rules or not rejected.rules:
        return verdict, dict(evidence)
    if verdict.status is VerdictStatus.SKIPPED:
        results = tuple(_result(rule, rejected.rules.get(number)) for number, rule in suite.row_rules.items())
        return Verdict(verdict.sink, status_of(results), verdict.rows, results), {}
    others = iter(verdict.expectations)
    results = tuple(
        _result(one, rejected.rules.get(number)) if one.judges_rows else next(others)
        for number, one in enumerate(suite.expectations)
    )
    positions = [number for number, one in enumerate(suite.expectations) if not one.judges_rows]
    shown = {positions[number]: of_rule for number, of_rule in evidence.items()}
    return Verdict(verdict.sink, status_of(results), verdict.rows, results), shown


def _result(rule: Expectation, counts: RuleCounts | None) -> ExpectationResult:
    """Return the result of a row rule. It is met if enough rows are accepted for `mostly`, or without `mostly`."""
    counts = counts or RuleCounts(0, None, 0)
    metrics = ExpectationMetrics(counted=True, elements=counts.elements, missing=counts.missing, refused=counts.refused)
    mostly = float(rule.arguments.get("mostly", 0))
    success, observed = judge_counts(metrics, mostly)
    observed[REFUSED] = counts.refused
    if rule.may_be_unmet:
        return expectation_result(rule, success, observed | {REQUIRED: round(100 * mostly, 10)})
    return replace(expectation_result(rule, success, observed), severity=None)
