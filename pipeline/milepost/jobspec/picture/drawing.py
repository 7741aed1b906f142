"""Draw a job's graph as SVG, with links styled by mode.

The picture depends only on the `lint` report: equal reports give equal bytes. It loads nothing from a server, has a
text description for screen readers, and follows the reader's dark mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from milepost.jobspec.picture.layers import Layout, Point, place_boxes

MARGIN = 16
LINE = 16
_PADDING = 10
_NARROWEST = 120
_LONGEST = 36
"""Maximum characters per line. A tooltip shows the full text of a longer line."""
_CHARACTER = 6.7
_BOLD_CHARACTER = 7.3

PALETTES: Mapping[str, Mapping[str, str]] = {
    "light": {"ground": "#ffffff", "box": "#f6f8fa", "line": "#57606a", "text": "#1b1f24", "soft": "#4d5560",
              "good": "#116329", "grows": "#953800"},
    "dark": {"ground": "#0d1117", "box": "#161b22", "line": "#8b949e", "text": "#e6edf3", "soft": "#adb7c2",
             "good": "#56d364", "grows": "#ffa657"},
}  # fmt: skip
"""Background and text colours. A test checks the contrast that WCAG requires for text."""

_INKS = {name: " ".join(f"--{ink}: {value};" for ink, value in inks.items()) for name, inks in PALETTES.items()}

STYLE = """
.milepost-graph {{ {light} }}
@media (prefers-color-scheme: dark) {{ .milepost-graph {{ {dark} }} }}
.milepost-graph .ground {{ fill: var(--ground); }}
.milepost-graph .box {{ fill: var(--box); stroke: var(--line); }}
.milepost-graph .sink .box {{ stroke-width: 2; }}
.milepost-graph text {{ fill: var(--text); font-size: 11px; font-family: ui-monospace, Menlo, Consolas, monospace; }}
.milepost-graph .name {{ font-size: 12px; font-weight: 700; }}
.milepost-graph .soft {{ fill: var(--soft); }}
.milepost-graph .good {{ fill: var(--good); }}
.milepost-graph .grows {{ fill: var(--grows); }}
.milepost-graph path {{ fill: none; stroke: var(--line); stroke-width: 1.2; }}
.milepost-graph .exchanged {{ stroke-width: 2.6; }}
.milepost-graph .updates {{ stroke-dasharray: 7 4; }}
.milepost-graph .side {{ stroke-dasharray: 2 3; }}
.milepost-graph .tip {{ fill: var(--line); stroke: none; }}
""".format(**_INKS)
"""The style of every picture, a constant, so that a page can allow it by its digest."""

_LEGEND = (
    ("", "append: rows are final"),
    ("updates", "upsert, retract: rows replace others"),
    ("side", "late rows, dead letters"),
    ("exchanged", "exchanged between tasks by key"),
)


@dataclass(frozen=True, slots=True)
class _Box:
    """A box: its class, and lines of (class, text)."""

    css: str
    lines: tuple[tuple[str, str], ...]

    @property
    def size(self) -> tuple[int, int]:
        (_, name), *details = self.lines
        widest = max(
            [_truncated(name)[1] * _BOLD_CHARACTER, *(_truncated(text)[1] * _CHARACTER for _, text in details)]
        )
        return max(_NARROWEST, round(widest) + 2 * _PADDING), LINE * len(self.lines) + 2 * _PADDING - 4


def graph_picture(report: Mapping[str, Any]) -> str:
    """Return the SVG of a graph from a `lint_report`, with the sizes of states if the report has them."""
    boxes = dict(_boxes(report))
    edges = report["edges"]
    links = [(f"n {edge['from']}", f"{'s' if edge['sink'] else 'n'} {edge['to']}") for edge in edges]
    layout = place_boxes({name: box.size for name, box in boxes.items()}, links)
    legend_top = layout.height + 2 * MARGIN
    width = max(round(layout.width), 560) + 2 * MARGIN
    height = round(legend_top) + LINE * 2 + MARGIN
    svg = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "milepost-graph",
            "role": "img",
            "viewBox": f"0 0 {width} {height}",
            "width": str(width),
            "height": str(height),
            "aria-labelledby": "milepost-graph-title milepost-graph-desc",
        },
    )
    SubElement(svg, "title", {"id": "milepost-graph-title"}).text = plain_text(f"The graph of job {report['job']}")
    SubElement(svg, "desc", {"id": "milepost-graph-desc"}).text = plain_text(" ".join(_sentences(report)))
    SubElement(svg, "style").text = STYLE
    SubElement(svg, "rect", {"class": "ground", "width": str(width), "height": str(height), "rx": "6"})
    drawing = SubElement(svg, "g", {"transform": f"translate({MARGIN} {MARGIN})"})
    for edge, route in zip(edges, layout.routes, strict=True):
        _draw_link(drawing, edge, route)
    _draw_boxes(drawing, boxes, layout)
    _draw_legend(SubElement(svg, "g", {"transform": f"translate({MARGIN} {round(legend_top)})"}))
    ElementTree.indent(svg, "")
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def _boxes(report: Mapping[str, Any]) -> Iterator[tuple[str, _Box]]:
    for node in report["nodes"]:
        level = f", level {node['level']}" if node["level"] else ""
        lines = [("name", node["uid"]), ("soft", f"{node['kind']}{level}"), ("", node["mode"])]
        if node["event_time"] is not None:
            held = f", holds back {node['holds_back']}" if node["holds_back"] not in (None, "0s") else ""
            lines.append(("", f"time {node['event_time']}{held}"))
        for state in node["state"]:
            lines.append(_bound(state))
            if state.get("size") is not None:
                lines.append(("soft", f"  {state['size']['rows']:,} rows, {_bytes(state['size']['bytes'])}"))
        lines += [("soft", f"{part}: dropped") for part in _dropped(node)]
        yield f"n {node['uid']}", _Box(node["kind"], tuple(lines))
    for sink in report["sinks"]:
        lines = [("name", sink["name"]), ("soft", f"{sink['format']}, {sink['mode']}")]
        lines += [("soft", f"reads {sink['input']}")] if "." in sink["input"] else []
        yield f"s {sink['name']}", _Box("sink", tuple(lines))


def _bound(state: Mapping[str, Any]) -> tuple[str, str]:
    """Return (class, line) for the bound of a state table. Symbol and colour both show whether it is bounded."""
    prefix = f"{state['table']}: " if state["table"] else ""
    if state["grows_with"] is not None:
        return "grows", f"▲ {prefix}grows with {state['grows_with']}"
    if state["until"] is None:
        return "good", f"● {prefix}bounded"
    until = str(state["until"]).removeprefix("the watermark ").removeprefix("passes ").removeprefix("reaches ")
    return "good", f"● {prefix}until {until}"


def _dropped(node: Mapping[str, Any]) -> list[str]:
    """Return the outputs of late rows without a sink. Their rows are only counted."""
    outputs = [late["output"].removeprefix(node["uid"] + ".") for late in node["late"] if not late["sinks"]]
    return ["late rows"] if outputs and len(outputs) == len(node["late"]) else outputs


def _sentences(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text description of the graph."""
    for node in report["nodes"]:
        reads = f" reads {', '.join(node['inputs'])}" if node["inputs"] else ""
        state = "".join(f"; state {table['name']}: {table['holds']}, {table['bound']}" for table in node["state"])
        yield f"{node['uid']} ({node['kind']}){reads}; emits {node['mode']}{state}."
    for sink in report["sinks"]:
        yield f"Sink {sink['name']} ({sink['format']}, {sink['mode']}) publishes {sink['input']}."


