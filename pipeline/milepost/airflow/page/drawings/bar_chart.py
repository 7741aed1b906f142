"""Draw a metric over epochs as a stacked SVG bar chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

WIDTH, HEIGHT = 400, 168
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 6, 10, 24
_GAP, _CHARACTER = 6, 6.5
"""Gap between an axis label and the chart; maximum width of a label's character, in page.css's font size."""
_STEPS = (1, 2, 5, 10)
_LABELED = (0.0, 0.5, 1.0)
"""Fractions of the axis that have a label."""

WHOLE = "whole"
"""CSS class of a bar with a single part, such as an epoch without measurements: only its total time is known."""


@dataclass(frozen=True, slots=True)
class Bar:
    """An epoch's bar.

    Attributes:
        parts: CSS class of each part -> its value, from the bottom up; {}: the value is unknown.
        href: target of the bar's link.
    """

    name: str
    parts: Mapping[str, float]
    tooltip: str
    href: str

    @property
    def total(self) -> float:
        return sum(max(0.0, value) for value in self.parts.values())


@dataclass(frozen=True, slots=True)
class Chart:
    """A metric over epochs, oldest first. format_value: formats a value as text."""

    title: str
    bars: Sequence[Bar]
    format_value: Callable[[float], str]

    @property
    def is_known(self) -> bool:
        return any(bar.parts for bar in self.bars)

    @property
    def newest(self) -> str:
        known = [bar for bar in self.bars if bar.parts]
        return self.format_value(known[-1].total) if known else ""


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """A chart for a template. newest: the newest value, as text. picture: its SVG."""

    title: str
    newest: str
    picture: str


def drawn_charts(charts: Iterable[Chart]) -> list[DrawnChart]:
    """Return the charts that have a known value, with ids that are unique on the page."""
    return [
        DrawnChart(chart.title, chart.newest, bar_chart(chart, f"chart-{number}"))
        for number, chart in enumerate(charts)
        if chart.is_known
    ]


def bar_chart(chart: Chart, ident: str) -> str:
    """Return the SVG of a chart, with texts escaped. Its title describes it for screen readers.

    Args:
        ident: id of the title element, unique on the page.
    """
    attributes = {"class": "chart", "viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "group", "aria-labelledby": ident}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **attributes})
    most = max((bar.total for bar in chart.bars), default=0.0)
    SubElement(svg, "title", {"id": ident}).text = (
        f"{chart.title} of {len(chart.bars)} epochs, at most {chart.format_value(most)}, "
        f"{chart.newest} in the newest one"
    )
    top = ceiling(most)
    labels = [chart.format_value(part * top) for part in _LABELED]
    left = max(_LEFT, _GAP + _CHARACTER * max(map(len, labels)))
    _draw_grid(svg, labels, left, top)
    step = (WIDTH - left - _RIGHT) / max(1, len(chart.bars))
    for place, bar in enumerate(chart.bars):
        _draw_bar(svg, bar, (left + place * step, step), top)
    for place, anchor in ((0, "start"), (len(chart.bars) - 1, "end")):
        x = left if anchor == "start" else WIDTH - _RIGHT
        SubElement(svg, "text", {"x": f"{x}", "y": str(HEIGHT - 8), "text-anchor": anchor}).text = chart.bars[
            place
        ].name
    return ElementTree.tostring(svg, encoding="unicode")


def ceiling(value: float) -> float:
    """Return the smallest of …, 0.5, 1, 2, 5, 10, 20, … that is at least the value; 1 if the value is not positive.

    The top of the axis for a maximum of 137 is 200, for 0.03 it is 0.05.
    """
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in _STEPS if step * power >= value)


def _draw_grid(svg: Element, labels: Sequence[str], left: float, top: float) -> None:
    for part, label in zip(_LABELED, labels, strict=True):
        y = _y(part * top, top)
        SubElement(svg, "path", {"class": "grid", "d": f"M {left} {y:.1f} H {WIDTH - _RIGHT}"})
        SubElement(svg, "text", {"x": f"{left - _GAP}", "y": f"{y + 4:.1f}", "text-anchor": "end"}).text = label


def _draw_bar(svg: Element, bar: Bar, place: tuple[float, float], top: float) -> None:
    x, step = place
    link = SubElement(svg, "a", {"href": bar.href, "tabindex": "-1"})
    SubElement(link, "title").text = bar.tooltip
    column = {"class": "column", "x": f"{x:.2f}", "y": str(_TOP), "width": f"{step:.2f}"}
    SubElement(link, "rect", {**column, "height": f"{HEIGHT - _TOP - _BOTTOM}"})
    gap = min(2.0, step * 0.2)
    below = 0.0
    for css, value in bar.parts.items():
        if value > 0:
            high = _y(below + value, top)
            box = {"x": f"{x + gap / 2:.2f}", "y": f"{high:.2f}", "width": f"{step - gap:.2f}"}
            SubElement(link, "rect", {"class": css, **box, "height": f"{_y(below, top) - high:.2f}"})
            below += value


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top
