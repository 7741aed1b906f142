"""The only module that uses Great Expectations: import it, pass it rows, read its answers.

Integers and booleans stay exact on their way into a frame. (In pandas a null turns int64 into float64, in which
2^60 + 1 equals 2^60.) The library itself converts the bounds of range checks to floats. NaN counts as null, as in
pandas: a range check skips it, `expect_column_values_to_not_be_null` refuses it. Comparing two columns raises if one
value is null, unless the expectation sets `ignore_row_if: either_value_is_missing`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.extras import install_command, require
from milepost.jobspec.job import QualitySpec
from milepost.language import nearest
from milepost.quality.far_dates import far_values

_LOG = logging.getLogger(__name__)
_LOADED = "great_expectations.expectations"
_EXCEPTION_LENGTH = 200
NO_ANSWER = "gave no answer"

COUNTS = {"result_format": "BASIC", "partial_unexpected_count": 0}
"""Result format with counts, and no value of a row."""
POSITIONS = {"result_format": "COMPLETE", "partial_unexpected_count": 0}
"""Result format with the positions of refused rows."""

_OF_FLOATS = (
    "expect_column_mean_to_be_between",
    "expect_column_stdev_to_be_between",
    "expect_column_sum_to_be_between",
    "expect_column_value_z_scores_to_be_less_than",
    "expect_column_values_to_not_be_outliers",
)

_IMPORT_ERRORS = (ImportError, AttributeError, TypeError, ValueError)
"""Errors that an import raises if installed packages are incompatible."""


def start_loading(specs: Sequence[QualitySpec]) -> threading.Thread | None:
    """Import Great Expectations on a background thread, because it takes seconds and the gate comes late in an epoch.

    An import error is only logged: the gate's own import fails for the same reason and reports it.
    Returns: the thread; None if there is nothing to judge, or the library is already imported.
    """
    if not any(spec.judged_together.expectations for spec in specs) or _LOADED in sys.modules:
        return None
    thread = threading.Thread(target=_load, name="quality-gate", daemon=True)
    thread.start()
    return thread


def preload() -> None:
    """Import Great Expectations early. The gate reports an import error."""
    with silence_library():
        _load()


def _load() -> None:
    try:
        _import()
    except _IMPORT_ERRORS as error:
        _LOG.info("Great Expectations was not imported ahead of the gate: %s", error)


def _import() -> None:
    """Import the modules that judging needs, in the order in which `build_expectations` and `validate_rows` do."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at import
    import great_expectations.data_context.types.base
    import great_expectations.expectations  # noqa: F401  (registers the expectation types)


def build_expectations(spec: QualitySpec) -> list[Any]:
    """Build the library's expectations, numbered in `meta` because it does not answer in the given order."""
    require("quality", f"the quality gate of sink {spec.sink}")
    try:
        _import()
        from great_expectations.exceptions import ExpectationNotFoundError
        from great_expectations.expectations import registry
    except _IMPORT_ERRORS as error:
        raise EnvironmentUnusable(
            f"the quality gate cannot load Great Expectations: {error}. Nothing was published.",
            hint=f"install what fits together: {install_command('quality')}",
        ) from error
    expectations = []
    for number, expectation in enumerate(spec.expectations):
        where = f"quality of sink {spec.sink}, {expectation.type}"
        try:
            kind = registry.get_expectation_impl(expectation.type)
        except ExpectationNotFoundError:
            known = registry.list_registered_expectation_implementations()
            close = nearest(expectation.type, known)
            raise InvalidRequest(
                f"{where}: is not an expectation of the installed Great Expectations. Nothing was run.",
                hint=f"did you mean {close}?" if close else "",
            ) from None
        try:
            expectations.append(kind(**expectation.arguments, severity=expectation.severity, meta={"number": number}))
        except (ValueError, TypeError) as error:  # pydantic's ValidationError is a ValueError
            problem = _first_problem(error).rstrip(".")
            raise InvalidRequest(f"{where}: {problem}. Nothing was published.") from error
    return expectations


