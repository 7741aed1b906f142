"""Evaluate expectations on the rows of an epoch, before the commit point.

Rules:
- A critical expectation that is not met vetoes the epoch. A warning or info one is recorded, and the epoch published.
- An expectation that raises vetoes whatever its severity. (Great Expectations would report a warning as a warning.)
- An epoch without rows is skipped. On an empty frame null checks pass, which would look like a proof.

Lint and DAG parsing check types, arguments and columns against a list of names, because importing Great Expectations
takes seconds. A test compares that list with the library. `resolve_suite` builds every expectation with the installed
library, before the first epoch of a spec and in `doctor JOB`, so that a bad argument is refused before anything runs.

This module judges rows that fit into one process. `partial_results.py` judges larger epochs in parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.jobspec.job import Expectation, QualitySpec
from milepost.language import SET_BY_THE_GATE
from milepost.quality.evidence import Evidence, json_value, rows_at
from milepost.quality.gx import COUNTS, POSITIONS, build_expectations, exception_of, silence_library, validate_rows
from milepost.quality.verdict import ExpectationResult, Verdict, VerdictStatus, status_of

_COUNTS = ("element_count", "missing_count", "missing_percent", "unexpected_count", "unexpected_percent")


def check_suite(spec: QualitySpec) -> None:
    """Check the shape of a suite without importing Great Expectations. The job graph checks the columns.

    Raises:
        InvalidRequest: there is no expectation, or an argument is one that the gate sets itself.
    """
    if not spec.expectations:
        raise InvalidRequest(
            f"quality of sink {spec.sink}: no expectations: an empty suite would pass everything.",
            hint="add an expectation or remove the entry",
        )
    for expectation in spec.expectations:
        for name in expectation.arguments:
            if name in SET_BY_THE_GATE:
                raise InvalidRequest(
                    f"quality of sink {spec.sink}, {expectation.type}: `{name}` is set by the gate itself.",
                    hint=f"remove `{name}`",
                )


def resolve_suite(spec: QualitySpec) -> None:
    """Build every expectation with the installed Great Expectations. The first call in a process imports it.

    Raises:
        InvalidRequest: an unknown type (naming the nearest known one), a missing, unknown or ill-typed argument.
        EnvironmentUnusable: Great Expectations cannot be imported.
    """
    check_suite(spec)
    with silence_library():
        build_expectations(spec)


def evaluate(spec: QualitySpec, table: pa.Table) -> Verdict:
    """Judge the rows that this epoch would publish to one sink.

    Raises: InvalidRequest, EnvironmentUnusable, as `resolve_suite`. The contents of rows never make it raise.
    """
    check_suite(spec)
    if table.num_rows == 0:
        return Verdict(spec.sink, VerdictStatus.SKIPPED, 0, ())
    with silence_library():
        answers = validate_rows(build_expectations(spec), table, COUNTS)
    results = tuple(result_from_answer(expectation, answers.get(i)) for i, expectation in enumerate(spec.expectations))
    return Verdict(spec.sink, status_of(results), table.num_rows, results)


def collect_evidence(
    spec: QualitySpec, numbers: Sequence[int], table: pa.Table, key: Sequence[str]
) -> dict[int, Evidence]:
    """Evaluate expectations again, to collect the rows that they refuse.

    Args:
        numbers: positions in the suite of the expectations that are not met.
        key: columns of the sink's key.
    Returns: evidence by position. It has no rows if the expectation does not check single rows, or raises.
    """
    if not numbers:
        return {}
    with silence_library():
        chosen = [expectation for expectation in build_expectations(spec) if expectation.meta["number"] in numbers]
        answers = validate_rows(chosen, table, POSITIONS)
    return {
        number: Evidence(
            rows_at(table, refused_positions(answer)[: spec.rows], shown_columns(spec.expectations[number], key)),
            json_value(answer.result.get("observed_value")),
        )
        for number, answer in answers.items()
    }


def refused_positions(answer: Any) -> list[int]:
    """Return the positions of the refused rows. Needs the result format `POSITIONS`."""
    return [int(position) for position in answer.result.get("unexpected_index_list") or ()]


def result_from_answer(expectation: Expectation, answer: Any) -> ExpectationResult:
    """Convert an answer of the library. answer: None if it gave none."""
    exception = exception_of(answer)
    counts = {} if answer is None else {name: answer.result.get(name) for name in _COUNTS}
    return expectation_result(expectation, exception is None and bool(answer.success), counts, exception)


def expectation_result(
    expectation: Expectation, success: bool, counts: Mapping[str, Any], exception: str | None = None
) -> ExpectationResult:
    """Return the result of an expectation, leaving out counts that are None, such as a percentage of no rows."""
    columns = ", ".join(columns_of(expectation)) or None
    observed = {name: _number(value) for name, value in counts.items() if value is not None}
    return ExpectationResult(expectation.type, columns, expectation.severity, success, observed, exception)


def _number(value: Any) -> int | float:
    return int(value) if float(value).is_integer() else float(value)


def columns_of(expectation: Expectation) -> list[str]:
    """Return the columns that an expectation checks; none for an expectation on the whole table."""
    arguments = expectation.arguments
    named = [arguments[name] for name in ("column", "column_A", "column_B") if name in arguments]
    listed = arguments.get("column_list", [])
    return [str(name) for name in [*named, *(listed if isinstance(listed, list | tuple) else [listed])]]


def shown_columns(expectation: Expectation, key: Sequence[str]) -> list[str]:
    """Return the columns to show of a refused row: those it was judged by, and the sink's key."""
    return list(dict.fromkeys([*columns_of(expectation), *key]))
