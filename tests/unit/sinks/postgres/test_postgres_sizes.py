"""Rows and keys that a server cannot store are refused before the commit point, and no others (compared with one)."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from milepost.errors import InvalidRequest
from milepost.sinks.formats.postgres.open_postgres_table import column_sql
from milepost.sinks.formats.postgres.postgres_types import check_columns, check_rows
from milepost.sinks.formats.postgres.row_lines import copy_bytes, lines_of
from milepost_testkit import wording
from milepost_testkit.servers.postgres_server import PostgresServer
from tests.conformance.sinks.formats.postgres_sink import shared_database

TEXT = pa.string()
NUMBER = pa.decimal128(38, 10)
KEYS: dict[str, list[pa.DataType]] = {
    "a text": [TEXT],
    "bytes": [pa.binary()],
    "two texts": [TEXT, TEXT],
    "a text and 16 numbers": [TEXT, *[pa.int64()] * 16],
    "small ones between": [pa.bool_(), pa.int64(), pa.int8(), pa.timestamp("us"), pa.date32(), TEXT, pa.int32()],
    "decimals": [NUMBER, TEXT, pa.uint64(), pa.decimal128(3, 2), pa.int64(), pa.decimal128(20, 20), pa.int64()],
    "as many columns as there can be": [*[pa.int16(), pa.int64()] * 15, pa.bool_(), TEXT],
}
LARGEST: dict[pa.DataType, Any] = {
    pa.bool_(): True,
    NUMBER: Decimal("9" * 28 + "." + "9" * 10),
    pa.decimal128(3, 2): Decimal("9.99"),
    pa.decimal128(20, 20): Decimal("0." + "9" * 20),
}


def noise(length: int) -> str:
    """Return text that cannot be compressed."""
    return "".join(random.Random(length).choices(string.ascii_letters + string.digits, k=length))


def one_row(types: list[pa.DataType], length: int) -> pa.Table:
    """Return a row whose texts have so many bytes together, and its other columns their largest values."""
    texts = [number for number, data_type in enumerate(types) if data_type in (TEXT, pa.binary())]
    values: dict[str, pa.Array] = {}
    for number, data_type in enumerate(types):
        value = LARGEST.get(data_type, 1)
        if number in texts:
            value = noise(length // len(texts) + (length % len(texts) if number == texts[0] else 0))
        values[f"c{number}"] = pa.array([value.encode() if data_type == pa.binary() else value], data_type)
    return pa.table(values)


def is_taken(rows: pa.Table, key: list[str]) -> bool:
    try:
        check_rows("totals", rows, tuple(key))
    except InvalidRequest as error:
        assert error.hint
        return False
    return True


def is_stored(server: PostgresServer, rows: pa.Table, key: list[str]) -> bool:
    """Whether the server stores a row in a table that is made as ours are."""
    made = [*(column_sql(field) for field in rows.schema), sql.SQL("_milepost bigint DEFAULT 1")]
    if key:
        made.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
    names = sql.SQL(", ").join(map(sql.Identifier, rows.schema.names))
    with psycopg.connect(shared_database(server).dsn) as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE TEMPORARY TABLE sized ({})").format(sql.SQL(", ").join(made)))
        try:
            with cursor.copy(sql.SQL("COPY sized ({}) FROM STDIN").format(names)) as copy:
                for piece in copy_bytes(lines_of(rows)):
                    copy.write(piece)
        except psycopg.errors.ProgramLimitExceeded:
            connection.rollback()
            return False
        connection.rollback()
        return True


def longest_taken(types: list[pa.DataType], key: list[str]) -> int:
    """Return how many bytes of text are taken, and no more."""
    taken, refused = 0, 4000
    assert is_taken(one_row(types, taken), key) and not is_taken(one_row(types, refused), key)
    while refused - taken > 1:
        middle = (taken + refused) // 2
        taken, refused = (middle, refused) if is_taken(one_row(types, middle), key) else (taken, middle)
    return taken


@pytest.mark.parametrize("types", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("order", [1, -1], ids=["", "reversed"])
def test_the_longest_key_that_is_taken_is_stored_and_one_a_little_longer_is_not(
    postgres: PostgresServer, types: list[pa.DataType], order: int
) -> None:
    """A text of 2,600 bytes and 16 numbers passed, and then failed in the index after the commit point, permanently."""
    types = types[::order]
    key = [f"c{number}" for number in range(len(types))]
    longest = longest_taken(types, key)
    assert is_stored(postgres, one_row(types, longest), key)
    slack = 8 * sum(data_type not in (pa.int64(), pa.timestamp("us")) for data_type in types) + 60
    assert not is_stored(postgres, one_row(types, longest + slack), key), "little more is refused than must be"


def test_a_key_of_one_text_is_measured_exactly(postgres: PostgresServer) -> None:
    assert longest_taken([TEXT], ["c0"]) == 2692
    assert not is_stored(postgres, one_row([TEXT], 2693), ["c0"])


def test_a_key_that_is_too_long_is_named_with_its_sink_and_all_its_columns() -> None:
    types = KEYS["a text and 16 numbers"]
    with wording.raises(InvalidRequest) as refused:
        check_rows("totals", one_row(types, 2600), tuple(f"c{number}" for number in range(17)))
    assert "digest" in refused.value.hint and refused.value.details["sink"] == "totals"


def test_a_key_of_more_columns_than_an_index_has_is_refused_by_the_columns() -> None:
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(33)])
    check_columns("totals", schema, tuple(schema.names[:32]))
    with wording.raises(InvalidRequest):
        check_columns("totals", schema, tuple(schema.names))


ROWS: Mapping[str, list[tuple[pa.DataType, Any]]] = {
    "400 short texts": [(TEXT, "x" * 18)] * 400,
    "400 texts that stay in the row": [(TEXT, "x" * 23)] * 400,
    "330 texts that stay in the row": [(TEXT, "x" * 23)] * 330,
    "400 texts that move out": [(TEXT, noise(200))] * 400,
    "400 nulls": [(TEXT, None)] * 400,
    "more padding than fits": [(pa.bool_(), True), (pa.int64(), 1)] * 515,
    "as much padding as fits": [(pa.bool_(), True), (pa.int64(), 1)] * 490,
    "little padding": [*[(pa.bool_(), True)] * 500, *[(pa.int64(), 1)] * 900],
    "decimals": [(NUMBER, LARGEST[NUMBER])] * 290,
}


@pytest.mark.parametrize("cells", ROWS.values(), ids=ROWS)
def test_a_row_that_is_taken_is_stored_and_one_that_is_not_is_not(
    postgres: PostgresServer, cells: list[tuple[pa.DataType, Any]]
) -> None:
    """A row in its page is measured with its padding and its texts, which move out only where that makes it shorter."""
    rows = pa.table({f"c{number}": pa.array([value], kind) for number, (kind, value) in enumerate(cells)})
    try:
        check_columns("totals", rows.schema, ())
    except InvalidRequest:
        assert not is_stored(postgres, rows, [])
        return
    assert is_taken(rows, []) == is_stored(postgres, rows, [])
