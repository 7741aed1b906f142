"""Draw a job's timelines as SVG: one lane per timeline, checkpoints by id from left to right.

It looks like a version control graph. After a rollback from checkpoint 4 to 2, the new timeline starts below 2:

    main             1 --- 2 --- 3 --- 4   back to 2
                            \\
    rollback 07:01           `---------------- 5 --- 6

The live checkpoints form one line. Shapes, not only colours, distinguish states, and a description has the same content
for screen readers. The graph fills the width of the page: its lines are in an inner SVG that stretches, and checkpoints
are at percentages of the width, so that texts and shapes keep their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from milepost.jobmaster import CheckpointReport, TimelineReport, TimelineSwitch
from milepost.views import TimelineNames

LANES = (44, 30)
"""Height of a lane, for at most `_FEW` lanes and for more."""

_FEW = 6
TOP = 26
BOTTOM = 20
NAMES = -104
"""x of the names of lanes, in a left margin that page.css adds."""

PLANE = 1000
"""Width of the lanes in units of the inner SVG, independent of the page's width."""

_COLUMNS = 24
"""Minimum number of columns, so that a few checkpoints are not far apart on a wide screen."""

_NARROW, _WIDE = 52, 23
"""Minimum distance of two ids below checkpoints: 34 px if the lanes are 660 px wide (a tab of 1280 px), or 1,500 px."""

_BEND = 45
_NAME = 14
"""Most characters of a timeline's name next to its lane. A tooltip has the full name."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A checkpoint at its position. x: in units of `PLANE`. css: classes of its state, which select its shape."""

    report: CheckpointReport
    x: float
    y: int
    lane: int
    css: str

    @property
    def share(self) -> str:
        """Its x as a percentage of the width."""
        return f"{100 * self.x / PLANE:.2f}%"

    @property
    def completed(self) -> bool:
        return self.css.split()[0] not in ("aborted", "pending")

    @property
    def live(self) -> bool:
        return "live" in self.css.split()


@dataclass(frozen=True, slots=True)
class TimelineHistory:
    """The input of the graph: checkpoints and switches, newest first, and the known timelines."""

    checkpoints: Sequence[CheckpointReport]
    switches: Sequence[TimelineSwitch]
    timelines: Sequence[TimelineReport]
    live: str | None
    names: TimelineNames = field(default_factory=TimelineNames)

    def lanes(self) -> list[str]:
        """Return the timelines that have a checkpoint here, in the order in which they began."""
        ascending = sorted(self.checkpoints, key=lambda report: report.checkpoint_id)
        return list(dict.fromkeys(report.timeline for report in ascending if report.timeline is not None))

    def origin(self, timeline: str) -> int | None:
        """Return the checkpoint that a timeline continues; None: unknown, or it is the first timeline."""
        for switch in self.switches:
            if switch.timeline == timeline and switch.kind == "rollback":
                return switch.at_checkpoint
        for known in self.timelines:
            if known.timeline == timeline and known.parent is not None:
                return known.parent.checkpoint_id
        return None

    def role(self, timeline: str) -> str:
        """Return the role of a timeline: live, continued by another one, the fork of a backfill, or how it ended."""
        if timeline == self.live:
            return "live"
        following = self.continued_by(timeline)
        if following is not None:
            return f"continued by {following}"
        if any(known.timeline == timeline and known.role == "fork" for known in self.timelines):
            return "not live yet"
        ending = self.ending(timeline)
        return "not live" if ending is None else _ENDINGS.get(ending.act, "not live")

    def continued_by(self, timeline: str) -> str | None:
        """Return the timeline on which the job continues live checkpoints of this one; None: none of them is live."""
        live = sorted(
            (report for report in self.checkpoints if report.live and report.timeline is not None),
            key=lambda report: report.checkpoint_id,
        )
        own = [at for at, report in enumerate(live) if report.timeline == timeline]
        if not own:
            return None
        following = next((report.timeline for report in live[own[-1] + 1 :]), None)
        return following or self.live

    def ending(self, timeline: str) -> TimelineSwitch | None:
        """Return the newest switch that left a checkpoint of this timeline which is not live; None: unknown."""
        dead = {report.checkpoint_id for report in self.checkpoints if report.timeline == timeline and not report.live}
        left = (switch for switch in self.switches if not dead.isdisjoint(switch.discarded))
        return next(left, None) or next((switch for switch in self.switches if switch.left == timeline), None)


_ENDINGS = {"rollback": "rolled back", "backfill": "replaced"}
"""Act that left a timeline -> the role of the timeline."""


