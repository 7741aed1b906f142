"""The picture of a job's timelines: a lane for each, checkpoints from left to right by id, what is live as one line.

It is drawn as a history of revisions is: where a timeline leaves another one a curve goes down from the checkpoint that
it continues; a lane that was left ends with what became of it. Shapes tell states apart, not colours alone, and the
same is told in words for those who do not see it. Made of what the history of the page says, and of nothing else.

It is as wide as the page: lines are drawn in an inner picture that stretches, and checkpoints lie at shares of its
width, so that neither texts nor shapes grow with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from milepost.jobmaster.jobmaster import CheckpointReport, TimelineReport, TimelineSwitch

LANES = (44, 30)
"""Height of a lane, and of one of more than `_FEW`."""

_FEW = 6
TOP = 26
BOTTOM = 20
NAMES = -104
"""Where names of lanes begin: on the left of the picture, in a margin that page.css gives it."""

PLANE = 1000
"""Of the lanes, in units of the inner picture, however wide it is shown."""

_COLUMNS = 24
"""Of a plane at least: a few checkpoints do not lie far from each other on a wide screen."""

_NARROW, _WIDE = 52, 23
"""Room between two numbers below checkpoints: 34 px where the plane is 660 px wide, as in a tab of 1280, or 1,500."""

_BEND = 45
_NAME = 14
"""Characters of a timeline's name beside its lane; the whole is told where the pointer rests."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A checkpoint where it is drawn; x: on the plane; css: what it is, which is its shape."""

    report: CheckpointReport
    x: float
    y: int
    lane: int
    css: str

    @property
    def share(self) -> str:
        """Where it lies in the width of the plane."""
        return f"{100 * self.x / PLANE:.2f}%"

    @property
    def completed(self) -> bool:
        return self.css.split()[0] not in ("aborted", "pending")

    @property
    def live(self) -> bool:
        return "live" in self.css.split()


@dataclass(frozen=True, slots=True)
class TimelineHistory:
    """What the picture is made of: checkpoints and switches, newest first, and the timelines that are known."""

    checkpoints: Sequence[CheckpointReport]
    switches: Sequence[TimelineSwitch]
    timelines: Sequence[TimelineReport]
    live: str | None

    def lanes(self) -> list[str]:
        """Return the timelines that have a checkpoint here, in the order in which they began."""
        ascending = sorted(self.checkpoints, key=lambda one: one.checkpoint_id)
        return list(dict.fromkeys(one.timeline for one in ascending if one.timeline is not None))

    def origin(self, timeline: str) -> int | None:
        """Return the checkpoint that a timeline continues; None: not known, or of the first one."""
        for switch in self.switches:
            if switch.timeline == timeline and switch.kind == "rollback":
                return switch.at_checkpoint
        for known in self.timelines:
            if known.timeline == timeline and known.parent is not None:
                return known.parent.checkpoint_id
        return None

    def role(self, timeline: str) -> str:
        """Return what a timeline is now, in a word."""
        if timeline == self.live:
            return "live"
        roles = {known.timeline: known.role for known in self.timelines}
        return {"fork": "beside the live one"}.get(roles.get(timeline, ""), "abandoned")


