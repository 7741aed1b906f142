"""`milepost init --from` writes a job that lints, whose first epoch reads the very files, and that loses no value."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.commands.milepost_cli import Outcome, assert_clear_error, milepost
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.s3_servers import S3Server

LINES = "\n".join


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def land(files: Mapping[str, str | bytes]) -> None:
    """Write files, old enough to be complete."""
    for name, content in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(path, (time.time() - 60,) * 2)


def land_table(name: str, table: pa.Table) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, name)
    os.utime(name, (time.time() - 60,) * 2)


def init(path: str, *words: str) -> Outcome:
    written = milepost("init", "orders", "--from", path, *words)
    assert written.exit_code == 0, written.stderr
    return written


def spec_text() -> str:
    return Path("config/orders.yaml").read_text(encoding="utf-8")


def declared() -> dict[str, str]:
    (source,) = load_job("orders").spec.sources.values()
    return {name: str(type_) for name, type_ in source.declared_types.items()}


def first_epoch() -> list[dict[str, Any]]:
    """Run the job's first epoch; return the rows of its table."""
    assert milepost("lint", "orders").exit_code == 0
    JobMaster(load_job("orders")).epochs.run(Session.cli(), SparklessRunner(sql=True))
    read = milepost("read", "orders", "records", "--json", "--limit", "1000")
    assert read.exit_code == 0, read.stderr
    return read.document()["rows"]


NUMBERS = LINES([str(number) for number in range(998)])
TIMES = LINES([f"{n},2026-01-01T00:00:{n:02d}{'Z' if n % 2 else ''}" for n in range(10)])


@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "types", "reason"),
    [
        (f"a\n{NUMBERS}\nn/a\nn/a\n", ["string"], "998 of 1,000 values are whole numbers; 2 are 'n/a': declared"),
        ("a,b\n1,x\n,y\n3,z\n", ["int64", "string"], "whole numbers, 1 of 3 empty (null)"),
        ("a,b\n007,1\n8,2\n", ["string", "int64"], "leading zeros, which a number would lose"),
        ("a,b\n99999999999999999999,1\n1,2\n", ["decimal(38,0)", "int64"], "beyond the range of int64"),
        ("a,b\n1.5,0.1234567890123456789\n2,1\n", ["float64", "decimal(38,19)"], "a float64 would round"),
        ("a\n1e5\n-.5\n", ["float64"], "numbers"),
        ("a,b,c\ntrue,0,yes\nFALSE,1,no\n", ["bool", "int64", "string"], "true or false"),
        (f"n,t\n{TIMES}\n", ["int64", "string"], "5 of 10 values are times with a zone; 5 are times without a zone"),
        ("t\n2026-01-01 10:00:00+02:00\n2026-01-01T10:00Z\n", ["timestamp[us, UTC]"], "times with a zone"),
        ("t\n2026-01-01 10:00:00\n2026-01-01T10:00\n", ["timestamp[us]"], "times without a zone are read as UTC"),
        ("t\n2026-01-01T10:00:00.123456789Z\n", ["string"], "times with more than 6 decimals"),
        ("d\n2026-01-31\n2026-02-28\n", ["date"], "dates are midnight UTC"),
        ("d\n2026-01-31\n2026-02-30\n", ["string"], "'2026-02-30' is not a date: declared as string"),
        ("d\n01/02/2026\n03/04/2026\n", ["string"], "ambiguous: day or month first; declared as string"),
        ("d\n31.01.2026\n01.02.2026\n", ["timestamp[us, UTC]"], 'format: "dd.MM.yyyy"'),
        ("d\n1/31/2026\n2/1/2026\n", ["timestamp[us, UTC]"], 'format: "M/d/yyyy"'),
        ("ts,id\n1767225600000,1\n1767225601000,1\n", ["timestamp[us, UTC]", "int64"], "as ms since 1970"),
        ("a;b\n1,5;x\n22,25;y\n", ["float64", "string"], 'decimal_point: ","'),
        ("a;b\n1,234;x\n5,678;y\n", ["string", "string"], "numbers with a decimal comma: declared as string"),
        ("a\tb\n1\tx\n", ["int64", "string"], "fields are separated by tab"),
        ("\ufeffa,b\n1,x\n", ["int64", "string"], ""),
        ("1,2026-01-01,x\n2,2026-01-02,y\n", ["int64", "timestamp[us, UTC]", "string"], "column_names: [column_1"),
        ("country,2020,2021\nDE,1,2\n", ["string", "int64", "int64"], '"2020": int64'),
        ('a,b\n1,"x\ny"\n2,"p, ""q"""\n', ["int64", "string"], ""),
        ("a,b\n1,\n2,\n", ["int64", "string"], "only empty values in the sample"),
        ("a\nNaN\n1.5\n", ["string"], "1 of 2 values are"),
    ],
)  # fmt: skip
def test_a_column_is_declared_as_all_its_values_are_written(content: str, types: list[str], reason: str) -> None:
    land({"data/orders.csv": content})
    init("data/orders.csv")
    (source,) = load_job("orders").spec.sources.values()
    row_types = [str(type_) for type_ in source.row_types.values()]
    expected = [
        type_ if type_ != "date" or "event_time" not in spec_text() else "timestamp[us, UTC]" for type_ in types
    ]
    expected = [
        "timestamp[us, UTC]" if "timezone: UTC" in spec_text() and t == "timestamp[us]" else t for t in expected
    ]
    assert row_types == expected and reason in spec_text()
    separator = next((mark for mark in "\t;" if mark in content), ",")
    has_header = "column_names" not in source.options
    everything = duckdb.connect().read_csv("data/orders.csv", all_varchar=True, header=has_header, sep=separator)
    assert len(first_epoch()) == len(everything.fetchall())


