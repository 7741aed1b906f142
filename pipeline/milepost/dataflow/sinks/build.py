"""The sink factory makes a sink from its spec."""

from __future__ import annotations

from milepost.dataflow.sinks.contract import Sink, SinkMode
from milepost.dataflow.sinks.parquet import ParquetSink
from milepost.protocol.records.errors import InvalidRequest
from milepost.protocol.records.object_store import ObjectStore
from milepost.spec.job.spec import SinkSpec


def build_sink(spec: SinkSpec, *, job: str, key: tuple[str, ...], store: ObjectStore) -> Sink:
    """Return the sink, opened on its own root; nothing is contacted.

    Args:
        job: whose table it is.
        key: key columns of the sink's input, which an upsert table needs; not looked at for append.
        store: an object store whose root is the sink's path.
    Raises:
        InvalidRequest: a format or mode that does not exist here, or upsert without a key.
    """
    if spec.format != "parquet":
        raise InvalidRequest(
            f"sink {spec.name}: `format: {spec.format}` is not available in this version.", hint="use `format: parquet`"
        )
    try:
        mode = SinkMode(spec.mode)
    except ValueError:
        raise InvalidRequest(
            f"sink {spec.name}: `mode: {spec.mode}` is not available in this version.",
            hint="use `mode: append` or `mode: upsert`",
        ) from None
    return ParquetSink(spec.name, job=job, mode=mode, key=key if mode is SinkMode.UPSERT else (), store=store)
