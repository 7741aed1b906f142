"""Evolve state schemas: add, widen and drop columns, and convert old runs when they are read.

Runs are immutable, so a base, its deltas and the newest run can have three different schemas. Each state column
therefore has a *stored name*. A column of the first schema is stored under its own name. A column that is added later
gets a stored name that no other column ever had. A column that is dropped and added again is a new column:

    checkpoint 3   schema k, n             runs store k, n
    checkpoint 5   n dropped               runs store k
    checkpoint 7   n added (stamp "7")     runs store k, __n#7; for older runs n is null, even if they have an n

A widened column keeps its stored name. Narrower values of old runs are cast when they are read.

The recorded schema includes field metadata: the stored name, whether a column may begin as null, and the decimal places
of an exact sum.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.protocol.records import BEGINS_NULL, ROW_IDENTITY, SCALE, CheckpointFailureReason

STORED_AS = b"milepost.stored_as"
_INTEGER_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_EXACT_IN_FLOAT = {pa.float32(): 16, pa.float64(): 32}
_COARSE_TO_FINE = ("s", "ms", "us")


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """Differences between a recorded state schema and the operator's current one.

    Attributes:
        added, dropped: column names.
        widened: column -> (recorded type, current type).
        problems: reasons why the recorded state cannot be used, as text; empty if it can.
    """

    added: tuple[str, ...]
    dropped: tuple[str, ...]
    widened: Mapping[str, tuple[pa.DataType, pa.DataType]]
    problems: tuple[str, ...]

    @property
    def converts(self) -> bool:
        """Whether a restore must convert the recorded state."""
        return bool(self.added or self.dropped or self.widened)

    def words(self) -> str:
        """Return the conversion as one line of text."""
        parts = [f"{name} becomes {now} (was {before})" for name, (before, now) in self.widened.items()]
        parts += [f"{name} is new and begins as null" for name in self.added]
        parts += [f"{name} is dropped" for name in self.dropped]
        return "; ".join(parts)


def widens(before: pa.DataType, now: pa.DataType) -> bool:
    """Return whether one type represents every value of another exactly. Transitive, and true for equal types.

    Integers widen to wider integers, to floats that represent all of them, and to decimals with enough digits. float32
    widens to float64. Decimals keep all their digits. Timestamps widen to finer units of the same
    time zone, down to microseconds. A list widens with its element, a struct with its fields, which keep their names
    and order.
    """
    if before == now:
        return True
    if before in _INTEGER_BITS:
        bits = _INTEGER_BITS[before]
        if now in _INTEGER_BITS:
            return bits <= _INTEGER_BITS[now]
        if now in _EXACT_IN_FLOAT:
            return bits <= _EXACT_IN_FLOAT[now]
        return bool(pa.types.is_decimal(now)) and now.precision - now.scale >= _INTEGER_DIGITS[bits]
    if pa.types.is_decimal(before) and pa.types.is_decimal(now):
        return bool(now.scale >= before.scale and now.precision - now.scale >= before.precision - before.scale)
    if pa.types.is_timestamp(before) and pa.types.is_timestamp(now):
        finer = before.unit in _COARSE_TO_FINE and now.unit in _COARSE_TO_FINE
        return finer and before.tz == now.tz and _COARSE_TO_FINE.index(before.unit) <= _COARSE_TO_FINE.index(now.unit)
    if pa.types.is_list(before) and pa.types.is_list(now):
        return widens(before.value_type, now.value_type)
    if pa.types.is_struct(before) and pa.types.is_struct(now):
        pairs = list(zip(before, now, strict=False))
        same = before.num_fields == now.num_fields and all(old.name == new.name for old, new in pairs)
        return same and all(widens(old.type, new.type) for old, new in pairs)
    return before == pa.float32() and now == pa.float64()


def _widens_key(before: pa.DataType, now: pa.DataType) -> bool:
    """Return whether equal keys stay equal and in their key group: integers, timestamps, decimals of equal scale.

    Floats do not: the text 0.1 parsed as float64 differs from the float32 in the state.
    """
    if before in _INTEGER_BITS or pa.types.is_timestamp(before):
        return widens(before, now) and (now in _INTEGER_BITS or pa.types.is_timestamp(now))
    if pa.types.is_decimal(before) and pa.types.is_decimal(now):
        return before.scale == now.scale and widens(before, now)
    return before == now


def compare_schemas(
    before: pa.Schema, now: pa.Schema, key: Collection[str], tie_break: Sequence[str] = ()
) -> SchemaChange:
    """Compare a recorded state schema with the operator's current one.

    Args:
        before: recorded with the checkpoint.
        now: current schema of the operator.
        key: columns that currently identify a row.
        tie_break: columns that currently decide between equal rows, in the order of comparison.
    """
    added: list[str] = []
    widened: dict[str, tuple[pa.DataType, pa.DataType]] = {}
    problems: list[str] = []
    for field in now:
        index = before.get_field_index(field.name)
        if index < 0:
            if field.metadata is not None and BEGINS_NULL in field.metadata:
                added.append(field.name)
            else:
                problems.append(_missing_column_problem(field.name, key))
            continue
        recorded = before.field(index)
        scales = [scale for scale in (_scale(recorded), _scale(field)) if scale is not None]
        if (ROW_IDENTITY in (recorded.metadata or {})) != (ROW_IDENTITY in (field.metadata or {})):
            problems.append("its rows are identified in a different way")
        elif len(set(scales)) > 1:
            problems.append(f"{field.name} is stored with {scales[0]} decimal places, the column now has {scales[1]}")
        elif recorded.type == field.type:
            continue
        elif (_widens_key if field.name in key else widens)(recorded.type, field.type):
            widened[field.name] = (recorded.type, field.type)
        else:
            what = f"key column {field.name}" if field.name in key else field.name
            problems.append(f"{what} is {recorded.type}, which cannot become {field.type} exactly")
    dropped = [name for name in before.names if now.get_field_index(name) < 0]
    problems += [f"{name} was part of the state" for name in dropped if name.startswith("__")]
    former, current = [
        [name for name in names if name in tie_break and name in before.names] for names in (before.names, tie_break)
    ]
    if former != current:
        problems.append(_tie_break_problem(former, current))
    return SchemaChange(tuple(added), tuple(dropped), widened, tuple(problems))


def _missing_column_problem(name: str, key: Collection[str]) -> str:
    if name in key:
        return f"key column {name} is new, and the recorded state is not keyed by it"
    if name.startswith("__"):
        return "the expiry of its keys was not recorded"
    return f"{name} is unknown for the rows that were already consumed"


def _tie_break_problem(former: Sequence[str], current: Sequence[str]) -> str:
    """Return the problem of a changed tie-break order, and how to restore the former order."""
    by_name = " (sorted by name, as earlier versions did in Airflow)" if list(former) == sorted(former) else ""
    return (
        f"ties were broken by the columns {', '.join(former)} in this order{by_name}, and would now be broken by "
        f"{', '.join(current)}; to continue with this state, declare the columns in their former order"
    )


def new_name_hint(uid: str) -> str:
    """Return how to continue if the recorded state of an operator or of a step of a SQL statement does not fit."""
    statement = uid.partition("__")[0]
    if statement == uid:
        return "undo the change; or give the operator a new uid and add --allow-non-restored-state"
    return (
        f"undo the change, or keep the types of its columns by CAST; or give statement {statement} a new name and add "
        "--from-now-on --allow-non-restored-state, which begins new tables"
    )


def evolve_schema(
    uid: str,
    before: pa.Schema | None,
    now: pa.Schema,
    key: Collection[str],
    stamp: str,
    tie_break: Sequence[str] = (),
) -> pa.Schema:
    """Return the operator's state schema with the stored name of each column, as checkpoints record it.

    Args:
        before: recorded with the restored checkpoint; None if it has no state of this operator.
        stamp: part of the stored names of added columns. It is unique to the epoch, also across jobs, because state can
            come from another job's savepoint.
        tie_break: as in `compare_schemas`.
    Raises:
        InvalidRequest: the recorded state cannot be converted.
    """
    if before is None:
        return now
    change = compare_schemas(before, now, key, tie_break)
    if change.problems:
        raise InvalidRequest(
            f"operator {uid}: its recorded state cannot be continued: {'; '.join(change.problems)}. "
            "Nothing was published.",
            hint=new_name_hint(uid),
            uid=uid,
            reason=CheckpointFailureReason.SPEC_REFUSED.value,
        )
    fields = []
    for field in now:
        added = field.name in change.added
        stored = f"__{field.name}#{stamp}" if added else stored_name(before.field(field.name))
        metadata = {name: value for name, value in (field.metadata or {}).items() if name != STORED_AS}
        if ROW_IDENTITY in metadata and not added:
            metadata[ROW_IDENTITY] = _identity_columns(
                before.field(field.name).metadata[ROW_IDENTITY], metadata[ROW_IDENTITY]
            )
        fields.append(field.with_metadata(metadata | ({STORED_AS: stored.encode()} if stored != field.name else {})))
    return pa.schema(fields)


def _identity_columns(before: bytes, now: bytes) -> bytes:
    """Return the columns that a row's identity covers, in their recorded order if the set of columns is unchanged.

    The identity hashes the values in order. In another order it would not match the stored row.
    """
    return before if sorted(json.loads(before)) == sorted(json.loads(now)) else now


def stored_name(field: pa.Field) -> str:
    """Return the name that a state column has in runs."""
    stored = (field.metadata or {}).get(STORED_AS)
    return str(field.name) if stored is None else stored.decode()


def stored_names(schema: pa.Schema) -> tuple[str, ...]:
    return tuple(stored_name(field) for field in schema)


def convert_rows(run: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a run's rows to the columns and types of the operator's state schema.

    Args:
        run: object key, for messages.
        rows: as stored in the run.
        schema: of the operator, with stored names.
    Raises:
        InvalidRequest: the run lacks a column of the first schema, or has a column that does not widen.
    """
    columns = []
    problems = []
    for field in schema:
        stored = stored_name(field)
        index = rows.schema.get_field_index(stored)
        if index < 0 and stored != field.name:
            columns.append(pa.nulls(rows.num_rows, field.type))
        elif index < 0:
            problems.append(f"{field.name}: not stored, now {field.type}")
        elif not _reads_as(rows.schema.field(index).type, field.type):
            problems.append(f"{field.name}: stored {rows.schema.field(index).type}, now {field.type}")
        else:
            columns.append(_cast(run, rows.column(index), field))
    if problems:
        raise InvalidRequest(
            f"state run {run} has another schema than the operator ({', '.join(problems)}). Nothing was changed.",
            hint="Give the changed operator a new uid; its state then starts empty.",
        )
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    return pa.table(columns, schema=plain).combine_chunks()


def _reads_as(stored: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a stored type reads exactly as another: a narrower type, or Parquet's substitute for it."""
    if pa.types.is_list(stored) and pa.types.is_list(target):
        return _reads_as(stored.value_type, target.value_type)
    if pa.types.is_struct(stored) and pa.types.is_struct(target) and stored.num_fields == target.num_fields:
        return all(
            old.name == new.name and _reads_as(old.type, new.type) for old, new in zip(stored, target, strict=True)
        )
    if pa.types.is_timestamp(target) and target.unit == "s":
        return stored == target or stored == pa.timestamp("ms", target.tz)
    return widens(stored, target)


def _cast(run: str, values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return values if values.type == field.type else values.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            f"state run {run}: a value of {field.name} does not fit into {field.type}: {error}. Nothing was changed.",
            hint="undo the change of its type",
        ) from error


def _scale(field: pa.Field) -> int | None:
    """Return the decimal places of an exact sum; None if not recorded."""
    scale = (field.metadata or {}).get(SCALE)
    return None if scale is None else int(scale)
