"""CSV objects: what is read, and how exactly a bad line is named."""

from __future__ import annotations

import bz2
import gzip
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from milepost.errors import CommitConflict, InvalidRequest, NotFound
from milepost.language.types import parse_type
from milepost.sources.contract import BadRecord, whole_object
from milepost.sources.csv.csv_reader import CsvReader
from milepost.sources.formats import build_reader
from milepost.sources.kernel import streams
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.kernel.diagnosis import BLOCK_BYTES
from milepost_testkit import profiles, wording
from milepost_testkit.jobs.landing import Landing, source

SCHEMA = {"n": "int32", "name": "string", "at": "timestamp[us, UTC]"}
HEADER = b"n,name,at\n"
T = "2013-01-01T10:00:00Z"


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path)


def refused(landing: Landing, body: bytes, key: str = "in/a.csv", **keys: Any) -> BadRecord:
    with pytest.raises(BadRecord) as raised:
        landing.read(source("csv", keys.pop("schema", SCHEMA), event_time="at", **keys), key, body)
    assert raised.value.key == key
    return raised.value


def test_columns_are_matched_by_name_and_others_ignored(landing: Landing) -> None:
    body = f"x,at,name,n\n?,{T},Ann,1\n?,2013-01-01T12:00:00+02:00,Bo,2\n".encode()
    table = landing.read(source("csv", SCHEMA, event_time="at"), "a.csv", body)
    assert table.column_names == ["n", "name", "at"]
    assert table["n"].to_pylist() == [1, 2]
    assert table["at"].cast(pa.int64()).to_pylist() == [1357034400000000] * 2


def test_every_type_that_csv_supports_is_read(landing: Landing) -> None:
    values = {
        "bool": ("true", True),
        "int8": ("-128", -128),
        "int16": ("3", 3),
        "int32": ("3", 3),
        "int64": ("9223372036854775807", 2**63 - 1),
        "float32": ("0.5", 0.5),
        "float64": ("1e300", 1e300),
        "decimal(10,2)": ("12.34", None),
        "string": ("äx", "äx"),
        "binary": ("ab", b"ab"),
        "date": ("2013-01-02", None),
        "timestamp[s]": ("2013-01-01 10:00:00", None),
        "timestamp[ms]": ("2013-01-01T10:00:00.123", None),
        "timestamp[us]": ("2013-01-01T10:00:00.123456", None),
        "timestamp[ns]": ("2013-01-01T10:00:00.123456789", None),
        "timestamp[s, UTC]": (T, None),
        "timestamp[ns, UTC]": ("2013-01-01T10:00:00.123456789Z", None),
    }
    schema = {f"c{n}": type_ for n, type_ in enumerate(values)}
    body = ",".join(schema) + "\n" + ",".join(text for text, _ in values.values()) + "\n"
    table = landing.read(source("csv", schema), "a.csv", body.encode())
    for column, (text, value) in zip(table.columns, values.values(), strict=True):
        assert column.null_count == 0, text
        assert value is None or column[0].as_py() == value


def test_rows_keep_their_order_over_many_batches(landing: Landing) -> None:
    body = HEADER + "".join(f"{n},name {n},{T}\n" for n in range(100_000)).encode()
    reader = build_reader("f", source("csv", SCHEMA, event_time="at"))
    batches = list(reader.read_part(landing.store, whole_object(landing.put("a.csv", body))))
    assert len(batches) >= 3
    assert max(batch.nbytes for batch in batches) < 3 * BLOCK_BYTES
    assert pa.Table.from_batches(batches)["n"].to_pylist() == list(range(100_000))


@pytest.mark.parametrize("body", [b"", b"\n\n", b"n,name,at", HEADER, b"\xef\xbb\xbf" + HEADER])
def test_an_object_without_rows_is_no_error(landing: Landing, body: bytes) -> None:
    assert landing.read(source("csv", SCHEMA, event_time="at"), "a.csv", body).num_rows == 0


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_do_not_matter(landing: Landing, newline: str, bom: str) -> None:
    body = (bom + newline.join(["n,name,at", f"1,a,{T}", f'2,"b{newline}c",{T}', f"3,d,{T}"])).encode()
    assert landing.read(source("csv", SCHEMA, event_time="at"), "a.csv", body)["n"].to_pylist() == [1, 2, 3]
    bad = refused(landing, body.replace(b"3,d", b"x,d"))
    assert (bad.line, bad.column, bad.value) == (5, "n", "x")


