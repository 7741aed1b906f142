"""A dimension is what a static source holds as a whole: read within a limit, and copied as one Arrow file."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.protocol.records.object_store import ObjectStore
from milepost.sources.contract import PartReader, SourceObject, whole_object

_BATCH_ROWS = 65_536


def read_dimension(
    name: str, reader: PartReader, store: ObjectStore, objects: Iterable[SourceObject], limit: int
) -> pa.Table:
    """Return the rows of a static source's objects, in plan order.

    Args:
        limit: bytes in memory that they may take. It is held to while they are read.
    Raises:
        InvalidRequest: there are more, or no rows at all. BadRecord, CommitConflict, NotFound: as a reader does.
    """
    batches, size = [], 0
    for obj in objects:
        for batch in reader.read_part(store, whole_object(obj)):
            batches.append(batch)
            size += batch.nbytes
            if size > limit:
                raise InvalidRequest(
                    f"source {name}: its rows take more than {limit:,} bytes in memory, up to {obj.key} already. "
                    "Nothing was published.",
                    hint=f"raise sources.{name}.dimension_limit, leave columns out of its schema, or join a stream of "
                    "its changes",
                    source=name,
                )
    table = pa.Table.from_batches(batches, reader.schema)
    if not table.num_rows:
        raise InvalidRequest(
            f"source {name}: its objects have no rows, so nothing could be found in it. Nothing was published.",
            hint=f"see what lies at sources.{name}.path",
            source=name,
        )
    return table.combine_chunks()


def encode_dimension(rows: pa.Table) -> bytes:
    """Return rows as an Arrow file: the same bytes for the same rows."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_file(sink, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=_BATCH_ROWS)
    return bytes(sink.getvalue())


def decode_dimension(body: bytes) -> pa.Table:
    """Return the rows of `encode_dimension`. Raises pa.ArrowException: it is no such file."""
    return pa.ipc.open_file(pa.BufferReader(body)).read_all()


def cast_to_declared(name: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return recorded rows with the columns that a source declares now.

    Raises:
        InvalidRequest: a column was not recorded, or its values do not fit its type.
    """
    try:
        return rows.select(schema.names).cast(schema)
    except MemoryError:  # among pyarrow's errors too: it is about the process
        raise
    except (KeyError, pa.ArrowException) as error:
        raise InvalidRequest(
            f"source {name}: what was recorded of it has not the columns that it declares now ({error}). Nothing was "
            "published.",
            hint="backfill from a checkpoint after the change, or give the source a new name: one that has no record "
            "is read as it is now",
            source=name,
        ) from error
