"""A table is written in four formats, whole or not at all."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from milepost.cli.terminal.progress import EpochProgress
from milepost.cli.terminal.tables import as_rows, write_file, write_stdout
from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.spill.spilled_rows import SpilledRows
from milepost_testkit import wording

TABLE = pa.table(
    {
        "k": ["a", None],
        "n": pa.array([1, 2], pa.int64()),
        "d": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        "t": pa.array([dt.datetime(2026, 1, 1, 8, tzinfo=dt.UTC), None], pa.timestamp("us", tz="UTC")),
        "l": pa.array([[1, 2], None], pa.list_(pa.int32())),
        "b": pa.array([b"\x00\xff", None], pa.binary()),
        "f": pa.array([0.5, float("nan")]),
    }
)


def kept(table: pa.Table) -> SpilledRows:
    """The rows, in pieces of one."""
    return SpilledRows(table.schema, [table.slice(at, 1) for at in range(table.num_rows)])


def test_json_is_one_array_of_rows_with_times_as_text() -> None:
    assert as_rows(TABLE)[0] == {
        "k": "a",
        "n": 1,
        "d": "1.50",
        "t": "2026-01-01T08:00:00Z",
        "l": [1, 2],
        "b": "AP8=",
        "f": 0.5,
    }
    assert set(as_rows(TABLE)[1].values()) == {None, 2, "NaN"}


def test_times_of_years_that_python_lacks_are_shown_all_the_same(tmp_path: Path) -> None:
    """Such as milliseconds that are taken for seconds: the tables hold them, and so do other columns' values."""
    far, us = 253_402_300_800_000_000, pa.timestamp("us")
    table = pa.table(
        {
            "t": pa.array([far, 0, -(2**63), None], pa.timestamp("us", tz="UTC")),
            "l": pa.array([[far, None], [], None, [0]], pa.list_(us)),
            "s": pa.array([{"t": far}, None, None, None], pa.struct([("t", us)])),
            "d": pa.array([2**31 - 1, None, None, 0], pa.int32()).cast(pa.date32()),
            "k": ["a", "b", "c", "d"],
        }
    )
    rows = as_rows(table)
    assert [row["t"] for row in rows] == [
        "10000-01-01T00:00:00.000000Z",
        "1970-01-01T00:00:00Z",
        "-290308-12-21T19:59:05.224193Z",
        None,
    ]
    assert rows[0]["l"] == ["10000-01-01T00:00:00.000000", None] and rows[3]["l"] == ["1970-01-01T00:00:00"]
    assert rows[0]["s"] == {"t": "10000-01-01T00:00:00.000000"} and rows[0]["d"].startswith("5881580-")
    assert [row["k"] for row in rows] == ["a", "b", "c", "d"] and rows[3]["d"] == "1970-01-01"
    for format_ in ("csv", "json", "parquet"):
        write_file(kept(table), format_, tmp_path / f"far.{format_}")
    assert json.loads((tmp_path / "far.json").read_text()) == rows


def test_csv_has_the_times_of_every_year(tmp_path: Path) -> None:
    """Arrow's has years of 16 bits: it wraps those beyond, says `value out of range`, or fails."""

    def since_1970(*texts: str, unit: str) -> list[int]:
        return np.array(texts, f"datetime64[{unit}]").astype(int).tolist()

    texts = ["2026-01-01", "32767-12-31", "32768-01-01", "100000-02-28", "-32768-12-31"]
    table = pa.table(
        {
            "t": pa.array([*since_1970(*texts, unit="us"), None], pa.timestamp("us", tz="UTC")),
            "s": pa.array([*since_1970(*texts, unit="s"), None], pa.timestamp("s")),
            "d": pa.array([*since_1970(*texts, unit="D"), None], pa.int32()).cast(pa.date32()),
        }
    )
    write_file(kept(table), "csv", tmp_path / "far.csv")
    header, *lines = (tmp_path / "far.csv").read_text().replace('"', "").splitlines()
    assert header == "t,s,d"
    assert lines == [*(f"{one} 00:00:00.000000Z,{one} 00:00:00,{one}" for one in texts), ",,"]


def test_csv_has_binary_as_json_has_it(tmp_path: Path) -> None:
    """As base64, whether it is text or not: what a column has does not depend on its other rows."""
    inner = pa.array([{"b": b"\xff"}, None, {"b": None}], pa.struct([("b", pa.binary())]))
    write_file(kept(pa.table({"b": [b"\xff\x00", b"text", None], "s": inner})), "csv", tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text().splitlines() == [
        '"b","s"', '"/wA=","{""b"": ""/w==""}"', '"dGV4dA==",', ',"{""b"": null}"',
    ]  # fmt: skip


def test_a_terminal_shows_binary_that_is_text_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Such as `raw` of dead letters; what is no text is marked as base64. Control characters are shown, not sent."""
    rows = pa.array([b"Bergen,\xc3\xa5da", b"\xff\x00", b"a\x1b[2J", None], pa.binary())
    write_stdout(kept(pa.table({"raw": rows})), "table")
    assert capsys.readouterr().out.splitlines()[2:] == ["Bergen,åda", "base64:/wA=", "a\\x1b[2J", "-"]


def test_each_format_holds_every_row(tmp_path: Path) -> None:
    write_file(kept(TABLE), "parquet", tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").drop(["f"]).equals(TABLE.drop(["f"]))
    write_file(kept(TABLE), "json", tmp_path / "t.json")
    written = (tmp_path / "t.json").read_text()
    assert json.loads(written) == as_rows(TABLE)
    assert written == json.dumps(as_rows(TABLE), ensure_ascii=False) + "\n"
    write_file(kept(TABLE.drop(["b"])), "csv", tmp_path / "t.csv")
    read = pacsv.read_csv(tmp_path / "t.csv")
    assert read["l"].to_pylist()[0] == "[1, 2]"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.json", "t.parquet"]


@pytest.mark.parametrize(("format_", "written"), [("csv", '"n"\n'), ("json", "[]\n")])
def test_a_file_without_rows_is_one_of_its_format(tmp_path: Path, format_: str, written: str) -> None:
    write_file(kept(TABLE.select(["n"]).slice(0, 0)), format_, tmp_path / "t")
    assert (tmp_path / "t").read_text() == written


def test_a_file_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("mine")
    with wording.raises(InvalidRequest):
        write_file(kept(TABLE.select(["n"])), "csv", file)
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with wording.raises(EnvironmentUnusable):
        write_file(kept(TABLE), "csv", tmp_path / "missing" / "t.csv")
    with wording.raises(InvalidRequest):
        write_file(kept(TABLE), "table", tmp_path / "t.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_long_table_says_that_it_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    write_stdout(kept(pa.table({"n": range(1500)})), "table")
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1002
    assert "1,000 of 1,500 rows" in printed.err


def test_progress_off_a_terminal_writes_nothing_for_a_short_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    with EpochProgress() as progress:
        progress("run")
    assert capsys.readouterr().err == ""
