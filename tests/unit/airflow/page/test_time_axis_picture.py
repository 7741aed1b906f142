"""Epochs by time are drawn in lanes, with marks for bad ends and flags for changes; a description says the same."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page.drawings.time_axis import BAR, FLAGS, LANE, highest_bar, time_axis_picture
from milepost.jobmaster import AxisColumn, AxisFlag, AxisLane, FlagKind, Outcome, Span, TimeAxis
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import page_client
from milepost_testkit.airflow.page_text import page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob

SVG = "{http://www.w3.org/2000/svg}"
OVERVIEW = "/jobs/small__epoch"


def column(number: int, outcome: Outcome = Outcome.COMPLETED, **values: object) -> AxisColumn:
    usual = {
        "checkpoint_id": number + 1, "last": number + 1, "epochs": 1, "began": "2026-01-01T00:00:00Z",
        "duration_ms": 1_000, "phases": {"read": 400, "process": 600}, "reason": None, "refused_by": (),
        "rows_in": 100, "late_rows": 0, "dropped_rows": 0, "bad_records": 0, "live": True,
    }  # fmt: skip
    return AxisColumn(column=number, outcome=outcome, **(usual | values))  # type: ignore[arg-type]


def axis(*lanes: AxisLane, flags: tuple[AxisFlag, ...] = ()) -> TimeAxis:
    epochs = sum(one.epochs for lane in lanes for one in lane.columns)
    times = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    return TimeAxis(Span.DAY, *times, epochs, lanes, flags, 0, times[1], None, None, (), ())


def drawn(shown: TimeAxis) -> Element:
    return ElementTree.fromstring(time_axis_picture(shown, lambda checkpoint_id: f"/c/{checkpoint_id}?job=<b>"))


def flag(share: float, kind: FlagKind = FlagKind.CODE, what: str = "checkpoint 7 has another code") -> AxisFlag:
    return AxisFlag(kind, "2026-01-01T07:01:00Z", share, what, "ana", 7)


TWO = axis(
    AxisLane(
        "main",
        False,
        0,
        None,
        (
            column(0),
            column(10, Outcome.WARNED, epochs=4, last=14),
            column(20, Outcome.VETOED, phases={}, refused_by=("table: sum <b>",), reason="QUALITY_GATE_FAILED"),
            column(30, live=False, late_rows=50, dropped_rows=5),
        ),
    ),
    AxisLane("t9", True, 11, "main", (column(40, Outcome.ABORTED, reason="TIMEOUT"), column(50))),
    flags=(flag(0.1, FlagKind.ROLLBACK, "rolled back"), flag(0.5), flag(0.51, FlagKind.SPEC, "another spec")),
)


def test_bars_are_in_the_lane_of_their_timeline_and_link_to_their_checkpoint() -> None:
    svg = drawn(TWO)
    links = [*svg.iter(f"{SVG}a")]
    assert [link.get("href") for link in links] == [f"/c/{number + 1}?job=<b>" for number in (0, 10, 20, 30, 40, 50)]
    for lane, own in ((0, links[:4]), (1, links[4:])):
        for link in own:
            bars = [one for one in link.iter(f"{SVG}rect") if one.get("class") in ("read", "process", "whole")]
            tops = [float(str(one.get("y"))) for one in bars]
            assert bars and FLAGS + LANE * lane < min(tops) and max(tops) < FLAGS + LANE * (lane + 1)
            assert sum(float(str(one.get("height"))) for one in bars) == pytest.approx(BAR, abs=0.2)
    assert [link.get("class") for link in links] == [None, None, None, "dead", None, None]
    assert len([one for one in svg.iter(f"{SVG}path") if one.get("class") == "branch"]) == 1


def test_ends_late_rows_and_flags_have_shapes_and_texts_of_their_own() -> None:
    svg = drawn(TWO)
    marks = [str(one.get("class")) for one in svg.iter(f"{SVG}path") if one.get("class") in ("bad", "warn")]
    assert marks == ["warn", "bad", "bad"]
    assert len([one for one in svg.iter(f"{SVG}rect") if one.get("class") == "late"]) == 1
    flags = [one for one in svg.iter(f"{SVG}g") if str(one.get("class")).startswith("flag")]
    assert [one.findtext(f".//{SVG}text") for one in flags] == ["R", "2"], "two that are close are one"
    tooltips = [str(link.findtext(f"{SVG}title")) for link in svg.iter(f"{SVG}a")]
    wording.matches("time_axis", [*tooltips, str(svg.findtext(f"{SVG}desc"))])


def test_names_and_reasons_are_escaped() -> None:
    hostile = '<script>"&\x00' + "w" * 200
    lanes = AxisLane(hostile, True, 0, None, (column(1, Outcome.ABORTED, reason=hostile),))
    text = time_axis_picture(axis(lanes, flags=(flag(0.2, what=hostile),)), lambda one: f'/"><b>{one}')
    assert "<script>" not in text and "<b>" not in text and "\x00" not in text
    assert time_axis_picture(axis(), str) == ""


@pytest.mark.parametrize(("durations", "most"), [([4] * 99 + [600], 5), ([10], 10), ([], 1), ([0, 0], 1)])
def test_one_long_epoch_does_not_flatten_the_others(durations: list[int], most: int) -> None:
    assert highest_bar(durations) == most


def test_the_span_is_in_the_address_and_two_epochs_are_compared_by_a_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 3)
    job.rollback(2)
    job.run(1)
    client = page_client(monkeypatch, *job_dags(job.small.folder / "config").values())
    page = client.get(OVERVIEW).text
    assert page.count('class="axis"') == 1 and "<strong>24 hours</strong>" in page
    assert f'href="{OVERVIEW}?job=small&amp;span=all#epochs"' in page
    assert "<strong>all</strong>" in client.get(f"{OVERVIEW}?span=all").text
    assert client.get(f"{OVERVIEW}?span=%3Cb%3E").status_code == 422
    form = page[page.index('<form class="compare"') :]
    assert f'action="{OVERVIEW}/compare"' in form and re.findall(r'name="(?:before|after)"[^>]*value="(\d)"', form) == [
        "2",
        "4",
    ]
    compared = client.get(f"{OVERVIEW}/compare?job=small&before=2&after=4")
    assert compared.status_code == 200
    wording.matches("page_compare", page_text(compared.text, "h2", "dt", "th"))
    assert client.get(f"{OVERVIEW}/compare?job=small&before=2&after=9").status_code == 404
    assert "checkpoint 2 compared with checkpoint 4" in client.get(f"{OVERVIEW}/compare?job=small").text
    assert client.get(f"{OVERVIEW}/compare?job=small&before=x").status_code == 422
