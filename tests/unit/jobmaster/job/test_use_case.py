"""A use case notifies its observers before it returns or raises."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from milepost.jobmaster.job.use_case import UseCaseEnds, use_case


class Group:
    """A group of use cases, as the job master composes them, and what its observers were called with."""

    def __init__(self) -> None:
        self.ends: list[BaseException | None] = []
        callbacks = UseCaseEnds([self.ends.append])
        self._context = SimpleNamespace(use_case_ends=callbacks)

    @use_case
    def inner(self) -> int:
        return len(self.ends)

    @use_case
    def outer(self) -> tuple[int, int]:
        return self.inner(), len(self.ends)

    @use_case
    def fails(self) -> None:
        raise ValueError("no room")


def test_observers_are_called_once_after_the_outermost_use_case() -> None:
    group = Group()
    assert group.outer() == (0, 0)
    assert group.ends == [None]


def test_observers_receive_the_error_of_a_use_case_and_the_caller_too() -> None:
    group = Group()
    with pytest.raises(ValueError, match="no room") as raised:
        group.fails()
    assert group.ends == [raised.value]
    assert (group.inner(), group.ends[1:]) == (1, [None]), "the next use case is the outermost again"


def test_a_use_case_keeps_its_name_and_docstring() -> None:
    assert (Group.outer.__name__, Group.inner.__wrapped__.__name__) == ("outer", "inner")  # type: ignore[attr-defined]