def timeline_graph(history: TimelineHistory, address: Callable[[int], str]) -> str:
    """Return the SVG, in which names are escaped; "" where there is one timeline only.

    Args:
        address: of a checkpoint's page, by its id.
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
        _draw_name(svg, name, history.role(name), TOP + lane * lane_height)
    stretched = {"viewBox": f"0 0 {PLANE} {height}", "preserveAspectRatio": "none"}
    lines = SubElement(svg, "svg", {"class": "lines", "height": str(height), **stretched})
    for path, css in _lines(history, lanes, dots):
        SubElement(lines, "path", {"class": css, "d": path})
    for switch in history.switches:
        _draw_end(svg, switch, dots)
    numbers = _numbered(history, dots)
    for dot in dots:
        _draw_dot(svg, dot, address, numbers.get(dot.report.checkpoint_id))
    _draw_legend(svg, height - 8)
    return ElementTree.tostring(svg, encoding="unicode")


def _placed(history: TimelineHistory, lanes: Sequence[str], lane_height: int) -> list[Dot]:
    """Return the checkpoints whose timeline is known, ascending by id, each in a column of its own."""
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
    """Yield the path and the class of each line: those that are not live first, so that the live one lies above."""
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
    """Return the path into the first checkpoint of a line: from what it continues, else from the left edge."""
    if origin is not None:
        return _between(origin, first)
    return f"M 0 {first.y} H {first.x:.1f}" if checkpoint_id > 1 else f"M {first.x:.1f} {first.y} h 0"


def _between(one: Dot, other: Dot) -> str:
    """Return the path between two checkpoints: straight in one lane, else a curve out of the first one."""
    if one.y == other.y:
        return f"M {one.x:.1f} {one.y} H {other.x:.1f}"
    bend = min(other.x - one.x, _BEND) if other.x > one.x else 0
    middle = one.x + bend
    return (
        f"M {one.x:.1f} {one.y} C {one.x + bend / 2:.1f} {one.y} {one.x + bend / 2:.1f} {other.y} "
        f"{middle:.1f} {other.y} H {other.x:.1f}"
    )


def _numbered(history: TimelineHistory, dots: Sequence[Dot]) -> dict[int, str]:
    """Return the ids that are written out, each with its class: on every screen, or on a wide one.

    Those are ends and forks, and of the others as many as there is room for.
    """
    marks = {switch.left_at for switch in history.switches} | {switch.at_checkpoint for switch in history.switches}
    marks |= {dots[-1].report.checkpoint_id} if dots else set()
    first = sorted(dots, key=lambda one: one.report.checkpoint_id not in marks)
    shown: dict[int, str] = {}
    taken: list[Dot] = []
    for css, room in (("id", _NARROW), ("id wide", _WIDE)):
        for dot in first:
            near = (other for other in taken if other.lane == dot.lane)
            if dot not in taken and all(abs(dot.x - other.x) >= room for other in near):
                taken.append(dot)
                shown[dot.report.checkpoint_id] = css
    return shown


def _draw_name(svg: Element, name: str, role: str, y: int) -> None:
    label = SubElement(svg, "text", {"class": "name", "x": str(NAMES), "y": str(y + 1)})
    label.text = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    SubElement(label, "title").text = name
    SubElement(svg, "text", {"class": "role", "x": str(NAMES), "y": str(y + 14)}).text = role


def _draw_end(svg: Element, switch: TimelineSwitch, dots: Sequence[Dot]) -> None:
    """Write behind the last checkpoint of a timeline that was left what became of it."""
    own = [dot for dot in dots if dot.report.timeline == switch.left]
    if not own:
        return
    end = own[-1]
    text = SubElement(svg, "text", {"class": "end", "x": end.share, "dx": "12", "y": str(end.y + 4)})
    text.text = f"↩ back to {switch.at_checkpoint}" if switch.kind == "rollback" else f"→ {switch.timeline} took over"
    SubElement(text, "title").text = f"{switch.time[:19].replace('T', ' ')} UTC {switch.detail}".strip()


def _draw_dot(svg: Element, dot: Dot, address: Callable[[int], str], number: str | None) -> None:
    """Args: number: the class of its number; None: it is not written out."""
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
    """Draw what stands for a state; a picture of its own, for a path has no place that is a share of a width."""
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
    """Yield the picture in sentences."""
    for name in lanes:
        own = sorted(one.checkpoint_id for one in history.checkpoints if one.timeline == name)
        origin = history.origin(name)
        begins = f", continues checkpoint {origin}" if origin else ""
        yield f"Timeline {name}, {history.role(name)}{begins}: checkpoints {own[0]} to {own[-1]}."
    for switch in reversed(history.switches):
        act = "A rollback" if switch.kind == "rollback" else "A backfill"
        yield f"{act} left {switch.left} at {switch.left_at} for {switch.timeline} at {switch.at_checkpoint}."
