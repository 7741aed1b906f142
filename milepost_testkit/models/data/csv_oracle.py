"""Compute a job's expected tables independently, in DuckDB, from landed CSV files.

It uses the spec and the rules of watermarks, late rows and emission, but imports nothing of `milepost.operators` or
`milepost.state`. The output of each operator is its batch query (`milepost_testkit/models/data/batch.py`) over the
expected output of its inputs. Given which objects each epoch
consumed, in plan order, it computes the watermarks itself, drops duplicates and late rows, and leaves out the windows
that are still open. Times are microseconds since the epoch, UTC, as int64.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from milepost.jobspec.job.spec import JobSpec, StatefulSpec
from milepost.language.types import ColumnType
from milepost.operators.deduplicate.spec import DeduplicateOperator
from milepost.operators.sql.spec import SqlOperator
from milepost.protocol.records.object_store import ObjectStore
from milepost_testkit.models.data.batch import Place, microseconds
from milepost_testkit.models.data.laws import law_of
from milepost_testkit.specs.graphs import build_graph

_SQL_TYPES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "string": "VARCHAR",
    "date": "DATE",
}


@dataclass(frozen=True, slots=True)
class Expected:
    """The oracle's answer after the last epoch.

    Attributes:
        tables: by sink. late: rows by operator that can have late rows. duplicates: rows by deduplicate operator.
        watermarks_us: of the source after each epoch. rows: delivered by each epoch.
    """

    tables: dict[str, pa.Table]
    late: dict[str, int]
    duplicates: dict[str, int]
    watermarks_us: tuple[int, ...]
    rows: tuple[int, ...]


def expected_tables(
    spec: JobSpec, landing: ObjectStore, epochs: Sequence[Sequence[str]], *, deduplicate: bool = True
) -> Expected:
    """Return what the job's sinks hold after these epochs.

    Args:
        spec: of a job with one CSV source and operators of kind sql, deduplicate, aggregate and window.
        landing: the store to which the source's keys are relative.
        epochs: for each epoch the keys it consumed, in plan order; at least one epoch, none of them empty.
        deduplicate: False keeps every duplicate, a result from which a correct job must differ.
    """
    os.environ["TZ"] = "UTC"
    with duckdb.connect(config={"threads": 2}) as db:
        return _Oracle(db, spec, deduplicate).run(landing, epochs)


class _Oracle:
    def __init__(self, db: duckdb.DuckDBPyConnection, spec: JobSpec, deduplicate: bool) -> None:
        assert len(spec.sources) == 1, "the oracle knows jobs with one source"
        ((self._name, self._source),) = spec.sources.items()
        assert self._source.format == "csv" and not self._source.partitions, "the oracle reads plain CSV"
        assert self._source.time_column is not None, "the oracle needs an event time"
        self._db = db
        self._spec = spec
        self._drop_duplicates = deduplicate
        self._time = f'epoch_us("{self._source.time_column}")'
        self._graph = build_graph(spec)
        self._last = 0
        self._late: dict[str, int] = {}
        self._duplicates: dict[str, int] = {}

    def run(self, landing: ObjectStore, epochs: Sequence[Sequence[str]]) -> Expected:
        rows = self._load(landing, epochs)
        watermarks = self._watermarks(len(epochs))
        self._last = len(epochs) - 1
        self._marks(watermarks)
        for operator in self._spec.operators:
            (source,) = operator.inputs
            if isinstance(operator, SqlOperator):
                self._sql(operator, source)
            else:
                self._operator(operator, source)
        tables = {sink.name: self._published(sink.input) for sink in self._spec.sinks}
        return Expected(tables, self._late, self._duplicates, tuple(watermarks), tuple(rows))

    # -- the source ---------------------------------------------------------------------------------------------

    def _load(self, landing: ObjectStore, epochs: Sequence[Sequence[str]]) -> list[int]:
        """Create the source's table, with the epoch and position of each row; return the rows of each epoch."""
        keys = [key for epoch in epochs for key in epoch]
        assert len(set(keys)) == len(keys), "an object was consumed twice"
        types = ", ".join(f'{_typed(name, type_)} AS "{name}"' for name, type_ in self._source.columns.items())
        options = self._source.options
        nulls = ", ".join("'" + text.replace("'", "''") + "'" for text in options.get("null_values", ["", "NA"]))
        numbers = [name for name, type_ in self._source.columns.items() if type_.kind != "string"]
        nullable = list(self._source.columns) if options.get("strings_can_be_null") else numbers
        replaced = ", ".join(
            f'CASE WHEN "{name}" IN ({nulls}) THEN NULL ELSE "{name}" END AS "{name}"' for name in nullable
        )
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for index, key in enumerate(keys):
                path = Path(folder) / f"{index:06}.csv"
                path.write_bytes(landing.get(key))
                files.append(str(path))
            # Everything is read as text first, so that the spec decides what a null is, not DuckDB.
            self._db.execute(
                "CREATE TABLE raw AS SELECT * , row_number() OVER () AS __position FROM read_csv($files, "
                "all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"', "
                "nullstr = '\x01', filename = true, union_by_name = true)",
                {"files": files},
            )
        of_object = [epoch for epoch, members in enumerate(epochs) for _ in members]
        self._db.register("object", pa.table({"__object": list(range(len(keys))), "__epoch": of_object}))
        self._db.execute(
            f'CREATE TABLE "{self._name}" AS SELECT {types}, __epoch, NULL::BIGINT AS __stamp, '
            "__object * 1000000000 + __position AS __order "
            f"FROM (SELECT * REPLACE ({replaced}) FROM raw) "
            "JOIN object ON __object = CAST(regexp_extract(filename, '([0-9]+).csv$', 1) AS BIGINT)"
        )
        counts = dict(self._db.execute(f'SELECT __epoch, count(*) FROM "{self._name}" GROUP BY 1').fetchall())
        return [counts.get(epoch, 0) for epoch in range(len(epochs))]

    def _watermarks(self, epochs: int) -> list[int]:
        """Return the watermark after each epoch, and keep the one at the start of each as a table."""
        delay = microseconds(self._source.watermark_delay)
        largest = dict(self._db.execute(f'SELECT __epoch, max({self._time}) FROM "{self._name}" GROUP BY 1').fetchall())
        after: list[int] = []
        for epoch in range(epochs):
            # An epoch without rows does not move the watermark.
            seen = [value for e, value in largest.items() if e <= epoch]
            assert seen, "the oracle needs a row in the first epoch"
            after.append(max(seen) - delay)
        return after

    def _marks(self, watermarks: Sequence[int]) -> None:
        """Create the laws' tables of epochs, and of the watermark before each and after the last."""
        uids, epochs = [node.uid for node in self._graph.stateful], range(len(watermarks))
        before = pa.array([None, *watermarks[:-1]] * len(uids), pa.int64())
        self._db.register(
            "began",
            pa.table(
                {"node": [uid for uid in uids for _ in epochs], "__epoch": [*epochs] * len(uids), "stamp_us": before}
            ),
        )
        last = [self._last] * len(uids)
        self._db.register("mark", pa.table({"node": uids, "upto": last, "watermark_us": [watermarks[-1]] * len(uids)}))
        self._db.register("lineage", pa.table({"upto": [self._last] * len(epochs), "__epoch": [*epochs]}))

    # -- the operators ------------------------------------------------------------------------------------------

    def _sql(self, operator: SqlOperator, source: str) -> None:
        select, rest = operator.sql.split(None, 1)
        assert select.upper() == "SELECT", "the oracle knows plain SELECTs"
        own = "" if rest.lstrip().startswith("*") else "__epoch, __order, __stamp, "
        self._db.execute(f'CREATE TABLE "{operator.uid}" AS SELECT {own}{rest}')

    def _operator(self, operator: StatefulSpec, source: str) -> None:
        """Create the tables of an operator's rows and of its late ones."""
        uid, law = operator.uid, law_of(operator)
        place = Place(self._graph, uid, self._types(source))
        late = law.late(place)
        self._db.execute(f'CREATE TABLE "{uid}.late" AS {place.late(late)}')
        query = law.batch(place)
        if late is not None:
            self._late[uid] = self._count(f"{uid}.late")
        if isinstance(operator, DeduplicateOperator):
            # A key without the event time would expire and return, depending on when each row arrived.
            in_key = self._source.time_column in operator.key
            assert operator.ttl is None or in_key, "the oracle needs the time in the key"
            if not self._drop_duplicates:
                query = place.at_each(place.on_time(late))
        last = (
            "" if isinstance(operator, DeduplicateOperator) else f", {self._last} AS __epoch, NULL::BIGINT AS __stamp"
        )
        self._db.execute(f'CREATE TABLE "{uid}" AS SELECT * EXCLUDE (upto){last} FROM ({query})')
        if isinstance(operator, DeduplicateOperator):
            came = self._db.execute(f"SELECT count(*) FROM ({place.on_time(late)})").fetchone()
            assert came is not None
            self._duplicates[uid] = came[0] - self._count(uid)

    def _types(self, name: str) -> dict[str, str]:
        described = self._db.execute(f'DESCRIBE "{name}"').fetchall()
        return {column: type_ for column, type_, *_ in described if not column.startswith("__")}

    # -- the answer ---------------------------------------------------------------------------------------------

    def _published(self, name: str) -> pa.Table:
        described = [(column, type_) for column, type_, *_ in self._db.execute(f'DESCRIBE "{name}"').fetchall()]
        texts = [
            f'epoch_us("{column}") AS "{column}"' if type_.startswith("TIMESTAMP") else f'"{column}"'
            for column, type_ in described
            if not column.startswith("__")
        ]
        return self._db.sql(f'SELECT {", ".join(texts)} FROM "{name}"').to_arrow_table()

    def _count(self, name: str) -> int:
        row = self._db.execute(f'SELECT count(*) FROM "{name}"').fetchone()
        assert row is not None
        return int(row[0])


def _typed(name: str, type_: ColumnType) -> str:
    if type_.kind == "timestamp":
        return f'make_timestamp(epoch_us(CAST("{name}" AS {"TIMESTAMPTZ" if type_.utc else "TIMESTAMP"})))'
    return f'CAST("{name}" AS {_SQL_TYPES[type_.kind]})'
