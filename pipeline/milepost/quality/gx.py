"""Great Expectations: how it is loaded, what it is given, and what it answers. Nothing else knows the library.

How rows reach it: whole numbers and booleans stay exact (a null would turn int64 into float64, where 2^60 + 1 passes
for 2^60); the bounds of range checks are floats in the library itself. NaN counts as null, as pandas has it: a range
check passes over it, `expect_column_values_to_not_be_null` finds it. Comparing two columns where one is null raises;
say `ignore_row_if: either_value_is_missing`.
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
from milepost.jobspec.job.spec import QualitySpec
from milepost.jobspec.values.suggestions import nearest
from milepost.quality.far_dates import far_values

_LOG = logging.getLogger(__name__)
_LOADED = "great_expectations.expectations"
_EXCEPTION_LENGTH = 200
NO_ANSWER = "gave no answer"

COUNTS = {"result_format": "BASIC", "partial_unexpected_count": 0}
"""Result format that holds counts and no value of a row."""
POSITIONS = {"result_format": "COMPLETE", "partial_unexpected_count": 0}
"""Result format that says which rows are refused."""

_OF_FLOATS = (
    "expect_column_mean_to_be_between",
    "expect_column_stdev_to_be_between",
    "expect_column_sum_to_be_between",
    "expect_column_value_z_scores_to_be_less_than",
    "expect_column_values_to_not_be_outliers",
)

_IMPORT_ERRORS = (ImportError, AttributeError, TypeError, ValueError)
"""What the import of a library raises that does not fit to the others that are installed."""


def start_loading(specs: Sequence[QualitySpec]) -> threading.Thread | None:
    """Import Great Expectations in a thread beside what comes before the gate: seconds, most of which is waited for.

    Why it cannot be imported is told by the gate, whose own import fails for the same reason.
    Returns: the thread; None when there is nothing to judge, or it is imported already.
    """
    if not specs or _LOADED in sys.modules:
        return None
    thread = threading.Thread(target=_load, name="quality-gate", daemon=True)
    thread.start()
    return thread


def preload() -> None:
    """Import Great Expectations ahead of its use; that it cannot be is told by the gate."""
    with silence_library():
        _load()


def _load() -> None:
    try:
        _import()
    except _IMPORT_ERRORS as error:
        _LOG.info("Great Expectations was not imported ahead of the gate: %s", error)


def _import() -> None:
    """What judging needs, in the order in which `build_expectations` and `validate_rows` need it."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at import
    import great_expectations.data_context.types.base
    import great_expectations.expectations  # noqa: F401  (registers the expectation types)


def build_expectations(spec: QualitySpec) -> list[Any]:
    """Return the library's expectations, numbered in `meta`: it answers in an order of its own."""
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
    every = []
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
            every.append(kind(**expectation.arguments, severity=expectation.severity, meta={"number": number}))
        except (ValueError, TypeError) as error:  # pydantic's ValidationError is a ValueError
            problem = _first_problem(error).rstrip(".")
            raise InvalidRequest(f"{where}: {problem}. Nothing was published.") from error
    return every


def build_expectation(type_: str, arguments: Mapping[str, Any], number: int) -> Any:
    """Return an expectation of the library that stands for the one with this number in a suite; it is loaded."""
    from great_expectations.expectations import registry

    return registry.get_expectation_impl(type_)(**arguments, meta={"number": number})


def validate_rows(
    expectations: Sequence[Any],
    rows: pa.Table,
    result_format: Mapping[str, Any],
    nullable: Collection[str] | None = None,
) -> dict[int, Any]:
    """Return what the library answers about rows, by the numbers of the expectations.

    Those for which it makes floats of decimals are asked about floats. It would make them in the frame itself, in the
    middle of other questions about the same column, and it cannot where one is null.

    Args:
        nullable: as `to_pandas` has it.
    """
    if not expectations:
        return {}
    frame = to_pandas(rows, nullable)
    of_floats = [one for one in expectations if one.expectation_type in _OF_FLOATS]
    found = _validate_frame(
        [one for one in expectations if one.expectation_type not in _OF_FLOATS], frame, result_format
    )
    if of_floats:
        for name in [field.name for field in rows.schema if pa.types.is_decimal(field.type)]:
            frame[name] = frame[name].map(float, na_action="ignore").astype("float64")
        found |= _validate_frame(of_floats, frame, result_format)
    # The library's objects refer to one another and to the frame: they stay until a collection of all garbage, which is
    # rare where much is imported. The rows of epoch after epoch would stay with them.
    frame.drop(columns=frame.columns, inplace=True)
    return found


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
    """Return a frame of the rows.

    Args:
        nullable: columns that have a null, maybe in rows that are not here; None: those that have one here.
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
    having = columns_with_nulls(table) if nullable is None else nullable
    with_nulls = [name for name in table.column_names if name in having]
    far = {name: values for name in table.column_names if (values := far_values(table.column(name))) is not None}
    nullables = table.select([name for name in with_nulls if name not in far]).to_pandas(types_mapper=exact.get)
    full = table.drop_columns([*{*with_nulls, *far}]).to_pandas()
    objects = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in far.items()})
    return pd.concat([nullables, full, objects], axis=1)[table.column_names]


def columns_with_nulls(table: pa.Table) -> list[str]:
    return [name for name in table.column_names if table.column(name).null_count]


def exception_of(found: Any) -> str | None:
    """Return one line of what an expectation raised: the library gives one record, or one per metric, or none.

    An expectation without an answer counts as one that raised.
    """
    if found is None:
        return NO_ANSWER
    info = found.exception_info
    records = [info] if info and "raised_exception" in info else list((info or {}).values())
    for record in records:
        if record["raised_exception"]:
            lines = str(record["exception_message"] or "").strip().splitlines()
            return (lines[0] if lines else "an exception without a message")[:_EXCEPTION_LENGTH]
    return NO_ANSWER if found.success is None else None


def _first_problem(error: Exception) -> str:
    problems = getattr(error, "errors", None)
    if problems is None:
        return str(error).splitlines()[0]
    first = problems()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "__root__")
    return f"`{place}`: {first['msg']}" if place else str(first["msg"])


@contextmanager
def silence_library() -> Iterator[None]:
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
