"""A problem says what is wrong with a spec, where, and what to do; all of a file come together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from milepost.protocol.records.errors import InvalidRequest

Path = tuple[str | int, ...]
Positions = Mapping[Path, tuple[int, int]]

_SHOWN = 10
_LINE_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a spec.

    Attributes:
        path: keys and indexes from the root to the value; () = the whole file.
        message: what was expected and got, and what to do.
        at_key: whether the place is the key rather than its value.
    """

    path: Path
    message: str
    at_key: bool = False


def show_path(path: Path) -> str:
    """Return a path as the errors show it: `operators[1].aggregates.x`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shortened(text: str, longest: int = 60) -> str:
    """Return a text as messages quote it: what is longer ends in an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def invalid_spec(problems: Sequence[Problem], *, file: str, keys: Positions, values: Positions) -> InvalidRequest:
    """Return the error that reports `problems` in the order of the file, at most 24 lines.

    Args:
        file: how the file is named to its user.
        keys, values: path -> (line, column), 1-based; empty for a spec that was not read from a file.
    """
    placed = sorted(((_place(p, keys, values), p) for p in problems), key=lambda item: item[0])
    lines = []
    for (line, column), problem in placed[:_SHOWN]:
        where = f"{file}:{line}:{column}: " if line else ""
        path = show_path(problem.path)
        text = " ".join(f"{where}{path + ': ' if path else ''}{problem.message}".split())
        lines.append(shortened(text, _LINE_CHARACTERS))
    if len(placed) > _SHOWN:
        lines.append(f"… and {len(placed) - _SHOWN} more")
    count = "1 problem" if len(placed) == 1 else f"{len(placed)} problems"
    head = f"{file} is not a valid job spec ({count}). Nothing was run or changed."
    return InvalidRequest(
        "\n".join([head, *lines]),
        hint="Correct the spec, then check it with `milepost lint`.",
        problems=[
            {"path": show_path(p.path), "line": line, "column": column, "message": p.message}
            for (line, column), p in placed
        ],
    )


def _place(problem: Problem, keys: Positions, values: Positions) -> tuple[int, int]:
    if problem.at_key and problem.path in keys:
        return keys[problem.path]
    path = problem.path
    while path not in values and path:
        path = path[:-1]
    return values.get(path, (0, 0))