def test_every_value_reaches_the_table_as_duckdb_reads_it() -> None:
    lines = [
        f"{n},{n / 8},name {n},{n:05d},{'true' if n % 2 else 'false'},2026-01-{n % 28 + 1:02d}T00:00:00Z"
        for n in range(200)
    ]
    land({"data/orders.csv": LINES(["id,amount,name,zip,paid,at", *lines])})
    init("data/orders.csv")
    expected = duckdb.connect().execute(
        "SELECT * FROM read_csv('data/orders.csv', types={'zip': 'VARCHAR', 'at': 'TIMESTAMP'}) ORDER BY id"
    )
    names = [column[0] for column in expected.description]
    rows = sorted(first_epoch(), key=lambda row: row["id"])
    for row, values in zip(rows, expected.fetchall(), strict=True):
        read = row | {"at": datetime.fromisoformat(row["at"]).replace(tzinfo=None)}
        assert [read[name] for name in names] == [*values]


@pytest.mark.long
@pytest.mark.parametrize(
    ("header", "columns", "reason"),
    [
        ('"a ""q""", b b,"c,d",é 日本', ['a_"q"', "b_b", "c_d", "é_日本"], "allow no spaces"),
        ("id,id,v,w", ["v", "w"], "# id: not declared: twice in a header"),
        ("Id,ID,v,w", ["Id", "v", "w"], "# ID: not declared: differs from 'Id' only in case"),
        (",__x,`t,v", ["v"], "a column of a spec cannot have this name"),
        ('"x\n# y",on,no,null', ["on", "no", "null"], '"x\\n# y": not declared'),
        ("a b,a_b,select,from", ["a_b_2", "a_b", "select", "from"], "`a b` AS a_b_2"),
    ],
)
def test_hostile_column_names_are_quoted_renamed_or_left_out(header: str, columns: list[str], reason: str) -> None:
    land({"data/orders.csv": f"{header}\np,q,r,s\n"})
    init("data/orders.csv")
    assert reason in spec_text()
    assert [*first_epoch()[0]] == columns
    for made in ("config", ".milepost"):
        shutil.rmtree(made)
    init("data/orders.csv", "--sql")
    assert [*first_epoch()[0]] == columns


