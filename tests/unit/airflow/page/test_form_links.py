"""Hints for users without a shell: the form of the same act, and its address if it is known."""

from __future__ import annotations

import re

import pytest

from milepost.airflow.task_output.form_links import for_airflow
from milepost_testkit import wording

BASE = "https://airflow.example.org"


@pytest.mark.parametrize(
    ("hint", "commands", "acts"),
    [
        ("then: milepost resume small", ["milepost resume small"], ["resume"]),
        (
            "milepost cancel small ends it first; milepost rollback small --to ID goes back",
            ["milepost cancel small", "milepost rollback small --to ID"],
            ["cancel", "rollback"],
        ),
    ],
    ids=["one", "two"],
)
def test_a_hint_names_the_form_and_the_command(hint: str, commands: list[str], acts: list[str]) -> None:
    shown = for_airflow(hint)
    assert all(command in shown for command in commands) and re.findall(r"small__operate: (\w+)", shown) == acts
    wording.matches("form_links", shown)


def test_a_hint_of_a_command_without_a_form_stays_as_it_is() -> None:
    assert for_airflow(hint := "milepost lint small says the way out") == hint


def test_with_a_base_url_the_hint_links_to_the_filled_in_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", f"{BASE}/")
    form = f"{BASE}/milepost/jobs/small__operate/form?job=small"
    told = for_airflow("milepost rollback small --to 41")
    assert f"({form}&what=rollback&rollback_to=41; " in told and "milepost rollback small --to 41" in told
    wording.matches("form_links", told)
    assert f"({form}&what=rollback; " in for_airflow("milepost rollback small --to ID")
    assert f"({form}&what=verify&verify_deep=true; " in for_airflow(
        "milepost verify small --deep says what else is broken"
    )