@pytest.mark.parametrize(
    ("rows", "line", "column", "value"),
    [
        (f"1,a,{T}\nx,b,{T}\n", 3, "n", "x"),
        (f"1,a,{T}\n1.5,b,{T}\n", 3, "n", "1.5"),
        (f"1,a,{T}\n99999999999,b,{T}\n", 3, "n", "99999999999"),
        (f"1,a,{T}\n2,b,yesterday\n", 3, "at", "yesterday"),
        (
            f"1,a,{T}\n2,b,2013-01-01T10:00:00\n",
            3,
            "at",
            "2013-01-01T10:00:00",
        ),
        (f"1,a,{T}\n2,b,\n", 3, "at", ""),
        (f"1,a,{T}\n2,b\n", 3, None, "2,b"),
        (f"1,a,{T}\n\n2,b,{T},z\n", 4, None, f"2,b,{T},z"),
        (f'1,"a\n\nb",{T}\n2,"b\nc",never\n', 5, "at", "never"),
        (f'1,a,{T}\n2,"b,{T}\n3,c,{T}\n', 3, None, f'2,"b,{T}\n3,c,{T}\n'),
        (f'1,a,{T}\n2,b,"{T}', 3, None, f'2,b,"{T}'),
    ],
)
def test_a_bad_line_is_named_exactly(landing: Landing, rows: str, line: int, column: str | None, value: str) -> None:
    """Issue: an unreadable CSV line is named by object, line and value."""
    bad = refused(landing, HEADER + rows.encode())
    wording.matches("bad_rows", bad.reason)
    assert (bad.line, bad.column, bad.value) == (line, column, value)


def test_text_that_is_not_utf8_is_named(landing: Landing) -> None:
    bad = refused(landing, HEADER + f"1,a,{T}\n2,b".encode() + b"\xff" + f",{T}\n".encode())
    wording.matches("bad_rows", bad.reason)
    assert (bad.line, bad.column, bad.value) == (3, "name", "b\ufffd")


def test_a_missing_column_is_a_bad_record_of_the_header(landing: Landing) -> None:
    bad = refused(landing, b"\nn,at\n1,2013-01-01T10:00:00Z\n")
    assert (bad.line, bad.column, bad.value) == (2, "name", None)
    wording.matches("bad_rows", bad.clause)
    wording.matches("bad_rows", bad.reason)
    assert bad.clause in bad.reason
    bad = refused(landing, b"n,name,at,n\n")
    assert (bad.line, bad.column) == (1, "n")


@pytest.mark.parametrize(("mark", "shown"), [(";", ";"), ("\t", "\\t"), ("|", "|")])
def test_a_header_with_another_delimiter_suggests_the_option(landing: Landing, mark: str, shown: str) -> None:
    header = mark.join(["n", '"name"', "at"])
    bad = refused(landing, f"{header}\n1{mark}a{mark}{T}\n".encode())
    option = f'options: {{delimiter: "{shown}"}}'
    wording.matches("bad_rows", bad.clause)
    assert repr(mark) in bad.clause and option in bad.clause
    wording.matches("bad_rows", refused(landing, b"other;columns\n1;2\n").clause)
    bad = refused(landing, b"n,name,at\n", options={"delimiter": ";"})
    wording.matches("bad_rows", bad.clause)


def test_an_offset_in_a_column_of_times_without_one_is_named_as_the_reason(landing: Landing) -> None:
    bad = refused(landing, HEADER + f"1,a,{T}\n".encode(), schema=SCHEMA | {"at": "timestamp[ms]"})
    wording.matches("bad_rows", bad.reason)


@pytest.mark.deep
def test_a_bad_value_far_into_an_object_is_found(landing: Landing) -> None:
    lines = [f"{n},name {n},{T}" for n in range(60_000)]
    lines[54_321] = f"oops,name,{T}"
    bad = refused(landing, HEADER + "\n".join(lines).encode())
    assert (bad.line, bad.column, bad.value) == (54_323, "n", "oops")


