"""Parts of an object, wherever it is cut: one after another they have the rows of the object, each once, in order."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations_with_replacement, pairwise

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.jobspec.job import FileSourceSpec
from milepost.language.types import parse_type
from milepost.sources.contract import BadObject, BadRecord, ObjectPart, ObjectReader, SourceObject, whole_object
from milepost.sources.csv import csv_reader
from milepost.sources.csv.csv_reader import CsvReader
from milepost.sources.csv.record_lines import RecordLines
from milepost.sources.formats import build_reader
from milepost.sources.json_lines.json_lines_reader import JsonLinesReader
from milepost.sources.kernel import streams
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.kernel.text_parts import TextPart
from milepost.sources.parquet.parquet_reader import ParquetReader
from milepost.sources.planning import splits
from milepost_testkit import profiles, wording
from milepost_testkit.stores.memory_store import MemoryStore

DECLARED = DeclaredColumns("s", {"k": parse_type("int64"), "t": parse_type("string")})

MANY = [share / 40 for share in range(41)]
cuts = st.lists(st.floats(0, 1), max_size=6)


def landed(body: bytes, key: str = "a") -> tuple[MemoryStore, SourceObject]:
    store = MemoryStore("memory://")
    stat = store.put(key, body)
    return store, SourceObject(key, stat.etag, stat.size, stat.last_modified_ms)


def parts_of(obj: SourceObject, at: Iterable[float]) -> list[ObjectPart]:
    """The object cut at these shares of its bytes; some of its parts may have none."""
    stops = sorted(int(share * obj.size) for share in at)
    return [ObjectPart(obj, start, stop) for start, stop in pairwise([0, *stops, obj.size])]


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


def read(reader: ObjectReader, store: MemoryStore, parts: Iterable[ObjectPart]) -> list[dict[str, object]]:
    return [row for part in parts for row in rows(reader.read_part(store, part))]


ends = st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\n \n"])
row_ends = ends.filter(lambda end: " " not in end)
words = st.text(st.sampled_from('ab ,;"\\{}[]:\u00e4\u20ac\U0001f600\ufeff\u2028'), max_size=30)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """Lines of JSON with all that makes it hard to tell where one begins."""
    lines = draw(st.lists(st.tuples(st.integers(0, 10**6), words | st.just("x" * 700)), max_size=12))
    text = draw(st.sampled_from(["", "\ufeff", "\n"]))
    for k, t in lines:
        text += json.dumps({"k": k, "t": t}, ensure_ascii=draw(st.booleans())) + draw(ends)
    return text.rstrip("\r\n") if draw(st.booleans()) else text


@pytest.mark.long
@profiles.examples(share=2)
@given(
    text=json_texts(), at=cuts | st.just([share / 40 for share in range(41)]), block=st.sampled_from([7, 64, 1 << 20])
)
def test_parts_of_json_lines_have_each_line_once_and_in_order(text: str, at: list[float], block: int) -> None:
    """Cut within characters, line ends and lines longer than parts; read in blocks that end anywhere."""
    store, obj = landed(text.encode())
    reader = JsonLinesReader(DECLARED)
    with pytest.MonkeyPatch.context() as patched:
        for name, size in (("MAX_WHOLE_READ_BYTES", 0), ("_BLOCK", block), ("_TAIL", block)):
            patched.setattr(streams, name, size)
        assert read(reader, store, parts_of(obj, at)) == rows(reader.read_part(store, whole_object(obj)))


TEXTS = DeclaredColumns("s", {"k": parse_type("string"), "t": parse_type("string")})
LINES = {"newlines_in_values": False}

fields = st.text(st.sampled_from("ab 1\u00e4\u20ac\ufeff"), max_size=9) | st.sampled_from(
    ['"a,b"', '"say ""so"""', '5" pipe', 'a"', '""', '"', '"a"b"c', "x" * 60]
)


@st.composite
def csv_texts(draw: st.DrawFn) -> str:
    """Lines of CSV with quotes in place and out of place, some of them never closed."""
    text = draw(st.sampled_from(["", "\ufeff", "\n"])) + "k,t" + draw(row_ends)
    for line in draw(st.lists(st.tuples(fields, fields), max_size=12)):
        text += ",".join(line) + draw(row_ends)
    return text.rstrip("\r\n") if draw(st.booleans()) else text


