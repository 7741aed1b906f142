"""What a job's tables must hold: an independent answer in DuckDB, from the landed CSV files and the rules alone.

It knows the spec and the rules of watermarks, of late rows and of what is emitted, and nothing of the operators:
no file of `milepost.dataflow` or `milepost.state` is imported. Given which objects each epoch
consumed, in plan order, it computes the watermarks itself, drops duplicates and late rows, and leaves out the windows
that are still open. Times are microseconds since the epoch, UTC, as int64.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa

from milepost.protocol.records.object_store import ObjectStore
from milepost.spec.job.spec import AggregateOperator, DeduplicateOperator, JobSpec, SqlOperator, WindowOperator
from milepost.spec.values.aggregates import AggregateCall
from milepost.spec.values.types import ColumnType

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
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")


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
        landing: the store that the source's keys are relative to.
        epochs: for each epoch the keys it consumed, in plan order; at least one epoch, none of them empty.
        deduplicate: False lets every duplicate through: an answer that a right job must differ from.
    """
    os.environ["TZ"] = "UTC"
    with duckdb.connect(config={"threads": 2}) as db:
        return _Oracle(db, spec, deduplicate).run(landing, epochs)


class _Oracle:
    def __init__(self, db: duckdb.DuckDBPyConnection, spec: JobSpec, deduplicate: bool) -> None:
        assert len(spec.sources) == 1, "the oracle knows jobs with one source"
        ((self._name, self._source),) = spec.sources.items()
        assert self._source.format == "csv" and not self._source.partitions, "the oracle reads plain CSV"
        assert self._source.event_time is not None, "the oracle needs an event time"
        self._db = db
        self._spec = spec
        self._drop_duplicates = deduplicate
        self._time = f'epoch_us("{self._source.event_time}")'
        self._final_watermark = 0
        self._late: dict[str, int] = {}
        self._duplicates: dict[str, int] = {}

    def run(self, landing: ObjectStore, epochs: Sequence[Sequence[str]]) -> Expected:
        rows = self._load(landing, epochs)
        watermarks = self._watermarks(len(epochs))
        self._final_watermark = watermarks[-1]
        for operator in self._spec.operators:
            (source,) = operator.inputs
            match operator:
                case SqlOperator():
                    self._sql(operator, source)
                case DeduplicateOperator():
                    self._deduplicate(operator, source)
                case AggregateOperator():
                    self._aggregate(operator, source)
                case WindowOperator():
                    self._window(operator, source)
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
            # Everything is text at first, so that what a null looks like is the spec's word, not DuckDB's.
            self._db.execute(
                "CREATE TABLE raw AS SELECT * , row_number() OVER () AS __position FROM read_csv($files, "
                "all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"', "
                "nullstr = '\x01', filename = true, union_by_name = true)",
                {"files": files},
            )
        of_object = [epoch for epoch, members in enumerate(epochs) for _ in members]
        self._db.register("object", pa.table({"__object": list(range(len(keys))), "__epoch": of_object}))
        self._db.execute(
            f'CREATE TABLE "{self._name}" AS SELECT {types}, __epoch, __object * 1000000000 + __position AS __position '
            f"FROM (SELECT * REPLACE ({replaced}) FROM raw) "
            "JOIN object ON __object = CAST(regexp_extract(filename, '([0-9]+).csv$', 1) AS BIGINT)"
        )
        counts = dict(self._db.execute(f'SELECT __epoch, count(*) FROM "{self._name}" GROUP BY 1').fetchall())
        return [counts.get(epoch, 0) for epoch in range(len(epochs))]

    def _watermarks(self, epochs: int) -> list[int]:
        """Return the watermark after each epoch, and keep the one at the start of each as a table."""
        delay = _microseconds(self._source.watermark_delay)
        largest = dict(self._db.execute(f'SELECT __epoch, max({self._time}) FROM "{self._name}" GROUP BY 1').fetchall())
        after: list[int] = []
        for epoch in range(epochs):
            # An epoch whose objects held no row leaves the watermark where it was.
            seen = [value for e, value in largest.items() if e <= epoch]
            assert seen, "the oracle needs a row in the first epoch"
            after.append(max(seen) - delay)
        self._db.register(
            "epoch", pa.table({"__epoch": list(range(epochs)), "start_us": pa.array([None, *after[:-1]], pa.int64())})
        )
        return after

    # -- the operators ------------------------------------------------------------------------------------------

    def _sql(self, operator: SqlOperator, source: str) -> None:
        select, rest = operator.sql.split(None, 1)
        assert select.upper() == "SELECT", "the oracle knows plain SELECTs"
        own = "" if rest.lstrip().startswith("*") else "__epoch, __position, "
        self._db.execute(f'CREATE TABLE "{operator.uid}" AS SELECT {own}{rest}')

    def _deduplicate(self, operator: DeduplicateOperator, source: str) -> None:
        # A key without the event time would be forgotten and come back, which depends on when each row came.
        assert operator.ttl is None or self._source.event_time in operator.key, "the oracle needs the time in the key"
        late = "false" if operator.ttl is None else f"{self._time} < start_us - {_microseconds(operator.ttl)}"
        self._split(operator.uid, source, late)
        on_time = self._count(operator.uid)
        if self._drop_duplicates:
            self._db.execute(
                f'CREATE OR REPLACE TABLE "{operator.uid}" AS SELECT * FROM "{operator.uid}" QUALIFY row_number() '
                f"OVER (PARTITION BY {_columns(operator.key)} ORDER BY __position) = 1"
            )
        self._duplicates[operator.uid] = on_time - self._count(operator.uid)

    def _aggregate(self, operator: AggregateOperator, source: str) -> None:
        keys = _columns(operator.key)
        calls = self._calls(operator.aggregates, source)
        self._db.execute(f'CREATE TABLE "{operator.uid}" AS SELECT {keys}, {calls} FROM "{source}" GROUP BY {keys}')

    def _window(self, operator: WindowOperator, source: str) -> None:
        size = _microseconds(operator.window.tumbling)
        end = f"CAST(({self._time} - ({self._time} % {size} + {size}) % {size} + {size}) AS BIGINT)"
        self._split(operator.uid, source, f"{end} + {_microseconds(operator.allowed_lateness)} <= start_us")
        keys = _columns(operator.key)
        calls = self._calls(operator.aggregates, operator.uid)
        self._db.execute(
            f'CREATE OR REPLACE TABLE "{operator.uid}" AS SELECT {keys}, {end} - {size} AS window_start, '
            f'{end} AS window_end, {calls} FROM "{operator.uid}" GROUP BY {keys}, {end} '
            f"HAVING {end} <= {self._final_watermark}"
        )

    def _split(self, uid: str, source: str, late: str) -> None:
        """Create the operator's on-time rows and its late ones; before the first watermark nothing is late."""
        for name, condition in ((f"{uid}.late", late), (uid, f"NOT ({late})")):
            self._db.execute(
                f'CREATE TABLE "{name}" AS SELECT input.* FROM "{source}" input JOIN epoch USING (__epoch) '
                f"WHERE coalesce({condition}, {'true' if name == uid else 'false'})"
            )
        self._late[uid] = self._count(f"{uid}.late")

    def _calls(self, aggregates: Mapping[str, AggregateCall], source: str) -> str:
        types = {name: type_ for name, type_, *_ in self._db.execute(f'DESCRIBE "{source}"').fetchall()}
        texts = []
        for name, call in aggregates.items():
            text = f"{call.function}(*)" if call.column is None else f'{call.function}("{call.column}")'
            if call.function == "sum":
                is_integer = types[call.column] in _INTEGERS
                text = f"CAST({text} AS BIGINT)" if is_integer else f'fsum("{call.column}")'
            texts.append(f'{text} AS "{name}"')
        return ", ".join(texts)

    # -- the answer ---------------------------------------------------------------------------------------------

    def _published(self, name: str) -> pa.Table:
        described = [(column, type_) for column, type_, *_ in self._db.execute(f'DESCRIBE "{name}"').fetchall()]
        texts = [
            f'epoch_us("{column}") AS "{column}"' if type_ == "TIMESTAMP" else f'"{column}"'
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


def _columns(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _microseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)
