"""Detect whether Spark still evaluates SQL over updates to the same rows.

A retraction is computed again, possibly by another Spark, Java or time zone database than the insertion. So each SELECT
is evaluated on pinned input rows: nulls, both zeros, the limits of each type, text beyond ASCII, times before 1970 and
at daylight-saving changes. A row on which a SELECT fails is evaluated alone, and its error condition is the answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from milepost.epoch import EpochPlan, SparkAnswers, check_answers
from milepost.protocol.records import WEIGHT_COLUMN
from milepost.spark.driver.compat import to_arrow_schema
from milepost.spark.driver.sql_projection import CONTROL, added, collect, wide_type
from milepost.spark.task.outputs import SqlOutput, sql_outputs
from milepost.spark.task.planning.levels import EpochLevels
from milepost.spark.task.row_steps.sql_expression import SelectedBranch, column_of, selects

ROWS = 24
"""Number of pinned rows per SELECT."""
_IDENTITY = """SELECT version() AS spark,
    java_method('java.lang.System', 'getProperty', 'java.runtime.version') AS java,
    java_method('java.time.zone.ZoneRulesProvider', 'getVersions', 'UTC') AS zones"""
_TEXTS = ("", "a", None, "Straße İx", "12", "-0.5", "a,b;c d", "2024-02-29", "2024-03-10 02:30:00", '{"a": [1, "x"]}',
          "Zürich 𐐷 ǆ", "  x ", "true", "America/New_York", "2024-10-27T01:30:00 Europe/Berlin")  # fmt: skip
_TIMES = ("1900-01-01T00:00:00", "1969-12-31T23:59:59.999999", "2024-03-10T07:30:00", "2024-11-03T05:30:00",
          "2024-03-31T01:30:00", "2050-07-01T12:00:00.500000", "1582-10-04T12:00:00",
          "2024-02-29T10:11:12.131415")  # fmt: skip
_INSTANTS = (None, *(datetime.fromisoformat(text).replace(tzinfo=UTC) for text in _TIMES))
_DATES = (None, *(datetime.fromisoformat(text).date() for text in _TIMES), date(9999, 12, 31))
_WHOLE = (0, None, 1, -1, 7, 100, 12)
_FLOATS = (0.0, None, -0.0, 1.5, -2.25, float("nan"), float("inf"), 1e-7, 0.1, 1e300)
_DIGITS = ("0", None, "1", "-1", "2.5", "-0.05", "99")


def spark_answers(session: SparkSession, plan: EpochPlan, levels: EpochLevels) -> Mapping[str, SparkAnswers]:
    """Return Spark's answers for each operator whose SQL computes rows that may be retracted, by uid.

    Nothing is evaluated for a job without such SQL, or if the same Spark's answers to the same SQL are recorded.

    Raises:
        InvalidRequest: state holds rows that were computed under other answers.
    """
    answers: dict[str, SparkAnswers] = {}
    spark = ""
    for output in sql_outputs(plan.graph):
        branches = [*_selects_over_updates(plan, output, levels.schemas)]
        if not branches:
            continue
        spark = spark or _identity(session, plan)
        key = _digest(
            [spark, *(f"{one.expression.text} {one.expression.list_sql} {schema}" for one, schema in branches)]
        )
        recorded = next(
            (one[output.node.uid] for one in plan.recorded_answers.values() if output.node.uid in one), None
        )
        if recorded is not None and recorded.query_digest == key:
            answers[output.node.uid] = recorded
        else:
            texts = [text for one, schema in branches for text in _answers(session, one, schema, pinned_rows(schema))]
            answers[output.node.uid] = SparkAnswers(_digest(texts), key)
    check_answers(plan.spec.name, {uid: plan.recorded_answers.get(uid, {}) for uid in plan.states}, answers)
    return answers


def _selects_over_updates(
    plan: EpochPlan, output: SqlOutput, schemas: Mapping[str, pa.Schema]
) -> Iterator[tuple[SelectedBranch, pa.Schema]]:
    """Yield the SELECTs with weighted input, and the schema of that input. Append-only inputs are skipped."""
    available = {name: (column_of(name),) for name in output.inputs.values()}
    for branch in selects(plan.spec, output, schemas, available):
        if WEIGHT_COLUMN in schemas[branch.input].names:
            yield branch, schemas[branch.input]


def _identity(session: SparkSession, plan: EpochPlan) -> str:
    """Return the identity of a Spark: its version, its Java, its time zone database and its settings."""
    (row,) = session.sql(_IDENTITY).collect()
    zones = str(row.zones).partition("=")[0]
    return json.dumps([row.spark, row.java, zones, sorted(plan.spec.spark.conf.items())])


def _answers(session: SparkSession, branch: SelectedBranch, schema: pa.Schema, rows: pa.Table) -> list[str]:
    """Return a SELECT's answers on some rows. If it fails on several rows, evaluate each half."""
    struct = pa.StructArray.from_arrays([column.combine_chunks() for column in rows.columns], fields=list(schema))
    wide = pa.table([pa.nulls(len(rows), pa.binary()), struct], names=[CONTROL, column_of(branch.input)])
    try:
        frame = session.createDataFrame(wide, wide_type({branch.input: schema}))
        selected = added(frame, branch.expression).select(f"`{branch.expression.column}`")
        made = collect(selected)
    except PySparkException as error:
        if len(rows) == 1:
            return [f"fails: {error.getCondition()}"]
        half = len(rows) // 2
        return [
            *_answers(session, branch, schema, rows.slice(0, half)),
            *_answers(session, branch, schema, rows.slice(half)),
        ]
    values = [value for value in made.column(0).to_pylist() if value is not None]
    return [str(to_arrow_schema(selected.schema).field(0).type), *sorted(map(repr, values))]