def read_or_refused(
    reader: ObjectReader, store: MemoryStore, parts: list[ObjectPart]
) -> list[dict[str, object]] | None:
    try:
        return read(reader, store, parts)
    except BadRecord:
        return None


@pytest.mark.long
@profiles.examples(share=4)
@given(
    text=csv_texts(),
    at=cuts | st.just(MANY),
    block=st.sampled_from([7, 64, 1 << 20]),
    parsed=st.sampled_from([130, 200, 300, 1 << 20]),
)
@example(text="k,t\n" + "a,b\n" * 30 + 'c,"\n,d\n', at=[], block=64, parsed=130)
@example(text='k,t\na,5" pipe\nb,"c\nd,e\n', at=[0.85], block=64, parsed=1 << 20)
@example(text='k,t\na,"b\n', at=[], block=64, parsed=1 << 20)
@example(text="k,t\n\ufeffa,b\n", at=[0.4], block=64, parsed=1 << 20)
@example(text="k,t\n" + "a,b\r\n" * 26 + ",", at=[0.5], block=7, parsed=130)
@example(
    text='k,t\n,\n,€\n€,1111111€€\r\nä€,"say ""so"""\r\n111,1111ä€€\r\n1ä€,111€€\r\n11€€,1111111ää\r\n\r\n'
    '111€€,"say ""so"""\r\n\r\n11ä€€,a"\r\n\r\n11111ä€€€,' + "x" * 60 + '\r\n\r\n"a,b",' + "x" * 60 + "\r\n\r\n,",
    at=[0.5],
    block=7,
    parsed=300,
)
def test_parts_of_csv_have_each_record_once_and_in_order_or_are_refused(
    text: str, at: list[float], block: int, parsed: int
) -> None:
    """Where a quote may have joined lines, no part can tell; the one before it does, and no row is ever another one."""
    store, obj = landed(text.encode())
    parts = parts_of(obj, at)
    with pytest.MonkeyPatch.context() as patched:
        for name, size in (("MAX_WHOLE_READ_BYTES", 0), ("_BLOCK", block), ("_TAIL", block)):
            patched.setattr(streams, name, size)
        patched.setattr(csv_reader, "BLOCK_BYTES", parsed)
        in_parts = read_or_refused(CsvReader(TEXTS, LINES), store, parts)
        assert in_parts == read_or_refused(CsvReader(TEXTS, LINES), store, [whole_object(obj)])
        patched.setattr(csv_reader, "BLOCK_BYTES", 1 << 20)
        assert in_parts is None or in_parts == rows(CsvReader(TEXTS).read_part(store, whole_object(obj)))


quoted = st.lists(st.sampled_from(["a", "\u00e4", ",", '""', "\n", "\r", "\r\n"]), max_size=6).map(
    lambda pieces: f'"{"".join(pieces)}"'
)


@pytest.mark.deep
@profiles.examples(share=2)
@given(lines=st.lists(st.tuples(quoted, quoted), min_size=1, max_size=14), end=row_ends, parsed=st.integers(90, 200))
@example(lines=[("1", "a" * 40)] * 2 + [('"1"', '"\r\n"')], end="\n", parsed=96)
def test_quoted_line_ends_are_read_unchanged_wherever_a_block_of_the_parser_ends(
    lines: list[tuple[str, str]], end: str, parsed: int
) -> None:
    text = "".join(f"{k},{t}{end}" for k, t in [("k", "t"), *lines])
    store, obj = landed(text.encode())
    expected = [row for row in csv.reader(io.StringIO(text, newline="")) if row][1:]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(csv_reader, "BLOCK_BYTES", parsed)
        read_rows = rows(CsvReader(TEXTS).read_part(store, whole_object(obj)))
    assert [[row["k"], row["t"]] for row in read_rows] == expected


