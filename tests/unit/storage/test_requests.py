"""Requests to S3 are counted by billing class, each attempt separately."""

from __future__ import annotations

import pytest

from milepost.codec.records import from_json, to_json
from milepost.storage.requests import RequestClass, RequestCounter, StoreRequests, class_of


@pytest.mark.parametrize(
    ("method", "url", "expected"),
    [
        ("PUT", "http://s3/bucket/key", RequestClass.PUT),
        ("POST", "http://s3/bucket/key?uploads", RequestClass.PUT),
        ("GET", "http://s3/bucket?list-type=2&prefix=a", RequestClass.PUT),
        ("GET", "http://s3/bucket/delete?x=list-type", RequestClass.GET),
        ("HEAD", "http://s3/bucket", RequestClass.GET),
        ("DELETE", "http://s3/bucket/key", RequestClass.DELETE),
        ("POST", "http://s3/bucket?delete", RequestClass.DELETE),
    ],
)
def test_a_list_is_billed_as_a_put_and_a_head_as_a_get(method: str, url: str, expected: RequestClass) -> None:
    assert class_of(method, url) is expected


def test_what_a_task_takes_is_not_counted_as_its_driver_s_too() -> None:
    """A task that runs in the process of its driver: what it made, and the put that says so, is its own."""
    counter = RequestCounter()
    counter.sent(RequestClass.GET)
    before = counter.totals()
    counter.sent(RequestClass.PUT, 7)
    counter.received(9)
    assert counter.take(before, StoreRequests(puts=1)) == StoreRequests(puts=2, sent_bytes=7, received_bytes=9)
    counter.sent(RequestClass.PUT)
    assert counter.totals() == StoreRequests(gets=1)


def test_a_difference_has_no_negative_count_so_it_can_be_read_back() -> None:
    """A task takes its put before it makes it: a step that ends between the two has seen fewer requests than none."""
    counter = RequestCounter()
    before = counter.totals()
    counter.take(before, StoreRequests(puts=1))
    made = counter.totals() - before
    assert made == StoreRequests() == from_json(StoreRequests, to_json(made), "requests")
