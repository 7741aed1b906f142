"""The bare limit: one process that scans the epoch's files, merges into state in memory and writes the changed keys.

No shuffle, no second process, no acknowledgement, no manifest, no published table beside the delta: what remains when a
system does nothing but the work. Rows are grouped by DuckDB, Polars or NumPy; the best of the three is the limit.
Only for one int64 key and running aggregates.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bench.systems.contract import PARALLELISM, Folders, NotAsked, link_files
from bench.workloads.workloads import Query, Workload

Ints = npt.NDArray[np.int64]
Groups = tuple[Ints, Ints, Ints, Ints]
"""Sorted distinct keys with their count, sum and maximum."""


class Limit:
    """State is one sorted array of keys and three arrays of values."""

    def __init__(self, engine: str) -> None:
        self._group = {"numpy": _with_numpy, "duckdb": _with_duckdb, "polars": _with_polars}[engine]
        self._engine = engine

    def prepare(self, workload: Workload, folders: Folders) -> None:
        if workload.query is not Query.AGGREGATE or workload.key != ("auction",):
            raise ValueError(f"workload {workload.name}: the limit is built for running aggregates by auction alone")
        self._workload, self._folders = workload, folders
        folders.checkpoints.mkdir(parents=True)
        empty = np.empty(0, dtype=np.int64)
        self._keys, self._values = empty, [empty, empty, empty]
        self._bytes = 0

    def stage(self, source: Path, target: Path) -> None:
        link_files(source, target)

    def epoch(self, number: int) -> None:
        files = sorted(str(path) for path in self._folders.epoch(number).iterdir())
        keys, *new = self._group(files)
        at = np.searchsorted(self._keys, keys)
        known = np.zeros(len(keys), dtype=bool)
        inside = at < len(self._keys)
        known[inside] = self._keys[at[inside]] == keys[inside]
        old = at[known]
        for position, (value, combine) in enumerate(zip(new, (np.add, np.add, np.maximum), strict=True)):
            value[known] = combine(value[known], self._values[position][old])
            self._values[position][old] = value[known]
        if not known.all():
            fresh = ~known
            self._keys = np.insert(self._keys, at[fresh], keys[fresh])
            self._values = [
                np.insert(have, at[fresh], value[fresh]) for have, value in zip(self._values, new, strict=True)
            ]
        table = pa.table([keys, *new], names=list(self._workload.result_columns))
        file = self._folders.checkpoints / f"delta-{number:05d}.parquet"
        encodings = dict.fromkeys(table.column_names, "DELTA_BINARY_PACKED")
        pq.write_table(
            table, file, compression="zstd", use_dictionary=False, column_encoding=encodings, write_statistics=False
        )
        self._bytes = file.stat().st_size

    def figures(self, number: int) -> dict[str, Any]:
        return {"state_bytes": self._bytes, "all_bytes": self._bytes}

    def probe(self, name: str) -> dict[str, Any]:
        raise NotAsked(name)

    def result_sql(self) -> str:
        file = self._folders.work / "published.parquet"
        pq.write_table(pa.table([self._keys, *self._values], names=list(self._workload.result_columns)), file)
        return f"SELECT * FROM read_parquet('{file}')"

    def versions(self) -> dict[str, str]:
        found = {"numpy": np.__version__, "pyarrow": pa.__version__}
        if self._engine != "numpy":
            module = importlib.import_module(self._engine)
            found[self._engine] = module.__version__
        return found

    def close(self) -> None:
        """Nothing stays up."""


def _with_numpy(files: list[str]) -> Groups:
    """Read with Arrow and sort; each run of equal keys is one group."""
    table = pa.concat_tables([pq.read_table(file, columns=["auction", "price"]) for file in files])
    key, price = table["auction"].to_numpy(), table["price"].to_numpy()
    order = np.argsort(key, kind="stable")
    key, price = key[order], price[order]
    starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    counts = np.diff(np.append(starts, len(key)))
    return key[starts], counts, np.add.reduceat(price, starts), np.maximum.reduceat(price, starts)


def _with_duckdb(files: list[str]) -> Groups:
    import duckdb

    with duckdb.connect(config={"threads": PARALLELISM}) as connection:
        found = connection.execute(
            "SELECT auction, count(*), CAST(sum(price) AS BIGINT), max(price) "
            "FROM read_parquet($files) GROUP BY 1 ORDER BY 1",
            {"files": files},
        ).fetchnumpy()
    key, count, total, highest = (np.ascontiguousarray(column, dtype=np.int64) for column in found.values())
    return key, count, total, highest


def _with_polars(files: list[str]) -> Groups:
    os.environ["POLARS_MAX_THREADS"] = str(PARALLELISM)
    pl = importlib.import_module("polars")
    price = pl.col("price")
    found = (
        pl.scan_parquet([Path(file) for file in files])
        .group_by("auction")
        .agg(pl.len().cast(pl.Int64).alias("bids"), price.sum().alias("total"), price.max().alias("highest"))
        .sort("auction")
        .collect()
    )
    key, count, total, highest = (found[name].to_numpy().copy() for name in found.columns)
    return key, count, total, highest
