"""A job under test: the spec of a job with all locations in one folder. Tests land the rows of its sources.

Its operators, SQL, keys and gate are those of the spec. Tables have `format: parquet` whatever the spec says, with the
same contents. An epoch reads everything that has landed, without waiting.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.errors import InvalidRequest, NotFound
from milepost.jobmaster import JobMaster
from milepost.jobspec.graph import rejected_outputs
from milepost.jobspec.job import (
    CheckpointingSpec,
    EpochLimits,
    FileSourceSpec,
    LandedEpochLimits,
    LandedSourceSpec,
    SinkSpec,
    SourceSpec,
    SparkSpec,
)
from milepost.jobspec.load import LoadedJob, from_spec, hash_spec
from milepost.language import arrow_schema
from milepost.language.times import python_rows
from milepost.openlineage import nowhere
from milepost.protocol.records import file_url
from milepost.testing.case_file import File
from milepost.testing.rows import as_yaml, typed_table

_EVERY_RECORD = 1_000_000

_SEEN = "seen-"
"""What the name of a sink begins with that is only there to be compared."""


def under_test(job: LoadedJob, folder: Path, parallelism: int, seen: Iterable[str]) -> LoadedJob:
    """Return the job with its places in a folder.

    Args:
        seen: names to compare: sinks, operators, `<uid>.late`, `<source>.bad`, `<sink>.rejected`. Each of them that is
            not a sink gets one.
    Raises: InvalidRequest: the job has a source of messages.
    """
    spec = job.spec
    messages = ", ".join(name for name, source in spec.landed.items() if source.layout.messages is not None)
    if messages:
        raise InvalidRequest(
            f"job {spec.name}: a case for a job with sources of messages ({messages}) is not available in this "
            "version. Nothing was run."
        )
    sources: dict[str, SourceSpec] = {name: _source(name, source, folder) for name, source in spec.files.items()}
    sources |= {name: _landed(source) for name, source in spec.landed.items()}
    sinks = [_sink(sink, folder) for sink in spec.sinks]
    known = {sink.name for sink in spec.sinks}
    sinks += [_sink(_seen(job, name), folder) for name in dict.fromkeys(seen) if name not in known]
    changed = spec.model_copy(
        update={
            "storage": file_url(folder / "storage"),
            "store": type(spec.store)(),
            "sources": {name: sources[name] for name in spec.sources},
            "sinks": tuple(sinks),
            "checkpointing": _checkpointing(spec.checkpointing),
            "spark": SparkSpec(parallelism=parallelism, conf=spec.spark.conf),
        }
    )
    text = json.dumps(changed.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    return from_spec(changed, hash_spec(changed), text, job.path)


def sink_of(job: LoadedJob, name: str) -> str:
    """Return the sink by which something is compared."""
    return name if name in {sink.name for sink in job.spec.sinks} else _name_of(name)


def _name_of(seen: str) -> str:
    return _SEEN + seen.replace(".", "-").replace("_", "-")


def _seen(job: LoadedJob, name: str) -> SinkSpec:
    graph = job.graph()
    if name in rejected_outputs(job.spec):
        parts = {"name": _name_of(name), "input": name, "format": "parquet", "path": "x", "mode": "append"}
        return SinkSpec.model_validate(parts)
    uid, _, part = name.partition(".")
    node = graph.nodes.get(uid)
    if node is None:
        known = [*(sink.name for sink in job.spec.sinks), *(operator.uid for operator in job.spec.operators)]
        every = ", ".join(dict.fromkeys(known))
        raise NotFound(f"job {job.spec.name} has neither a sink nor an operator {name}; it has: {every}")
    updates = node.output_kind == "updates" and not part  # what is late or bad is appended
    own, mode = _name_of(name), "upsert" if updates else "append"
    return SinkSpec.model_validate({"name": own, "input": name, "format": "parquet", "path": "x", "mode": mode})


def _sink(sink: SinkSpec, folder: Path) -> SinkSpec:
    path = file_url(folder / "tables" / sink.name)
    return SinkSpec(name=sink.name, input=sink.input, format="parquet", path=path, mode=sink.mode)


def _source(name: str, source: FileSourceSpec, folder: Path) -> FileSourceSpec:
    changes: dict[str, object] = {"path": f"{file_url(folder / 'landing' / name)}/**/*"}
    if not source.static:
        changes |= {"limits_per_epoch": EpochLimits(), "start": "earliest"}
    return source.model_copy(update={**changes, "settle": type(source.settle)(0)})


def _landed(source: LandedSourceSpec) -> LandedSourceSpec:
    """Return the source with limits that no case reaches."""
    return source.model_copy(update={"limits_per_epoch": LandedEpochLimits(max_records=_EVERY_RECORD)})


def _checkpointing(spec: CheckpointingSpec) -> CheckpointingSpec:
    """Return what a test keeps: every checkpoint, and no epoch is cut or has to wait."""
    return CheckpointingSpec.model_validate(
        {"retained": {"last": 1000}, "max_parallelism": spec.max_parallelism}, strict=False
    )


def land(job: LoadedJob, folder: Path, number: int, objects: Mapping[str, Sequence[Mapping[str, Any]] | File]) -> None:
    """Let objects land, by source; of a static one in place of those that were there. Rows of a log are one record.

    Args:
        number: of the step: later objects come later in the order of a source. folder: as in `under_test`.
    Raises: NotFound: no such source or file. InvalidRequest: a row that does not fit the source's columns.
    """
    for name, rows in objects.items():
        if name in job.spec.landed:
            _append(job, name, rows)
            continue
        source = job.spec.files.get(name)
        if source is None:
            raise NotFound(f"job {job.spec.name} has no source {name}; it has {', '.join(job.spec.sources)}")
        target = folder / "landing" / name
        if source.static:  # what is given is all that it holds from then on
            shutil.rmtree(target, ignore_errors=True)
        if isinstance(rows, File):
            _copy(job, Path(rows.file), target / f"{number:06}")
        else:
            _write(name, source, rows, target / f"{number:06}")


def _append(job: LoadedJob, name: str, rows: Sequence[Mapping[str, Any]] | File) -> None:
    """Append rows to the log of a landed source, in place of its external system."""
    if isinstance(rows, File):
        raise InvalidRequest(
            f"source {name}: a landed source has no files, got {rows.file}. Nothing was landed.",
            hint="give its rows: epoch: {SOURCE: [{…}]}",
        )
    schema = arrow_schema(job.spec.landed[name].columns)
    table = typed_table(rows, schema, f"source {name}")
    JobMaster(job, nowhere, lambda: None).landings.land_rows(name, table)


def _copy(job: LoadedJob, file: Path, target: Path) -> None:
    if not file.is_file():
        raise NotFound(f"job {job.spec.name}: there is no file {file}")
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target / file.name)


def _write(name: str, source: FileSourceSpec, rows: Sequence[Mapping[str, Any]], target: Path) -> None:
    """Write rows as the source's objects: one for each value of its partition columns."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        folders = "/".join(f"{column}={row.get(column, '')}" for column in source.partitions)
        parts.setdefault(folders, []).append({key: row[key] for key in row if key not in source.partitions})
    schema = arrow_schema(source.columns)
    for folders, of_part in parts.items():
        table = typed_table(of_part, schema, f"source {name}")
        file = target / folders / f"rows.{source.format}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(ENCODERS[source.format](source, table))


def _as_parquet(source: FileSourceSpec, table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def _as_json(source: FileSourceSpec, table: pa.Table) -> bytes:
    return "".join(json.dumps(as_yaml(row)) + "\n" for row in python_rows(table)).encode()


def _as_csv(source: FileSourceSpec, table: pa.Table) -> bytes:
    nulls = source.options.get("null_values", [""])
    null = nulls[0] if nulls else ""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=source.options.get("delimiter", ","), lineterminator="\n")
    writer.writerow(source.columns)
    for row in python_rows(table):
        values = [null if value is None else value for value in as_yaml(row).values()]
        writer.writerow([str(value).lower() if isinstance(value, bool) else value for value in values])
    return text.getvalue().encode()


ENCODERS = {"csv": _as_csv, "json": _as_json, "parquet": _as_parquet}
"""Source format -> encodes rows as one object."""
