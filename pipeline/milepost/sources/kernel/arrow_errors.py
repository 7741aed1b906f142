"""The Arrow errors that are caused by the data, not by the reading process."""

from __future__ import annotations

import pyarrow as pa

DATA_ERRORS = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowKeyError,
    pa.ArrowIndexError,
    pa.ArrowNotImplementedError,
    pa.ArrowCapacityError,
    pa.ArrowSerializationError,
)
"""Every specific Arrow error except `ArrowMemoryError`. A bare `ArrowException` means that no thread could start.

Catching those as well would report good data as bad, or skip it, when the process is short of memory.
"""