@pytest.mark.parametrize("size", range(7, 30))
def test_a_block_never_ends_between_a_carriage_return_and_its_newline(size: int) -> None:
    text = b"ab\r\ncd\r\n\r\nef\rgh\nijk\r\n\r\r\n" * 3
    for file in (TextPart(io.BytesIO(text), 0, len(text)), RecordLines(io.BytesIO(text), lambda line: True)):
        blocks = [*iter(partial(file.read, size), b"")]
        assert b"".join(blocks) in (text, b"\n" + text)
        assert not [first for first, second in pairwise(blocks) if first[-1:] + second[:1] == b"\r\n"]


def salvaged(
    reader: ObjectReader, store: MemoryStore, parts: Iterable[ObjectPart]
) -> tuple[list[dict[str, object]], list[tuple[int | None, str | None, str, bytes | None]]] | None:
    """The rows, and the report of each bad record; None where an object is bad."""
    found, bad = [], []
    try:
        for part in parts:
            for item in reader.salvage_part(store, part):
                if isinstance(item, BadRecord):
                    bad.append((item.line, item.column, item.reason, item.raw))
                else:
                    found += item.to_pylist()
    except BadObject:
        return None
    return found, bad


@st.composite
def broken_texts(draw: st.DrawFn) -> tuple[str, bool]:
    """Lines of JSON or CSV, some of them bad; whether they are CSV."""
    is_csv = draw(st.booleans())
    good = ["1,a", '22,"b,c"', "3,\u20ac"] if is_csv else ['{"k": 1, "t": "a"}', '{"t": "\u20ac", "k": 22}']
    bad = ["x,a", "1,2,3", '1,"open', 'x"y,"'] if is_csv else ["{}{", '{"k": "x", "t": ""}', '{"k": 1} {"k": 2}']
    lines = draw(st.lists(st.sampled_from(good * 3 + bad), min_size=1, max_size=14))
    text = "".join(line + draw(row_ends) for line in (["k,t"] * is_csv + lines))
    return (text.rstrip("\r\n") if draw(st.booleans()) else text), is_csv


@profiles.examples(share=1.5)
@given(broken=broken_texts(), at=cuts | st.just(MANY), block=st.sampled_from([7, 1 << 20]))
@example(broken=("".join(["{}{" + " " * pad + "\r\n" for pad in range(9)]), False), at=MANY, block=7)
def test_parts_salvage_the_same_records_as_the_whole_object(
    broken: tuple[str, bool], at: list[float], block: int
) -> None:
    """Rows, and of each bad record the line in the object; an object is bad where it would be."""
    text, is_csv = broken
    store, obj = landed(text.encode())
    reader = CsvReader(DECLARED, LINES) if is_csv else JsonLinesReader(DECLARED)
    with pytest.MonkeyPatch.context() as patched:
        for name, size in (("MAX_WHOLE_READ_BYTES", 0), ("_BLOCK", block), ("_TAIL", block), ("_CHUNK", block)):
            patched.setattr(streams, name, size)
        assert salvaged(reader, store, parts_of(obj, at)) == salvaged(reader, store, [whole_object(obj)])


@given(
    lines=st.lists(st.tuples(st.integers(0, 99), fields), min_size=3, max_size=12),
    at=cuts,
    mark=st.booleans(),
    end=row_ends,
)
def test_parts_of_csv_without_header_and_quotes_have_each_record_once(
    lines: list[tuple[int, str]], at: list[float], mark: bool, end: str
) -> None:
    """Bytes that are skipped at the beginning of an object are skipped in every part."""
    options = {"quote_char": False, "skip_rows": 2, "column_names": ["k", "t"]}
    texts = [(k, t.replace(",", "")) for k, t in lines]
    body = "\ufeff" * mark + end.join(f"{k},{t}" for k, t in texts)
    store, obj = landed(body.encode())
    reader = CsvReader(DECLARED, options)
    assert read(reader, store, parts_of(obj, at)) == rows(reader.read_part(store, whole_object(obj)))
    if len(end.splitlines()) == 1:  # of empty lines some were passed over as well
        assert [row["k"] for row in read(reader, store, parts_of(obj, at))] == [k for k, _ in texts[2:]]