def test_json_fields_are_declared_and_those_without_a_type_are_left_out() -> None:
    lines = [
        {"id": f"e{n}", "at": f"2026-01-01T00:{n:02d}:00+02:00", "user": {"name": "x", "n": n, "bad name": 1},
         "tags": ["a"], "n": n if n % 2 else n + 0.5, "mixed": n if n % 3 else "x", "nothing": None, "empty": [],
         **({"rare": 2**70} if n == 5 else {})}
        for n in range(30)
    ]  # fmt: skip
    land({"data/events.jsonl": LINES(map(json.dumps, lines))})
    init("data/events.jsonl")
    assert declared() == {
        "id": "string",
        "at": "timestamp[us, UTC]",
        "user": "struct<name: string, n: int64>",
        "tags": "list<string>",
        "n": "float64",
        "rare": "decimal(38,0)",
    }
    for reason in (
        "# mixed: not declared: of 30 values 20 are whole numbers, 10 are text: no type reads all of them",
        "# nothing: not declared: only nulls in the sample",
        "# empty: not declared: only empty lists in the sample",
        "objects; left out: 'bad name'",
        "missing from 29 of 30 lines",
        "optional_columns: [rare]",
    ):
        assert reason in spec_text()
    assert {row["id"]: row["n"] for row in first_epoch()} == {one["id"]: one["n"] for one in lines}


def test_parquet_columns_have_the_types_of_the_files_and_of_the_folders() -> None:
    for day in (1, 2):
        times = pa.array([f"2026-01-0{day} 0{hour}:00:00" for hour in range(3)]).cast(pa.timestamp("ns"))
        land_table(
            f"lake/day=2026-01-0{day}/part.parquet",
            pa.table({
                "id": pa.array([day * 10 + n for n in range(3)], pa.uint32() if day == 1 else pa.int64()),
                "at": times,
                "word": pa.array(["x", "y", "x"]).dictionary_encode(),
                "map": pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int32())),
                "other": pa.array([1, 2, 3]) if day == 1 else pa.array(["a", "b", "c"]),
            }),
        )  # fmt: skip
    init("lake")
    assert declared() == {"id": "int64", "at": "timestamp[us]", "word": "string", "day": "date"}
    assert "# map: not declared: map<string, int32" in spec_text()
    assert "# other: not declared: int64, string in different files" in spec_text()
    rows = first_epoch()
    assert {(row["id"], row["day"]) for row in rows} == {
        (d * 10 + n, f"2026-01-0{d}") for d in (1, 2) for n in range(3)
    }


def test_a_column_that_some_files_lack_is_optional() -> None:
    land({"data/1.csv": "a,b\n1,x\n", "data/2.csv": "b,a,c\ny,2,3\n", "data/3.csv": ""})
    init("data")
    text = spec_text()
    assert 'path: "../data/*.csv"' in text and "optional_columns: [c]" in text
    assert "1 empty files have no rows, such as '3.csv'" in text
    assert sorted(row["a"] for row in first_epoch()) == [1, 2]


