"""Arrow errors tell of the data that is read, or of the process that reads; here are those of the data."""

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
"""All that say what is wrong, but `ArrowMemoryError`; a bare `ArrowException` says that there is no thread more.

Data that is refused for want of memory would be told as bad, or left out as such.
"""