def timeline_graph(history: TimelineHistory, address: Callable[[int], str]) -> str:
    """Return the SVG, with names escaped; "" if there is only one timeline.

    Args:
        address: returns the URL of a checkpoint's page.
    """
    lanes = history.lanes()
    if len(lanes) < 2:
        return ""
    lane_height = LANES[len(lanes) > _FEW]
    dots = _placed(history, lanes, lane_height)
    height = TOP + len(lanes) * lane_height + BOTTOM
    attributes = {"class": "timelines", "role": "group", "aria-labelledby": "timelines-title timelines-desc"}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "height": str(height), **attributes})
    SubElement(svg, "title", {"id": "timelines-title"}).text = "Timelines and their checkpoints"
    SubElement(svg, "desc", {"id": "timelines-desc"}).text = " ".join(_sentences(history, lanes))
    for lane, name in enumerate(lanes):
        _draw_name(svg, history.names, name, history.role(name), TOP + lane * lane_height)
    stretched = {"viewBox": f"0 0 {PLANE} {height}", "preserveAspectRatio": "none"}
    lines = SubElement(svg, "svg", {"class": "lines", "height": str(height), **stretched})
    for path, css in _lines(history, lanes, dots):
        SubElement(lines, "path", {"class": css, "d": path})
    for switch in history.switches:
        _draw_end(svg, history.names, switch, dots)
    numbers = _numbered(history, dots)
    for dot in dots:
        _draw_dot(svg, dot, address, numbers.get(dot.report.checkpoint_id))
    _draw_legend(svg, height - 8)
    return ElementTree.tostring(svg, encoding="unicode")


def _placed(history: TimelineHistory, lanes: Sequence[str], lane_height: int) -> list[Dot]:
    """Return the checkpoints with a known timeline, ascending by id, each in its own column."""
    known = sorted((one for one in history.checkpoints if one.timeline is not None), key=lambda one: one.checkpoint_id)
    step = PLANE / max(_COLUMNS, len(known))
    place = {name: lane for lane, name in enumerate(lanes)}
    return [
        Dot(report, step * (column + 0.5), TOP + lane * lane_height, lane, _css(report))
        for column, report in enumerate(known)
        for lane in (place[str(report.timeline)],)
    ]


def _css(report: CheckpointReport) -> str:
    if report.status in ("aborted", "pending"):
        return report.status
    kind = "savepoint" if report.kind == "savepoint" else "gone" if report.status == "subsumed" else "kept"
    return f"{kind} live" if report.live else f"{kind} dead"


def _lines(history: TimelineHistory, lanes: Sequence[str], dots: Sequence[Dot]) -> Iterator[tuple[str, str]]:
    """Yield path and class of each line. The live line comes last, so that it is drawn on top."""
    completed = [dot for dot in dots if dot.completed]
    by_id = {dot.report.checkpoint_id: dot for dot in completed}
    live = [dot for dot in completed if dot.live]
    for lane, name in enumerate(lanes):
        own = [dot for dot in completed if dot.lane == lane]
        if own and not own[0].live:
            yield _from(by_id.get(history.origin(name) or 0), own[0], own[0].report.checkpoint_id), "dead"
        for one, other in pairwise(own):
            if not (one.live and other.live):
                yield _between(one, other), "dead"
    if live:
        yield _from(None, live[0], live[0].report.checkpoint_id), "live"
    for one, other in pairwise(live):
        yield _between(one, other), "live"


def _from(origin: Dot | None, first: Dot, checkpoint_id: int) -> str:
    """Return the path into the first checkpoint of a line: from its origin, or from the left edge.

    Checkpoint 1 without an origin has a path of length 0.
    """
    if origin is not None:
        return _between(origin, first)
    return f"M 0 {first.y} H {first.x:.1f}" if checkpoint_id > 1 else f"M {first.x:.1f} {first.y} h 0"


def _between(start: Dot, end: Dot) -> str:
    """Return the path between two checkpoints: straight within a lane, else a curve from the start."""
    if start.y == end.y:
        return f"M {start.x:.1f} {start.y} H {end.x:.1f}"
    bend = min(end.x - start.x, _BEND) if end.x > start.x else 0
    middle = start.x + bend
    return (
        f"M {start.x:.1f} {start.y} C {start.x + bend / 2:.1f} {start.y} {start.x + bend / 2:.1f} {end.y} "
        f"{middle:.1f} {end.y} H {end.x:.1f}"
    )


