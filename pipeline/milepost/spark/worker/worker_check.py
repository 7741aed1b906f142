"""What tasks call of their libraries is done once with three keys: a library that is too old shows itself here."""

from __future__ import annotations

import pyarrow as pa

from milepost.state.layers.key_hash import KeyHash
from milepost.state.layers.layer import KeySpec, sort_rows
from milepost.state.runs.handles import RunKind
from milepost.state.runs.runs import decode_run, encode_run

_SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def work_with_keys() -> None:
    """Hash keys, write them as a run of state, and read it back. Raises whatever a library raises."""
    keys = KeySpec(("k",), ("k",), KeyHash("0" * 32))
    layer = sort_rows(pa.table({"k": [1, 2, 3], "v": ["a", None, "c"]}, schema=_SCHEMA), keys, False)
    handle, body = encode_run(layer, RunKind.BASE, range(8), 8, "probe/", keys)
    read = decode_run(body, handle, range(8), _SCHEMA, keys, 8)
    assert read.rows.equals(layer.rows), "a run of state is read back as it was written"
