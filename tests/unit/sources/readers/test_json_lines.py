"""JSON lines: what is read, and how exactly a bad line is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.sources.contract import BadRecord, whole_object
from milepost.sources.formats import build_reader
from milepost.sources.kernel.diagnosis import BLOCK_BYTES
from milepost_testkit import wording
from milepost_testkit.jobs.landing import Landing, source

SCHEMA = {"n": "int32", "name": "string", "at": "timestamp[us, UTC]"}
GOOD = '{"n": 1, "name": "a", "at": "2013-01-01T10:00:00Z"}\n'


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path)


def refused(landing: Landing, body: bytes, key: str = "a.json") -> BadRecord:
    with pytest.raises(BadRecord) as raised:
        landing.read(source("json", SCHEMA, event_time="at"), key, body)
    assert raised.value.key == key
    return raised.value


def test_fields_are_matched_by_name_and_a_missing_one_is_null(landing: Landing) -> None:
    body = GOOD + '\n{"at": "2013-01-01T12:00:00+02:00", "x": [{"y": 1}], "n": 2}\n'
    table = landing.read(source("json", SCHEMA, event_time="at"), "a.json", body.encode())
    assert table["n"].to_pylist() == [1, 2]
    assert table["name"].to_pylist() == ["a", None]
    assert table["at"].cast(pa.int64()).to_pylist() == [1357034400000000] * 2


def test_every_type_that_json_supports_is_read(landing: Landing) -> None:
    values = {
        "bool": ("true", True),
        "int8": ("-128", -128),
        "int64": ("9223372036854775807", 2**63 - 1),
        "float32": ("0.5", 0.5),
        "float64": ("3", 3.0),
        "decimal(10,2)": ('"12.34"', None),
        "string": ('"\\u00e4x"', "äx"),
        "binary": ('"ab"', b"ab"),
        "date": ('"2013-01-02"', None),
        "timestamp[ms]": ('"2013-01-01T10:00:00.123"', None),
        "timestamp[ns, UTC]": ('"2013-01-01T10:00:00.123456789Z"', None),
        "list<int32>": ("[1, null, 3]", [1, None, 3]),
        "struct<a: string, b: list<struct<c: float64>>>": (
            '{"a": "x", "b": [{"c": 0.5}], "z": 1}',
            {"a": "x", "b": [{"c": 0.5}]},
        ),
    }
    schema = {f"c{n}": type_ for n, type_ in enumerate(values)}
    body = "{" + ", ".join(f'"c{n}": {text}' for n, (text, _) in enumerate(values.values())) + "}"
    table = landing.read(source("json", schema), "a.json", body.encode())
    for column, (text, value) in zip(table.columns, values.values(), strict=True):
        assert column.null_count == 0, text
        assert value is None or column[0].as_py() == value


def test_rows_keep_their_order_over_many_batches(landing: Landing) -> None:
    body = "".join(GOOD.replace('"n": 1', f'"n": {n}') for n in range(60_000)).encode()
    reader = build_reader("f", source("json", SCHEMA, event_time="at"))
    batches = list(reader.read_part(landing.store, whole_object(landing.put("a.json.gz", gzip.compress(body)))))
    assert len(batches) >= 3
    assert pa.Table.from_batches(batches)["n"].to_pylist() == list(range(60_000))


@pytest.mark.parametrize("body", [b"", b"\n \n"])
def test_an_object_without_rows_is_no_error(landing: Landing, body: bytes) -> None:
    assert landing.read(source("json", SCHEMA, event_time="at"), "a.json", body).num_rows == 0


@pytest.mark.deep
@pytest.mark.parametrize(
    ("line", "column", "value"),
    [
        ('{"n": "x", "at": "2013-01-01T10:00:00Z"}', "n", "x"),
        ('{"n": 1.5, "at": "2013-01-01T10:00:00Z"}', "n", "1.5"),
        ('{"n": 3000000000, "at": "2013-01-01T10:00:00Z"}', "n", "3000000000"),
        ('{"name": 1, "at": "2013-01-01T10:00:00Z"}', "name", "1"),
        ('{"n": 1, "at": "never"}', "at", "never"),
        (
            '{"n": 1, "at": "2013-01-01T10:00:00"}',
            "at",
            "2013-01-01T10:00:00",
        ),
        ('{"n": 1, "at": null}', "at", "null"),
        ('{"n": 1}', "at", "null"),
        ('{"n": 1', None, '{"n": 1'),
        ("n;at", None, "n;at"),
        ("[1, 2]", None, "[1, 2]"),
        ("null", None, "null"),
        ('\t"x" ', None, '"x"'),
        ("1e3", None, "1e3"),
        ('{"n": 1} null', None, '{"n": 1} null'),
        ('{"n": 1}{"n": 2}', None, '{"n": 1}{"n": 2}'),
        ('{"n":\n1}', None, '{"n":'),
        ("\u00a0", None, "\u00a0"),
    ],
)
def test_a_bad_line_is_named_exactly(landing: Landing, line: str, column: str | None, value: str) -> None:
    bad = refused(landing, (GOOD * 5000 + "\n" + line + "\n" + GOOD).encode())
    wording.matches("bad_rows", bad.reason)
    assert (bad.line, bad.column, bad.value) == (5002, column, value)


@pytest.mark.deep
@pytest.mark.parametrize("value", ["null", "true", "-1", '"x"', "[null]", " null "])
@pytest.mark.parametrize("before", [0, 1, 6], ids=["first", "second", "in a later block"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_value_that_is_not_an_object_is_named_wherever_it_is(
    landing: Landing, value: str, before: int, after: int
) -> None:
    """pyarrow's reader dies of a first `null`, and takes a later one for a row of nulls."""
    lines = ['{"n": 1, "q": "' + "z" * 200_000 + '"}'] * before + [value] + ['{"n": 1}'] * after
    with pytest.raises(BadRecord) as raised:
        landing.read(source("json", {"n": "int32"}), "a.json", "\n".join(lines).encode())
    bad = raised.value
    wording.matches("bad_rows", bad.reason)
    assert (bad.key, bad.line, bad.value) == ("a.json", before + 1, value.strip())


