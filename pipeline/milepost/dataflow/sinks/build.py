"""The sink factory makes a sink from its spec: whole for the job master, for staging alone in tasks."""

from __future__ import annotations

from milepost.dataflow.sinks.contents import ContentsRecords
from milepost.dataflow.sinks.contract import Sink, SinkMode, StagingSink
from milepost.dataflow.sinks.marks import MarkRecords
from milepost.dataflow.sinks.parquet_format import HEADS, ParquetFormat
from milepost.dataflow.sinks.table_sink import TableSink
from milepost.dataflow.sinks.table_staging import TableStaging
from milepost.protocol.records.errors import InvalidRequest
from milepost.protocol.records.object_store import ObjectStore
from milepost.spec.job.spec import SinkSpec


def build_staging(spec: SinkSpec, *, key: tuple[str, ...], store: ObjectStore) -> StagingSink:
    """Return what tasks stage by; nothing is contacted.

    Args:
        key: key columns of the sink's input, which an upsert table needs; not looked at for append.
        store: an object store whose root is the sink's path.
    Raises:
        InvalidRequest: a format or mode that does not exist here, or upsert without a key.
    """
    mode = _mode(spec)
    return TableStaging(spec.name, mode=mode, key=key if mode is SinkMode.UPSERT else (), store=store)


def build_sink(
    spec: SinkSpec,
    *,
    job: str,
    key: tuple[str, ...],
    store: ObjectStore,
    job_store: ObjectStore,
    records: ContentsRecords,
) -> Sink:
    """Return the sink; nothing is contacted.

    Args:
        job: whose table it is. key, store: as in `build_staging`.
        job_store: where its marks are. records: of the job's tables.
    Raises: as `build_staging`.
    """
    mode = _mode(spec)
    return TableSink(
        spec.name,
        job=job,
        mode=mode,
        key=key if mode is SinkMode.UPSERT else (),
        store=store,
        format_name=spec.format,
        form=ParquetFormat(store),
        is_log=lambda path: path.startswith(HEADS),
        marks=MarkRecords(job_store, spec.name),
        records=records,
    )


def _mode(spec: SinkSpec) -> SinkMode:
    if spec.format != "parquet":
        raise InvalidRequest(
            f"sink {spec.name}: `format: {spec.format}` is not available in this version.", hint="use `format: parquet`"
        )
    try:
        return SinkMode(spec.mode)
    except ValueError:
        raise InvalidRequest(
            f"sink {spec.name}: `mode: {spec.mode}` is not available in this version.",
            hint="use `mode: append` or `mode: upsert`",
        ) from None