@pytest.mark.parametrize("at", [[], [0.5], [0.9]])
def test_a_record_that_spans_lines_is_refused_if_the_options_exclude_it(at: list[float]) -> None:
    """And by its line, whether it contains a cut, the end of a block or nothing at all."""
    lines = ["k,t", *(f"{number},text" for number in range(400))]
    lines[300] = '9,"te\nxt"'
    store, obj = landed("\n".join(lines).encode())
    reader = CsvReader(DECLARED, LINES)
    with wording.raises(BadRecord) as caught:
        read(reader, store, parts_of(obj, at))
    assert caught.value.line == 301
    with wording.raises(BadObject):
        list(reader.salvage_part(store, whole_object(obj)))


def test_a_bad_value_of_a_part_is_named_by_its_line_in_the_object() -> None:
    lines = ["k,t", *(f"{number},text" for number in range(400))]
    lines[310] = "many,text"
    store, obj = landed("\n".join(lines).encode())
    _, second = parts_of(obj, [0.5])
    with pytest.raises(BadRecord) as caught:
        rows(CsvReader(DECLARED, LINES).read_part(store, second))
    assert (caught.value.line, caught.value.column) == (311, "k")


@pytest.mark.parametrize("text", [b"ab\ncd\r\nef\rgh\n\n", b"\r\n\r\n\n\r\r", b"ab", b"\n", b"a\r\nb"])
def test_three_parts_of_a_text_have_each_byte_once_and_begin_with_a_line(text: bytes) -> None:
    for first, second in combinations_with_replacement(range(len(text) + 1), 2):
        parts = []
        for start, stop in ((0, first), (first, second), (second, len(text))):
            parts.append(TextPart(io.BytesIO(text[max(start - 1, 0) :]), start, stop).read())
        assert b"".join(parts) == text
        lines = text.splitlines(keepends=True)
        assert [line for part in parts for line in part.splitlines(keepends=True)] == lines
        assert (parts[0] == b"") == (first == 0), "the line that begins at 0 is of the part that has byte 0"


def test_a_part_of_text_requests_its_own_bytes_and_the_end_of_its_last_line() -> None:
    body = b"".join(b'{"k": %d, "t": "some text"}\n' % number for number in range(50_000))
    store, obj = landed(body)
    asked: list[tuple[int, int]] = []
    ranged = store.get_range

    def get_range(key: str, etag: str, start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return ranged(key, etag, start, stop)

    store.get_range = get_range  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streams, "MAX_WHOLE_READ_BYTES", 0)
        third = parts_of(obj, [1 / 3, 2 / 3])[1]
        found = rows(JsonLinesReader(DECLARED).read_part(store, third))
    assert len(found) == pytest.approx(50_000 / 3, rel=0.05)
    assert asked[0][0] == third.start - 1 and asked[-1][1] <= third.stop + (1 << 18)


def test_a_bad_line_of_a_part_is_named_by_its_line_in_the_object() -> None:
    lines = [f'{{"k": {number}, "t": "text"}}' for number in range(400)]
    lines[310] = '{"k": "many", "t": "text"}'
    store, obj = landed("\n".join(lines).encode())
    _, second = parts_of(obj, [0.5])
    with pytest.raises(BadRecord) as caught:
        rows(JsonLinesReader(DECLARED).read_part(store, second))
    assert (caught.value.line, caught.value.column) == (311, "k")


@pytest.mark.parametrize("missing", [True, False])
def test_a_column_is_missing_if_no_line_of_the_object_has_it_not_of_the_part(missing: bool) -> None:
    """What an object lacks is judged of all of it, so the verdict is the same however it was cut."""
    lines = [f'{{"k": {number}}}' for number in range(400)]
    if not missing:
        lines[-1] = '{"k": 1, "t": "text"}'
    store, obj = landed("\n".join(lines).encode())
    first, second = parts_of(obj, [0.5])
    reader = JsonLinesReader(DECLARED)
    if missing:
        for part in (first, second):
            with wording.raises(BadObject):
                rows(reader.read_part(store, part))
    else:
        assert len(read(reader, store, (first, second))) == 400


def test_a_part_of_blank_lines_has_no_rows() -> None:
    store, obj = landed(b'{"k": 1, "t": ""}\n' + b"\n" * 400)
    assert len(read(JsonLinesReader(DECLARED), store, parts_of(obj, [0.3, 0.6]))) == 1


