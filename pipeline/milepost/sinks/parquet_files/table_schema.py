"""Schema evolution, and the latest row per key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest, StateCorrupt
from milepost.tables.records import RowsPiece

_WORD_BITS = 64


def rows_to_stage(sink: str, pieces: Iterable[RowsPiece], key: tuple[str, ...], *, upsert: bool) -> Iterator[pa.Table]:
    """Yield the rows to stage: of an upsert table the last row of each key. Raises as `check_rows_schema`."""
    for rows in latest_by_part(pieces, key) if upsert else (piece.rows for piece in pieces):
        check_rows_schema(sink, rows.schema, key)
        yield rows


def check_rows_schema(sink: str, schema: pa.Schema, key: tuple[str, ...]) -> None:
    """Refuse rows with no columns, repeated columns, or a missing or nested key column.

    Raises: InvalidRequest, naming the column.
    """
    if not schema.names:
        raise InvalidRequest(f"sink {sink}: the rows have no columns. Nothing was published.")
    repeated = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if repeated:
        raise InvalidRequest(f"sink {sink}: column {repeated[0]!r} occurs more than once. Nothing was published.")
    for name in key:
        if name not in schema.names:
            raise InvalidRequest(
                f"sink {sink}: key column {name!r} is not a column of its rows ({', '.join(schema.names)}). "
                "Nothing was published."
            )
        if pa.types.is_nested(schema.field(name).type):
            raise InvalidRequest(
                f"sink {sink}: key column {name!r} has the type {schema.field(name).type}; a key is a single value. "
                "Nothing was published."
            )


def changes_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a changelog of rows with this schema."""
    return schema.append(pa.field("_op", pa.string())).append(pa.field("_checkpoint", pa.int64()))


def as_changes(rows: pa.Table, ops: pa.Array, checkpoint_id: int) -> pa.Table:
    """Return changelog rows: each with its operation, and the checkpoint that publishes it."""
    checkpoints = pa.repeat(pa.scalar(checkpoint_id, pa.int64()), rows.num_rows)
    return pa.table([*rows.columns, ops, checkpoints], schema=changes_schema(rows.schema))


def merged_schema(sink: str, table: pa.Schema | None, rows: pa.Schema) -> pa.Schema:
    """Return the table's schema after `rows` are added: the table's columns in its order, then new ones.

    All columns of a table are nullable, because files from before a column was added have no value for it.

    Raises: InvalidRequest: a column has another type, is missing, or is new but not nullable.
    """
    rows = rows.remove_metadata()
    if table is None:
        return pa.schema([field.with_nullable(True) for field in rows])
    for field in table:
        if field.name not in rows.names:
            raise InvalidRequest(
                f"sink {sink}: column {field.name!r} of the table is missing from the rows. Nothing was published.",
                hint="keep the column, or give the sink a new path",
                column=field.name,
            )
        _check_type(sink, field, rows.field(field.name))
    added = [field for field in rows if field.name not in table.names]
    for field in added:
        if not field.nullable:
            raise InvalidRequest(
                f"sink {sink}: the new column {field.name!r} is declared not null, but the rows already in the table "
                "have no value for it. Nothing was published.",
                hint="make it nullable, or give the sink a new path",
                column=field.name,
            )
    return pa.schema([*table, *added])


