"""Read a static source whole, within a memory limit, and store it as one Arrow file."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.protocol.records import ObjectStore
from milepost.sources.contract import PartReader, SourceObject, whole_object

_BATCH_ROWS = 65_536


def read_dimension(
    name: str, reader: PartReader, store: ObjectStore, objects: Iterable[SourceObject], limit: int
) -> pa.Table:
    """Return the rows of a static source's objects, in plan order.

    Args:
        limit: memory in bytes that the rows may take. It is checked after each batch.
    Raises:
        InvalidRequest: the rows exceed the limit, or there are none.
        BadRecord, CommitConflict, NotFound: as `PartReader.read_part`.
    """
    batches, size = [], 0
    for obj in objects:
        for batch in reader.read_part(store, whole_object(obj)):
            batches.append(batch)
            size += batch.nbytes
            if size > limit:
                raise InvalidRequest(
                    f"source {name}: its rows up to {obj.key} take more than {limit:,} bytes in memory. "
                    "Nothing was published.",
                    hint=f"raise sources.{name}.dimension_limit, leave columns out of its schema, or join a stream of "
                    "its changes",
                    source=name,
                )
    table = pa.Table.from_batches(batches, reader.schema)
    if not table.num_rows:
        raise InvalidRequest(
            f"source {name}: its objects have no rows, so every lookup would miss. Nothing was published.",
            hint=f"check which objects sources.{name}.path matches",
            source=name,
        )
    return table.combine_chunks()


def encode_dimension(rows: pa.Table) -> bytes:
    """Return rows as an Arrow file. The same rows give the same bytes."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_file(sink, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=_BATCH_ROWS)
    return bytes(sink.getvalue())


def decode_dimension(body: bytes) -> pa.Table:
    """Return the rows that `encode_dimension` wrote. Raises pa.ArrowException: it is not an Arrow file."""
    return pa.ipc.open_file(pa.BufferReader(body)).read_all()


def cast_to_declared(name: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast recorded rows to the columns that the source declares now.

    Raises:
        InvalidRequest: a column was not recorded, or its values do not fit its type.
    """
    try:
        return rows.select(schema.names).cast(schema)
    except MemoryError:  # pyarrow's ArrowMemoryError is one: the process is out of memory, the data is fine
        raise
    except (KeyError, pa.ArrowException) as error:
        raise InvalidRequest(
            f"source {name}: its recorded rows do not fit the columns that it declares now ({error}). Nothing was "
            "published.",
            hint="backfill from a checkpoint after the change, or give the source a new name: a source without "
            "recorded rows is read as it is now",
            source=name,
        ) from error
