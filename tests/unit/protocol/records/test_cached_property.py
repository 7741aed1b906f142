"""A property that is computed once: no object waits for another, and no thread for a lock."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from milepost.protocol.records.cached_properties import cached_property
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.imports import FOLDER, files

HOME = REPOSITORY / FOLDER / "protocol/records/cached_properties.py"


class Asked:
    """Compute a value by calling `compute`."""

    def __init__(self, compute: Callable[[], object]) -> None:
        self._compute = compute

    @cached_property
    def answer(self) -> object:
        """What was computed."""
        return self._compute()


def test_a_cached_property_is_computed_once_and_keeps_its_docstring() -> None:
    asked = Asked(object)
    assert asked.answer is asked.answer
    assert Asked.answer.__doc__ == "What was computed."


def test_an_object_does_not_wait_for_another_whose_store_is_slow() -> None:
    go_on, begun = threading.Event(), threading.Event()

    def slowly() -> str:
        begun.set()
        assert go_on.wait(60)
        return "slow"

    slow = Asked(slowly)
    with ThreadPoolExecutor(2) as pool:
        waits = pool.submit(lambda: slow.answer)
        assert begun.wait(60)
        try:
            assert pool.submit(lambda: Asked(lambda: "quick").answer).result(10) == "quick"
        finally:
            go_on.set()
        assert waits.result(60) == "slow"


def test_threads_that_compute_a_cached_property_concurrently_get_one_value() -> None:
    both = threading.Barrier(2, timeout=60)

    def compute() -> object:
        both.wait()
        return object()

    asked = Asked(compute)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: asked.answer, range(2))
    assert first is second


@pytest.mark.parametrize("spelled", ["from functools import cache, cached_property", "functools.cached_property"])
def test_a_cached_property_of_functools_is_found_however_it_is_spelled(spelled: str) -> None:
    assert locks_all(spelled)


def test_the_product_has_no_cached_property_of_functools() -> None:
    assert [file for file in files(FOLDER) if file != HOME and locks_all(file.read_text(encoding="utf-8"))] == []


def locks_all(code: str) -> bool:
    return re.search(r"functools(\.| import .*\b)cached_property", code) is not None
