"""Random quality gates, and a simple model of their verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from milepost.jobspec.graph.graph import JobGraph
from milepost.operators.base.edges import DELETED_COLUMN
from milepost_testkit.chaos.tries import Try
from milepost_testkit.law.job import last_of_each_key

_COLUMNS = ("n", "i", "x")
"""Numbers that outputs may have; a gate judges one of them."""
_BOUNDS = {"n": (1, 3), "i": (0, 2**31 - 1), "x": (-1.0, 1024.0)}
_CRITICAL = "critical"


def random_gate(random: Random, graph: JobGraph) -> list[dict[str, Any]]:
    """Return quality suites for some of a job's sinks. A suite vetoes some epochs, or only reports."""
    suites = []
    for name, sink in graph.sink_inputs.items():
        judged = [column for column in _COLUMNS if column in sink.columns]
        if judged and random.random() < 0.5:
            column = random.choice(judged)
            low, high = _BOUNDS[column]
            between = {
                "type": "expect_column_values_to_be_between",
                "column": column,
                "min_value": low,
                "max_value": high,
                "severity": random.choice((_CRITICAL, "warning")),
            }
            suites.append({"sink": name, "expectations": [between], "rows": random.choice((0, 2, 20))})
    return suites


def refusals(made: Try, graph: JobGraph, now: Callable[[str], str]) -> Iterator[str]:
    """Yield a reason to veto an attempt for each critical suite that its rows fail.

    Args: now: returns the current name of an output of the attempt.
    """
    for suite in made.quality:
        (one,) = suite.expectations
        if one.severity != _CRITICAL or suite.sink not in graph.sink_inputs:
            continue
        sink = graph.sink_inputs[suite.sink]
        rows = made.rows(next(output for output in made.schemas if now(output) == sink.output))
        rows = last_of_each_key(rows, sink.key) if sink.key else rows
        low, high = one.arguments["min_value"], one.arguments["max_value"]
        for row in rows.to_pylist():
            value = row[one.arguments["column"]]
            if row.get(DELETED_COLUMN) or value is None or (isinstance(value, float) and math.isnan(value)):
                continue
            if not low <= value <= high:
                yield f"sink {suite.sink}: {value} is not between {low} and {high}"
