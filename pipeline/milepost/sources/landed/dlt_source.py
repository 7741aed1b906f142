"""Format `dlt`: a dlt resource, without a destination. Its rows are landed, and dlt's state is the position.

A landing runs the resource once, in a process of its own (`dlt_process.py`), and its rows are one record.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.errors import InvalidRequest, SourceUnreachable
from milepost.jobspec.job import EventTimeSpec
from milepost.language import ColumnType, to_arrow
from milepost.protocol.landed import Identity, Position
from milepost.sources.landed.contract import NOTHING_LANDED, LandedSource, Pull, Reached
from milepost.sources.landed.row_batches import record_batches

_WITHOUT_AIRFLOW = {"PROVIDERS__ENABLE_AIRFLOW_SECRETS": "false"}
"""By default dlt requests each of its settings as a Variable of Airflow: hundreds of queries per landing, and an import
of Airflow that takes longer than the landing."""

_NO_TELEMETRY = {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "CRITICAL"}

_HINTS: tuple[tuple[Any, str], ...] = (
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_floating, "double"),
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_date, "date"),
    (pa.types.is_string, "text"),
)
"""Predicate of a declared type -> dlt's name of the type. dlt infers other types."""


def open_dlt_source(
    name: str,
    identity: Identity,
    resource: str,
    module_dir: Path,
    types: Mapping[str, ColumnType],
    event_time: EventTimeSpec | None = None,
) -> LandedSource:
    """Open a dlt resource for one landing. Nothing runs before the first read.

    Args:
        name: of the source, for messages. identity: as in the spec.
        resource: `module:name`. module_dir: folder of the spec, where also dlt's settings are (`.dlt`).
        types: the declared columns. event_time: the column of the event time; None: rows have none.
    """
    return _DltSource(name, identity, resource, module_dir, types, event_time)


class _DltSource:
    def __init__(
        self,
        name: str,
        identity: Identity,
        resource: str,
        module_dir: Path,
        types: Mapping[str, ColumnType],
        event_time: EventTimeSpec | None,
    ) -> None:
        self._name, self._identity, self._resource = name, identity, resource
        self._module_dir, self._types, self._event_time = module_dir, types, event_time
        self._has_pulled = False

    def identity(self) -> Identity:
        return self._identity

    def initial_position(self) -> Position:
        return {}

    def next_pull(self, position: Position) -> Pull | None:
        is_read, self._has_pulled = self._has_pulled, True
        return None if is_read else Pull([position], None)

    def read(self, split: Any) -> Iterator[pa.RecordBatch | Reached]:
        with tempfile.TemporaryDirectory(prefix="milepost-dlt-") as folder:
            outcome = self._run(Path(folder), split)
            rows = itertools.chain.from_iterable(map(self._batches, outcome["files"]))
            yield from record_batches(self._name, rows, self._types, self._event_time)
            yield Reached(outcome["position"])

    def commit(self, end: Position) -> None:
        """Nothing waits for an acknowledgement."""

    def _run(self, folder: Path, position: Position) -> dict[str, Any]:
        """Run the resource from a position. Returns the outcome of the process."""
        hints = {name: {"data_type": hint} for name, type_ in self._types.items() if (hint := _hint(type_))}
        request = {
            "source": self._name,
            "resource": self._resource,
            "module_dir": str(self._module_dir),
            "position": position,
            "hints": hints,
        }
        (folder / "request.json").write_text(json.dumps(request))
        (folder / "data").mkdir()
        folders = {"DLT_DATA_DIR": str(folder / "data"), "DLT_PROJECT_DIR": str(self._module_dir)}
        # What it prints may have secrets, and is not logged.
        process = subprocess.Popen(
            [sys.executable, "-m", "milepost.sources.landed.dlt_process", str(folder)],
            cwd=folder,
            env={**_WITHOUT_AIRFLOW, **os.environ, **folders, **_NO_TELEMETRY},
            stdin=subprocess.PIPE,  # the process ends when this pipe is closed, even if this process is killed
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            exit_code = process.wait()
        finally:
            process.kill()
            process.communicate()
        if not (folder / "outcome.json").exists():
            raise self._failed(f"its process ended with {exit_code} and without an outcome")
        outcome: dict[str, Any] = json.loads((folder / "outcome.json").read_text())
        if "failed" in outcome:
            raise self._failed(outcome["failed"])
        if "refused" in outcome:
            raise InvalidRequest(
                f"source {self._name}: resource {self._resource} cannot be landed: {outcome['refused']}. "
                f"{NOTHING_LANDED}",
                hint="correct the resource, its settings or the spec, then land again",
                source=self._name,
            )
        return outcome

    def _failed(self, why: str) -> SourceUnreachable:
        return SourceUnreachable(
            f"source {self._name}: resource {self._resource} failed: {why}. {NOTHING_LANDED}",
            hint="check that the external system answers and that the resource is correct, then land again",
            source=self._name,
        )

    def _batches(self, file: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file. A declared column that dlt had no value for is null."""
        for batch in pq.ParquetFile(file).iter_batches():
            for name, type_ in self._types.items():
                if name not in batch.schema.names:
                    batch = batch.append_column(name, pa.nulls(batch.num_rows, to_arrow(type_)))
            yield batch


def _hint(type_: ColumnType) -> str | None:
    declared = to_arrow(type_)
    return next((hint for is_type, hint in _HINTS if is_type(declared)), None)
