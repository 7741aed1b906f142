"""Runs: immutable Parquet files of changed rows, sorted by (key group, key hash), small per changed key.

The hash is not stored: it is recomputed on load, which is cheaper than reading it. Integers and times are packed as
differences, text by dictionary. A run's bytes are a pure function of its rows, so its name can be its content hash.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.protocol.errors import StateCorrupt
from pipeline.state.evolution import converted, stored_names
from pipeline.state.handles import RunHandle, RunKind
from pipeline.state.key_groups import key_group
from pipeline.state.layer import KeySpec, Layer

DELETED_COLUMN = "__deleted"
_ROWS_PER_ROW_GROUP = 256 * 1024


def group_offsets(layer: Layer, key_groups: range, max_parallelism: int) -> tuple[int, ...]:
    """Row offset of each key group of the range, and the number of rows."""
    borders = np.arange(key_groups.start, key_groups.stop + 1)
    return tuple(int(offset) for offset in np.searchsorted(key_group(layer.hashes, max_parallelism), borders))


def encode_run(
    layer: Layer,
    kind: RunKind,
    key_groups: range,
    max_parallelism: int,
    directory: str,
    schema: pa.Schema | None = None,
) -> tuple[RunHandle, bytes]:
    """Return the handle and the bytes of a run that holds the layer.

    Args:
        layer: not empty; all its rows lie in key_groups.
        directory: of the object key, ends in ``/``; the file is named by its content.
        schema: the layer's columns with their stored names; None: each is stored by its own name.
    """
    names = stored_names(layer.rows.schema if schema is None else schema)
    table = layer.rows.rename_columns(names).append_column(
        pa.field(DELETED_COLUMN, pa.bool_(), nullable=False), pa.array(layer.deleted)
    )
    packed = [field.name for field in table.schema if _packs_as_differences(field.type)]
    plain = {
        field.name for field in table.schema if pa.types.is_boolean(field.type) or pa.types.is_floating(field.type)
    }
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(None),
        sink,
        row_group_size=_ROWS_PER_ROW_GROUP,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name not in plain and name not in packed],
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        write_statistics=False,
        store_schema=True,
    )
    body = sink.getvalue().to_pybytes()
    sha256 = hashlib.sha256(body).hexdigest()
    handle = RunHandle(
        key=f"{directory}{sha256}.parquet",
        size=len(body),
        sha256=sha256,
        rows=layer.num_rows,
        kind=kind,
        key_groups=key_groups,
        valid=key_groups,
        offsets=group_offsets(layer, key_groups, max_parallelism),
    )
    return handle, body


def _packs_as_differences(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_date(data_type)
        or pa.types.is_timestamp(data_type)
        or pa.types.is_time(data_type)
    )


def check_body(handle: RunHandle, body: bytes) -> str | None:
    """Say how a stored body differs from its handle; None when it does not."""
    if len(body) != handle.size:
        return f"it has {len(body)} bytes, expected {handle.size}"
    actual = hashlib.sha256(body).hexdigest()
    if actual != handle.sha256:
        return f"its sha256 is {actual}, expected {handle.sha256}"
    return None


def decode_run(
    body: bytes, handle: RunHandle, wanted: range, schema: pa.Schema, keys: KeySpec, max_parallelism: int
) -> Layer:
    """Read the wanted key groups of a run whose bytes were checked, as rows of the operator's state schema.

    Only the row groups that hold them are decoded. A run of an older schema is converted.

    Args:
        schema: of the operator, with stored names.
    Raises:
        InvalidRequest: the run's columns cannot become those of the schema.
        StateCorrupt: the rows are not those that the handle describes.
    """
    lower, upper = _row_span(handle, wanted)
    with pq.ParquetFile(pa.BufferReader(body)) as file:
        if file.metadata.num_rows != handle.rows:
            raise StateCorrupt(f"state run {handle.key} has {file.metadata.num_rows} rows, expected {handle.rows}.")
        sizes = [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)]
        starts = np.cumsum([0, *sizes])
        groups = [i for i in range(len(sizes)) if starts[i] < upper and starts[i + 1] > lower]
        if not groups:
            table = file.schema_arrow.empty_table()
        else:
            first = int(starts[groups[0]])
            table = file.read_row_groups(groups, use_threads=False).slice(lower - first, upper - lower)
    deleted = np.asarray(table.column(DELETED_COLUMN).combine_chunks(), dtype=np.bool_)
    rows = converted(handle.key, table, schema)
    layer = Layer(keys.hashes(rows), rows, deleted)
    ordered = bool(np.all(layer.hashes[1:] >= layer.hashes[:-1]))
    common = range(max(wanted.start, handle.key_groups.start), min(wanted.stop, handle.key_groups.stop))
    expected = tuple(
        handle.offsets[group - handle.key_groups.start] - lower for group in range(common.start, common.stop + 1)
    )
    if not ordered or group_offsets(layer, common, max_parallelism) != expected:
        raise StateCorrupt(f"state run {handle.key} is not in the order of its key hash, or of another hash version.")
    return layer


def _row_span(handle: RunHandle, wanted: range) -> tuple[int, int]:
    start = max(wanted.start, handle.key_groups.start) - handle.key_groups.start
    stop = min(wanted.stop, handle.key_groups.stop) - handle.key_groups.start
    return handle.offsets[start], handle.offsets[stop]