def pinned_rows(schema: pa.Schema) -> pa.Table:
    """Return `ROWS` constant rows of a schema. The weights are 1, 2, 3 and so on.

    Column i starts at the i-th pinned value of its type, so columns of one type differ. Two bigint columns::

        a: 0, null, 1, -1, 7, ...
        b: null, 1, -1, 7, 100, ...
    """
    columns = [
        pa.array(range(1, ROWS + 1), pa.int64())
        if field.name == WEIGHT_COLUMN
        else pa.array([_value(field.type, row + place) for row in range(ROWS)], field.type)
        for place, field in enumerate(schema)
    ]
    return pa.table(columns, schema=schema)


def _value(type_: pa.DataType, number: int) -> Any:
    """Return a type's pinned value with this number. The values repeat: `_TEXTS` has 15, so number 15 is number 0."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return (None, [], [_value(type_.value_type, number + 1), _value(type_.value_type, number)])[number % 3]
    if pa.types.is_struct(type_):
        fields = [type_.field(place) for place in range(type_.num_fields)]
        return {field.name: _value(field.type, number + place) for place, field in enumerate(fields)}
    if pa.types.is_map(type_):
        return None if number % 2 else [(_value(type_.key_type, 0), _value(type_.item_type, number))]
    if pa.types.is_integer(type_):
        most = 2 ** (type_.bit_width - 1)
        return (*_WHOLE, most - 1, -most)[number % (len(_WHOLE) + 2)]
    if pa.types.is_decimal(type_):
        return _decimal(type_, _DIGITS[number % len(_DIGITS)])
    values: tuple[Any, ...] = (None,)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        values = _TEXTS
    elif pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        values = (None, b"", b"a\xff\x00")
    elif pa.types.is_boolean(type_):
        values = (True, None, False)
    elif pa.types.is_floating(type_):
        values = _FLOATS
    elif pa.types.is_date(type_):
        values = _DATES
    elif pa.types.is_timestamp(type_):
        values = _INSTANTS if type_.tz is not None else tuple(one and one.replace(tzinfo=None) for one in _INSTANTS)
    return values[number % len(values)]


def _decimal(type_: pa.DataType, text: str | None) -> Decimal | None:
    """Return a number as a decimal of a type, clamped to its range: "99" as decimal(2, 1) is 9.9."""
    if text is None:
        return None
    with localcontext() as context:
        context.prec = 2 * type_.precision + 20
        most = Decimal(10**type_.precision - 1).scaleb(-type_.scale)
        return max(-most, min(most, Decimal(text).quantize(Decimal(1).scaleb(-type_.scale))))


def _digest(texts: list[str]) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]