def build_expectation(type_: str, arguments: Mapping[str, Any], number: int) -> Any:
    """Build an expectation to use in place of the one with this number. The library must be imported."""
    from great_expectations.expectations import registry

    return registry.get_expectation_impl(type_)(**arguments, meta={"number": number})


def validate_rows(
    expectations: Sequence[Any],
    rows: pa.Table,
    result_format: Mapping[str, Any],
    nullable: Collection[str] | None = None,
) -> dict[int, Any]:
    """Evaluate expectations on rows; return the library's answers by the numbers of the expectations.

    Expectations that convert decimals to floats run last, on a frame with floats. The library would convert the shared
    frame in place, while other expectations use the same column, and its conversion fails on nulls.

    Args:
        nullable: see `to_pandas`.
    """
    if not expectations:
        return {}
    frame = to_pandas(rows, nullable)
    exact = [expectation for expectation in expectations if expectation.expectation_type not in _OF_FLOATS]
    of_floats = [expectation for expectation in expectations if expectation.expectation_type in _OF_FLOATS]
    answers = _validate_frame(exact, frame, result_format)
    if of_floats:
        for name in [field.name for field in rows.schema if pa.types.is_decimal(field.type)]:
            frame[name] = frame[name].map(float, na_action="ignore").astype("float64")
        answers |= _validate_frame(of_floats, frame, result_format)
    # The library's objects form cycles that refer to the frame. Only a full garbage collection frees them, and it is
    # rare in a process with many imports. Without this line the rows of every epoch would stay in memory.
    frame.drop(columns=frame.columns, inplace=True)
    return answers


def _validate_frame(expectations: list[Any], frame: Any, result_format: Mapping[str, Any]) -> dict[int, Any]:
    import great_expectations as gx
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    if not expectations:
        return {}
    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),  # no temp directory
        progress_bars=ProgressBarsConfig(globally=False),
        analytics_enabled=False,
    )
    context = gx.get_context(mode="ephemeral", project_config=config)
    asset = context.data_sources.add_pandas("epoch").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    answer = batch.validate(gx.ExpectationSuite("suite", expectations), result_format=dict(result_format))
    return {result.expectation_config.meta["number"]: result for result in answer.results}


def to_pandas(table: pa.Table, nullable: Collection[str] | None = None) -> Any:
    """Convert rows to a frame.

    Args:
        nullable: columns with a null in any row of the epoch; None: those with a null in these rows.
    """
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
    nullable = columns_with_nulls(table) if nullable is None else nullable
    with_nulls = [name for name in table.column_names if name in nullable]
    far = {name: values for name in table.column_names if (values := far_values(table.column(name))) is not None}
    nullables = table.select([name for name in with_nulls if name not in far]).to_pandas(types_mapper=exact.get)
    full = table.drop_columns([*{*with_nulls, *far}]).to_pandas()
    objects = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in far.items()})
    return pd.concat([nullables, full, objects], axis=1)[table.column_names]


def columns_with_nulls(table: pa.Table) -> list[str]:
    return [name for name in table.column_names if table.column(name).null_count]


def exception_of(answer: Any) -> str | None:
    """Return the first line of the exception that an expectation raised, or None.

    The library returns one record, one per metric, or none. An expectation without an answer counts as raised.
    """
    if answer is None:
        return NO_ANSWER
    info = answer.exception_info
    records = [info] if info and "raised_exception" in info else list((info or {}).values())
    for record in records:
        if record["raised_exception"]:
            lines = str(record["exception_message"] or "").strip().splitlines()
            return (lines[0] if lines else "an exception without a message")[:_EXCEPTION_LENGTH]
    return NO_ANSWER if answer.success is None else None


def _first_problem(error: Exception) -> str:
    problems = getattr(error, "errors", None)
    if problems is None:
        return str(error).splitlines()[0]
    first = problems()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "__root__")
    return f"`{place}`: {first['msg']}" if place else str(first["msg"])


@contextmanager
def silence_library() -> Iterator[None]:
    """Keep the library's warnings and log lines off stderr. Its answers contain everything that matters."""
    logger = logging.getLogger("great_expectations")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
