"""Times of any year as ISO 8601: Python has those of the years 1 to 9999 only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def scalar_text(time: pa.Scalar) -> str:
    """Return a timestamp of Arrow, without its zone, or a date."""
    import pyarrow as pa

    return iso_text(time.value, time.type.unit if pa.types.is_timestamp(time.type) else "D")


def iso_text(value: int, unit: str) -> str:
    """Return a time, without its zone.

    Args:
        value: since 1970. unit: of NumPy: s, ms, us, ns, or D of a date.
    """
    import numpy

    number = numpy.array(max(value, 1 - 2**63), numpy.int64)  # it takes the least one for no time
    return str(number.astype(f"datetime64[{unit}]"))
