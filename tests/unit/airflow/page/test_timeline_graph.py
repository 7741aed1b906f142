"""The timelines are drawn as a history of revisions: a lane each, a curve where one leaves another, one live line."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from milepost.airflow.page.drawings.timeline_graph import PLANE, TimelineHistory, timeline_graph
from milepost.jobmaster import CheckpointReport, TimelineSwitch
from milepost_testkit import wording

SVG = "{http://www.w3.org/2000/svg}"


def report(checkpoint_id: int, timeline: str, status: str = "completed", live: bool = True) -> CheckpointReport:
    return CheckpointReport(
        checkpoint_id=checkpoint_id, epoch=1, timeline=timeline, status=status, live=live, sinks={},
        trigger_time="2026-01-01T00:00:00.000000Z",
    )  # fmt: skip


def switch(left: str, left_at: int, timeline: str, at: int, kind: str = "rollback") -> TimelineSwitch:
    act = "rollback" if kind == "rollback" else "backfill"
    return TimelineSwitch(at, "2026-01-01T00:00:00Z", kind, left, left_at, timeline, at, (), "why <b>", act)


def history(*reports: CheckpointReport, switches: tuple[TimelineSwitch, ...] = (), live: str = "t2") -> TimelineHistory:
    return TimelineHistory(reports[::-1], switches[::-1], (), live)


def drawn(told: TimelineHistory) -> Element:
    return ElementTree.fromstring(timeline_graph(told, lambda checkpoint_id: f"/c/{checkpoint_id}?job=<b>"))


def place_of(svg: Element, checkpoint_id: int) -> tuple[float, float]:
    link = next(one for one in svg.iter(f"{SVG}a") if one.get("href") == f"/c/{checkpoint_id}?job=<b>")
    shape = link.find(f"{SVG}svg")
    assert shape is not None
    return PLANE * float(shape.get("x", "").removesuffix("%")) / 100, float(shape.get("y", ""))


BACK = history(
    report(1, "main"),
    report(2, "main"),
    report(3, "main", live=False),
    report(4, "main", live=False),
    report(5, "t2"),
    report(6, "t2", status="aborted", live=False),
    report(7, "t2"),
    switches=(switch("main", 4, "t2", 2),),
)


def test_a_single_timeline_is_not_drawn() -> None:
    assert timeline_graph(history(report(1, "main"), report(2, "main"), live="main"), str) == ""


def test_a_rollback_is_a_curve_from_the_checkpoint_that_it_went_back_to() -> None:
    """What is live is one line through it; what was left is another, which ends with what became of it."""
    svg = drawn(BACK)
    live = [path.get("d", "") for path in svg.iter(f"{SVG}path") if path.get("class") == "live"]
    dead = [path.get("d", "") for path in svg.iter(f"{SVG}path") if path.get("class") == "dead"]
    (two, five) = place_of(svg, 2), place_of(svg, 5)
    assert any(
        path.startswith(f"M {two[0]:.1f} {two[1]:.0f} C ") and path.endswith(f"H {five[0]:.1f}") for path in live
    )
    (lines,) = (one for one in svg.iter(f"{SVG}svg") if one.get("class") == "lines")
    assert lines.get("height") == svg.get("height") and lines.get("viewBox") == f"0 0 {PLANE} {svg.get('height')}"
    assert len(dead) == 2, "2 to 3, 3 to 4"
    assert five[1] > two[1], "a lane below"
    ends = [text.text for text in svg.iter(f"{SVG}text") if text.get("class") == "end"]
    assert len(ends) == 1
    wording.matches("timeline_graph", str(ends[0]))


def test_states_have_shapes_of_their_own() -> None:
    svg = drawn(
        history(
            report(1, "main", status="subsumed"),
            report(2, "main", live=False),
            report(3, "t2"),
            report(4, "t2", status="aborted", live=False),
            report(5, "t2", status="pending"),
            switches=(switch("main", 2, "t2", 1),),
        )
    )
    shapes = {
        link.get("href", ""): (link[1][0].tag.removeprefix(SVG), link[1][0].get("class"))
        for link in svg.iter(f"{SVG}a")
    }
    assert list(shapes.values()) == [
        ("circle", "gone live"),
        ("circle", "kept dead"),
        ("circle", "kept live"),
        ("path", "aborted"),
        ("circle", "pending"),
    ]


def test_a_backfill_that_took_over_is_shown_where_the_old_line_ends() -> None:
    svg = drawn(
        history(
            report(1, "main"),
            report(2, "main", live=False),
            report(3, "t2"),
            switches=(switch("main", 2, "t2", 3, "fast_forward"),),
        )
    )
    (end,) = (str(text.text) for text in svg.iter(f"{SVG}text") if text.get("class") == "end")
    assert "t2" in end
    wording.matches("timeline_graph", [end, str(svg.findtext(f"{SVG}desc"))])


def test_the_graph_has_a_text_description() -> None:
    described = str(drawn(BACK).findtext(f"{SVG}desc"))
    assert {*re.findall(r"\bmain\b|\bt2\b|\b\d\b", described)} == {"main", "1", "4", "t2", "2", "5", "7"}
    wording.matches("timeline_graph", described)


def chained(*lengths: int) -> TimelineHistory:
    """Timelines of so many checkpoints, each from the middle of the one before."""
    ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]
    names = ["main", *(f"t{end}" for end in ends[:-1])]
    at = [end - length // 2 for end, length in zip(ends, lengths, strict=True)]
    reports = [
        report(n, name, live=n <= at[lane] or lane == len(lengths) - 1)
        for lane, (name, end, length) in enumerate(zip(names, ends, lengths, strict=True))
        for n in range(end - length + 1, end + 1)
    ]
    left = zip(pairwise(names), ends, at, strict=False)
    return history(*reports, switches=tuple(switch(a, end, b, to) for (a, b), end, to in left), live=names[-1])


@pytest.mark.parametrize("lengths", [(20, 20, 20), (3,) * 20, (200, 100)])
def test_many_checkpoints_on_many_timelines_fit_and_no_two_numbers_touch(lengths: tuple[int, ...]) -> None:
    """On the narrowest screen, where the plane has 660 pixels; on a wide one, where it has 1,500, more are told."""
    svg, many = drawn(chained(*lengths)), sum(lengths)
    places = [place_of(svg, n) for n in range(1, many + 1)]
    assert len({x for x, _ in places}) == many and min(places)[0] > 0 and max(x for x, _ in places) < PLANE
    assert len({y for _, y in places}) == len(lengths)
    assert max(y for _, y in places) < int(svg.get("height", "")) <= 46 + 30 * max(len(lengths), 6)
    shown: dict[str, list[Element]] = {"id": [], "id wide": []}
    for text in svg.iter(f"{SVG}text"):
        shown.get(text.get("class", ""), []).append(text)
    for numbers, pixels in ((shown["id"], 660), (shown["id"] + shown["id wide"], 1_500)):
        for lane in {y for _, y in places}:
            own = sorted(float(one.get("x", "")[:-1]) for one in numbers if one.get("y") == f"{lane + 18:.0f}")
            assert own and all((after - before) / 100 * pixels >= 34 for before, after in pairwise(own))


def test_a_few_checkpoints_are_close_together_on_any_screen() -> None:
    svg = drawn(BACK)
    assert place_of(svg, 7)[0] < PLANE / 3


def test_names_and_reasons_are_escaped() -> None:
    told = history(report(1, "<script>", live=False), report(2, "t2"), switches=(switch("<script>", 1, "t2", 0),))
    text = timeline_graph(told, lambda checkpoint_id: f'/"><b>{checkpoint_id}')
    assert "<script>" not in text and "<b>" not in text and "&lt;script&gt;" in text