def _draw_link(drawing: Element, edge: Mapping[str, Any], route: Sequence[Point]) -> None:
    style = "side" if edge["part"] else "" if edge["mode"] == "append" else "updates"
    classes = " ".join(filter(None, (style, "exchanged" if edge["exchanged"] else "")))
    (x, y), *points = route
    steps = [f"M {x:.1f} {y:.1f}"]
    for to_x, to_y in points:
        bend = (to_x - x) / 2
        steps.append(f"C {x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    path = SubElement(drawing, "path", {"d": " ".join(steps)} | ({"class": classes} if classes else {}))
    key = f", key {', '.join(edge['key'])}" if edge["key"] else ""
    time = f", time {edge['event_time']}" if edge["event_time"] else ""
    title = f"{edge['from']}{edge['part']} to {edge['to']}: {edge['mode']}{key}{time}"
    SubElement(path, "title").text = plain_text(title)
    tip = {"class": "tip", "d": f"M {x:.1f} {y:.1f} l -7 -3.5 v 7 z"}
    SubElement(drawing, "path", tip)


def _draw_boxes(drawing: Element, boxes: Mapping[str, _Box], layout: Layout) -> None:
    for name, box in boxes.items():
        (x, y), (width, height) = layout.corners[name], box.size
        group = SubElement(drawing, "g", {"class": box.css, "transform": f"translate({x:.1f} {y:.1f})"})
        SubElement(group, "title").text = "\n".join(plain_text(text) for _, text in box.lines)
        radius = "12" if box.css in ("sink", "source") else "3"
        SubElement(group, "rect", {"class": "box", "width": str(width), "height": str(height), "rx": radius})
        for number, (css, text) in enumerate(box.lines):
            attributes = {"x": str(_PADDING), "y": str(_PADDING + 10 + number * LINE)}
            SubElement(group, "text", attributes | ({"class": css} if css else {})).text = _truncated(text)[0]


def _draw_legend(legend: Element) -> None:
    for number, (css, text) in enumerate(_LEGEND):
        x, y = number % 2 * 280, number // 2 * LINE
        SubElement(legend, "path", {"d": f"M {x} {y} h 34"} | ({"class": css} if css else {}))
        SubElement(legend, "text", {"class": "soft", "x": str(x + 42), "y": str(y + 4)}).text = text


def _truncated(text: str) -> tuple[str, int]:
    """Return a line as it is drawn, and its length in characters."""
    plain = plain_text(text)
    short = plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"
    return short, len(short)


def plain_text(text: str) -> str:
    """Return a text with U+FFFD for characters that are not printable, or not allowed in XML."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _bytes(size: int) -> str:
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError
