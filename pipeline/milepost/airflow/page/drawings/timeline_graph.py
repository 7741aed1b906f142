"""The picture of a job's timelines: a lane for each, checkpoints from left to right by id, what is live as one line.

It is drawn as a history of revisions is: where a timeline leaves another one a curve goes down from the checkpoint that
it continues; a lane that was left ends with what became of it. Shapes tell states apart, not colours alone, and the
same is told in words for those who do not see it. Made of what the history of the page says, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from milepost.jobmaster.jobmaster import CheckpointReport, TimelineReport, TimelineSwitch

LANE = 44
TOP = 26
LEFT = 108
RIGHT = 112
WIDTH = 880
"""Of a full picture: it fits the tab of a DAG in a window of 1280, most of which Airflow needs itself."""

_WIDEST_STEP = 40
_LABELLED = 34
"""Of the room between two numbers below checkpoints."""

_NAME = 16
"""Characters of a timeline's name beside its lane; the whole is told where the pointer rests."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A checkpoint where it is drawn; css: what it is, which is its shape."""

    report: CheckpointReport
    x: float
    lane: int
    css: str

    @property
    def y(self) -> int:
        return TOP + self.lane * LANE

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
    dots = _placed(history, lanes)
    height = TOP + len(lanes) * LANE + 20
    attributes = {"class": "timelines", "role": "group", "aria-labelledby": "timelines-title timelines-desc"}
    attributes |= {"width": str(WIDTH), "height": str(height), "viewBox": f"0 0 {WIDTH} {height}"}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **attributes})
    SubElement(svg, "title", {"id": "timelines-title"}).text = "Timelines and their checkpoints"
    SubElement(svg, "desc", {"id": "timelines-desc"}).text = " ".join(_told(history, lanes))
    for lane, name in enumerate(lanes):
        _draw_name(svg, name, history.role(name), TOP + lane * LANE)
    for path, css in _lines(history, lanes, dots):
        SubElement(svg, "path", {"class": css, "d": path})
    for switch in history.switches:
        _draw_end(svg, switch, dots)
    for dot in dots:
        _draw_dot(svg, dot, address, numbered=dot.report.checkpoint_id in _numbered(history, dots))
    _draw_legend(svg, height - 8)
    return ElementTree.tostring(svg, encoding="unicode")


def _placed(history: TimelineHistory, lanes: Sequence[str]) -> list[Dot]:
    """Return the checkpoints whose timeline is known, ascending by id, each in a column of its own."""
    known = sorted((one for one in history.checkpoints if one.timeline is not None), key=lambda one: one.checkpoint_id)
    step = min(_WIDEST_STEP, (WIDTH - LEFT - RIGHT) / max(1, len(known)))
    return [
        Dot(report, LEFT + step * (column + 0.5), lanes.index(str(report.timeline)), _css(report))
        for column, report in enumerate(known)
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
    return f"M {LEFT - 8} {first.y} H {first.x:.1f}" if checkpoint_id > 1 else f"M {first.x:.1f} {first.y} h 0"


def _between(one: Dot, other: Dot) -> str:
    """Return the path between two checkpoints: straight in one lane, else a curve out of the first one."""
    if one.y == other.y:
        return f"M {one.x:.1f} {one.y} H {other.x:.1f}"
    bend = min(other.x - one.x, 36) if other.x > one.x else 0
    middle = one.x + bend
    return (
        f"M {one.x:.1f} {one.y} C {one.x + bend / 2:.1f} {one.y} {one.x + bend / 2:.1f} {other.y} "
        f"{middle:.1f} {other.y} H {other.x:.1f}"
    )


def _numbered(history: TimelineHistory, dots: Sequence[Dot]) -> set[int]:
    """Return the ids that are written out: ends and forks, and of the others as many as there is room for."""
    marks = {switch.left_at for switch in history.switches} | {switch.at_checkpoint for switch in history.switches}
    marks |= {dots[-1].report.checkpoint_id} if dots else set()
    shown: set[int] = set()
    taken: list[Dot] = []
    for dot in sorted(dots, key=lambda one: one.report.checkpoint_id not in marks):
        if all(dot.lane != other.lane or abs(dot.x - other.x) >= _LABELLED for other in taken):
            taken.append(dot)
            shown.add(dot.report.checkpoint_id)
    return shown


def _draw_name(svg: Element, name: str, role: str, y: int) -> None:
    label = SubElement(svg, "text", {"class": "name", "x": "4", "y": str(y + 1)})
    label.text = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    SubElement(label, "title").text = name
    SubElement(svg, "text", {"class": "role", "x": "4", "y": str(y + 14)}).text = role


def _draw_end(svg: Element, switch: TimelineSwitch, dots: Sequence[Dot]) -> None:
    """Write behind the last checkpoint of a timeline that was left what became of it."""
    own = [dot for dot in dots if dot.report.timeline == switch.left]
    if not own:
        return
    end = own[-1]
    text = SubElement(svg, "text", {"class": "end", "x": f"{end.x + 12:.1f}", "y": str(end.y + 4)})
    text.text = f"↩ back to {switch.at_checkpoint}" if switch.kind == "rollback" else f"→ {switch.timeline} took over"
    SubElement(text, "title").text = f"{switch.time[:19].replace('T', ' ')} UTC {switch.detail}".strip()


def _draw_dot(svg: Element, dot: Dot, address: Callable[[int], str], *, numbered: bool) -> None:
    report = dot.report
    link = SubElement(svg, "a", {"href": address(report.checkpoint_id), "tabindex": "-1"})
    told = f"checkpoint {report.checkpoint_id}, {report.status}, timeline {report.timeline}"
    told += "" if report.live or not dot.completed else ", not live"
    SubElement(link, "title").text = f"{told}, {str(report.trigger_time or '')[:19].replace('T', ' ')}".rstrip(", ")
    _draw_shape(link, dot.css, dot.x, dot.y)
    if numbered:
        SubElement(link, "text", {"class": "id", "x": f"{dot.x:.1f}", "y": str(dot.y + 18)}).text = str(
            report.checkpoint_id
        )


def _draw_shape(parent: Element, css: str, x: float, y: float) -> None:
    kind = css.split()[0]
    if kind == "aborted":
        SubElement(parent, "path", {"class": css, "d": f"M {x - 4:.1f} {y - 4} l 8 8 m 0 -8 l -8 8"})
    elif kind == "savepoint":
        SubElement(parent, "path", {"class": css, "d": f"M {x:.1f} {y - 7} l 7 7 l -7 7 l -7 -7 Z"})
    else:
        radius = "2.5" if kind == "gone" else "4.8"
        SubElement(parent, "circle", {"class": css, "cx": f"{x:.1f}", "cy": str(y), "r": radius})


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
        x = LEFT + 14 + place * 104
        _draw_shape(svg, css, x, y - 4)
        SubElement(svg, "text", {"class": "legend", "x": str(x + 12), "y": str(y)}).text = words


def _told(history: TimelineHistory, lanes: Iterable[str]) -> Iterator[str]:
    """Yield the picture in sentences."""
    for name in lanes:
        own = sorted(one.checkpoint_id for one in history.checkpoints if one.timeline == name)
        origin = history.origin(name)
        begins = f", continues checkpoint {origin}" if origin else ""
        yield f"Timeline {name}, {history.role(name)}{begins}: checkpoints {own[0]} to {own[-1]}."
    for switch in reversed(history.switches):
        act = "A rollback" if switch.kind == "rollback" else "A backfill"
        yield f"{act} left {switch.left} at {switch.left_at} for {switch.timeline} at {switch.at_checkpoint}."
