"""The timelines are drawn as a history of revisions: a lane each, a curve where one leaves another, one live line."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from milepost.airflow.page.drawings.timeline_graph import WIDTH, TimelineHistory, timeline_graph
from milepost.jobmaster.jobmaster import CheckpointReport, TimelineSwitch

SVG = "{http://www.w3.org/2000/svg}"


def report(checkpoint_id: int, timeline: str, status: str = "completed", live: bool = True) -> CheckpointReport:
    return CheckpointReport(
        checkpoint_id=checkpoint_id, epoch=1, timeline=timeline, status=status, live=live, sinks={},
        trigger_time="2026-01-01T00:00:00.000000Z",
    )  # fmt: skip


def switch(left: str, left_at: int, timeline: str, at: int, kind: str = "rollback") -> TimelineSwitch:
    return TimelineSwitch(at, "2026-01-01T00:00:00Z", kind, left, left_at, timeline, at, (), "why <b>")


def history(*reports: CheckpointReport, switches: tuple[TimelineSwitch, ...] = (), live: str = "t2") -> TimelineHistory:
    return TimelineHistory(reports[::-1], switches[::-1], (), live)


def drawn(told: TimelineHistory) -> Element:
    return ElementTree.fromstring(timeline_graph(told, lambda checkpoint_id: f"/c/{checkpoint_id}?job=<b>"))


def place_of(svg: Element, checkpoint_id: int) -> tuple[float, float]:
    link = next(one for one in svg.iter(f"{SVG}a") if one.get("href") == f"/c/{checkpoint_id}?job=<b>")
    shape = link.find(f"{SVG}circle")
    assert shape is not None
    return float(shape.get("cx", "")), float(shape.get("cy", ""))


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


def test_one_timeline_alone_is_not_drawn() -> None:
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
    assert len(dead) == 2, "2 to 3, 3 to 4"
    assert five[1] > two[1], "a lane below"
    ends = [text.text for text in svg.iter(f"{SVG}text") if text.get("class") == "end"]
    assert ends == ["↩ back to 2"]


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
        link.get("href", ""): (link[1].tag.removeprefix(SVG), link[1].get("class")) for link in svg.iter(f"{SVG}a")
    }
    assert list(shapes.values()) == [
        ("circle", "gone live"),
        ("circle", "kept dead"),
        ("circle", "kept live"),
        ("path", "aborted"),
        ("circle", "pending"),
    ]


def test_a_backfill_that_took_over_is_told_where_the_old_line_ends() -> None:
    svg = drawn(
        history(
            report(1, "main"),
            report(2, "main", live=False),
            report(3, "t2"),
            switches=(switch("main", 2, "t2", 3, "fast_forward"),),
        )
    )
    assert "→ t2 took over" in [text.text for text in svg.iter(f"{SVG}text")]
    described = svg.find(f"{SVG}desc")
    assert described is not None and "A backfill left main at 2 for t2 at 3." in str(described.text)


def test_what_is_seen_is_told_in_words() -> None:
    described = drawn(BACK).find(f"{SVG}desc")
    assert described is not None and described.text == (
        "Timeline main, abandoned: checkpoints 1 to 4. Timeline t2, live, continues checkpoint 2: checkpoints 5 to 7. "
        "A rollback left main at 4 for t2 at 2."
    )


def test_three_timelines_of_sixty_checkpoints_fit_and_no_two_numbers_touch() -> None:
    reports = [report(n, "main", live=n <= 10) for n in range(1, 21)]
    reports += [report(n, "t2", live=n <= 35) for n in range(21, 41)]
    reports += [report(n, "t3") for n in range(41, 61)]
    told = history(*reports, switches=(switch("main", 20, "t2", 10), switch("t2", 40, "t3", 35)), live="t3")
    svg = drawn(told)
    places = [place_of(svg, n) for n in range(1, 61)]
    assert len({x for x, _ in places}) == 60 and max(x for x, _ in places) < WIDTH - 60
    assert len({y for _, y in places}) == 3
    numbers = [text for text in svg.iter(f"{SVG}text") if text.get("class") == "id"]
    for lane in {y for _, y in places}:
        own = sorted(float(one.get("x", "")) for one in numbers if one.get("y") == f"{lane + 18:.0f}")
        assert own and all(after - before >= 34 for before, after in pairwise(own))


def test_names_and_reasons_are_escaped() -> None:
    told = history(report(1, "<script>", live=False), report(2, "t2"), switches=(switch("<script>", 1, "t2", 0),))
    text = timeline_graph(told, lambda checkpoint_id: f'/"><b>{checkpoint_id}')
    assert "<script>" not in text and "<b>" not in text and "&lt;script&gt;" in text