def test_a_few_unreadable_records_become_dead_letters_with_a_table() -> None:
    land({"data/orders.csv": LINES(["id,v", "1,a", "2,b,c", *(f"{n},x" for n in range(3, 103))])})
    init("data/orders.csv")
    assert "1 of 102 records, such as orders.csv, line 3: has 3 fields, the header has 2" in spec_text()
    assert len(first_epoch()) == 101
    assert len(milepost("read", "orders", "unreadable", "--json").document()["rows"]) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({"d/a.csv": ""}, "d/a.csv"),
        ({"d/a.csv": "a,b\n"}, "d/a.csv"),
        ({"d/a.csv": "\n \n"}, "d/a.csv"),
        ({"d/a.csv": "a,b\n1,ä\n".encode("latin-1")}, "d/a.csv"),
        ({"d/a.csv": "a,b\n1,\x00\n"}, "d/a.csv"),
        ({"d/a.csv": 'a,b\n1,"x\n2,y\n'}, "d/a.csv"),
        ({"d/a.csv": "a,b\n" + "1,2,3\n" * 5 + "1,2\n" * 5}, "d/a.csv"),
        ({"d/a.csv": "id,id\n1,2\n"}, "d/a.csv"),
        ({"d/a.csv": "a,b\n1,2\n", "d/b.csv": "a;b\n1;2\n"}, "d"),
        ({"d/a.csv": "a,b\n1,2\n", "d/b.csv": "x,y\n1,2\n"}, "d/*.csv"),
        ({"d/a.csv": "1,2\n3,4\n", "d/b.csv": "a,b\n1,2\n"}, "d"),
        ({"d/a.csv": "a\n1\n", "d/b.jsonl": '{"a": 1}\n'}, "d"),
        ({"d/a": "a\n1\n", "d/b": '{"a": 1}\n'}, "d/*"),
        ({"d/a.json": '[{"a": 1}]'}, "d/a.json"),
        ({"d/a.json": '{\n "a": 1\n}\n'}, "d/a.json"),
        ({"d/a.jsonl": '{"a": {"b c": 1}}\n'}, "d/a.jsonl"),
        ({"d/a.xlsx": b"PK\x03\x04"}, "d/a.xlsx"),
        ({"d/a.csv": gzip.compress(b"a\n1\n")}, "d/a.csv"),
        ({"d/a.csv.gz": gzip.compress(os.urandom(9999).hex().encode())[:900]}, "d/a.csv.gz"),
        ({"d/a.parquet": b"junk"}, "d/a.parquet"),
        ({"d/a.parquet": b"PAR1 and then nothing"}, "d/a.parquet"),
        ({"d/a.csv": "a\n1\n"}, "d/b.csv"),
        ({"d/a.csv": "a\n1\n"}, "d/b*.csv"),
        ({"d/a.csv": "a\n1\n"}, "e/"),
        ({}, ""),
        ({}, "~/a.csv"),
        ({}, "s3://"),
        ({}, "gs://bucket/a.csv"),
        ({}, "kafka://broker:9092/orders"),
        ({}, "postgresql://shop/orders"),
        ({"d/_delta_log/00000000000000000000.json": "{}\n", "d/a.parquet": b"PAR1"}, "d"),
        ({"d/metadata/00000-a.metadata.json": "{}\n", "d/data/a.parquet": b"PAR1"}, "d/"),
        ({"d/_milepost/owner.json": "{}\n", "d/a.parquet": b"PAR1"}, "d/*.parquet"),
        ({}, "d/${env:HOME}.csv"),
    ],
)
def test_files_that_no_source_reads_are_refused_by_name(files: dict[str, str | bytes], path: str) -> None:
    land(files)
    refused = milepost("init", "orders", "--from", path)
    assert_clear_error(refused, 3 if "b.csv" in path or "b*" in path or path == "e/" else 2, golden="init")
    assert not Path("config").exists() or not [*Path("config").iterdir()]


def test_a_job_over_its_own_tables_is_refused_and_not_left_behind() -> None:
    land_table(".milepost/storage/orders/x.parquet", pa.table({"a": [1]}))
    refused = milepost("init", "orders", "--from", ".milepost/storage/orders/*.parquet")
    assert_clear_error(refused, 2, golden="init")
    assert not Path("config/orders.yaml").exists()


@pytest.mark.parametrize("words", [("--example", "join"), ("--example", "join", "--sql")])
def test_an_example_has_its_own_files(words: tuple[str, ...]) -> None:
    assert_clear_error(milepost("init", "--from", "d", *words), 2, golden="init")


def test_an_existing_spec_is_not_changed() -> None:
    land({"data/orders.csv": "a\n1\n", "config/orders.yaml": "mine\n"})
    assert_clear_error(milepost("init", "orders", "--from", "data/orders.csv"), 2, golden="init")
    assert spec_text() == "mine\n"


@pytest.mark.deep
def test_of_a_large_file_only_the_beginning_is_read() -> None:
    """The file has ten gigabytes. All but its beginning is a hole, so reading on would find null characters."""
    land({"data/big.csv": "id,v\n" + LINES([f"{n},value {n}" for n in range(500_000)])})
    os.truncate("data/big.csv", 10 << 30)
    init("data/big.csv")
    assert declared() == {"id": "int64", "v": "string"}
    assert "(4.2 MB) of the file (10.7 GB)" in spec_text()


