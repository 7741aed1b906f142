"""Recording writes what came of a case into its file, for a person to review; comments and order stay."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from milepost.testing.case_run import CaseResult


def record(path: Path, results: Iterable[CaseResult]) -> None:
    """Write the actual results as the expected ones, for each step of these cases of one file."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.width = 120
    document = yaml.load(path.read_text(encoding="utf-8"))
    for result in results:
        steps = document["cases"][result.case]
        for step in result.steps:
            if step.number:
                steps[step.number - 1]["expect"] = _in_lines(step.found)
    text = io.StringIO()
    yaml.dump(document, text)
    path.write_text(text.getvalue(), encoding="utf-8")


def _in_lines(value: Any, *, of_row: bool = False) -> Any:
    """Return a value that YAML writes with one row per line."""
    from ruamel.yaml.comments import CommentedMap

    if isinstance(value, list):
        return [_in_lines(item, of_row=True) for item in value]
    if not isinstance(value, dict):
        return value
    written = CommentedMap((key, _in_lines(item, of_row=of_row)) for key, item in value.items())
    if of_row:
        written.fa.set_flow_style()
    return written
