"""Draw epochs by time as SVG: a lane per timeline, an epoch as a bar by phase, flags above for acts and changes.

After a rollback, the new timeline begins in the lane below, with a line from the checkpoint that it continues:

                          R                     S   C
    main                | || ||  x
                          `-----.
    rollback 07:01              '| || | ||| || |  ||
                        03:00         05:00        07:00

Bars are at percentages of the width, so that the drawing fills the page and texts keep their size. The lines between
lanes are in an inner SVG that stretches. A description has the same content for screen readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from milepost.airflow.page.drawings.bar_chart import WHOLE
from milepost.airflow.page.frame.filters import count, duration, moment
from milepost.epoch import counted
from milepost.jobmaster import AXIS_COLUMNS, AxisColumn, AxisFlag, AxisLane, FlagKind, Outcome, TimeAxis, percentile
from milepost.jobspec.picture import plain_text
from milepost.views import TimelineNames

FLAGS, LANE, BAR, LATE, BOTTOM = 24, 66, 40, 8, 20
"""Heights: of the flags, of a lane, of its highest bar, of the late share below the bars, of the labels of time."""

_PLANE = 1000
"""Width of the inner SVG in its own units."""

_WIDEST = 5
"""Columns that a bar takes if the next one is far away."""

_NAME, _NAMES = 14, -104
_LEAST_LATE = 0.01
"""Smallest share of late rows that is drawn. A tooltip has smaller ones."""

_FLAG_SHARE = 0.02
"""Flags that are closer are drawn as one."""

LETTERS: Mapping[FlagKind, str] = {
    FlagKind.ROLLBACK: "R",
    FlagKind.BACKFILL: "B",
    FlagKind.START: "T",
    FlagKind.SAVEPOINT: "S",
    FlagKind.CODE: "C",
    FlagKind.SPEC: "P",
}
_MARKS: Mapping[Outcome, tuple[str, str]] = {
    Outcome.VETOED: ("bad", "M -3.5 -3.5 L 3.5 3.5 M -3.5 3.5 L 3.5 -3.5"),
    Outcome.ABORTED: ("bad", "M -3 0 H 3"),
    Outcome.WARNED: ("warn", "M 0 -3.5 L 3.5 3 H -3.5 Z"),
}
"""Outcome -> class and shape of its mark above the bar."""


def time_axis_picture(axis: TimeAxis, address: Callable[[int], str]) -> str:
    """Return the SVG, with texts escaped; "" without epochs.

    Args:
        address: returns the URL of a checkpoint's page.
    """
    if not axis.lanes:
        return ""
    names, height = TimelineNames(axis.origins), FLAGS + LANE * len(axis.lanes) + BOTTOM
    attributes = {"class": "axis", "role": "group", "aria-labelledby": "axis-title axis-desc", "height": str(height)}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **attributes})
    SubElement(svg, "title", {"id": "axis-title"}).text = "Epochs by time"
    SubElement(svg, "desc", {"id": "axis-desc"}).text = plain_text(" ".join(_sentences(axis, names)))
    most = full_bar_ms(axis)
    _draw_ground(svg, axis, height)
    _draw_branches(svg, axis.lanes, height)
    for number, lane in enumerate(axis.lanes):
        _draw_lane(svg, lane, FLAGS + LANE * number, most, names, address)
    for flags in _near(axis.flags):
        _draw_flag(svg, flags, height)
    return ElementTree.tostring(svg, encoding="unicode")


def full_bar_ms(axis: TimeAxis) -> int:
    """Return the duration of a bar of full height."""
    return highest_bar([column.duration_ms for lane in axis.lanes for column in lane.columns])


def highest_bar(durations: Sequence[int]) -> int:
    """Return the duration of a bar of full height: 1.25 times the 95th percentile, or the longest if that is shorter.

    Of 99 epochs of 4 s and one of 10 min it is 5 s, and the long one is cut.
    """
    ordered = sorted(durations)
    return max(1, min(ordered[-1], round(1.25 * percentile(ordered, 0.95)))) if ordered else 1


def column_text(column: AxisColumn) -> str:
    """Return the figures of a column for its tooltip."""
    merged = f", the {'worst' if column.outcome is not Outcome.COMPLETED else 'longest'} of {column.epochs:,} epochs"
    lines = [f"checkpoint {column.checkpoint_id}{merged if column.epochs > 1 else ''}", f"{moment(column.began)} UTC"]
    phases = ", ".join(f"{group} {duration(ms)}" for group, ms in column.phases.items() if ms)
    lines.append(f"{duration(column.duration_ms)}{f' ({phases})' if phases else ''}")
    if column.outcome is Outcome.VETOED:
        lines.append(f"vetoed by {', '.join(column.refused_by) or 'the quality gate'}")
    elif column.outcome is Outcome.ABORTED:
        lines.append(f"aborted: {column.reason or 'the reason is not known'}")
    elif column.outcome is Outcome.WARNED:
        lines.append("a rule of the quality gate warned")
    if column.outcome in (Outcome.COMPLETED, Outcome.WARNED) or column.rows_in:
        late = f", {count(column.late_rows)} late ({column.late_share:.1%})" if column.late_rows else ""
        late += f", {count(column.dropped_rows)} dropped" if column.dropped_rows else ""
        late += f", {count(column.bad_records)} unreadable" if column.bad_records else ""
        lines.append(f"{counted(column.rows_in, 'row')}{late}")
    if not column.live and column.outcome in (Outcome.COMPLETED, Outcome.WARNED):
        lines.append("not live")
    return "\n".join(map(plain_text, lines))


def _sentences(axis: TimeAxis, names: TimelineNames) -> Iterator[str]:
    yield f"{counted(axis.epochs, 'epoch')} from {moment(axis.start)} to {moment(axis.end)} UTC."
    for lane in axis.lanes:
        columns = lane.columns
        longest = max(column.duration_ms for column in columns)
        outcomes = [column.outcome for column in columns]
        ends = [f"{outcomes.count(one)} {one}" for one in _MARKS if one in outcomes]
        bad = f", {', '.join(ends)}" if ends else ""
        live = "the live timeline" if lane.live else "a timeline"
        yield (
            f"{names.with_id(lane.timeline)}, {live}: {counted(sum(one.epochs for one in columns), 'epoch')}, "
            f"the longest took {duration(longest)}{bad}."
        )
    yield from (f"{flag_text(flag)}." for flag in axis.flags)


def flag_text(flag: AxisFlag) -> str:
    """Return what a flag marks, for a tooltip and a list."""
    return f"{moment(flag.time)} UTC: {f'{flag.who} ' if flag.who else ''}{flag.what}"


def _draw_ground(svg: Element, axis: TimeAxis, height: int) -> None:
    start, end = (datetime.fromisoformat(str(time)) for time in (axis.start, axis.end))
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = "start" if part == 0 else "end" if part == 1 else "middle"
        x = f"{100 * part:g}%"
        SubElement(svg, "line", {"class": "grid", "x1": x, "x2": x, "y1": str(FLAGS), "y2": str(height - BOTTOM)})
        SubElement(svg, "text", {"x": x, "y": str(height - 5), "text-anchor": anchor}).text = _tick(start, end, part)


def _tick(start: datetime, end: datetime, part: float) -> str:
    time = (start + (end - start) * part).astimezone(UTC)
    if end - start > timedelta(days=2):
        return time.strftime("%m-%d %H:%M")
    return time.strftime("%H:%M" if end - start > timedelta(minutes=10) else "%H:%M:%S")


def _draw_branches(svg: Element, lanes: Sequence[AxisLane], height: int) -> None:
    """Draw a line from the checkpoint that a timeline continues to its first bar."""
    size = {"viewBox": f"0 0 {_PLANE} {height}", "preserveAspectRatio": "none", "height": str(height)}
    lines = SubElement(svg, "svg", {"class": "lines", "width": "100%", **size})
    number = {lane.timeline: at for at, lane in enumerate(lanes)}
    for at, lane in enumerate(lanes):
        origin = number.get(lane.branched_from or "")
        if origin is None:
            continue
        column = next((one.column for one in reversed(lanes[origin].columns) if one.last <= lane.branched_at), 0)
        x, to_x = (_PLANE * (one + 0.5) / AXIS_COLUMNS for one in (column, lane.columns[0].column))
        y, to_y = (FLAGS + LANE * one + LANE - LATE - 6 for one in (origin, at))
        path = f"M {x:.1f} {y} C {x:.1f} {to_y} {x:.1f} {to_y} {max(to_x, x):.1f} {to_y}"
        SubElement(lines, "path", {"class": "branch", "d": path})


def _draw_lane(
    svg: Element, lane: AxisLane, top: int, most: int, names: TimelineNames, address: Callable[[int], str]
) -> None:
    group = SubElement(svg, "g", {"class": "lane live" if lane.live else "lane"})
    base = top + LANE - LATE - 6
    label = SubElement(group, "text", {"class": "name", "x": str(_NAMES), "y": str(base - 12)})
    short = plain_text(names.short(lane.timeline))
    label.text = short if len(short) <= _NAME else f"{short[: _NAME - 1]}…"
    SubElement(label, "title").text = plain_text(names.with_id(lane.timeline))
    if lane.live:
        SubElement(group, "text", {"class": "role", "x": str(_NAMES), "y": str(base + 2)}).text = "live"
    SubElement(group, "line", {"class": "base", "x1": "0", "x2": "100%", "y1": str(base), "y2": str(base)})
    following = [*(column.column for column in lane.columns[1:]), AXIS_COLUMNS]
    for column, after in zip(lane.columns, following, strict=True):
        _draw_column(group, column, min(_WIDEST, after - column.column), base, most, address(column.checkpoint_id))


def _draw_column(group: Element, column: AxisColumn, wide: int, base: int, most: int, href: str) -> None:
    x, width = 100 * column.column / AXIS_COLUMNS, 100 * wide / AXIS_COLUMNS
    link = SubElement(group, "a", {"href": href, "tabindex": "-1"} | ({} if column.live else {"class": "dead"}))
    SubElement(link, "title").text = column_text(column)
    area = {"x": f"{x:.2f}%", "y": str(base - LANE + LATE + 8), "width": f"{width:.2f}%", "height": str(LANE - 4)}
    SubElement(link, "rect", {"class": "column", **area})
    place = {"x": f"{x:.2f}%", "width": f"{width * 0.86:.2f}%"}
    spent = {group: ms for group, ms in column.phases.items() if ms} or {WHOLE: column.duration_ms}
    scale = min(1.0, column.duration_ms / most) * BAR / max(1, sum(spent.values()))
    y = float(base)
    for phase, ms in spent.items():
        high = max(0.6, ms * scale)
        y -= high
        SubElement(link, "rect", {"class": phase, **place, "y": f"{y:.1f}", "height": f"{high:.1f}"})
    if column.late_share >= _LEAST_LATE:
        late = max(1.0, LATE * column.late_share)
        SubElement(link, "rect", {"class": "late", **place, "y": str(base + 1), "height": f"{late:.1f}"})
    middle = f"{x + width * 0.43:.2f}%"
    if column.duration_ms > most:
        SubElement(_mark(link, middle, base - BAR), "path", {"class": "cut", "d": "M -4 3 L 0 -1 L 4 3"})
    if column.outcome in _MARKS:
        css, shape = _MARKS[column.outcome]
        SubElement(_mark(link, middle, y - 6), "path", {"class": css, "d": shape})


def _mark(parent: Element, x: str, y: float) -> Element:
    """Return an element whose origin is at a percentage of the width, and that does not stretch."""
    return SubElement(parent, "svg", {"x": x, "y": f"{y:.1f}", "class": "mark"})


def _near(flags: Sequence[AxisFlag]) -> list[list[AxisFlag]]:
    """Return flags in groups: those closer than `_FLAG_SHARE` to the first of a group are in it."""
    groups: list[list[AxisFlag]] = []
    for flag in sorted(flags, key=lambda one: one.share):
        if groups and flag.share - groups[-1][0].share < _FLAG_SHARE:
            groups[-1].append(flag)
        else:
            groups.append([flag])
    return groups


def _draw_flag(svg: Element, flags: Sequence[AxisFlag], height: int) -> None:
    group = SubElement(svg, "g", {"class": f"flag {flags[0].kind if len(flags) == 1 else 'several'}"})
    SubElement(group, "title").text = "\n".join(plain_text(flag_text(flag)) for flag in flags)
    x = f"{100 * flags[0].share:.2f}%"
    SubElement(group, "line", {"x1": x, "x2": x, "y1": "18", "y2": str(height - BOTTOM)})
    mark = _mark(group, x, 9)
    SubElement(mark, "rect", {"x": "-8", "y": "-8", "width": "16", "height": "16", "rx": "3"})
    kinds = {flag.kind for flag in flags}
    text = LETTERS[flags[0].kind] if len(kinds) == 1 else str(len(flags))
    SubElement(mark, "text", {"y": "4", "text-anchor": "middle"}).text = text
