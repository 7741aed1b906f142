"""Quantities are formatted for people."""

from __future__ import annotations

import pytest

from milepost.epoch.quantities import observed


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("unexpected_count", 1234567, "1234567"),
        ("unexpected_percent", 1 / 2750 * 100, "0.03636"),
        ("missing_percent", 0, "0"),
        ("unexpected_percent", 100.0, "100"),
        ("unexpected_percent", 99.996, "100"),
    ],
)
def test_a_percentage_has_four_digits_and_a_count_all(name: str, value: float, told: str) -> None:
    assert observed(name, value) == told