def test_of_many_files_some_are_read_and_all_are_counted() -> None:
    land({f"data/{n:03}.csv": f"a\n{'x' if n == 499 else n}\n" for n in range(500)})
    init("data")
    assert "the first 10 rows" in spec_text() and "of 10 of 500 files" in spec_text()
    assert declared() == {"a": "string"}  # the last file is one of the ten


def _uncommented(line: str) -> str:
    """Return a proposed line of SQL, of an operator or of a sink without its comment mark."""
    if line.startswith(("-- CREATE", "-- SELECT", "-- QUALIFY")):
        return line.removeprefix("-- ")
    return line.replace("#   - ", "  - ") if line.startswith("#   - ") else line


@pytest.mark.long
@pytest.mark.parametrize("sql", [False, True])
def test_the_table_of_the_newest_rows_is_one_comment_away(sql: bool) -> None:
    land({"data/1.csv": "full name,id,at\nx,1,2026-01-01\ny,2,2026-01-01\n"})
    init("data", *(["--sql"] if sql else []))
    file = Path("config/orders.sql" if sql else "config/orders.yaml")
    lines = [_uncommented(line) for line in file.read_text().splitlines()]
    file.write_text(LINES(lines) + "\n")
    land({"data/2.csv": "full name,id,at\nz,1,2026-01-02\n"})
    assert len(first_epoch()) == 3
    newest = milepost("read", "orders", "newest", "--json").document()["rows"]
    assert {(row["id"], row["full_name"]) for row in newest} == {(1, "z"), (2, "y")}


def test_the_document_has_each_column_with_its_reason() -> None:
    land({"data/orders.csv": "id,id,at\n1,2,2026-01-01\n"})
    document = init("data/orders.csv", "--json").document()
    assert [(one["name"], one["type"]) for one in document["source"]["columns"]] == [("id", None), ("at", "date")]
    assert document["source"]["sample"]["rows"] == 1 and document["files"] == ["config/orders.yaml"]


def test_files_on_s3_are_sampled_and_named_by_their_url(ministack: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ministack.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ministack.secret_key)
    bucket = ministack.shared_bucket
    for day in (1, 2):
        ministack.client.put_object(Bucket=bucket, Key=f"init/day=2026-01-0{day}/a.csv", Body=f"id,v\n{day},x\n")
    for path in (f"s3://{bucket}/init", f"s3://{bucket}/init/", f"s3://{bucket}/init/**/*.csv"):
        init(path)
        assert f'path: "s3://{bucket}/init/**/*.csv"' in spec_text()
        assert declared() == {"id": "int64", "v": "string", "day": "date"}
        Path("config/orders.yaml").unlink()
    init(f"s3://{bucket}/init/day=2026-01-01/a.csv")
    assert [row["id"] for row in first_epoch()] == [1]


def test_a_connection_has_the_credentials_and_the_spec_names_it(
    ministack: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"endpoint_url": ministack.endpoint_url}
    connection = {"conn_type": "aws", "login": ministack.access_key, "password": ministack.secret_key, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    bucket = ministack.shared_bucket
    ministack.client.put_object(Bucket=bucket, Key="connected/a.csv", Body="id,v\n7,x\n")
    init(f"s3://{bucket}/connected", "--conn-id", "lake")
    assert "store: {conn_id: lake}" in spec_text()
    assert "milepost init orders --from s3://" in spec_text() and "--conn-id lake`" in spec_text()
    assert ministack.secret_key not in spec_text()
    assert [row["id"] for row in first_epoch()] == [7]


@pytest.mark.parametrize(
    "words",
    [("--from", "d", "--conn-id", "lake"), ("--conn-id", "lake"), ("--from", "s3://bucket/d", "--conn-id", "lake")],
)
def test_a_connection_that_would_not_be_used_or_is_not_there_is_refused(words: tuple[str, ...]) -> None:
    refused = milepost("init", "orders", *words)
    assert_clear_error(refused, 8 if "s3://bucket/d" in words else 2, golden="init")
    assert not Path("config").exists()