def test_rows_before_the_bad_one_are_read_and_its_error_is_the_same_each_time(landing: Landing) -> None:
    obj = landing.put("a.csv", HEADER + f"1,a,{T}\n2,b,x\n".encode())
    reader = build_reader("f", source("csv", SCHEMA, event_time="at"))
    texts = set()
    for _ in range(2):
        with wording.raises(BadRecord) as raised:
            list(reader.read_part(landing.store, whole_object(obj)))
        texts.add(str(raised.value))
    assert len(texts) == 1


@profiles.examples(share=0.4, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    names=st.lists(st.text(st.sampled_from('ab ",\n\r\t\u2028\x0bé'), max_size=6), min_size=1, max_size=30),
    blank=st.integers(0, 29),
    at=st.integers(0, 29),
)
def test_the_line_of_a_bad_value_is_right_whatever_its_neighbours_are(
    tmp_path: Path, names: list[str], blank: int, at: int
) -> None:
    """Quoted newlines, quotes and blank lines before the bad record shift its row, never its line."""
    at = at % len(names)
    text, line, expected = "n,name,at\n", 2, 0
    for number, name in enumerate(names):
        if number == blank:
            text, line = text + "\n", line + 1
        if number == at:
            expected = line
        record = f'{"bad" if number == at else number},"{name.replace(chr(34), chr(34) * 2)}",{T}\n'
        text, line = text + record, line + len(record.replace("\r\n", "\n").replace("\r", "\n").split("\n")) - 1
    bad = refused(Landing(tmp_path), text.encode())
    assert (bad.line, bad.column, bad.value) == (expected, "n", "bad")


def test_quoted_newlines_survive_block_boundaries(landing: Landing) -> None:
    long = "x" * 700 + "\n" + "y" * 700
    body = HEADER + "".join(f'{n},"{long}",{T}\n' for n in range(3_000)).encode()
    table = landing.read(source("csv", SCHEMA, event_time="at"), "a.csv", body)
    assert table["n"].to_pylist() == list(range(3_000))
    assert set(table["name"].to_pylist()) == {long}


def test_a_record_that_is_too_long_is_a_bad_record(landing: Landing) -> None:
    """DESIGN 9: readers are bounded by line length: a typed bad record, never a dead worker."""
    body = HEADER + f"1,a,{T}\n2,".encode() + b"z" * (3 * BLOCK_BYTES) + f",{T}\n".encode()
    bad = refused(landing, body)
    wording.matches("bad_rows", bad.reason)
    assert bad.line == 3
    assert bad.value is not None and len(bad.value) <= 80


def test_an_unclosed_quote_in_a_large_object_is_a_record_that_is_too_long(landing: Landing) -> None:
    rows = "".join(f"{n},name {n},{T}\n" for n in range(100_000))
    bad = refused(landing, HEADER + f'0,"a,{T}\n'.encode() + rows.encode())
    wording.matches("bad_rows", bad.reason)
    assert bad.line == 2