def _numbered(history: TimelineHistory, dots: Sequence[Dot]) -> dict[int, str]:
    """Return the ids that are shown, each with its CSS class: `id` on every screen, `id wide` only on a wide one.

    Ends and forks are placed first, then other ids where there is room. Ids of a lane need a distance of 52 units on a
    narrow screen and 23 on a wide one. With 24 columns, each 41.7 units wide, that shows every second id or every id.
    """
    marks = {switch.left_at for switch in history.switches} | {switch.at_checkpoint for switch in history.switches}
    marks |= {dots[-1].report.checkpoint_id} if dots else set()
    first = sorted(dots, key=lambda dot: dot.report.checkpoint_id not in marks)
    shown: dict[int, str] = {}
    taken: list[Dot] = []
    for css, room in (("id", _NARROW), ("id wide", _WIDE)):
        for dot in first:
            near = (other for other in taken if other.lane == dot.lane)
            if dot not in taken and all(abs(dot.x - other.x) >= room for other in near):
                taken.append(dot)
                shown[dot.report.checkpoint_id] = css
    return shown


def _draw_name(svg: Element, names: TimelineNames, timeline: str, role: str, y: int) -> None:
    label, name = SubElement(svg, "text", {"class": "name", "x": str(NAMES), "y": str(y + 1)}), names.short(timeline)
    label.text = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    SubElement(label, "title").text = names.with_id(timeline)
    SubElement(svg, "text", {"class": "role", "x": str(NAMES), "y": str(y + 14)}).text = role


def _draw_end(svg: Element, names: TimelineNames, switch: TimelineSwitch, dots: Sequence[Dot]) -> None:
    """Write the switch that ended a timeline after its last checkpoint."""
    own = [dot for dot in dots if dot.report.timeline == switch.left]
    if not own:
        return
    end = own[-1]
    text = SubElement(svg, "text", {"class": "end", "x": end.share, "dx": "12", "y": str(end.y + 4)})
    moved = f"↩ back to {switch.at_checkpoint}" if switch.is_back else f"→ on to {switch.at_checkpoint}"
    text.text = f"→ {names.short(switch.timeline)} took over" if switch.kind == "fast_forward" else moved
    SubElement(text, "title").text = f"{switch.time[:19].replace('T', ' ')} UTC {switch.detail}".strip()


def _draw_dot(svg: Element, dot: Dot, address: Callable[[int], str], number: str | None) -> None:
    """Draw a checkpoint. number: CSS class of its id; None: the id is not shown."""
    report = dot.report
    link = SubElement(svg, "a", {"href": address(report.checkpoint_id), "tabindex": "-1"})
    title = f"checkpoint {report.checkpoint_id}, {report.status}, timeline {report.timeline}"
    title += "" if report.live or not dot.completed else ", not live"
    SubElement(link, "title").text = f"{title}, {str(report.trigger_time or '')[:19].replace('T', ' ')}".rstrip(", ")
    _draw_shape(link, dot.css, dot.share, dot.y)
    if number is not None:
        label = SubElement(link, "text", {"class": number, "x": dot.share, "y": str(dot.y + 18)})
        label.text = str(report.checkpoint_id)


_PATHS = {"aborted": "M -4 -4 l 8 8 m 0 -8 l -8 8", "savepoint": "M 0 -7 l 7 7 l -7 7 l -7 -7 Z"}


def _draw_shape(parent: Element, css: str, x: str, y: int) -> None:
    """Draw the shape of a state, in a nested SVG, because a path cannot be at a percentage of the width."""
    kind = css.split()[0]
    at = SubElement(parent, "svg", {"x": x, "y": str(y)})
    if kind in _PATHS:
        SubElement(at, "path", {"class": css, "d": _PATHS[kind]})
    else:
        SubElement(at, "circle", {"class": css, "r": "2.5" if kind == "gone" else "4.8"})


_LEGEND = (
    ("kept live", "live"),
    ("kept dead", "not live"),
    ("gone live", "not retained"),
    ("savepoint live", "savepoint"),
    ("aborted", "aborted"),
    ("pending", "running"),
)


def _draw_legend(svg: Element, y: int) -> None:
    for place, (css, words) in enumerate(_LEGEND):
        x = 14 + place * 104
        _draw_shape(svg, css, str(x), y - 4)
        SubElement(svg, "text", {"class": "legend", "x": str(x + 12), "y": str(y)}).text = words


def _sentences(history: TimelineHistory, lanes: Iterable[str]) -> Iterator[str]:
    """Yield the description of the graph as sentences."""
    for name in lanes:
        own = sorted(one.checkpoint_id for one in history.checkpoints if one.timeline == name)
        origin = history.origin(name)
        begins = f", continues checkpoint {origin}" if origin else ""
        span = f"checkpoints {own[0]} to {own[-1]}" if own[0] != own[-1] else f"checkpoint {own[0]}"
        yield f"Timeline {history.names.with_id(name)}, {history.role(name)}{begins}: {span}."
    for switch in reversed(history.switches):
        act = "return" if switch.returns else switch.act
        left, begun = f"checkpoint {switch.left_at} of {switch.left}", f"{switch.at_checkpoint} on {switch.timeline}"
        yield f"A {act} moved the job from {left} to checkpoint {begun}."
