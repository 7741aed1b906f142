"""Delivery tells what has landed in its order, and complains once of who cannot hear."""

from __future__ import annotations

from typing import Any, cast

import pytest

from milepost.jobmaster.observers.delivery import Delivery
from milepost_testkit import wording


def landed(*numbers: int) -> list[Any]:
    return [cast(Any, number) for number in numbers]


def test_who_fails_each_time_is_complained_of_once(caplog: pytest.LogCaptureFixture) -> None:
    def deaf(_: Any) -> None:
        raise OSError("no route to host")

    delivery = Delivery(deaf, "OpenLineage")
    for one in landed(1, 2, 3):
        delivery(one)
    assert delivery.heard(lambda: "done")() == "done"
    assert len(caplog.records) == 1 and "no route" in caplog.text
    wording.matches("log", caplog.messages)


def test_a_complaint_quotes_no_credentials_of_a_url(caplog: pytest.LogCaptureFixture) -> None:
    def refuses(_: Any) -> None:
        raise OSError("401 Client Error: Unauthorized for url: https://me:s3cret@lineage.example/api/v1/lineage")

    delivery = Delivery(refuses, "OpenLineage")
    delivery(*landed(1))
    delivery.heard(lambda: "done")()
    assert "401" in caplog.text and "https://lineage.example/api" in caplog.text and "s3cret" not in caplog.text


def test_a_use_case_ends_when_what_it_did_is_told_also_where_it_raises() -> None:
    told: list[Any] = []
    delivery = Delivery(told.append, "OpenLineage")

    def fails() -> None:
        for one in landed(1, 2, 3):
            delivery(one)
        raise ValueError("as it does")

    with wording.raises(ValueError):
        delivery.heard(fails)()
    assert told == [1, 2, 3]
