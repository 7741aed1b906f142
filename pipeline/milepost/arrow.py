"""Arrow arrays from Python values, and NumPy arrays from Arrow, without pandas.

`pa.array`, `pa.scalar` and `to_numpy` import pandas to recognise its types. That takes a quarter of a second: more than
the other work of a short task, and a third of the time of a command or of a server's first page.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_MAX_TEXT_BYTES = 2**31 - 1


def int64_array(values: Iterable[int]) -> pa.Int64Array:
    """Return an array without nulls; its items are scalars. Raises OverflowError: beyond 64 bits."""
    words = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(words), [None, pa.py_buffer(words)])


def string_array(texts: Sequence[str]) -> pa.StringArray:
    """Return an array without nulls.

    Raises:
        UnicodeEncodeError: a text has half of a surrogate pair. pa.ArrowCapacityError: the texts have 2 GiB or more.
    """
    # ["ab", "é", ""] has the bytes "abé" and the offsets 0, 2, 4, 4.
    joined = "".join(texts)
    body = joined.encode()
    lengths = map(len, texts) if len(body) == len(joined) else (len(text.encode()) for text in texts)
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(lengths, np.int64, len(texts)), out=offsets[1:])
    if offsets[-1] > _MAX_TEXT_BYTES:
        raise pa.ArrowCapacityError(f"{len(texts)} texts have {offsets[-1]} bytes, at most {_MAX_TEXT_BYTES}")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(body)]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def numpy_array(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return the numbers of an array, without a copy; of booleans, a copy. Raises pa.ArrowInvalid: it has nulls."""
    if values.null_count:
        raise pa.ArrowInvalid(f"expected an array without nulls, got {values.null_count} of {len(values)} values")
    if pa.types.is_boolean(values.type):
        return np.from_dlpack(values.cast(pa.uint8())).astype(np.bool_)
    return np.from_dlpack(values)
