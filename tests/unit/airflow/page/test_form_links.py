"""What a hint tells whoever has no shell: the form of the same act, and its address where it is known."""

from __future__ import annotations

import pytest

from milepost.airflow.task_output.form_links import for_airflow

CANCEL = "trigger small__operate: cancel (on a shell: milepost cancel small)"
ROLLBACK = "trigger small__operate: rollback (on a shell: milepost rollback small --to ID)"
BASE = "https://airflow.example.org"


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("then: milepost resume small", "then: trigger small__operate: resume (on a shell: milepost resume small)"),
        (
            "milepost cancel small ends it first; milepost rollback small --to ID goes back",
            f"{CANCEL} ends it first; {ROLLBACK} goes back",
        ),
        ("milepost lint small says the way out", "milepost lint small says the way out"),
    ],
)
def test_a_hint_names_the_form_beside_the_command(hint: str, told: str) -> None:
    assert for_airflow(hint) == told


def test_where_airflow_says_its_address_the_hint_leads_to_the_form_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", f"{BASE}/")
    form = f"{BASE}/milepost/jobs/small__operate/form?job=small"
    told = for_airflow("milepost rollback small --to 41")
    assert f"({form}&what=rollback&rollback_to=41; on a shell: milepost rollback small --to 41)" in told
    assert f"({form}&what=rollback; " in for_airflow("milepost rollback small --to ID")
    assert f"({form}&what=verify&verify_deep=true; " in for_airflow(
        "milepost verify small --deep says what else is broken"
    )