@pytest.mark.deep
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", " \n\t\n "])
def test_an_object_ends_at_any_kind_of_line_end(landing: Landing, newline: str, compressed: bool) -> None:
    body = ("\ufeff" + newline.join(f'{{"n": {n}}}' for n in range(200_000))).encode()
    key, body = ("a.json.gz", gzip.compress(body, 1)) if compressed else ("a.json", body)
    assert landing.read(source("json", {"n": "int32"}), key, body)["n"].to_pylist() == list(range(200_000))


@pytest.mark.parametrize("field", ["name", "q"])
def test_text_that_the_parser_rejects_is_not_blamed_on_a_neighbour(landing: Landing, field: str) -> None:
    """Half a surrogate makes the whole record unreadable, also in an undeclared field."""
    bad = refused(landing, GOOD.encode() + GOOD.replace('"n": 1', rf'"n": 1, "{field}": "\ud800"').encode())
    assert (bad.line, bad.column) == (2, None)
    wording.matches("bad_rows", bad.reason)
    assert rf'"{field}": "\ud800"' in str(bad.value)


@pytest.mark.parametrize(
    ("fields", "value"),
    [('"n": 1, "n": 2', "2"), ('"n": "\ufffd"', "\ufffd")],
)
def test_the_reported_reason_is_the_one_that_made_the_parser_reject_it(
    landing: Landing, fields: str, value: str
) -> None:
    bad = refused(landing, GOOD.replace('"n": 1', fields).encode())
    wording.matches("bad_rows", bad.reason)
    assert (bad.line, bad.column, bad.value) == (1, "n", value)


