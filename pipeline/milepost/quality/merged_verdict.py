"""Decide the verdict on all rows from partial results, without the rows.

If the parts counted rows, the library's rule is applied to the sums. Otherwise the library evaluates a small table for
which its answer is the same as for all rows.

Example: `expect_column_max_to_be_between(v, max_value=9)` over the parts [3, 7], [8] and [2, 5]. Each part records its
largest value, 7, 8 and 5. The library then evaluates the expectation on a table with these three rows, and observes 8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from milepost.jobspec.job import Expectation, QualitySpec
from milepost.language import Combination
from milepost.quality.evidence import Evidence, json_value
from milepost.quality.gate import collect_evidence, evaluate, expectation_result, result_from_answer
from milepost.quality.gx import COUNTS, build_expectation, build_expectations, silence_library, validate_rows
from milepost.quality.partial_results import ExpectationMetrics, PartialResult, combination_for
from milepost.quality.verdict import SAMPLED, ExpectationResult, Verdict, VerdictStatus, status_of

_RANGE = ("min_value", "max_value", "strict_min", "strict_max")
_RANGED = "expect_column_max_to_be_between"
"""Evaluated on a single number, such as a proportion or a row count: all range expectations have the same rules."""

Judgement = tuple[ExpectationResult, Evidence]


def decide_verdict(
    suite: QualitySpec, part: PartialResult, schema: pa.Schema, key: tuple[str, ...]
) -> tuple[Verdict, dict[int, Evidence]]:
    """Return the verdict on all rows, and the evidence by position in the suite.

    Args:
        part: all parts merged.
        schema: schema of the rows.
        key: columns of the sink's key.
    """
    if not part.rows:
        return Verdict(suite.sink, VerdictStatus.SKIPPED, 0, ()), {}
    hows = {number: combination_for(expectation, schema) for number, expectation in enumerate(suite.expectations)}
    judgements = _judge_sample(suite, [number for number, how in hows.items() if how is Combination.ALL], part, key)
    with silence_library():
        library_expectations = build_expectations(suite)
        for number, how in hows.items():
            if how is not Combination.ALL:
                metrics = part.metrics.get(number, ExpectationMetrics(exception="was not evaluated on any rows"))
                mostly = float(getattr(library_expectations[number], "mostly", 1))
                judgements[number] = _judge_metrics(suite.expectations[number], how, metrics, mostly, part, schema)
    results = tuple(judgements[number][0] for number in hows)
    return Verdict(suite.sink, status_of(results), part.rows, results), {n: judgements[n][1] for n in hows}


def _judge_sample(
    suite: QualitySpec, numbers: list[int], part: PartialResult, key: tuple[str, ...]
) -> dict[int, Judgement]:
    """Evaluate, on the sample, expectations that need all rows at the same time. Without a sample they fail."""
    if not numbers:
        return {}
    expectations = [suite.expectations[number] for number in numbers]
    sample = part.sample
    if suite.sample is None or sample is None or not sample.num_rows:
        why = f"needs all rows together, and {part.rows} are too many; write `sample: 100000` next to `expectations`"
        return {
            number: (expectation_result(one, False, {}, why), Evidence())
            for number, one in zip(numbers, expectations, strict=True)
        }
    sampled = suite.model_copy(update={"expectations": tuple(expectations)})
    verdict = evaluate(sampled, sample)
    evidence = collect_evidence(sampled, verdict.vetoing, sample, key)
    size = {SAMPLED: sample.num_rows}
    return {
        number: (_with_counts(verdict.expectations[at], size), evidence.get(at, Evidence()))
        for at, number in enumerate(numbers)
    }


def _with_counts(result: ExpectationResult, more: Mapping[str, int]) -> ExpectationResult:
    observed = {**result.observed, **more}
    return ExpectationResult(result.type, result.column, result.severity, result.success, observed, result.exception)


def _judge_metrics(
    expectation: Expectation,
    how: Combination,
    metrics: ExpectationMetrics,
    mostly: float,
    part: PartialResult,
    schema: pa.Schema,
) -> Judgement:
    if metrics.exception is not None:
        return expectation_result(expectation, False, {}, metrics.exception), Evidence()
    if metrics.counted:
        success, counts = judge_counts(metrics, mostly)
        return expectation_result(expectation, success, counts), Evidence(metrics.rows)
    if how is Combination.ROWS:
        return expectation_result(expectation, metrics.met, {}), Evidence()
    equivalent, rows = _equivalent_check(expectation, how, metrics, schema)
    answer = validate_rows([equivalent], rows, COUNTS, part.nullable).get(0)
    result = result_from_answer(expectation, answer)
    observed = None if answer is None else json_value(answer.result.get("observed_value"))
    return result, Evidence(observed_value=observed)


def judge_counts(metrics: ExpectationMetrics, mostly: float) -> tuple[bool, dict[str, int | float]]:
    """Apply the library's rule for `mostly` to counts of rows.

    Of 10 elements, 2 missing and 1 refused: 8 are considered, and the accepted share is 7/8. It meets `mostly` 0.85.
    """
    considered = metrics.elements - (metrics.missing or 0)
    counts: dict[str, int | float] = {"element_count": metrics.elements, "unexpected_count": metrics.refused}
    if metrics.missing is not None:
        counts |= {"missing_count": metrics.missing}
        if metrics.elements:
            counts |= {"missing_percent": metrics.missing / metrics.elements * 100}
    if not considered:
        return True, counts
    counts |= {"unexpected_percent": metrics.refused / considered * 100}
    return (float(considered) - float(metrics.refused)) / float(considered) >= mostly, counts


def _equivalent_check(
    expectation: Expectation, how: Combination, metrics: ExpectationMetrics, schema: pa.Schema
) -> tuple[Any, pa.Table]:
    """Return an expectation and a small table for which the library answers as it would for all rows."""
    arguments = {k: v for k, v in expectation.arguments.items() if k not in ("row_condition", "condition_parser")}
    same, column = build_expectation(expectation.type, arguments, 0), str(arguments.get("column"))
    if how is Combination.COLUMNS:
        return same, schema.empty_table()
    if how in (Combination.ENDS, Combination.VALUES):
        if metrics.values is not None:
            return same, metrics.values.rename_columns([column])
        return same, schema.empty_table().select([column])
    if how is Combination.SUM:
        return same, _one_value(column, metrics.total)
    if how is Combination.MEAN:
        return same, _one_value(column, metrics.total / metrics.present if metrics.present else math.nan)
    bounds = {name: arguments[name] for name in _RANGE if name in arguments}
    if "value" in arguments:  # expect_table_row_count_to_equal
        bounds = {"min_value": arguments["value"], "max_value": arguments["value"]}
    return build_expectation(_RANGED, {"column": "number", **bounds}, 0), _one_value(
        "number", _number(expectation, how, metrics)
    )


def _number(expectation: Expectation, how: Combination, metrics: ExpectationMetrics) -> int | float:
    """Return the number to check: a row count, a count of distinct values, or a proportion."""
    if how is Combination.PRESENT:
        return metrics.present / metrics.total if metrics.total else 0
    if expectation.type == "expect_column_proportion_of_unique_values_to_be_between":
        return metrics.total / metrics.present if metrics.present else 0
    return metrics.total


def _one_value(column: str, value: int | float) -> pa.Table:
    exact = isinstance(value, int) and -(2**63) <= value < 2**63
    return pa.table({column: pa.array([value if exact else float(value)])})
