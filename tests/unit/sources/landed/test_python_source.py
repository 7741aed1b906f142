"""A class of PySpark's data source API as a landed source: what is served, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import CheckpointError, InvalidRequest, PositionExpired, SourceUnreachable, SourceWentBack
from milepost.jobmaster.landing.lander import Lander
from milepost.language.types import parse_type
from milepost.operators.process.user_code import read_function
from milepost.sources.landed import read_limits
from milepost.sources.landed.contract import LandedSource
from milepost.sources.landed.python_source import open_python_source
from milepost.storage.log.source_log import SourceLog
from milepost_testkit import wording
from milepost_testkit.stores.memory_store import MemoryStore

TYPES = {"k": parse_type("int64"), "v": parse_type("string")}
HEAD = """\
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow


class Feed(DataSource):
    def {kind}StreamReader(self, schema):
        self.schema_given = schema
        return Reader()


"""
SIMPLE = (
    HEAD.replace("{kind}", "simple")
    + """\
class Reader(SimpleDataSourceStreamReader):
    def initialOffset(self):
        return {"n": 0}

    def read(self, start):
        rows = ROWS
        return iter(rows), END

    def commit(self, end):
        COMMIT
"""
)
STREAM = (
    HEAD.replace("{kind}", "").replace("StreamReader(self, schema)", "streamReader(self, schema)", 1)
    + """\
class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"n": 0}

    def latestOffset(self):
        return {"n": 4}

    def partitions(self, start, end):
        return [InputPartition(n) for n in range(start["n"], end["n"])]

    def read(self, partition):
        yield (partition.value, f"v{partition.value}")
"""
)
LIMITED = STREAM.replace(
    '    def latestOffset(self):\n        return {"n": 4}\n',
    """\
    def getDefaultReadLimit(self):
        return ReadMaxRows(3)

    def prepareForTriggerAvailableNow(self):
        self.end = 7

    def latestOffset(self, start, limit):
        return {"n": min(self.end, start["n"] + limit.max_rows)}
