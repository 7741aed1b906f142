"""Draw a job's data flow as SVG: sources, operators and tables, with the rows of the newest epoch on each edge.

Columns of boxes go from left to right. Each edge has its rows, and a line of those of the newest epochs:

    +----------+   3 rows    +-------------+   2 rows    +---------+
    | readings |-------------| latest      |-------------| table   |
    | source   |   ~~~~~~    | 80 % of time|   ~~~~~~    | 9 rows  |
    +----------+             +-------------+             +---------+
                                   '-- 41 rows -- dropped

A description has the same content for screen readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from milepost.airflow.page.drawings.sparkline import HEIGHT as SPARK_HEIGHT
from milepost.airflow.page.drawings.sparkline import WIDTH as SPARK_WIDTH
from milepost.airflow.page.drawings.sparkline import sparkline
from milepost.airflow.page.frame.filters import age_ms, count, duration, size
from milepost.epoch import counted
from milepost.jobmaster import DataFlow, EpochProgress, FlowEdge, FlowNode, FlowTable, Stage
from milepost.jobspec.picture import Point, place_boxes, plain_text

_MARGIN, _LINE, _PADDING = 12, 16, 10
_NARROWEST, _LONGEST = 112, 26
_CHARACTER, _BOLD_CHARACTER = 6.4, 7.4
_BETWEEN = 104
"""Distance of two columns, in which the label of an edge has room."""

_LABEL_HEIGHT = 34
"""Least distance of two labels between the same columns."""

_DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class _Box:
    """A box.

    Attributes:
        key: name of its node or table for the script, "" for none. css: its class. lines: (class, text).
        href: target of its link.
    """

    key: str
    css: str
    lines: tuple[tuple[str, str], ...]
    tooltip: str
    href: str = ""

    @property
    def size(self) -> tuple[int, int]:
        (_, name), *others = self.lines
        widest = max([len(_short(name)) * _BOLD_CHARACTER, *(len(_short(text)) * _CHARACTER for _, text in others)])
        return max(_NARROWEST, round(widest) + 2 * _PADDING), _LINE * len(self.lines) + 2 * _PADDING - 4


@dataclass(frozen=True, slots=True)
class _Link:
    """An edge between two boxes. rows: per epoch, oldest first. css: of its line."""

    source: str
    target: str
    css: str
    what: str
    rows: tuple[int | None, ...]

    @property
    def newest(self) -> int | None:
        return self.rows[-1] if self.rows else None

    @property
    def title(self) -> str:
        known = [rows for rows in self.rows if rows is not None]
        if self.newest is None:
            return f"{self.what}: no figures of the newest epoch"
        most = f", at most {max(known):,} in {counted(len(known), 'epoch')}" if len(known) > 1 else ""
        return f"{self.what}: {counted(self.newest, 'row')} in the newest epoch{most}"


def live_graph(flow: DataFlow, table_url: Callable[[str], str], progress: EpochProgress | None = None) -> str:
    """Return the SVG of a data flow, with texts escaped.

    Args:
        table_url: returns the URL of the page of a sink's table; "" for none.
        progress: of the running epoch, whose nodes are lit; None: none runs.
    """
    boxes, links = dict(_boxes(flow, table_url)), list(_links(flow))
    running = set() if progress is None else {(progress.stage is Stage.PUBLISHING, name) for name in progress.nodes}
    layout = place_boxes(
        {name: box.size for name, box in boxes.items()}, [(e.source, e.target) for e in links], _BETWEEN
    )
    width, height = round(layout.width) + 2 * _MARGIN, round(layout.height) + 2 * _MARGIN
    attributes = {"class": "flow", "role": "group", "aria-labelledby": "flow-title flow-desc"}
    box = {"viewBox": f"0 0 {width} {height}", "width": str(width), "height": str(height)}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **box, **attributes})
    SubElement(svg, "title", {"id": "flow-title"}).text = "Data flow of the job"
    SubElement(svg, "desc", {"id": "flow-desc"}).text = plain_text(" ".join(_sentences(boxes, links)))
    drawing = SubElement(svg, "g", {"transform": f"translate({_MARGIN} {_MARGIN})"})
    for link, route in zip(links, layout.routes, strict=True):
        _draw_line(drawing, link, route)
    for name, shown in boxes.items():
        _draw_box(drawing, shown, layout.corners[name], is_running=(shown.css == "sink", shown.key) in running)
    for link, position in zip(links, _label_positions(layout.routes), strict=True):
        _draw_label(drawing, link, position)
    return ElementTree.tostring(svg, encoding="unicode")


def _boxes(flow: DataFlow, table_url: Callable[[str], str]) -> Iterator[tuple[str, _Box]]:
    for node in flow.nodes:
        tooltip = "\n".join([node.name, f"{node.kind}, {node.mode}", *node.state])
        css = "source" if node.kind in ("source", "static") else "operator"
        yield f"n {node.name}", _Box(node.name, css, (("name", node.name), *_node_lines(node)), tooltip)
        if node.loses:
            what = "unreadable records" if node.kind == "source" else "late rows"
            tooltip = f"{what} of {node.name} that no table has"
            yield f"d {node.name}", _Box("", "lost", (("name", _DROPPED), ("soft", what)), tooltip)
    for table in flow.tables:
        lines = (("name", table.name), *_table_lines(table, flow))
        tooltip = f"{table.name}\n{table.format}, {table.mode}"
        yield f"s {table.name}", _Box(table.name, "sink", lines, tooltip, table_url(table.name))


def _node_lines(node: FlowNode) -> Iterator[tuple[str, str]]:
    yield "soft", node.kind
    if node.time_share is not None:
        yield "", f"{node.time_share:.0%} of task time"
    if node.state_bytes is not None:
        yield "", f"state {size(node.state_bytes)}"
    if node.late_rows:
        yield "warn", f"▲ {count(node.late_rows)} late"
    if node.bad_records:
        yield "warn", f"▲ {count(node.bad_records)} unreadable"


def _table_lines(table: FlowTable, flow: DataFlow) -> Iterator[tuple[str, str]]:
    yield "soft", f"{table.format}, {table.mode}"
    if table.rows is not None:
        yield "", counted(table.rows, "row")
    age = age_ms(flow.newest.ended) if flow.newest is not None else None
    if table.shows is not None:
        ago = "" if age is None else f", {duration(_whole(age))} ago"
        yield "", f"checkpoint {table.shows}{ago}"
    elif flow.newest is not None:
        yield "warn", "▲ not the newest epoch"
    if table.rules:
        text = f"{table.rules_met or 0} of {counted(table.rules, 'rule')} met"
        yield ("good", f"● {text}") if table.rules_met == table.rules else ("warn", f"▲ {text}")


def _links(flow: DataFlow) -> Iterator[_Link]:
    for edge in flow.edges:
        css = "side" if edge.part else "" if edge.mode == "append" else "updates"
        yield _Link(f"n {edge.source}", f"{'s' if edge.sink else 'n'} {edge.to}", css, _edge_name(edge), edge.rows)
    for node in flow.nodes:
        if node.loses:
            yield _Link(f"n {node.name}", f"d {node.name}", "side lost", f"{node.name} to {_DROPPED}", node.loses)


def _edge_name(edge: FlowEdge) -> str:
    return f"{edge.output} to {edge.to}"


def _sentences(boxes: Mapping[str, _Box], links: Sequence[_Link]) -> Iterator[str]:
    for box in boxes.values():
        (_, name), *others = box.lines
        yield f"{name}: {', '.join(text for _, text in others)}."
    yield from (f"{link.title}." for link in links)


def _draw_line(drawing: Element, link: _Link, route: Sequence[Point]) -> None:
    (x, y), *points = route
    steps = [f"M {x:.1f} {y:.1f}"]
    for to_x, to_y in points:
        bend = (to_x - x) / 2
        steps.append(f"C {x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    path = SubElement(drawing, "path", {"class": f"line {link.css}".strip(), "d": " ".join(steps)})
    SubElement(path, "title").text = plain_text(link.title)
    SubElement(drawing, "path", {"class": "tip", "d": f"M {x:.1f} {y:.1f} l -7 -3.5 v 7 z"})


def _draw_box(drawing: Element, box: _Box, corner: Point, *, is_running: bool) -> None:
    parent = drawing if not box.href else SubElement(drawing, "a", {"href": box.href})
    width, height = box.size
    css = f"node {box.css} running" if is_running else f"node {box.css}"
    attributes = {"class": css, "transform": f"translate({corner[0]:.1f} {corner[1]:.1f})"}
    data = "data-table" if box.css == "sink" else "data-node"
    group = SubElement(parent, "g", attributes | ({data: plain_text(box.key)} if box.key else {}))
    SubElement(group, "title").text = "\n".join(plain_text(line) for line in box.tooltip.split("\n"))
    radius = "3" if box.css == "operator" else "12"
    SubElement(group, "rect", {"class": "box", "width": str(width), "height": str(height), "rx": radius})
    for number, (css, text) in enumerate(box.lines):
        place = {"x": str(_PADDING), "y": str(_PADDING + 10 + number * _LINE)}
        SubElement(group, "text", place | ({"class": css} if css else {})).text = _short(text)


def _label_positions(routes: Sequence[Sequence[Point]]) -> list[Point]:
    """Return the position of the label of each route: between its first two columns, without overlaps.

    Three routes between the same columns with middles at 0, 10 and 100 have their labels at 0, 34 and 100.
    """
    places: dict[int, Point] = {}
    floors: dict[float, float] = {}
    for number in sorted(range(len(routes)), key=lambda one: routes[one][0][1] + routes[one][1][1]):
        start, end, *_ = routes[number]
        x = end[0] - _BETWEEN / 2
        y = max((start[1] + end[1]) / 2, floors.get(x, float("-inf")))
        floors[x] = y + _LABEL_HEIGHT
        places[number] = (x, y)
    return [places[number] for number in range(len(routes))]


def _draw_label(drawing: Element, link: _Link, position: Point) -> None:
    if not link.rows:
        return
    x, y = position
    text = "?" if link.newest is None else f"{count(link.newest)}"
    group = SubElement(drawing, "g", {"class": "label", "transform": f"translate({x:.1f} {y:.1f})"})
    SubElement(group, "title").text = plain_text(link.title)
    wide = max(len(text) * _CHARACTER + 6, 24)
    ground = {"class": "ground", "x": f"{-wide / 2:.1f}", "y": "-9", "width": f"{wide:.1f}", "height": "15", "rx": "3"}
    SubElement(group, "rect", ground)
    SubElement(group, "text", {"y": "3", "text-anchor": "middle", "class": "rows"}).text = text
    if len(link.rows) > 1:
        line = SubElement(group, "g", {"transform": f"translate({-SPARK_WIDTH / 2:.1f} 9)"})
        sparkline(line, link.rows, SPARK_WIDTH, SPARK_HEIGHT - 2)


def _short(text: str) -> str:
    """Return a text cut to the width of a box. The tooltip has the whole text."""
    plain = plain_text(text)
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"


def _whole(age: int) -> int:
    """Return an age in whole minutes, or in whole seconds below a minute: a node has little room."""
    unit_ms = 60_000 if age >= 60_000 else 1_000
    return age // unit_ms * unit_ms
