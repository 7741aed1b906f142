"""Ctrl-C while the driver waits for Spark."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from milepost.spark.driver import interrupts
from milepost.spark.driver.interrupts import one_interrupt


@pytest.fixture(autouse=True)
def handler_of_python() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def test_a_second_ctrl_c_does_not_interrupt_what_cleans_up_after_the_first() -> None:
    with pytest.raises(KeyboardInterrupt), one_interrupt():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            cleaned = True
    assert cleaned


def test_a_later_ctrl_c_interrupts_a_clean_up_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "CLEAN_UP_S", 0.0)
    with pytest.raises(KeyboardInterrupt) as again, one_interrupt():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
    assert isinstance(again.value.__context__, KeyboardInterrupt)


def test_another_handler_of_ctrl_c_stays() -> None:
    """An application that runs epochs by itself has its own."""
    received = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    with one_interrupt():
        signal.raise_signal(signal.SIGINT)
    assert received == [signal.SIGINT]
    signal.signal(signal.SIGINT, signal.default_int_handler)
