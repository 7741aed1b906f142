"""Print metrics in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.terminal.output import Output
from milepost.errors import InvalidRequest

if TYPE_CHECKING:
    from milepost.jobmaster import Sample


class Form(Enum):
    """Output formats of a command."""

    TEXT = "text"
    PROMETHEUS = "prometheus"


Format = Annotated[
    Form, typer.Option("--format", help="prometheus: metrics for a scrape, with exit 0 whatever they say.")
]


def check_form(output: Output, *, watch: bool = False) -> None:
    """Raise InvalidRequest if metrics are combined with another output format."""
    other = "--json" if output.json else "--watch" if watch else None
    if other is not None:
        raise InvalidRequest(f"--format prometheus prints metrics once, and no {other}: leave one of the two out.")


def print_metrics(samples: Iterable[Sample], output: Output) -> None:
    """Print samples of one job or several."""
    from milepost.jobmaster import prometheus_text

    for line in prometheus_text(samples).splitlines():
        output.text(line)
