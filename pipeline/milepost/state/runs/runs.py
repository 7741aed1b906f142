"""Encode and decode runs: immutable Parquet files of changed rows, sorted by key.

In key order, the keys of an epoch compress as small differences. In hash order they would be random numbers:

    stored     k  1001 1002 1004      differences 1, 2
    restored   k  1004 1001 1002      ascending hash, if the hashes are 07.., 5c.., e3..

State is looked up by hash, so a reader sorts the rows by hash. The hash is not stored, because computing it is cheaper
than reading it. The offsets in the handle, the number of rows per key group, verify that the reader computed the same
hash. A column with the same values as an earlier one is not stored: metadata names the column that it copies.

The file records its format. A run's bytes are a pure function of its rows, so a run is named by its content hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from milepost.errors import StateCorrupt
from milepost.state.layers.key_groups import Hashes, group_cuts, key_group
from milepost.state.layers.layer import Bools, KeySpec, Layer, stable_order
from milepost.state.runs.evolution import convert_rows, stored_names
from milepost.state.runs.handles import RunHandle, RunKind
from milepost.state.runs.run_columns import Packing, copied_columns, order_by_key, packings

DELETED_COLUMN = "__deleted"
_FORMAT_KEY = b"milepost.state-run"
_FORMAT = b"1"
_COPIES_KEY = b"milepost.run_copies"
_ROWS_PER_ROW_GROUP = 256 * 1024
_ROWS_PER_PAGE = 128 * 1024
"""zstd compresses blocks of 128 KB. In pages of this many rows, each byte plane of a column is one block, with its own
code."""
_PAGE_BYTES = 8 * 1024 * 1024


def group_offsets(layer: Layer, key_groups: range, max_parallelism: int) -> tuple[int, ...]:
    """Return the row offset of each key group in the range, then the number of rows.

    Three key groups with 2, 0 and 3 rows have the offsets (0, 2, 2, 5).
    """
    return tuple(group_cuts(layer.hashes, max_parallelism)[key_groups.start : key_groups.stop + 1].tolist())


def encode_run(
    layer: Layer,
    kind: RunKind,
    key_groups: range,
    max_parallelism: int,
    directory: str,
    keys: KeySpec,
    schema: pa.Schema | None = None,
) -> tuple[RunHandle, bytes]:
    """Encode a layer as a run. Return its handle and bytes.

    Args:
        layer: not empty; all its rows are in key_groups.
        directory: prefix of the object key, ends in ``/``. The file is named by its content hash.
        schema: the layer's columns with their stored names; None: each column is stored under its own name.
    """
    state = layer.rows
    rows = state.append_column(pa.field(DELETED_COLUMN, pa.bool_(), nullable=False), pa.array(layer.deleted))
    order = order_by_key(state, keys.key)
    if order is not None:
        rows = rows.take(pa.array(order))
    names = stored_names(state.schema if schema is None else schema)
    table = rows.combine_chunks().rename_columns([*names, DELETED_COLUMN])
    copies = copied_columns(table)
    metadata: dict[bytes, str | bytes] = {_FORMAT_KEY: _FORMAT}
    if copies:
        metadata[_COPIES_KEY] = json.dumps(copies, sort_keys=True)
    body = _as_parquet(table.drop_columns(list(copies)).replace_schema_metadata(metadata))
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


def _as_parquet(table: pa.Table) -> bytes:
    packed = packings(table)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=_ROWS_PER_ROW_GROUP,
        compression="zstd",
        use_dictionary=[name for name, packing in packed.items() if packing is Packing.DICTIONARY],
        column_encoding={name: packing.value for name, packing in packed.items() if packing is not Packing.DICTIONARY},
        write_statistics=False,
        max_rows_per_page=_ROWS_PER_PAGE,
        data_page_size=_PAGE_BYTES,
        store_schema=True,
    )
    return sink.getvalue().to_pybytes()


def check_body(handle: RunHandle, body: bytes) -> str | None:
    """Return how a stored body differs from its handle, as text; None if it matches."""
    if len(body) != handle.size:
        return f"it has {len(body)} bytes, expected {handle.size}"
    actual = hashlib.sha256(body).hexdigest()
    if actual != handle.sha256:
        return f"its sha256 is {actual}, expected {handle.sha256}"
    return None


def decode_run(
    body: bytes, handle: RunHandle, wanted: range, schema: pa.Schema, keys: KeySpec, max_parallelism: int
) -> Layer:
    """Decode key groups of a run with checked bytes. A run of an older schema is converted.

    Args:
        wanted: key groups to decode.
        schema: of the operator, with stored names.
    Raises:
        InvalidRequest: the run's columns cannot be converted to the schema.
        StateCorrupt: the rows do not match the handle, or the format is unknown.
    """
    start, stop = max(wanted.start, handle.key_groups.start), min(wanted.stop, handle.key_groups.stop)
    offsets = handle.offsets[start - handle.key_groups.start : stop - handle.key_groups.start + 1]
    with pq.ParquetFile(pa.BufferReader(body)) as file:
        _check_file(file, handle)
        layer = _read(file, handle, range(start, stop), schema, keys, max_parallelism)
    expected = tuple(offset - offsets[0] for offset in offsets)
    ordered = bool(np.all(layer.hashes[1:] >= layer.hashes[:-1]))
    if not ordered or group_offsets(layer, range(start, stop), max_parallelism) != expected:
        raise _misplaced(handle)
    return layer


def decode_pieces(
    source: pa.NativeFile, handle: RunHandle, wanted: range, schema: pa.Schema, keys: KeySpec, max_parallelism: int
) -> Iterator[Layer]:
    """Yield the rows of `decode_run` in parts, one per row group, each sorted by hash.

    Only one row group is in memory at a time. Arguments and errors are those of `decode_run`. The row counts per key
    group are compared with the handle after the last part.
    """
    counts = np.zeros(max_parallelism, dtype=np.int64)
    with pq.ParquetFile(source) as file:
        _check_file(file, handle)
        for table, hashes in _parts(file, handle, wanted, schema, keys, max_parallelism):
            order, ordered = stable_order(hashes)
            counts += np.bincount(key_group(ordered, max_parallelism), minlength=max_parallelism)
            rows, deleted = _state_rows(handle, table.combine_chunks().take(pa.array(order)), schema)
            yield Layer(ordered, rows, deleted)
    for group in wanted:
        at = group - handle.key_groups.start
        if counts[group] != handle.offsets[at + 1] - handle.offsets[at]:
            raise _misplaced(handle)


def _check_file(file: pq.ParquetFile, handle: RunHandle) -> None:
    """Check row count and format of a file. Raises StateCorrupt."""
    if file.metadata.num_rows != handle.rows:
        raise StateCorrupt(f"state run {handle.key} has {file.metadata.num_rows} rows, expected {handle.rows}.")
    version = (file.metadata.metadata or {}).get(_FORMAT_KEY)
    if version != _FORMAT:
        who = "an earlier Milepost, or by something else" if version is None else "a newer Milepost"
        raise StateCorrupt(f"state run {handle.key} was written by {who}: its format is {version!r}.")


def _misplaced(handle: RunHandle) -> StateCorrupt:
    return StateCorrupt(
        f"state run {handle.key} does not have the rows per key group that its handle says, or was placed by "
        "another version of the key hash."
    )


def _read(
    file: pq.ParquetFile, handle: RunHandle, own: range, schema: pa.Schema, keys: KeySpec, max_parallelism: int
) -> Layer:
    """Return the rows of some key groups of an unsorted file, sorted by hash.

    Columns are read one by one, so that memory holds the rows and one more column.
    """
    copies, names, hashes_of = _stored(file, handle, schema, keys)
    if own == handle.key_groups:
        key_schema = pa.schema([schema.field(name) for name in keys.key])
        key_names = {copies.get(name, name) for name in stored_names(key_schema)}
        key_table = _columns(file, [name for name in names if name in key_names])
        order, hashes = stable_order(hashes_of(key_table))
        positions = pa.array(order)
        columns = [
            (key_table if name in key_table.column_names else _columns(file, [name])).column(name).take(positions)
            for name in names
        ]
        table = _with_copies(pa.table(columns, schema=pa.schema([file.schema_arrow.field(n) for n in names])), copies)
    else:  # a part of a run takes the memory of that part, and of one row group
        parts = list(_parts(file, handle, own, schema, keys, max_parallelism))
        table = pa.concat_tables([part for part, _ in parts]).combine_chunks()
        order, hashes = stable_order(np.concatenate([part_hashes for _, part_hashes in parts]))
        table = table.take(pa.array(order))
    rows, deleted = _state_rows(handle, table, schema)
    return Layer(hashes, rows, deleted)


def _parts(
    file: pq.ParquetFile, handle: RunHandle, own: range, schema: pa.Schema, keys: KeySpec, max_parallelism: int
) -> Iterator[tuple[pa.Table, Hashes]]:
    """Yield, per row group, the stored columns of the rows in the key groups `own`, and their hashes."""
    copies, names, hashes_of = _stored(file, handle, schema, keys)
    for index in range(file.num_row_groups):
        part = file.read_row_group(index, columns=names, use_threads=False).select(names)
        part_hashes = hashes_of(part)
        groups = key_group(part_hashes, max_parallelism)
        owned = (groups >= own.start) & (groups < own.stop)
        yield _with_copies(part.filter(pa.array(owned)), copies), part_hashes[owned]


def _stored(
    file: pq.ParquetFile, handle: RunHandle, schema: pa.Schema, keys: KeySpec
) -> tuple[Mapping[str, str], list[str], Callable[[pa.Table], Hashes]]:
    """Return the copied columns, the names of the stored columns to read, and a function that hashes their rows."""
    copies = _copies(handle, file.metadata.metadata or {}, file.schema_arrow.names)
    needed = {copies.get(name, name) for name in (*stored_names(schema), DELETED_COLUMN)}
    key_schema = pa.schema([schema.field(name) for name in keys.key])

    def hashes_of(table: pa.Table) -> Hashes:
        return keys.hashes(convert_rows(handle.key, _with_copies(table, copies), key_schema))

    return copies, [name for name in file.schema_arrow.names if name in needed], hashes_of


def _columns(file: pq.ParquetFile, names: list[str]) -> pa.Table:
    """Return columns of a file in one chunk.

    The select is needed because in Parquet the name `a` also selects a column `a.b`.
    """
    return file.read(columns=names, use_threads=False).select(names).combine_chunks()


def _copies(handle: RunHandle, metadata: Mapping[bytes, bytes], stored: list[str]) -> Mapping[str, str]:
    """Return, for each column that is not stored, the stored column with the same values."""
    try:
        copies = json.loads(metadata.get(_COPIES_KEY, b"{}"))
    except ValueError:
        copies = None
    if not isinstance(copies, dict) or not all(
        name not in stored and isinstance(original, str) and original in stored for name, original in copies.items()
    ):
        raise StateCorrupt(f"state run {handle.key} names columns as copies of columns that it does not have.")
    return copies


def _with_copies(table: pa.Table, copies: Mapping[str, str]) -> pa.Table:
    """Return the stored columns and the columns copied from them, which share their memory."""
    for name, original in copies.items():
        if original in table.column_names:
            table = table.append_column(table.schema.field(original).with_name(name), table.column(original))
    return table


def _state_rows(handle: RunHandle, table: pa.Table, schema: pa.Schema) -> tuple[pa.Table, Bools]:
    """Convert a file's rows to the operator's schema, in one chunk. Return them and the tombstone mask."""
    deleted = np.asarray(table.column(DELETED_COLUMN).combine_chunks(), dtype=np.bool_)
    return convert_rows(handle.key, table, schema), deleted
