"""The engine that reads an object separates readable records from unreadable ones, record by record."""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from milepost.sources.contract import MAX_RAW_BYTES, BadObject, BadRecord, whole_object
from milepost.sources.formats import build_reader
from milepost.sources.kernel.diagnosis import BLOCK_BYTES
from milepost.spark.worker.worker_memory import is_out_of_memory
from milepost_testkit import wording
from milepost_testkit.jobs.landing import Landing, source

SCHEMA = {"n": "int32", "name": "string", "at": "timestamp[us, UTC]"}
T = "2013-01-01T10:00:00Z"


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path)


def salvaged(
    landing: Landing, format_: str, body: bytes, key: str = "a", **keys: Any
) -> tuple[pa.Table, list[BadRecord]]:
    """The rows that can be read, and the records that cannot, each in order."""
    keys = {"event_time": "at", **keys}
    reader = build_reader("s", source(format_, keys.pop("schema", SCHEMA), **keys))
    found = list(reader.salvage_part(landing.store, whole_object(landing.put(key, body))))
    batches = [one for one in found if not isinstance(one, BadRecord)]
    assert all(batch.schema.equals(reader.schema) for batch in batches)
    return pa.Table.from_batches(batches, reader.schema), [one for one in found if isinstance(one, BadRecord)]


def places(bad: list[BadRecord]) -> list[tuple[int | None, str | None, str | None]]:
    """Where each record is bad, once the reasons were compared with their golden wording."""
    wording.matches("bad_rows", [one.clause for one in bad])
    return [(one.line, one.column, one.value) for one in bad]


def test_each_bad_line_of_csv_is_reported_and_all_others_are_read(landing: Landing) -> None:
    lines = [f"1,a,{T}", f"x,b,{T}", f"2,c,{T}", f"3,d,{T},more", "4,e,never", f'5,"f, g",{T}', "6,h,", "", f"7,i,{T}"]
    table, bad = salvaged(landing, "csv", "\n".join(["n,name,at", *lines]).encode())
    assert table["n"].to_pylist() == [1, 2, 5, 7]
    assert places(bad) == [
        (3, "n", "x"),
        (5, None, f"3,d,{T},more"),
        (6, "at", "never"),
        (8, "at", ""),
    ]
    assert [one.raw for one in bad] == [lines[at].encode() for at in (1, 3, 4, 6)]


def test_each_bad_line_of_json_is_reported_and_all_others_are_read(landing: Landing) -> None:
    good = {"n": 1, "name": "a", "at": T}
    lines = [
        *(json.dumps(good), json.dumps(good | {"n": "x"}), "", "{broken", "[1]", json.dumps(good | {"at": None})),
        *(json.dumps(good) + json.dumps(good), json.dumps({"n": 2, "at": T}), json.dumps(good | {"n": 2**40})),
    ]
    table, bad = salvaged(landing, "json", "\n".join(lines).encode())
    assert table.to_pylist() == [
        {**good, "at": table["at"][0].as_py()},
        {"n": 2, "name": None, "at": table["at"][0].as_py()},
    ]
    assert places(bad) == [
        (2, "n", "x"),
        (4, None, "{broken"),
        (5, None, "[1]"),
        (6, "at", "null"),
        (7, None, lines[6][:79] + "…"),
        (9, "n", str(2**40)),
    ]


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_an_object_without_a_good_record_gives_no_rows(landing: Landing, format_: str) -> None:
    body = b"n,name,at\nx,a,b\ny,c,d\n" if format_ == "csv" else b"{x\n[]\n"
    table, bad = salvaged(landing, format_, body)
    assert (table.num_rows, len(bad)) == (0, 2)


