"""Read a table of an operator's state from a file, strictly and a few rows at a time."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from milepost.errors import InvalidRequest, NotFound
from milepost.jobmaster.compatibility.expected_operators import expected_operator
from milepost.jobmaster.job.code import LoadedCode
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.savepoints.csv_content import CsvContent
from milepost.operators import ONLY_TABLE, StatefulOperator
from milepost.operators.base import StatefulSpec
from milepost.protocol.records import file_url
from milepost.spill import SpilledRows, ordered_rows, reading_scratch
from milepost.state.layers import key_numbers
from milepost.storage import stored_file

_CSV_BLOCK_BYTES = 16 << 20


def read_table(
    context: JobContext, loaded: LoadedCode, spec: StatefulSpec, file: str
) -> tuple[StatefulOperator, SpilledRows]:
    """Read a table of an operator's state. It must have exactly the state's columns and types, and no key twice.

    Types that only Spark knows are taken from the table, for CSV from its first 16 MB. The first epoch verifies them.

    Returns: the operator with this state, and its rows.
    Raises: NotFound: no such file. InvalidRequest: the table does not fit the state.
    """
    url = file if "://" in file else file_url(Path(file).absolute())
    folder, _, name = url.rpartition("/")
    with ExitStack() as opened:
        try:
            body = opened.enter_context(stored_file(context.store_at(folder), name))
        except NotFound as error:
            raise NotFound(
                f"there is no file {file} with the state of operator {spec.uid}. Nothing was changed.", uid=spec.uid
            ) from error
        return _read_table(loaded, spec, file, name, body)


def _read_table(
    loaded: LoadedCode, spec: StatefulSpec, file: str, name: str, body: IO[bytes]
) -> tuple[StatefulOperator, SpilledRows]:
    def refused(error: Exception) -> InvalidRequest:
        problem = f"it cannot be read: {str(error).splitlines()[0]}"
        return InvalidRequest(f"{file}, the state of operator {spec.uid}: {problem}. Nothing was changed.")

    with reading_scratch(refused):
        operator = expected_operator({ONLY_TABLE: _columns(name, body)}, spec, loaded.graph, loaded)
        assert operator is not None, "every class is loaded"
        if len(operator.tables) > 1:
            raise InvalidRequest(
                f"operator {spec.uid}: its state has the tables {', '.join(map(repr, operator.tables))}; one table "
                "can be bootstrapped in this version. Nothing was changed.",
                hint="leave count(distinct …) out, and over updates min, max, arg_min, arg_max",
                uid=spec.uid,
            )
        expected = pa.schema([pa.field(field.name, field.type) for field in operator.tables[ONLY_TABLE].schema])
        with _opened(name, body, expected) as (schema, pieces):
            types = {field.name: field.type for field in schema}
            expected_types = {field.name: field.type for field in expected}
            if types != expected_types or len(schema) != len(expected_types):
                raise _unfit(operator, file, _differences(types, expected_types) or "a column occurs twice")
            rows = SpilledRows(expected, (piece.select(expected.names).cast(expected) for piece in pieces))
    if not rows.num_rows:
        raise _unfit(operator, file, "it has no rows")
    repeated = rows.num_rows - _distinct_keys(rows, operator.tables[ONLY_TABLE].key)
    if repeated:
        raise _unfit(operator, file, f"{repeated} of its rows repeat the key of another")
    return operator, rows


def _differences(types: Mapping[str, pa.DataType], expected: Mapping[str, pa.DataType]) -> str:
    wrong = sorted(name for name in {*types, *expected} if types.get(name) != expected.get(name))
    return ", ".join(f"{name}: {types.get(name, 'absent')}, expected {expected.get(name, 'absent')}" for name in wrong)


def _distinct_keys(rows: SpilledRows, key: Sequence[str]) -> int:
    """Return the number of distinct keys of the rows."""

    def once(keys: pa.Table) -> pa.Table:
        keys = keys.combine_chunks()
        return keys.take(pa.array(np.unique(key_numbers(keys), return_index=True)[1]))

    return sum(keys.num_rows for keys in ordered_rows((piece.select(list(key)) for piece in rows), key, once))


def _columns(name: str, body: IO[bytes]) -> pa.Schema:
    """Return the columns of a file."""
    with _opened(name, body, None) as (columns, _):
        return columns


@contextmanager
def _opened(name: str, body: IO[bytes], expected: pa.Schema | None) -> Iterator[tuple[pa.Schema, Iterator[pa.Table]]]:
    """Yield the columns of a file, for CSV with the expected types, and its rows in batches.

    In CSV binary values are base64, as `milepost state` writes them.
    """
    suffix = Path(name).suffix
    if suffix == ".parquet":
        body.seek(0)
        file = pq.ParquetFile(pa.PythonFile(body, mode="r"))
        yield file.schema_arrow, map(file.read_row_group, range(file.num_row_groups))
    elif suffix == ".csv":
        content = CsvContent(body)
        binary = [field.name for field in expected or () if pa.types.is_binary(field.type)]
        types = {field.name: pa.string() if field.name in binary else field.type for field in expected or ()}
        convert = pyarrow.csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        reading = pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES)
        # Otherwise a quoted newline at the end of a block would silently start another row.
        parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
        source = pa.PythonFile(content, mode="r")
        try:
            reader = pyarrow.csv.open_csv(source, read_options=reading, parse_options=parsing, convert_options=convert)
            decode = partial(_with_binary, binary)
            yield decode(reader.schema.empty_table()).schema, map(decode, content.rows(reader))
        finally:
            content.end()
    else:
        raise InvalidRequest(f"{name}: expected a file .parquet or .csv. Nothing was changed.")


def _with_binary(columns: Sequence[str], rows: pa.Table) -> pa.Table:
    """Return rows with some columns decoded from base64. Raises ArrowInvalid: a value is not base64."""
    for name in columns:
        if (at := rows.schema.get_field_index(name)) < 0:
            continue
        try:
            values = [None if text is None else b64decode(text, validate=True) for text in rows.column(at).to_pylist()]
        except ValueError as problem:
            raise pa.ArrowInvalid(f"column {name} is binary, which CSV has as base64: {problem}") from None
        rows = rows.set_column(at, name, pa.array(values, pa.binary()))
    return rows


def _unfit(operator: StatefulOperator, file: str, problem: str) -> InvalidRequest:
    table = operator.tables[ONLY_TABLE]
    columns = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
    return InvalidRequest(
        f"{file} is no table of the state of operator {operator.uid}: {problem}. Nothing was changed.",
        hint=f"its columns are {columns}; its key is {', '.join(table.key)}, each once",
        uid=operator.uid,
    )
