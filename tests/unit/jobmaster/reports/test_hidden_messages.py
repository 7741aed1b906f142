"""Messages of failed landings that may quote rows."""

from __future__ import annotations

from milepost.jobmaster.reports.hidden_messages import HIDDEN_MESSAGE, hide_message, hide_quotes

RAISED = "source orders: `read` failed: ValueError: invalid literal for int(): 'ada@shop'"


def test_the_exception_of_a_users_reader_is_hidden_as_that_of_an_operator() -> None:
    assert hide_message("SourceUnreachable", RAISED) == HIDDEN_MESSAGE
    assert hide_message("OPERATOR_ERROR", RAISED) == HIDDEN_MESSAGE
    assert hide_quotes(f"land: SourceUnreachable: {RAISED}") == f"land: SourceUnreachable: {HIDDEN_MESSAGE}"
