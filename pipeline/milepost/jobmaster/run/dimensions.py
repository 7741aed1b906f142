"""Snapshot the static sources of an epoch.

A snapshot is written once. Later epochs refer to the same copy for as long as the source's objects do not change.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from milepost.epoch import DimensionInput, DimensionSnapshot, read_as
from milepost.errors import CommitConflict, NotFound, SubtaskDeclined
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.language import arrow_schema
from milepost.operators import OperatorFailed
from milepost.operators.lookup import Lookup, LookupOperator
from milepost.protocol.records import CheckpointFailureReason, ObjectHandle
from milepost.sources import BadRecord, build_reader, encode_dimension, read_dimension
from milepost.storage import dimensions_prefix, open_store, read_handle, write_content_addressed


def snapshot_dimensions(context: JobContext, opened: OpenedEpoch) -> dict[str, DimensionSnapshot]:
    """Return the snapshot that an epoch looks rows up in, by static source.

    A copy of the base checkpoint is reused. A new copy is written below the epoch's own token.

    Raises:
        SubtaskDeclined: an object differs from the pinned version, was deleted, or cannot be read; or a key occurs
            twice.
        InvalidRequest: a source has too many rows, or none.
    """
    return {name: _dimension(context, opened, name, item) for name, item in opened.record.dimensions.items()}


def _dimension(context: JobContext, opened: OpenedEpoch, name: str, item: DimensionInput) -> DimensionSnapshot:
    base = opened.base.dimensions.get(name) if opened.base is not None else None
    spec = context.spec.sources[name]
    if item.recorded is not None:
        if base is not None and base.copy.sha256 == item.recorded.copy.sha256:
            return replace(item.recorded, copy=base.copy)
        body = read_handle(context.store, item.recorded.copy)
        return replace(item.recorded, copy=_write_copy(context, opened, name, body))
    if base is not None and item.is_in(base, spec):
        return base
    rows = _read(context, opened, name, item)
    _check_keys(context, opened, name, rows)
    copy = _write_copy(context, opened, name, encode_dimension(rows))
    return DimensionSnapshot(item.objects, read_as(spec), copy, rows.num_rows, rows.nbytes)


def _write_copy(context: JobContext, opened: OpenedEpoch, name: str, body: bytes) -> ObjectHandle:
    prefix = dimensions_prefix(opened.pending.checkpoint_id, opened.pending.token)
    return write_content_addressed(context.store, f"{prefix}{name}-", ".arrow", body)


def _read(context: JobContext, opened: OpenedEpoch, name: str, item: DimensionInput) -> pa.Table:
    spec, (config, _) = context.spec.dimensions[name], context.source(name)
    try:
        return read_dimension(name, build_reader(name, spec), open_store(config), item.objects, spec.dimension_limit)
    except BadRecord as error:
        raise _declined(opened, CheckpointFailureReason.BAD_RECORD, f"source {name}: {error}") from error
    except CommitConflict as error:
        detail = f"source {name}: an object changed after it was pinned: {error.message}"
        raise _declined(opened, CheckpointFailureReason.SOURCE_OBJECT_CHANGED, detail) from error
    except NotFound as error:
        detail = f"source {name}: an object was deleted after it was pinned: {error.message}"
        raise _declined(opened, CheckpointFailureReason.SOURCE_OBJECT_MISSING, detail) from error


def _check_keys(context: JobContext, opened: OpenedEpoch, name: str, rows: pa.Table) -> None:
    """Decline rows with several matches for one key of a lookup that has no `order_by`, before anything runs."""
    for spec in context.spec.operators:
        if not isinstance(spec, LookupOperator) or spec.dimension != name or spec.order_by:
            continue
        columns = opened.loaded.graph.nodes[spec.inputs[0]].columns
        stream = arrow_schema({column: type_ for column, type_ in columns.items() if type_ is not None})
        if any(column not in stream.names for column, _ in spec.key):
            continue  # only Spark knows the type of a key column: the tasks check it
        try:
            Lookup.of(spec, stream, rows.schema, read=()).prepare(rows)
        except OperatorFailed as failed:
            raise _declined(opened, CheckpointFailureReason.OPERATOR_ERROR, str(failed)) from failed


def _declined(opened: OpenedEpoch, reason: CheckpointFailureReason, detail: str) -> SubtaskDeclined:
    number = opened.pending.checkpoint_id
    return SubtaskDeclined(
        f"checkpoint {number}: declined: {detail}. Nothing was published.",
        hint=reason.remedy,
        reason=reason.value,
        detail=detail,
        checkpoint_id=int(number),
    )
