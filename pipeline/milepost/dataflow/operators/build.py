"""The operator factory makes an operator that runs from its spec and its input's schema."""

from __future__ import annotations

import pyarrow as pa

from milepost.dataflow.operators.aggregate import AggregateByKey
from milepost.dataflow.operators.contract import StatefulOperator
from milepost.dataflow.operators.deduplicate import DeduplicateByKey
from milepost.dataflow.operators.process import ProcessByKey, ProcessFunction
from milepost.dataflow.operators.window import TumblingWindowByKey
from milepost.protocol.records.errors import InvalidRequest
from milepost.spec.job.spec import AggregateOperator, DeduplicateOperator, ProcessOperator, StatefulSpec, WindowOperator


def build_operator(
    spec: StatefulSpec,
    input_schema: pa.Schema,
    event_time: str | None,
    function: ProcessFunction | None = None,
    *,
    timed: bool = True,
    in_pieces: bool = False,
) -> StatefulOperator:
    """Return the operator that a spec describes.

    Args:
        spec: a stateful operator of the job.
        input_schema: of the rows it will get.
        event_time: the event-time column of its input, or None.
        function: of a process operator. timed: whether a source with event time reaches it.
        in_pieces: whether an epoch of the job may be cut where its time is up.
    Raises:
        InvalidRequest: a column is missing or of a type that does not work, or event time is needed and absent.
    """
    if isinstance(spec, AggregateOperator):
        return AggregateByKey(spec.uid, spec.key, spec.aggregates, input_schema)
    if isinstance(spec, WindowOperator):
        return TumblingWindowByKey(
            spec.uid,
            spec.key,
            spec.window.tumbling,
            spec.allowed_lateness,
            spec.aggregates,
            input_schema,
            event_time,
        )
    if isinstance(spec, DeduplicateOperator):
        return DeduplicateByKey(spec.uid, spec.key, spec.ttl, input_schema, event_time)
    if isinstance(spec, ProcessOperator) and function is not None:
        return ProcessByKey(spec.uid, spec.key, function, input_schema, event_time, timed=timed, in_pieces=in_pieces)
    raise InvalidRequest(
        f"`kind: {getattr(spec, 'kind', spec)}` is not available in this version. Nothing was changed."
    )