def test_a_number_of_many_digits_is_named(landing: Landing) -> None:
    digits = "9" * 5_000
    bad = refused(landing, GOOD.replace("1,", f"{digits},").encode())
    wording.matches("bad_rows", bad.reason)
    assert (bad.line, bad.column) == (1, "n")


def test_the_limit_of_a_line_is_one_block_in_bytes_not_characters(landing: Landing) -> None:
    spec = source("json", {"s": "string"})
    longest = '{"s": "' + "ä" * ((BLOCK_BYTES - 10) // 2) + '"}\n'
    assert len(longest.encode()) == BLOCK_BYTES
    assert landing.read(spec, "a.json", longest.encode() * 2).num_rows == 2
    with pytest.raises(BadRecord) as raised:
        landing.read(spec, "a.json", (longest + longest.replace('"}', 'x"}')).encode())
    wording.matches("bad_rows", raised.value.reason)
    assert raised.value.line == 2


def test_text_that_is_not_utf8_is_named(landing: Landing) -> None:
    bad = refused(landing, GOOD.encode() + GOOD.encode().replace(b'"a"', b'"a\xff"'))
    wording.matches("bad_rows", bad.reason)
    assert (bad.line, bad.column, bad.value) == (2, "name", "a\ufffd")


def test_a_column_that_no_record_has_is_missing(landing: Landing) -> None:
    bad = refused(landing, b'{"n": 1, "at": "2013-01-01T10:00:00Z"}\n' * 3)
    assert (bad.line, bad.column, bad.value) == (None, "name", None)
    wording.matches("bad_rows", bad.clause)
    wording.matches("bad_rows", bad.reason)
    assert bad.clause in bad.reason


def test_a_column_that_is_null_everywhere_is_not_missing(landing: Landing) -> None:
    body = b'{"n": 1, "at": "2013-01-01T10:00:00Z"}\n' * 2 + GOOD.replace('"a"', "null").encode()
    assert landing.read(source("json", SCHEMA, event_time="at"), "a.json", body)["name"].null_count == 3


def test_a_record_that_is_too_long_is_a_bad_record(landing: Landing) -> None:
    bad = refused(landing, (GOOD + GOOD.replace('"a"', '"' + "z" * 3 * BLOCK_BYTES + '"')).encode())
    wording.matches("bad_rows", bad.reason)
    assert bad.line == 2


def test_deep_nesting_in_an_ignored_field_does_not_kill_the_worker(landing: Landing) -> None:
    body = GOOD.replace("{", '{"q": ' + "[" * 100_000 + "]" * 100_000 + ", ").encode()
    assert landing.read(source("json", SCHEMA, event_time="at"), "a.json", body).num_rows == 1
    assert refused(landing, body + b'{"q": ' + b"[" * 100_000 + b"\n").line == 2


def test_a_line_nested_too_deeply_to_check_for_a_missing_column_is_a_bad_record(landing: Landing) -> None:
    """Whatever a file holds, the answer names file and line: a reader never dies of it."""
    deep = '{"q": ' + "[" * 100_000 + "]" * 100_000 + ', "n": 1, "at": "2013-01-01T10:00:00Z"}\n'
    bad = refused(landing, deep.encode())
    wording.matches("bad_rows", bad.reason)
    assert (bad.line, bad.column) == (1, None)


def test_a_nul_does_not_end_a_block(landing: Landing) -> None:
    """There are as many objects before the NUL as there are lines."""
    body = b'{"n": 1}{"n": 2}\n{"n": 3}\x00}\n{"n": 4}\n'
    spec = source("json", {"n": "int8"})
    obj = landing.put("a.json", body)
    with pytest.raises(BadRecord, match="contains several JSON values"):
        landing.read(spec, "b.json", body)
    items = [*build_reader("s", spec).salvage_part(landing.store, whole_object(obj))]
    assert [item.line if isinstance(item, BadRecord) else item["n"].to_pylist() for item in items] == [[4], 1, 2]
    with pytest.raises(BadRecord, match="is not JSON"):
        landing.read(spec, "c.json", b'{"n": \x001}')