def parquet_body(table: pa.Table, groups: Iterable[int]) -> bytes:
    """A file with row groups of these numbers of rows."""
    sink, first = pa.BufferOutputStream(), 0
    with pq.ParquetWriter(sink, table.schema) as writer:
        for size in groups:
            writer.write_table(table.slice(first, size), row_group_size=max(size, 1))
            first += size
    return sink.getvalue().to_pybytes()


@profiles.examples(share=0.6)
@given(groups=st.lists(st.integers(0, 60), max_size=12), at=cuts)
def test_parts_of_a_parquet_file_have_each_row_group_once_and_in_order(groups: list[int], at: list[float]) -> None:
    numbers = range(sum(groups))
    table = pa.table(
        {"k": pa.array(numbers, pa.int64()), "t": pa.array([f"text {row}" for row in numbers], pa.string())}
    )
    store, obj = landed(parquet_body(table, groups))
    reader = ParquetReader(DECLARED)
    assert read(reader, store, parts_of(obj, at)) == table.to_pylist()


def test_half_of_a_parquet_file_has_half_of_its_row_groups() -> None:
    table = pa.table({"k": range(8_000), "t": ["text"] * 8_000})
    store, obj = landed(parquet_body(table, [1_000] * 8))
    reader = ParquetReader(DECLARED)
    halves = [rows(reader.read_part(store, part)) for part in parts_of(obj, [0.5])]
    assert [len(half) for half in halves] == [4_000, 4_000]


def test_a_bad_row_of_a_part_is_named_by_its_number_in_the_file() -> None:
    """A person looks for it in the file, and knows nothing of parts."""
    table = pa.table({"k": range(400), "t": ["text"] * 399 + ["x" * 10]})
    table = table.set_column(0, "k", pa.array([*range(390), 2**40, *range(9)]))
    store, obj = landed(parquet_body(table, [100] * 4))
    reader = ParquetReader(DeclaredColumns("s", {"k": parse_type("int32")}))
    first, second = parts_of(obj, [0.5])
    assert len(rows(reader.read_part(store, first))) == 200
    with pytest.raises(BadRecord) as caught:
        rows(reader.read_part(store, second))
    assert caught.value.row == 391


def csv_body(table: pa.Table, _: Iterable[int]) -> bytes:
    sink = pa.BufferOutputStream()
    pacsv.write_csv(table, sink)
    return sink.getvalue().to_pybytes()


def json_body(table: pa.Table, _: Iterable[int]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


@pytest.mark.parametrize(
    ("keys", "body"),
    [
        ({"format": "parquet"}, parquet_body),
        ({"format": "json"}, json_body),
        ({"format": "csv", "options": LINES}, csv_body),
    ],
    ids=["parquet", "json", "csv"],
)
@profiles.examples(share=0.25)
@given(
    objects=st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=6), max_size=5), parallelism=st.integers(1, 7)
)
def test_the_subtasks_read_the_rows_of_the_plan_in_order_whatever_the_parallelism(
    keys: dict[str, object], body: Callable[[pa.Table, list[int]], bytes], objects: list[list[int]], parallelism: int
) -> None:
    """I12: what a receiver gets in the order of channels does not follow from who read it."""
    source = FileSourceSpec.model_validate({"path": "*", "schema": {"k": "int64", "t": "string"}} | keys)
    reader, store, planned, first = build_reader("s", source), MemoryStore("memory://"), [], 0
    for place, groups in enumerate(objects):
        numbers = range(first, first + sum(groups))
        table = pa.table({"k": pa.array(numbers, pa.int64()), "t": pa.array([f"text {one}" for one in numbers])})
        stat = store.put(f"{place}", body(table, groups))
        planned.append(SourceObject(f"{place}", stat.etag, stat.size, 0))
        first += sum(groups)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(splits, "MAX_WHOLE_READ_BYTES", 0)
        patched.setattr(splits, "UNIT_BYTES", 2)
        dealt = splits.assign_splits(source, planned, parallelism)
    assert len(dealt) == (parallelism if planned else 0)
    found = [row["k"] for split in dealt for row in read(reader, store, split)]
    assert found == list(range(first))
