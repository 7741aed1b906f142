"""The gate: Great Expectations over the rows an epoch would publish, before the commit point.

Rules: a critical expectation that is not met vetoes; a warning or info one is recorded and published; one that raises
vetoes whatever its severity (Great Expectations itself would report such a warning as a mere warning); an epoch that
publishes no row is skipped (on an empty frame null checks pass, which would look like a proof).

When what is checked: lint and DAG parsing look at types, arguments and columns by their names, in a list that a test
compares with the library, whose import takes seconds; `resolve_suite` (before the first epoch of a spec is triggered,
and by `doctor JOB`) builds every expectation with the installed library, so that a value it refuses is refused before
anything runs.

How rows reach it: whole numbers and booleans stay exact (a null would turn int64 into float64, where 2^60 + 1 passes
for 2^60); the bounds of range checks are floats in the library itself. NaN counts as null, as pandas has it: a range
check passes over it, `expect_column_values_to_not_be_null` finds it. Comparing two columns where one is null raises;
say `ignore_row_if: either_value_is_missing`.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from milepost.dataflow.quality.verdict import ExpectationResult, GateVerdict, Verdict, VerdictStatus
from milepost.extras import install_command, require
from milepost.protocol.records.errors import EnvironmentUnusable, InvalidRequest
from milepost.spec.job.spec import Expectation, QualitySpec
from milepost.spec.values.expectations import SET_BY_THE_GATE

_LOG = logging.getLogger(__name__)
_LOADED = "great_expectations.expectations"
_COUNTS = ("element_count", "missing_count", "missing_percent", "unexpected_count", "unexpected_percent")
_EXCEPTION_LENGTH = 200


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


_IMPORT_ERRORS = (ImportError, AttributeError, TypeError, ValueError)
"""What the import of a library raises that does not fit to the others that are installed."""


def begin_loading(specs: Sequence[QualitySpec]) -> threading.Thread | None:
    """Import Great Expectations in a thread beside what comes before the gate: seconds, most of which is waited for.

    Why it cannot be imported is told by the gate, whose own import fails for the same reason.
    Returns: the thread; None when there is nothing to judge, or it is imported already.
    """
    if not specs or _LOADED in sys.modules:
        return None
    thread = threading.Thread(target=_load, name="quality-gate", daemon=True)
    thread.start()
    return thread


def load_quietly() -> None:
    """Import Great Expectations ahead of its use; that it cannot be is told by the gate."""
    with _quiet():
        _load()


def _load() -> None:
    try:
        _import()
    except _IMPORT_ERRORS as error:
        _LOG.info("Great Expectations was not imported ahead of the gate: %s", error)


def _import() -> None:
    """What judging needs, in the order in which `_build` and `_validate` need it."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at import
    import great_expectations.data_context.types.base
    import great_expectations.expectations  # noqa: F401  (registers the expectation types)


def resolve_suite(spec: QualitySpec) -> None:
    """Build every expectation with the installed Great Expectations. Takes its import time once per process.

    Raises:
        InvalidRequest: an unknown type (naming the nearest known one), a missing, unknown or ill-typed argument.
        EnvironmentUnusable: Great Expectations cannot be imported.
    """
    check_suite(spec)
    with _quiet():
        _build(spec)


def evaluate(spec: QualitySpec, table: pa.Table) -> Verdict:
    """Judge the rows that this epoch would publish to one sink.

    Raises: InvalidRequest, EnvironmentUnusable, as `resolve_suite`; never for what the rows contain.
    """
    check_suite(spec)
    if table.num_rows == 0:
        return Verdict(spec.sink, VerdictStatus.SKIPPED, 0, ())
    with _quiet():
        found = _validate(_build(spec), table, {"result_format": "BASIC", "partial_unexpected_count": 0})
    results = tuple(_result(expectation, found.get(i)) for i, expectation in enumerate(spec.expectations))
    return Verdict(spec.sink, _status(results), table.num_rows, results)


def failing_rows(spec: QualitySpec, wanted: Sequence[int], table: pa.Table) -> dict[int, tuple[list[int], Any]]:
    """Return, for expectations that are not met, the positions of the failing rows, and the observed value.

    Args:
        wanted: places in the suite. table: the judged rows.
    Returns: by place; no positions for one that does not look at single rows, or raises.
    """
    with _quiet():
        chosen = [one for one in _build(spec) if one.meta["number"] in wanted]
        found = _validate(chosen, table, {"result_format": "COMPLETE", "partial_unexpected_count": 0})
    return {
        number: (
            [int(one) for one in answer.result.get("unexpected_index_list") or ()],
            answer.result.get("observed_value"),
        )
        for number, answer in found.items()
    }


def evaluate_all(specs: Sequence[QualitySpec], tables: Mapping[str, pa.Table]) -> GateVerdict:
    """Judge all sinks of an epoch that have expectations.

    Args:
        tables: the rows each sink would publish, by sink name.
    """
    return GateVerdict.of(tuple(evaluate(spec, tables[spec.sink]) for spec in specs))


