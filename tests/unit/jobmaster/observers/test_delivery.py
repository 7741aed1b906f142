"""Delivery sends transitions to an observer in order, and warns once about one that fails."""

from __future__ import annotations

from typing import Any, cast

import pytest

from milepost.jobmaster.observers.delivery import Delivery
from milepost_testkit import wording


def landed(*numbers: int) -> list[Any]:
    return [cast(Any, number) for number in numbers]


def test_an_observer_that_always_fails_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> None:
        raise OSError("no route to host")

    delivery = Delivery(fail, "OpenLineage")
    for transition in landed(1, 2, 3):
        delivery(transition)
    delivery.wait()
    assert len(caplog.records) == 1 and "no route" in caplog.text
    wording.matches("log", caplog.messages)


def test_a_warning_contains_no_credentials_of_a_url(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: Any) -> None:
        raise OSError("401 Client Error: Unauthorized for url: https://me:s3cret@lineage.example/api/v1/lineage")

    delivery = Delivery(refuse, "OpenLineage")
    delivery(*landed(1))
    delivery.wait()
    assert "401" in caplog.text and "https://lineage.example/api" in caplog.text and "s3cret" not in caplog.text


def test_waiting_ends_when_all_transitions_are_delivered_in_their_order() -> None:
    delivered: list[Any] = []
    delivery = Delivery(delivered.append, "OpenLineage")
    for number in landed(1, 2, 3):
        delivery(number)
    delivery.wait()
    assert delivered == [1, 2, 3]
