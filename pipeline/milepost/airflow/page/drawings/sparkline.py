"""Draw a figure over epochs as a small line, without axes."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

WIDTH, HEIGHT = 72, 14


def sparkline(parent: Element, values: Sequence[float | None], width: float = WIDTH, height: float = HEIGHT) -> None:
    """Draw values, oldest first, into an element. Its top left corner is the origin, and 0 is at the bottom.

    Unknown values leave a gap: 1, 2, None, 3, 4 are two lines. The area below a line is filled, because a line of equal
    values alone looks like a rule under the text above it.
    """
    most = max((value for value in values if value is not None), default=0) or 1
    step = width / max(1, len(values) - 1)
    lines: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            lines.append([])
        else:
            lines[-1].append((place * step, height - height * max(0, value) / most))
    for line in filter(None, lines):
        points = line if len(line) > 1 else [*line, (line[0][0] + 2, line[0][1])]  # a line of one point is not visible
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        floor = f"L{points[-1][0]:.1f} {height:.1f}L{points[0][0]:.1f} {height:.1f}Z"
        SubElement(parent, "path", {"class": "spark-area", "d": path + floor})
        SubElement(parent, "path", {"class": "spark", "d": path})


def sparkline_svg(values: Sequence[float | None], title: str) -> str:
    """Return a drawing of its own, with a title for screen readers; "" if no value is known."""
    if all(value is None for value in values):
        return ""
    svg = Element("svg", {"class": "sparkline", "viewBox": f"-1 -1 {WIDTH + 4} {HEIGHT + 2}", "role": "img"})
    svg.set("aria-label", title)
    SubElement(svg, "title").text = title
    sparkline(svg, values)
    return tostring(svg, encoding="unicode")
