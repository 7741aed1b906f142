"""The gate: Great Expectations over the rows an epoch would publish, before the commit point.

Rules: a critical expectation that is not met vetoes; a warning or info one is recorded and published; one that raises
vetoes whatever its severity (Great Expectations itself would report such a warning as a mere warning); an epoch that
publishes no row is skipped (on an empty frame null checks pass, which would look like a proof).

When what is checked: lint and DAG parsing look at types, arguments and columns by their names, in a list that a test
compares with the library, whose import takes seconds; `resolve_suite` (before the first epoch of a spec is triggered,
and by `doctor JOB`) builds every expectation with the installed library, so that a value it refuses is refused before
anything runs.

Rows that one process may hold are judged as one table, here; more of them in parts, as `partial_results.py` has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.jobspec.job.spec import Expectation, QualitySpec
from milepost.jobspec.values.expectations import SET_BY_THE_GATE
from milepost.quality.evidence import Evidence, json_value, rows_at
from milepost.quality.gx import COUNTS, POSITIONS, build_expectations, exception_of, silence_library, validate_rows
from milepost.quality.verdict import ExpectationResult, Verdict, VerdictStatus, status_of

_COUNTS = ("element_count", "missing_count", "missing_percent", "unexpected_count", "unexpected_percent")


def check_suite(spec: QualitySpec) -> None:
    """Refuse a suite whose shape is wrong; loads nothing heavy. Columns are the spec's graph to check.

    Raises:
        InvalidRequest: no expectation, or an argument that the gate sets itself.
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
    """Build every expectation with the installed Great Expectations. Takes its import time once per process.

    Raises:
        InvalidRequest: an unknown type (naming the nearest known one), a missing, unknown or ill-typed argument.
        EnvironmentUnusable: Great Expectations cannot be imported.
    """
    check_suite(spec)
    with silence_library():
        build_expectations(spec)


def evaluate(spec: QualitySpec, table: pa.Table) -> Verdict:
    """Judge the rows that this epoch would publish to one sink.

    Raises: InvalidRequest, EnvironmentUnusable, as `resolve_suite`; never for what the rows contain.
    """
    check_suite(spec)
    if table.num_rows == 0:
        return Verdict(spec.sink, VerdictStatus.SKIPPED, 0, ())
    with silence_library():
        found = validate_rows(build_expectations(spec), table, COUNTS)
    results = tuple(result_from_answer(expectation, found.get(i)) for i, expectation in enumerate(spec.expectations))
    return Verdict(spec.sink, status_of(results), table.num_rows, results)


def collect_evidence(
    spec: QualitySpec, wanted: Sequence[int], table: pa.Table, key: Sequence[str]
) -> dict[int, Evidence]:
    """Look again at rows that were judged: return what refused them.

    Args:
        wanted: places in the suite of expectations that are not met. key: columns of the sink's key.
    Returns: by place; no rows for one that does not look at single rows, or raises.
    """
    if not wanted:
        return {}
    with silence_library():
        chosen = [one for one in build_expectations(spec) if one.meta["number"] in wanted]
        found = validate_rows(chosen, table, POSITIONS)
    return {
        number: Evidence(
            rows_at(table, refused_positions(answer)[: spec.rows], shown_columns(spec.expectations[number], key)),
            json_value(answer.result.get("observed_value")),
        )
        for number, answer in found.items()
    }


def refused_positions(answer: Any) -> list[int]:
    """Return the positions of the rows that an expectation refuses, where it was asked for them."""
    return [int(one) for one in answer.result.get("unexpected_index_list") or ()]


def result_from_answer(expectation: Expectation, found: Any) -> ExpectationResult:
    """Return the outcome of an expectation by what the library answered; None: nothing."""
    exception = exception_of(found)
    counts = {} if found is None else {name: found.result.get(name) for name in _COUNTS}
    return expectation_result(expectation, exception is None and bool(found.success), counts, exception)


def expectation_result(
    expectation: Expectation, success: bool, counts: Mapping[str, Any], exception: str | None = None
) -> ExpectationResult:
    """Return the outcome of an expectation with those of its counts that it has: a percentage of no rows is None."""
    columns = ", ".join(columns_of(expectation)) or None
    observed = {name: _number(value) for name, value in counts.items() if value is not None}
    return ExpectationResult(expectation.type, columns, expectation.severity, success, observed, exception)


def _number(value: Any) -> int | float:
    return int(value) if float(value).is_integer() else float(value)


def columns_of(expectation: Expectation) -> list[str]:
    """Return the columns that an expectation looks at; none for one of the whole table."""
    arguments = expectation.arguments
    named = [arguments[name] for name in ("column", "column_A", "column_B") if name in arguments]
    listed = arguments.get("column_list", [])
    return [str(name) for name in [*named, *(listed if isinstance(listed, list | tuple) else [listed])]]


def shown_columns(expectation: Expectation, key: Sequence[str]) -> list[str]:
    """Return the columns of a refused row that a person sees: those that it was judged by, and the sink's key."""
    return list(dict.fromkeys([*columns_of(expectation), *key]))
