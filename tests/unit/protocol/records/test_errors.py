"""An error describes what happened, and the remedy if it is known."""

from __future__ import annotations

from milepost.errors import NotFound


def test_a_full_message_is_the_message_followed_by_the_hint() -> None:
    error = NotFound("there is no job x.", hint="milepost jobs")
    assert (error.full_message(), error.full_message("\n")) == (
        "there is no job x. milepost jobs",
        "there is no job x.\nmilepost jobs",
    )


def test_an_error_without_a_hint_is_its_message_in_full() -> None:
    assert NotFound("there is no job x.").full_message("\n") == "there is no job x."