""",
).replace("Reader(DataSourceStreamReader)", "Reader(DataSourceStreamReader, SupportsTriggerAvailableNow)")


def simple(rows: str, end: str = '{"n": start["n"] + 1}', commit: str = "pass") -> str:
    return SIMPLE.replace("ROWS", rows).replace("END", end).replace("COMMIT", commit)


def opened(folder: Path, code: str, name: str = "Feed", **limits: int) -> LandedSource:
    (folder / "feeds.py").write_text(code)
    function = read_function("feed", f"feeds:{name}", folder, owner="source feed")
    return open_python_source("feed", {"format": "python"}, function, {}, TYPES, **limits)


def land(folder: Path, code: str, **limits: int) -> tuple[SourceLog, Any]:
    log = SourceLog(MemoryStore("memory://job"), "feed")
    return log, Lander(log, opened(folder, code, **limits), "life 1").land()


def rows_of(source: LandedSource, position: Any) -> list[dict[str, Any]]:
    pull = source.next_pull(position)
    assert pull is not None
    items = [item for split in pull.splits for item in source.read(split)]
    return [row for item in items if isinstance(item, pa.RecordBatch) for row in item.to_pylist()]


def test_a_stream_reader_lands_its_partitions_in_order_as_one_record(tmp_path: Path) -> None:
    log, landing = land(tmp_path, STREAM)
    assert (landing.records, landing.rows, landing.end) == (1, 4, {"n": 4})
    assert rows_of(opened(tmp_path, STREAM), {"n": 0}) == [{"k": n, "v": f"v{n}"} for n in range(4)]
    assert Lander(log, opened(tmp_path, STREAM), "life 1").land().records == 0


def test_a_reader_that_fixes_its_end_is_read_up_to_it_within_its_own_limit(tmp_path: Path) -> None:
    _, landing = land(tmp_path, LIMITED)
    assert (landing.records, landing.rows, landing.end) == (3, 7, {"n": 7})


@pytest.mark.parametrize("limits", [{"max_rows": 2}, {"max_bytes": 4}])
def test_before_pyspark_4_2_a_limit_is_refused_and_readers_land_without_one(
    limits: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_limits, "LIMITS", (99, 0))
    with wording.raises(InvalidRequest):
        opened(tmp_path, STREAM, **limits)
    assert land(tmp_path, STREAM)[1].rows == 4


@pytest.mark.parametrize(("limits", "records"), [({"max_rows": 2}, 4), ({"max_bytes": 4}, 7)])
def test_the_limit_of_the_spec_is_given_in_place_of_the_readers_own(
    tmp_path: Path, limits: dict[str, int], records: int
) -> None:
    code = LIMITED.replace("limit.max_rows", 'getattr(limit, "max_rows", 1)')
    _, landing = land(tmp_path, code, **limits)
    assert (landing.records, landing.rows) == (records, 7)


@pytest.mark.parametrize("code", [STREAM, simple('[(1, "a")]')], ids=["a stream reader", "a simple reader"])
def test_a_limit_is_refused_for_a_class_that_takes_none(tmp_path: Path, code: str) -> None:
    with wording.raises(InvalidRequest):
        opened(tmp_path, code, max_rows=2)


@pytest.mark.parametrize(
    "rows",
    [
        '[(1, "a"), [2, None]]',
        '[Row(v="a", k=1), Row(k=2, v=None)]',
        'pa.table({"v": ["a", None], "more": [0, 0], "k": pa.array([1, 2], pa.int32())}).to_batches()',
        '[pa.record_batch({"k": pa.array([1], pa.int64()), "v": ["a"]}), (2, None)]',
    ],
    ids=["tuples and lists", "rows by name", "record batches with other columns", "a mixture"],
)
def test_a_simple_reader_yields_rows_or_record_batches(tmp_path: Path, rows: str) -> None:
    assert rows_of(opened(tmp_path, simple(rows)), {"n": 0}) == [{"k": 1, "v": "a"}, {"k": 2, "v": None}]


def test_a_simple_reader_is_read_once_per_landing(tmp_path: Path) -> None:
    _, landing = land(tmp_path, simple('[(1, "a")]'))
    assert (landing.records, landing.rows, landing.end) == (1, 1, {"n": 1})


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        ("class Feed:\n    pass\n", InvalidRequest, "a subclass of pyspark.sql.datasource.DataSource"),
        (
            "from pyspark.sql.datasource import DataSource\n\n\nclass Feed(DataSource):\n    pass\n",
            InvalidRequest,
            "`streamReader` or `simpleStreamReader`, got neither",
        ),
        ("class Other:\n    pass\n", InvalidRequest, "expected Feed in module feeds to be a subclass of"),
        ("Feed = 1\n", InvalidRequest, "DataSource, got 1. Nothing was landed."),
        ("import absent_module\n", SourceUnreachable, "absent_module"),
        (simple("[(1,)]"), InvalidRequest, "row 1: expected a tuple of 2 values, got 1 values"),
        (simple('["text"]'), InvalidRequest, "row 1: expected a tuple of 2 values, got str"),
        (simple('[Row(k=1, w="a")]'), InvalidRequest, "row 1: expected the columns k, v, got"),
        (simple('[(1, "a"), ("x", "b")]'), InvalidRequest, "row 2, column k: expected int64"),
        (simple('[(1, "a"), (2 ** 70, "b")]'), InvalidRequest, "row 2, column k: expected int64"),
        (simple('[(1.5, "a")]'), InvalidRequest, "row 1, column k: expected int64, got 1.5"),
        (simple('[(1, "a"), (True, "b")]'), InvalidRequest, "row 2, column k: expected int64, got True"),
        (
            simple('[pa.record_batch({"k": pa.array([1])})]'),
            InvalidRequest,
            "expected each declared column once, got k",
        ),
        (
            simple('[pa.record_batch({"k": pa.array([1.5]), "v": ["a"]})]'),
            InvalidRequest,
            "column k: expected int64",
        ),
        (simple("1 / 0"), SourceUnreachable, "`read` failed: ZeroDivisionError: division by zero (feeds.py, line 18)"),
        (simple('[(1, "a")]', end='{"at": {1, 2}}'), InvalidRequest, "its position cannot be stored as JSON"),
        (simple('[(1, "a")]', end='{"at": float("nan")}'), InvalidRequest, "its position cannot be stored as JSON"),
        (simple('[(1, "a")]', end="start"), InvalidRequest, "read 1 rows, but its position did not move"),
        (
            simple('[(1, "a")]', commit="raise RuntimeError('no rights')"),
            SourceUnreachable,
            "`commit` failed: RuntimeError: no rights (feeds.py, line 22). What was read is landed",
        ),
        (STREAM.replace("range(start", "rnge(start"), SourceUnreachable, "`partitions` failed: NameError"),
        (STREAM.replace("[Input", "None and [Input"), SourceUnreachable, "`partitions` did not return partitions"),
        (STREAM.replace('{"n": 4}', "None"), InvalidRequest, "expected `latestOffset` to return a position, got None"),
        (STREAM.replace("yield", "return None and"), SourceUnreachable, "`read` did not return rows: TypeError"),
        (LIMITED.replace("ReadMaxRows(3)", "1 / 0"), SourceUnreachable, "`getDefaultReadLimit` failed"),
        (
            simple("[]").replace("iter(rows), {", "None and {"),
            SourceUnreachable,
            "`read` did not return rows and a position",
        ),
        (simple("None").replace("iter(rows)", "rows"), SourceUnreachable, "`read` did not return rows: TypeError"),
        (simple("[]", end="None"), InvalidRequest, "expected `read` to return a position, got None"),
        (simple("[]").replace("Reader()", "None"), InvalidRequest, "a SimpleDataSourceStreamReader, got NoneType"),
    ],
)
def test_a_faulty_class_is_refused_with_its_location(
    tmp_path: Path, code: str, error: type[CheckpointError], says: str
) -> None:
    with pytest.raises(error) as refused:
        land(tmp_path, code)
    assert refused.value.message.startswith("source feed: ")
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("code", "end"),
    [
        (simple('[(1, "a")]').replace("rows = ", 'start["seen"] = 1; rows = '), {"n": 2}),
        (simple('[(1, "a")]', end="start").replace("return iter", 'start["n"] += 1; return iter'), {"n": 2}),
        (simple('[(1, "a")]', commit="end.clear()"), {"n": 2}),
        (LIMITED.replace('return {"n": min', 'start["seen"] = 1; return {"n": min'), {"n": 7}),
        (
            STREAM.replace("        return [", "        start.clear(); return [").replace(
                'range(start["n"]', "range(0"
            ),
            {"n": 4},
        ),
        (
            STREAM.replace("        return [", '        last = end.pop("n"); return [').replace('end["n"]', "last"),
            {"n": 4},
        ),
    ],
    ids=["read", "read, returned", "commit", "latestOffset", "partitions, start", "partitions, end"],
)
def test_a_reader_that_changes_a_position_in_place_does_not_break_the_log(tmp_path: Path, code: str, end: Any) -> None:
    log = SourceLog(MemoryStore("memory://job"), "feed")
    for _ in range(2):
        Lander(log, opened(tmp_path, code), "life 1").land()
    newest = log.newest()
    assert newest is not None and newest.record.end == end
    assert sum(stored.record.rows for stored in log.since(None, newest)) == newest.record.total_rows > 0


def test_a_position_may_be_known_only_after_its_rows(tmp_path: Path) -> None:
    code = simple("[]").replace(
        'return iter(rows), {"n": start["n"] + 1}',
        """\