def _status(results: Sequence[ExpectationResult]) -> VerdictStatus:
    if any(result.exception is not None for result in results):
        return VerdictStatus.ERROR
    broken = [result.severity for result in results if not result.success]
    if "critical" in broken:
        return VerdictStatus.FAILED
    return VerdictStatus.WARNING if broken else VerdictStatus.PASSED


def _build(spec: QualitySpec) -> list[Any]:
    """Return the library's expectations, numbered in `meta`: it answers in an order of its own."""
    require("quality", f"the quality gate of sink {spec.sink}")
    try:
        _import()
        from great_expectations.exceptions import ExpectationNotFoundError
        from great_expectations.expectations import registry
    except _IMPORT_ERRORS as error:
        raise EnvironmentUnusable(
            f"the quality gate cannot load Great Expectations: {error}",
            hint=f"install what fits together: {install_command('quality')}",
        ) from error
    built = []
    for number, expectation in enumerate(spec.expectations):
        where = f"quality of sink {spec.sink}, {expectation.type}"
        try:
            kind = registry.get_expectation_impl(expectation.type)
        except ExpectationNotFoundError:
            known = registry.list_registered_expectation_implementations()
            close = difflib.get_close_matches(expectation.type, known, 1, cutoff=0.0)
            raise InvalidRequest(
                f"{where}: is not an expectation of the installed Great Expectations. Nothing was run.",
                hint=f"the nearest known one is {close[0]}" if close else "",
            ) from None
        try:
            built.append(kind(**expectation.arguments, severity=expectation.severity, meta={"number": number}))
        except (ValueError, TypeError) as error:  # pydantic's ValidationError is a ValueError
            raise InvalidRequest(f"{where}: {_first_problem(error)}") from error
    return built


def _validate(expectations: list[Any], table: pa.Table, result_format: dict[str, Any]) -> dict[int, Any]:
    """Return what the library answers, by the numbers of the expectations; BASIC holds counts and no value of a row."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),  # no temp directory
        progress_bars=ProgressBarsConfig(globally=False),
        analytics_enabled=False,
    )
    context = gx.get_context(mode="ephemeral", project_config=config)
    asset = context.data_sources.add_pandas("epoch").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": _to_pandas(table)})
    suite = gx.ExpectationSuite(name="suite", expectations=expectations)
    answer = batch.validate(suite, result_format=result_format)
    return {result.expectation_config.meta["number"]: result for result in answer.results}


def _to_pandas(table: pa.Table) -> Any:
    import pandas as pd

    exact = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    with_nulls = [name for name in table.column_names if table.column(name).null_count]
    nullable = table.select(with_nulls).to_pandas(types_mapper=exact.get)
    full = table.drop_columns(with_nulls).to_pandas()
    return pd.concat([nullable, full], axis=1)[table.column_names]


def _result(expectation: Expectation, found: Any) -> ExpectationResult:
    columns = ", ".join(columns_of(expectation)) or None
    if found is None:
        return ExpectationResult(expectation.type, columns, expectation.severity, False, {}, "gave no answer")
    exception = _exception(found.exception_info)
    if exception is None and found.success is None:
        exception = "gave no answer"
    observed = {
        name: _number(found.result[name])
        for name in _COUNTS
        if found.result.get(name) is not None  # a percentage of no rows is None
    }
    success = exception is None and bool(found.success)
    return ExpectationResult(expectation.type, columns, expectation.severity, success, observed, exception)


def _number(value: Any) -> int | float:
    return int(value) if float(value).is_integer() else float(value)


def _exception(info: Any) -> str | None:
    """Return one line of what an expectation raised: the library gives one record, or one per metric, or none."""
    records = [info] if info and "raised_exception" in info else list((info or {}).values())
    for record in records:
        if record["raised_exception"]:
            lines = str(record["exception_message"] or "").strip().splitlines()
            return (lines[0] if lines else "an exception without a message")[:_EXCEPTION_LENGTH]
    return None


def columns_of(expectation: Expectation) -> list[str]:
    """Return the columns that an expectation looks at; none for one of the whole table."""
    arguments = expectation.arguments
    named = [arguments[name] for name in ("column", "column_A", "column_B") if name in arguments]
    listed = arguments.get("column_list", [])
    return [str(name) for name in [*named, *(listed if isinstance(listed, list | tuple) else [listed])]]


def _first_problem(error: Exception) -> str:
    problems = getattr(error, "errors", None)
    if problems is None:
        return str(error).splitlines()[0]
    first = problems()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "__root__")
    return f"`{place}`: {first['msg']}" if place else str(first["msg"])


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's warnings and log lines off stderr; what matters is in its answer."""
    logger = logging.getLogger("great_expectations")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
