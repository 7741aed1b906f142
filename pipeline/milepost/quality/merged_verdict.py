"""The merged verdict: what partial results say of all rows, without any of them.

Where rows were counted the library's own rule follows, on the sums. Else the library is asked again, about rows for
which its answer is that for all: the one sum, the least values of all parts, each value once, the number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from milepost.jobspec.job.spec import Expectation, QualitySpec
from milepost.jobspec.values.expectation_combination import Combination
from milepost.quality.evidence import Evidence, json_value
from milepost.quality.gate import collect_evidence, evaluate, expectation_result, result_from_answer
from milepost.quality.gx import COUNTS, build_expectation, build_expectations, silence_library, validate_rows
from milepost.quality.partial_results import ExpectationMetrics, PartialResult, combination_for
from milepost.quality.verdict import SAMPLED, ExpectationResult, Verdict, VerdictStatus, status_of

_RANGE = ("min_value", "max_value", "strict_min", "strict_max")
_RANGED = "expect_column_max_to_be_between"
"""Asked about the one value that a proportion or a number of rows is: ranges are alike in all expectations."""

Seen = tuple[ExpectationResult, Evidence]


def decide_verdict(
    suite: QualitySpec, part: PartialResult, schema: pa.Schema, key: tuple[str, ...]
) -> tuple[Verdict, dict[int, Evidence]]:
    """Return the verdict on the rows of a part that all parts were joined to, and what refused them, by place.

    Args:
        schema: of the rows. key: columns of the sink's key.
    """
    if not part.rows:
        return Verdict(suite.sink, VerdictStatus.SKIPPED, 0, ()), {}
    hows = {number: combination_for(one, schema) for number, one in enumerate(suite.expectations)}
    seen = _of_sample(suite, [number for number, how in hows.items() if how is Combination.ALL], part, key)
    with silence_library():
        own = build_expectations(suite)
        for number, how in hows.items():
            if how is not Combination.ALL:
                found = part.metrics.get(number, ExpectationMetrics(exception="was not asked of any rows"))
                mostly = float(getattr(own[number], "mostly", 1))
                seen[number] = _settled(suite.expectations[number], how, found, mostly, part, schema)
    results = tuple(seen[number][0] for number in hows)
    return Verdict(suite.sink, status_of(results), part.rows, results), {n: seen[n][1] for n in hows}


def _of_sample(suite: QualitySpec, numbers: list[int], part: PartialResult, key: tuple[str, ...]) -> dict[int, Seen]:
    """Return the answers of expectations that need all rows in one place: of the sample, if there is to be one."""
    if not numbers:
        return {}
    every = [suite.expectations[number] for number in numbers]
    sample = part.sample
    if suite.sample is None or sample is None or not sample.num_rows:
        why = f"needs all rows at once, and {part.rows} are too many; write `sample: 100000` beside `expectations`"
        return {
            number: (expectation_result(one, False, {}, why), Evidence())
            for number, one in zip(numbers, every, strict=True)
        }
    asked = suite.model_copy(update={"expectations": tuple(every)})
    verdict = evaluate(asked, sample)
    shown = collect_evidence(asked, verdict.vetoing, sample, key)
    size = {SAMPLED: sample.num_rows}
    return {
        number: (_with_counts(verdict.expectations[at], size), shown.get(at, Evidence()))
        for at, number in enumerate(numbers)
    }


def _with_counts(result: ExpectationResult, more: Mapping[str, int]) -> ExpectationResult:
    observed = {**result.observed, **more}
    return ExpectationResult(result.type, result.column, result.severity, result.success, observed, result.exception)


def _settled(
    expectation: Expectation,
    how: Combination,
    found: ExpectationMetrics,
    mostly: float,
    part: PartialResult,
    schema: pa.Schema,
) -> Seen:
    if found.exception is not None:
        return expectation_result(expectation, False, {}, found.exception), Evidence()
    if found.counted:
        success, counts = _by_counts(found, mostly)
        return expectation_result(expectation, success, counts), Evidence(found.rows)
    if how is Combination.ROWS:
        return expectation_result(expectation, found.met, {}), Evidence()
    one, rows = _question(expectation, how, found, schema)
    answer = validate_rows([one], rows, COUNTS, part.nullable).get(0)
    result = result_from_answer(expectation, answer)
    observed = None if answer is None else json_value(answer.result.get("observed_value"))
    return result, Evidence(observed_value=observed)


def _by_counts(found: ExpectationMetrics, mostly: float) -> tuple[bool, dict[str, int | float]]:
    """Return the library's answer about so many rows: it asks for a share of those that have a value."""
    considered = found.elements - (found.missing or 0)
    counts: dict[str, int | float] = {"element_count": found.elements, "unexpected_count": found.refused}
    if found.missing is not None:
        counts |= {"missing_count": found.missing}
        if found.elements:
            counts |= {"missing_percent": found.missing / found.elements * 100}
    if not considered:
        return True, counts
    counts |= {"unexpected_percent": found.refused / considered * 100}
    return (float(considered) - float(found.refused)) / float(considered) >= mostly, counts


def _question(
    expectation: Expectation, how: Combination, found: ExpectationMetrics, schema: pa.Schema
) -> tuple[Any, pa.Table]:
    """Return what to ask the library, and about which rows."""
    arguments = {k: v for k, v in expectation.arguments.items() if k not in ("row_condition", "condition_parser")}
    own, column = build_expectation(expectation.type, arguments, 0), str(arguments.get("column"))
    if how is Combination.COLUMNS:
        return own, schema.empty_table()
    if how in (Combination.ENDS, Combination.VALUES):
        if found.values is not None:
            return own, found.values.rename_columns([column])
        return own, schema.empty_table().select([column])
    if how is Combination.SUM:
        return own, _one_value(column, found.total)
    if how is Combination.MEAN:
        return own, _one_value(column, found.total / found.present if found.present else math.nan)
    bounds = {name: arguments[name] for name in _RANGE if name in arguments}
    if "value" in arguments:  # the number of rows is to be this
        bounds = {"min_value": arguments["value"], "max_value": arguments["value"]}
    return build_expectation(_RANGED, {"column": "number", **bounds}, 0), _one_value(
        "number", _number(expectation, how, found)
    )


def _number(expectation: Expectation, how: Combination, found: ExpectationMetrics) -> int | float:
    """Return the number that has to be in a range: of rows, of distinct values, or a proportion of one to another."""
    if how is Combination.PRESENT:
        return found.present / found.total if found.total else 0
    if expectation.type == "expect_column_proportion_of_unique_values_to_be_between":
        return found.total / found.present if found.present else 0
    return found.total


def _one_value(column: str, value: int | float) -> pa.Table:
    exact = isinstance(value, int) and -(2**63) <= value < 2**63
    return pa.table({column: pa.array([value if exact else float(value)])})