@pytest.mark.parametrize(
    ("extension", "compress"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstandard.ZstdCompressor().compress)],
)
class TestCompression:
    def test_members_are_read_one_after_another(self, landing: Landing, extension: str, compress: Any) -> None:
        body = compress(HEADER + f"1,a,{T}\n".encode()) + compress(f"2,b,{T}\n".encode())
        table = landing.read(source("csv", SCHEMA, event_time="at"), f"a.csv{extension}", body)
        assert table["n"].to_pylist() == [1, 2]

    def test_lines_are_those_of_the_decompressed_object(self, landing: Landing, extension: str, compress: Any) -> None:
        bad = refused(landing, compress(HEADER + f"1,a,{T}\nx,b,{T}\n".encode()), f"a.csv{extension}")
        assert (bad.line, bad.column) == (3, "n")

    @pytest.mark.deep
    @pytest.mark.parametrize("fault", ["cut", "not compressed"])
    def test_broken_data_is_a_bad_record(self, landing: Landing, extension: str, compress: Any, fault: str) -> None:
        body = compress(HEADER + "".join(f"{n},{n * n},{T}\n" for n in range(30_000)).encode())
        bad = refused(landing, body[:-20] if fault == "cut" else HEADER, f"a.csv{extension}")
        wording.matches("bad_rows", bad.reason)

    @pytest.mark.deep
    def test_a_bomb_is_a_bad_record(
        self, landing: Landing, extension: str, compress: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """DESIGN 9: readers are bounded by decompression ratio."""
        monkeypatch.setattr(streams, "EXPANSION_FREE_BYTES", 1 << 20)
        monkeypatch.setattr(streams, "MAX_EXPANSION", 50)
        body = compress(HEADER + f"1,a,{T}\n".encode() * 400_000)
        bad = refused(landing, body, f"a.csv{extension}")
        wording.matches("bad_rows", bad.reason)
        assert str(len(body)) in bad.reason


@pytest.mark.parametrize(
    ("options", "body", "expected"),
    [
        ({"null_values": ["NA", ""]}, "n,name,at\nNA,NA,T\n", (None, "NA")),
        ({"null_values": ["NA"], "strings_can_be_null": True}, "n,name,at\nNA,NA,T\n", (None, None)),
        ({"null_values": ["-"], "strings_can_be_null": True, "quoted_strings_can_be_null": False},
         'n,name,at\n-,"-",T\n', (None, "-")),
        ({"delimiter": ";"}, "n;name;at\n1;a,b;T\n", (1, "a,b")),
        ({"quote_char": "'"}, "n,name,at\n1,'a,b',T\n", (1, "a,b")),
        ({"quote_char": False}, 'n,name,at\n1,"a,T\n', (1, '"a')),
        ({"double_quote": False, "escape_char": "\\"}, 'n,name,at\n1,"a\\"b",T\n', (1, 'a"b')),
        ({"newlines_in_values": False}, "n,name,at\n1,a,T\n", (1, "a")),
        ({"column_names": ["n", "name", "at"]}, "1,a,T\n", (1, "a")),
        ({"skip_rows": 2}, "made by\nsomebody\nn,name,at\n1,a,T\n", (1, "a")),
        ({"timestamp_parsers": ["%Y-%m-%dT%H:%M:%S%z"]}, "n,name,at\n1,a,T\n", (1, "a")),
        ({"true_values": ["yes"], "false_values": ["no"], "decimal_point": ","}, "n,name,at\n1,a,T\n", (1, "a")),
    ],
)  # fmt: skip
def test_an_option_does_what_pyarrow_says(
    landing: Landing, options: dict[str, Any], body: str, expected: tuple[object, object]
) -> None:
    body = body.replace("T\n", f"{T}\n")
    (row,) = landing.read(source("csv", SCHEMA, event_time="at", options=options), "a.csv", body.encode()).to_pylist()
    assert (row["n"], row["name"]) == expected


def test_lines_are_counted_from_the_first_line_even_with_skipped_rows(landing: Landing) -> None:
    bad = refused(landing, f"by\nsomebody\nn,name,at\n1,a,{T}\nx,a,{T}\n".encode(), options={"skip_rows": 2})
    assert bad.line == 5
    bad = refused(landing, f"1,a,{T}\nx,a,{T}\n".encode(), options={"column_names": ["n", "name", "at"]})
    assert bad.line == 2


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "UTF-8", "utf_8_sig"])
def test_text_in_another_encoding_is_read(landing: Landing, encoding: str) -> None:
    body = f"n,name,at\n1,Zoë,{T}\n2,b,{T}\n".encode(encoding)
    spec = source("csv", SCHEMA, event_time="at", options={"encoding": encoding})
    assert landing.read(spec, "a.csv", body)["name"].to_pylist() == ["Zoë", "b"]
    bad = refused(landing, body + f"x,c,{T}\n".encode("utf-16-le" if "16" in encoding else encoding).removeprefix(
        "\ufeff".encode()), options={"encoding": encoding})  # fmt: skip
    assert (bad.line, bad.column) == (4, "n")