def widened_schema(sink: str, table: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """Return the table's schema widened to hold the rows: its own columns, then the new ones, nullable.

    A rollback does not remove columns that were added later.

    Raises: InvalidRequest: a column has another type.
    """
    for field in rows:
        if field.name in table.names:
            _check_type(sink, table.field(field.name), field)
    return pa.schema([*table, *(field.with_nullable(True) for field in rows if field.name not in table.names)])


def _check_type(sink: str, field: pa.Field, column: pa.Field) -> None:
    if not column.type.equals(field.type):
        raise InvalidRequest(
            f"sink {sink}: column {field.name!r} has the type {column.type}, in the table it is {field.type}. "
            "Nothing was published.",
            hint=f"cast it to {field.type}, or give the sink a new path",
            column=field.name,
        )


def conform(key: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the file's rows with the table's columns; null for columns that are newer than the file.

    Raises: StateCorrupt: the file has an unknown column, or a column of another type.
    """
    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)], field.type))
            continue
        column = rows.column(field.name)
        if column.type.equals(_type_in_parquet(field.type)):
            column = column.cast(field.type)
        if not column.type.equals(field.type):
            raise StateCorrupt(
                f"{key}: column {field.name!r} has the type {column.type}, the table's is {field.type}", key=key
            )
        columns.append(column)
    extra = sorted(set(rows.column_names) - set(schema.names))
    if extra:
        raise StateCorrupt(f"{key}: column {extra[0]!r} is not a column of the table", key=key)
    return pa.table(columns, schema=schema)


def _type_in_parquet(data_type: pa.DataType) -> pa.DataType:
    """Return the type of a column after a round trip through Parquet, which stores seconds as milliseconds."""
    if pa.types.is_timestamp(data_type) and data_type.unit == "s":
        return pa.timestamp("ms", data_type.tz)
    if pa.types.is_list(data_type):
        item = data_type.value_field
        return pa.list_(item.with_type(_type_in_parquet(item.type)))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_type_in_parquet(field.type)) for field in data_type])
    return data_type


def latest_per_key(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Return the last row of each key, in the order of `rows`; nulls in a key equal each other.

    Without key columns all rows have one key.
    """
    if not key:
        return rows.slice(max(0, rows.num_rows - 1))
    position = "__position"
    while position in rows.column_names:
        position += "_"
    numbers = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    numbered = rows.select(list(key)).append_column(position, numbers)
    last = numbered.group_by(list(key)).aggregate([(position, "max")]).column(f"{position}_max")
    if len(last) == rows.num_rows:
        return rows
    return rows.take(last.combine_chunks().sort())


def sorted_latest(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Return the rows of `latest_per_key` sorted by key, nulls last. Faster if much of it is sorted already.

    A stable sort keeps the order of equal keys, so the last row of each run of equal keys is the latest one:

        k, v of `rows`      b1 d1 f1 | d2 a2        a base file, and what an epoch changed
        sorted by k         a2 b1 d1 d2 f1
        next has the same k  .  .  x  .  .          d1 is dropped
    """
    if not key:
        return latest_per_key(rows, key)
    by_key = [(name, "ascending") for name in key]
    if any(pa.types.is_floating(rows.schema.field(name).type) for name in key):
        return latest_per_key(rows, key).sort_by(by_key)  # a NaN is not equal to itself
    keys = rows.select(list(key)).combine_chunks()
    order = _packed_order(keys)
    if order is None:
        order = pc.sort_indices(keys, sort_keys=by_key)
    columns = [keys.column(name).combine_chunks().take(order) for name in key]
    repeated = [_equals_next(column) for column in columns]
    last = pc.invert(reduce(pc.and_, repeated))
    return rows.take(order.filter(pa.concat_arrays([last, pa.array([True] * min(1, len(order)), pa.bool_())])))


def _packed_order(keys: pa.Table) -> pa.Array | None:
    """Return the stable sort order of an integer key, five times as fast as by columns; None if it does not apply.

    Value and position are packed into one 64-bit word and sorted together. Keys 7 5 7, with 2 bits for positions:
    (2 << 2 | 0) (0 << 2 | 1) (2 << 2 | 2) = 8 1 10, sorted 1 8 10, positions 1 0 2. There must be one key column, no
    nulls, and room for the positions in the word.
    """
    column = keys.column(0)
    if keys.num_columns > 1 or not pa.types.is_integer(column.type) or column.null_count or not len(column):
        return None
    values = column.to_numpy()
    lowest, highest = int(values.min()), int(values.max())
    bits = (len(values) - 1).bit_length()
    if (highest - lowest).bit_length() + bits > _WORD_BITS:
        return None
    from_lowest = values.astype(np.uint64) - np.uint64(lowest % (1 << _WORD_BITS))  # modulo 2^64, so exact
    packed = (from_lowest << np.uint64(bits)) | np.arange(len(values), dtype=np.uint64)
    packed.sort()
    return pa.array(packed & np.uint64((1 << bits) - 1))


def _equals_next(column: pa.Array) -> pa.Array:
    """Return for each value but the last whether the next one equals it. Nulls equal each other."""
    values, following = column.slice(0, max(0, len(column) - 1)), column.slice(1)
    equal = pc.fill_null(pc.equal(values, following), False)
    return equal if not column.null_count else pc.or_(equal, pc.and_(values.is_null(), following.is_null()))


def latest_by_part(pieces: Iterable[RowsPiece], key: tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield the last row of each key, part by part. Adjacent pieces of part 0, whose keys are unknown, are merged."""
    for _, group in groupby(pieces, key=lambda piece: piece.part):
        of_part = list(group)
        rows = pa.concat_tables([piece.rows for piece in of_part])
        yield rows if len(of_part) == 1 and of_part[0].distinct else latest_per_key(rows, key)