end = dict(start)

        def rows():
            for n in range(3):
                end["n"] += 1
                yield (n, "a")

        return rows(), end""",
    )
    _, landing = land(tmp_path, code)
    assert (landing.rows, landing.end) == (3, {"n": 3})


def test_after_a_failed_commit_the_rows_are_landed_once_and_the_next_landing_goes_on(tmp_path: Path) -> None:
    log = SourceLog(MemoryStore("memory://job"), "feed")
    with pytest.raises(SourceUnreachable):
        Lander(log, opened(tmp_path, simple('[(1, "a")]', commit="1 / 0")), "life 1").land()
    landing = Lander(log, opened(tmp_path, simple('[(2, "b")]')), "life 1").land()
    assert (landing.rows, landing.end) == (1, {"n": 2})
    newest = log.newest()
    assert newest is not None and newest.record.total_rows == 2


@pytest.mark.parametrize("method", ["latestOffset", "partitions", "read"])
@pytest.mark.parametrize("error", [PositionExpired, SourceWentBack])
def test_a_class_says_by_its_error_that_it_cannot_go_on(
    tmp_path: Path, method: str, error: type[CheckpointError]
) -> None:
    before, _, after = STREAM.partition(f"def {method}(")
    signature, _, body = after.partition("\n")
    raised = f"raise {error.__name__}('it has 6 to 9', earliest={{'n': 6}}, latest={{'n': 9}})"
    code = f"{before}def {method}({signature}\n        {raised}\n{body}"
    with pytest.raises(error, match=r"source feed: .*: it has 6 to 9") as refused:
        land(tmp_path, f"from milepost.api import {error.__name__}\n\n{code}")
    assert (refused.value.details["earliest"], refused.value.details["latest"]) == ({"n": 6}, {"n": 9})


def test_another_error_of_milepost_that_a_class_raises_is_its_failure(tmp_path: Path) -> None:
    code = "from milepost.api import StoreUnavailable\n\n" + simple("1 / 0").replace("1 / 0", "fail()")
    code += "\n\ndef fail():\n    raise StoreUnavailable('their own')\n"
    with pytest.raises(SourceUnreachable, match=r"`read` failed: .*their own"):
        land(tmp_path, code)
