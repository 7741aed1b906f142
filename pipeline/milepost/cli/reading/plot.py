"""The command `plot`, which draws a job's epochs over time."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import WIDTH, Output, terminal_width, use_color
from milepost.cli.terminal.tables import new_file
from milepost.epoch import counted
from milepost.errors import InvalidRequest
from milepost.language.times import in_ms, parse_duration
from milepost.views import show_bytes, show_count, show_time

if TYPE_CHECKING:
    from rich.text import Text

    from milepost.cli.terminal.charts import Part
    from milepost.jobmaster import EpochFigures

_NEWEST = 60
_HEIGHT = 4
_PHASES_HEIGHT = 8
_MARGIN = 2

_GLYPHS = {
    "plan": ("░", "blue"),
    "read": ("▒", "magenta"),
    "process": ("█", "green"),
    "spark": ("▚", "red"),
    "gate": ("▓", "yellow"),
    "publish": ("◆", "cyan"),
    "airflow": ("○", "white"),
    "other": ("·", "dim"),
}
"""Group of phases -> its glyph and its colour in a column."""


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(plot)


def plot(
    ctx: typer.Context,
    job: Job,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help=f"The newest N epochs; {_NEWEST} without --since."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="DURATION", help="Epochs triggered within it, for example 24h or 7d."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--output", metavar="FILE.svg", help="Draw to a new file.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Draw phases, rows, state, lag, requests and cost of the newest epochs, on the terminal or as SVG."""
    if file is not None and file.suffix != ".svg":
        raise InvalidRequest(f"{file} is no .svg: a chart is drawn as SVG. Nothing was written.")
    output: Output = ctx.obj
    since_ms = None if since is None else _since_ms(since)
    most = limit or (_NEWEST if since is None else sys.maxsize)
    series = open_job(job, ahead=True).reports.series(most, since_ms=since_ms)
    figures = series.epochs
    if file is not None and figures:
        svg = _svg(figures, job)
        with new_file(file) as stream:
            stream.write(svg.encode())
    if output.json:
        from milepost.jobmaster import percentiles_of

        return output.document(
            {"epochs": figures, "percentiles": percentiles_of(figures), "unreadable": series.unreadable}
        )
    for problem in series.unreadable:
        output.note(problem)
    if not figures:
        return output.note("there are none")  # of the live timeline
    for one in figures:
        if one.unreadable is not None:
            output.note(f"checkpoint {one.checkpoint_id}, its measurements are not drawn: {one.unreadable}")
    if file is not None:
        return output.note(f"{counted(len(figures), 'epoch')} drawn to {file}")
    return _print(figures)


def _since_ms(duration: str) -> int:
    """Return the time so long ago, in ms since the epoch. Raises InvalidRequest: not a duration."""
    try:
        return time.time_ns() // 1_000_000 - in_ms(parse_duration(duration))
    except ValueError as problem:
        raise InvalidRequest(f"--since: {problem}.") from None


def _print(figures: Sequence[EpochFigures]) -> None:
    from rich.console import Console

    width = terminal_width()
    colour = use_color(sys.stdout)
    console = Console(file=sys.stdout, width=width, no_color=not colour, force_terminal=colour, highlight=False)
    for line in _lines(figures, width):
        console.print(line, no_wrap=True, overflow="crop")


def _svg(figures: Sequence[EpochFigures], job: str) -> str:
    """Return the charts as an SVG that loads no fonts from a server."""
    from rich.console import Console

    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, highlight=False)
    for line in _lines(figures, WIDTH):
        console.print(line, no_wrap=True, overflow="crop")
    return re.sub(r"@font-face\s*\{[^}]*\}\s*", "", console.export_svg(title=f"milepost plot {job}"))


def _lines(figures: Sequence[EpochFigures], width: int) -> Iterator[Text]:
    from rich.text import Text

    from milepost.cli.terminal.charts import column_width, columns, stacked
    from milepost.jobmaster import time_by_phase_group

    shown = figures[-(width - _MARGIN) :]
    column = column_width(len(shown), width - _MARGIN)
    first, last = shown[0], shown[-1]
    yield Text(f"epochs of checkpoints {first.checkpoint_id} to {last.checkpoint_id}")
    yield Text(f"{show_time(first.trigger_time)} to {show_time(last.trigger_time)}")
    grouped = [None if one.phases is None else time_by_phase_group(one.phases) for one in shown]
    if any(grouped):
        parts = _parts()
        yield from _titled("phases", [sum(one.values()) if one else None for one in grouped], _seconds)
        yield from _indented(stacked(grouped, parts, _PHASES_HEIGHT, column))
        yield from _indented([_legend(parts)])
    for title, value, as_text in _CHARTS:
        values = [value(one) for one in shown]
        if any(one is not None for one in values):
            yield from _titled(title, values, as_text)
        if any(values):  # else none is above 0
            yield from _indented(columns(values, _HEIGHT, column, "cyan"))


def _titled(title: str, values: Sequence[float | None], as_text: Callable[[Any], str]) -> Iterator[Text]:
    from rich.text import Text

    known = [value for value in values if value is not None]
    yield Text()
    yield Text(f"{title}: {as_text(min(known))} to {as_text(max(known))}, last {as_text(known[-1])}", style="bold")


def _indented(lines: Sequence[Text]) -> Iterator[Text]:
    from rich.text import Text

    for line in lines:
        yield Text(" " * _MARGIN) + line


def _legend(parts: Mapping[str, Part]) -> Text:
    from rich.text import Text

    legend = Text()
    for name, part in parts.items():
        legend.append(part.glyph, part.style).append(f" {name}  ")
    return legend


def _parts() -> dict[str, Part]:
    from milepost.cli.terminal.charts import Part

    return {name: Part(glyph, style) for name, (glyph, style) in _GLYPHS.items()}


def _seconds(ms: float) -> str:
    return f"{ms / 1000:,.1f} s"


def _age(ms: float) -> str:
    """Return a duration in the largest unit in which it is at least 2."""
    for unit, length_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= 2 * length_ms:
            return f"{ms / length_ms:,.1f} {unit}"
    return _seconds(ms)


_CHARTS: tuple[tuple[str, Callable[[EpochFigures], Any], Callable[[Any], str]], ...] = (
    ("rows in", lambda one: one.rows_in, show_count),
    ("rows out", lambda one: one.rows_out, show_count),
    ("late rows", lambda one: one.late_rows, show_count),
    ("state", lambda one: one.state_bytes, show_bytes),
    ("lag of the watermark", lambda one: one.lag_ms, _age),
    ("requests to S3", lambda one: None if one.requests is None else one.requests.total or None, show_count),
    ("cost (an estimate)", lambda one: None if one.cost is None else one.cost.total, lambda cost: f"{cost:.2g}"),
)
"""Title of a chart -> its value for an epoch, and how to format it."""
