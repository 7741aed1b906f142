"""Times as people read them, also those of years that Python's dates do not have."""

from __future__ import annotations

import pytest

from milepost.epoch.iso_times import watermark_text, watermark_us


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (None, None),
        (2**63 - 1, "end"),
        (0, "1970-01-01T00:00:00+00:00"),
        (1, "1970-01-01T00:00:00.000001+00:00"),
        (253_402_300_800_000_000, "10000-01-01T00:00:00.000000+00:00"),
        (2**63 - 2, "294247-01-10T04:00:54.775806+00:00"),
        (-(2**63), "-290308-12-21T19:59:05.224193+00:00"),
    ],
)
def test_every_watermark_can_be_read(time_us: int | None, text: str | None) -> None:
    """A row of a year beyond 9999 moves the watermark, and then `list` and `show` must still be able to tell it."""
    assert watermark_text(time_us) == text
    assert text is None or watermark_us(text) == max(time_us or 0, 1 - 2**63)