def test_each_bad_row_of_parquet_is_reported_by_its_number(landing: Landing) -> None:
    count = 20_000
    numbers = [2**40 if at % 4_999 == 3 else at for at in range(count)]
    times = [None if at == 17 else at * 1_000_000 for at in range(count)]
    file = io.BytesIO()
    pq.write_table(
        pa.table(
            {"n": pa.array(numbers), "name": pa.array(["é"] * count), "at": pa.array(times, pa.timestamp("us", "UTC"))}
        ),
        file,
    )
    table, bad = salvaged(landing, "parquet", file.getvalue())
    odd = [3, 17, 5_002, 10_001, 15_000, 19_999]
    assert table["n"].to_pylist() == [at for at in range(count) if at not in odd]
    assert [(one.row, one.column, one.raw) for one in bad] == [(at + 1, "at" if at == 17 else "n", None) for at in odd]


@pytest.mark.deep
@pytest.mark.parametrize("format_", ["csv", "json"])
def test_salvage_reads_what_duckdb_reads_from_a_randomly_broken_object(
    landing: Landing, tmp_path: Path, format_: str, seed: int
) -> None:
    """DuckDB judges the shape of a line; what Arrow accepts as a number is configured: `1.5` is none."""
    chance = random.Random(seed)
    lines = []
    for n in range(2_500):
        number, name = chance.choice([f"{n}"] * 9 + ["x", "", "1.5", "99999999999"]), chance.choice(["a", "b c", ""])
        whole_object = json.dumps({"n": int(number) if number.isdigit() else number, "name": name, "id": n})
        if format_ == "csv":
            lines.append(f"{number},{name},{n}{chance.choice([''] * 20 + [',more'])}" if n % 50 else "only")
        else:
            lines.append(whole_object if n % 50 else whole_object[: chance.randrange(1, len(whole_object))])
    body = "\n".join((["n,name,id"] if format_ == "csv" else []) + lines) + "\n"
    path = tmp_path / f"oracle.{format_}"
    path.write_text(body)
    columns = {"n": "int32", "name": "string", "id": "int32"}
    table, bad = salvaged(landing, format_, body.encode(), schema=columns, event_time=None)
    assert table.num_rows + len(bad) == len(lines) and len(bad) > 200
    if format_ == "csv":
        texts = "{n: 'VARCHAR', name: 'VARCHAR', id: 'INT'}"
        read = f"read_csv('{path}', header=true, columns={texts}, ignore_errors=true, null_padding=false)"
        fits = "coalesce(n, '') = '' OR (regexp_full_match(n, '[0-9]+') AND n::BIGINT < 2147483648)"
    else:
        read = f"read_json('{path}', columns={{n: 'JSON', id: 'INT'}}, format='newline_delimited', ignore_errors=true)"
        fits = "json_type(n) = 'UBIGINT' AND n::BIGINT < 2147483648"
    wanted = duckdb.sql(f"SELECT id FROM {read} WHERE ({fits}) AND id IS NOT NULL ORDER BY id").fetchall()
    assert table["id"].to_pylist() == [id_ for (id_,) in wanted]


@pytest.mark.parametrize(
    ("rows", "line", "clause"),
    [
        (f'1,a,{T}\n2,"b,{T}\n3,c,{T}\n', 3, "opens a quote that is never closed"),
        (f'1,a,{T}\nx,"b,{T}\n3,c"d,{T}\n4,e,{T}\n', 3, "spans several lines"),
        (f'1,a,{T}\n2,"b\nc",{T}\nx,"d\ne",{T}\n4,f,{T}\n', 5, "spans several lines"),
    ],
)
def test_a_quote_out_of_place_makes_the_whole_object_bad(landing: Landing, rows: str, line: int, clause: str) -> None:
    """A bad record that spans several lines may be several: it is unknown where the next one begins."""
    with pytest.raises(BadObject) as raised:
        salvaged(landing, "csv", f"n,name,at\n{rows}".encode())
    assert raised.value.line == line and clause in raised.value.clause and raised.value.raw


def test_a_quoted_line_end_in_a_good_record_does_not_make_the_object_bad(landing: Landing) -> None:
    table, bad = salvaged(landing, "csv", f'n,name,at\n1,"a\nb",{T}\nx,"c",{T}\n2,d,{T}\n'.encode())
    assert table["name"].to_pylist() == ["a\nb", "d"] and places(bad) == [(4, "n", "x")]