def test_each_row_is_read_if_the_decoded_text_is_longer_than_a_block(landing: Landing) -> None:
    r"""`ä` gets one more byte, so 1 MiB ends one byte after a block: within a record, or with the `\n` of `\r\n`."""
    row = "1,b\r\n"
    for shift in range(len(row)):
        text = "n,name\r\n" + "2,ä" + "c" * shift + "\r\n" + row * (BLOCK_BYTES // len(row) + 3)
        spec = source("csv", {"n": "int32", "name": "string"}, options={"encoding": "latin-1"})
        assert landing.read(spec, "a.csv", text.encode("latin-1")).num_rows == BLOCK_BYTES // len(row) + 4


def test_utf_16_text_without_a_byte_order_mark_is_a_bad_record(landing: Landing) -> None:
    bad = refused(landing, (HEADER.decode() + f"1,Ann,{T}\n").encode("utf-16-le"), options={"encoding": "utf-16"})
    wording.matches("bad_rows", bad.reason)
    assert bad.line == 1


def test_a_bad_value_is_named_although_another_column_name_is_not_utf8(landing: Landing) -> None:
    bad = refused(landing, b"n,name,na\xffme,at\n" + f"x,Ann,?,{T}\n".encode())
    assert (bad.line, bad.column, bad.value) == (2, "n", "x")


def test_the_message_of_a_bad_record_is_valid_text_whatever_its_bytes(landing: Landing) -> None:
    bad = refused(landing, HEADER + b'1,"Ann\xff')
    wording.matches("bad_rows", bad.reason)
    assert (bad.line, bad.value) == (2, '1,"Ann\ufffd')


def test_text_that_is_not_in_its_encoding_is_named_by_line(landing: Landing) -> None:
    bad = refused(landing, f"n,name,at\n1,Zoë,{T}\n".encode(), options={"encoding": "ascii"})
    wording.matches("bad_rows", bad.reason)
    assert bad.line == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"encoding": "klingon"}, "unknown encoding"),
        ({"encoding": "base64"}, "not a text encoding"),
        ({"delimiter": "\n"}, "delimiter cannot be"),
    ],
)
def test_invalid_options_are_refused_when_the_reader_is_built(options: dict[str, Any], words: str) -> None:
    columns = {name: parse_type(text) for name, text in SCHEMA.items()}
    with wording.raises(InvalidRequest) as raised:
        CsvReader(DeclaredColumns("f", columns), options)
    assert words in str(raised.value)


def test_partition_columns_come_from_the_key(landing: Landing) -> None:
    partitions = {"dt": "date", "region": "string"}
    spec = source("csv", SCHEMA, event_time="at", partitions=partitions)
    body = HEADER + f"1,a,{T}\n2,b,{T}\n".encode()
    table = landing.read(spec, "in/dt=2013-01-05/region=New%20York/a.csv", body)
    assert table.column_names == ["n", "name", "at", "dt", "region"]
    assert table["dt"].cast(pa.string()).to_pylist() == ["2013-01-05"] * 2
    assert table["region"].to_pylist() == ["New York"] * 2
    table = landing.read(spec, "in/dt=2013-01-05/region=__HIVE_DEFAULT_PARTITION__/a.csv", body)
    assert table["region"].to_pylist() == [None, None]


def test_a_key_without_its_partition_is_a_bad_record(landing: Landing) -> None:
    bad = refused(landing, HEADER, "in/a.csv", partitions={"dt": "date"})
    wording.matches("bad_rows", bad.reason)
    assert bad.column == "dt"
    bad = refused(landing, HEADER, "in/dt=monday/a.csv", partitions={"dt": "date"})
    assert (bad.column, bad.value) == ("dt", "monday")


def test_only_the_planned_version_is_read(landing: Landing) -> None:
    """A source remembers keys; the etag is the expected version."""
    reader = build_reader("f", source("csv", SCHEMA, event_time="at"))
    obj = landing.put("a.csv", HEADER)
    landing.put("a.csv", HEADER + f"1,a,{T}\n".encode())
    with pytest.raises(CommitConflict):
        list(reader.read_part(landing.store, whole_object(obj)))
    landing.store.delete(["a.csv"])
    with pytest.raises(NotFound):
        list(reader.read_part(landing.store, whole_object(obj)))


def test_a_reader_can_be_pickled(landing: Landing) -> None:
    spec = source("csv", SCHEMA, event_time="at", options={"delimiter": ";"}, partitions={"dt": "date"})
    reader = pickle.loads(pickle.dumps(build_reader("f", spec)))
    obj = landing.put("dt=2013-01-01/a.csv", f"n;name;at\n1;a;{T}\n".encode())
    assert pa.Table.from_batches(reader.read_part(landing.store, whole_object(obj))).num_rows == 1
