"""Problems of a spec, and the error that reports all problems of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from milepost.errors import InvalidRequest

Path = tuple[str | int, ...]
Positions = Mapping[Path, tuple[int, int]]

_SHOWN = 10
_LINE_CHARACTERS = 400


def not_available(what: str) -> str:
    """Return the standard refusal: `` `kind: join` is not available in this version``."""
    return f"`{what}` is not available in this version"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a spec.

    Attributes:
        path: keys and indexes from the root to the value; () is the whole file.
        message: what was expected and got, and what to do.
        at_key: whether the position to report is that of the key, not of its value.
        place: (file, line, column) of a problem in another file, such as the SQL of the job; None: in the spec.
    """

    path: Path
    message: str
    at_key: bool = False
    place: tuple[str, int, int] | None = None


def show_path(path: Path) -> str:
    """Format a path for error messages: `operators[1].aggregates.x`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shortened(text: str, longest: int = 60) -> str:
    """Return a text of at most `longest` characters, truncated with an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def invalid_spec(problems: Sequence[Problem], *, file: str, keys: Positions, values: Positions) -> InvalidRequest:
    """Return the error that reports `problems` in file order: the first 10, and how many more there are.

    Args:
        file: name of the file in messages.
        keys, values: path -> (line, column), 1-based; empty for a spec that was not read from a file.
    """
    located = sorted(((_position(p, keys, values), p) for p in problems), key=lambda item: item[0])
    lines = []
    for (line, column), problem in located[:_SHOWN]:
        where = f"{file if problem.place is None else problem.place[0]}:{line}:{column}: " if line else ""
        path = show_path(problem.path)
        text = " ".join(f"{where}{path + ': ' if path else ''}{problem.message}".split())
        lines.append(shortened(text, _LINE_CHARACTERS))
    if len(located) > _SHOWN:
        lines.append(f"… and {len(located) - _SHOWN} more")
    count = "1 problem" if len(located) == 1 else f"{len(located)} problems"
    head = f"{file} is not a valid job spec ({count}). Nothing was run or changed."
    return InvalidRequest(
        "\n".join([head, *lines]),
        hint="Correct the spec, then check it with `milepost lint`.",
        problems=[
            {"path": show_path(p.path), "line": line, "column": column, "message": p.message}
            | ({} if p.place is None else {"file": p.place[0]})
            for (line, column), p in located
        ],
    )


def _position(problem: Problem, keys: Positions, values: Positions) -> tuple[int, int]:
    if problem.place is not None:
        return problem.place[1:]
    if problem.at_key and problem.path in keys:
        return keys[problem.path]
    path = problem.path
    while path not in values and path:
        path = path[:-1]
    return values.get(path, (0, 0))