@pytest.mark.parametrize(
    ("format_", "key", "body"),
    [
        ("csv", "a.csv", b"n,at\n1,2013-01-01T10:00:00Z\n"),
        ("csv", "a.csv.gz", gzip.compress(b"n,name,at\n" * 90, mtime=0)[:-9]),
        ("json", "a.json", b'{"n": 1, "at": "2013-01-01T10:00:00Z"}\n{"n": 2\n'),
        ("json", "a.json", b'{"name": "' + b"x" * 3 * BLOCK_BYTES + b'"}\n'),
        ("parquet", "a.parquet", b"PAR1 is not enough"),
    ],
)
def test_an_object_that_cannot_be_read_at_all_is_a_bad_object(
    landing: Landing, format_: str, key: str, body: bytes
) -> None:
    with wording.raises(BadObject):
        salvaged(landing, format_, body, key)


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_a_record_that_is_too_long_is_bad_and_its_raw_bytes_are_cut(landing: Landing, format_: str) -> None:
    long = "x" * (BLOCK_BYTES + 10)
    rows = [{"n": 1, "name": "a", "at": T}, {"n": 2, "name": long, "at": T}, {"n": 3, "name": "c", "at": T}]
    csv = "\n".join(["n,name,at", *(",".join(map(str, row.values())) for row in rows)])
    body = csv if format_ == "csv" else "\n".join(map(json.dumps, rows))
    table, (bad,) = salvaged(landing, format_, body.encode())
    assert table["n"].to_pylist() == [1, 3]
    assert "longer than" in bad.clause and len(bad.raw or b"") == MAX_RAW_BYTES


def test_a_clause_never_quotes_its_record(landing: Landing) -> None:
    """Clauses are named in logs; the record itself is in the requested table."""
    secret = "swordfish"
    lines = [f"{secret},a,{T}", f"1,{secret}", f"2,b,{secret}", f"3,{secret},"]
    _, of_csv = salvaged(landing, "csv", "\n".join(["n,name,at", *lines, f"9,z,{T}"]).encode())
    records = [{"n": secret}, {"n": 1, "at": secret}, {"n": 1, "name": secret}, [secret]]
    _, of_json = salvaged(
        landing, "json", "\n".join([*map(json.dumps, records), f'{{"n": 1, "name": "{secret}", "at": "{T}"}}']).encode()
    )
    assert len(of_csv) == len(of_json) == 4
    assert all(secret.encode() in (one.raw or b"") for one in (*of_csv, *of_json))
    assert not any(secret in one.clause for one in (*of_csv, *of_json))


@pytest.mark.parametrize("part", ["read_part", "salvage_part"])
@pytest.mark.parametrize(("format_", "body"), [("csv", b"n\n1\n2\n"), ("json", b'{"n": 1}\n{"n": 2}\n')])
@pytest.mark.parametrize(
    "short",
    [pa.ArrowMemoryError("malloc of size 1325376 failed"), pa.ArrowException("Failed to launch worker thread")],
    ids=["memory", "threads"],
)
def test_no_record_is_bad_because_its_reader_is_out_of_memory(
    landing: Landing, monkeypatch: pytest.MonkeyPatch, part: str, format_: str, body: bytes, short: Exception
) -> None:
    """It would be left out, or an epoch would end by data with which nothing is wrong."""
    reader = build_reader("s", source(format_, {"n": "int32"}))
    at = whole_object(landing.put("a", body))

    def refused(*_: Any, **__: Any) -> Any:
        raise short

    for engine, name in ((pyarrow.csv, "open_csv"), (pyarrow.csv, "read_csv"), (pyarrow.json, "open_json")):
        monkeypatch.setattr(engine, name, refused)
    with pytest.raises(type(short)) as raised:
        list(getattr(reader, part)(landing.store, at))
    assert raised.value is short and is_out_of_memory(short)
