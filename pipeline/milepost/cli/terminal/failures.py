"""Report an exception: what happened, what is true now, what to do, and the exit code."""

from __future__ import annotations

import traceback

from milepost.cli.terminal.output import Output
from milepost.errors import CheckpointError
from milepost.runbook import address, page_of

_LINES = 22
_CHARACTERS = 500
INTERRUPTED = 130
_AFTER_INTERRUPTION = (
    "what was committed stays, and the next run publishes it; of what was not, nothing is visible. "
    "Where the job stands: milepost status {job}"
)


def report(error: BaseException, output: Output, *, reads: bool = False) -> int:
    """Print an error in at most 24 lines (plus a stack trace with `-v`) and return the exit code.

    Args:
        reads: the command only reads, so an interruption needs no explanation.
    """
    runbook = None if _is_interruption(error) else address(page_of(error))
    if isinstance(error, CheckpointError):
        name, code = type(error).__name__, error.exit_code
        message, hint = output.as_typed(error.message), output.as_typed(error.hint)
        details: dict[str, object] = output.as_typed(dict(error.details))
    elif _is_interruption(error):
        name, message, code = "Interrupted", "interrupted.", INTERRUPTED
        hint = "" if reads or output.typed is None else _AFTER_INTERRUPTION.format(job=output.typed)
        details = {}
    else:
        first = (str(error).strip().splitlines() or [""])[0]
        name, code, details = type(error).__name__, 1, {}
        message = f"unexpected {name}: {first}"[:_CHARACTERS]
        hint = "This is a bug of ours or of the environment; -v shows the stack trace."
    if output.json:
        fields = {"class": name, "message": message, "hint": hint, "runbook": runbook}
        output.failure({**fields, "details": details, "exit_code": code})
    else:
        for line in _bounded(message, hint, runbook):
            output.note(line)
    if output.verbose:
        output.note("".join(traceback.format_exception(error)).rstrip())
    return code


def _is_interruption(error: BaseException) -> bool:
    """Return whether the user interrupted the process, also if a library wrapped that in its own error."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, KeyboardInterrupt):
        at = at.__cause__ or at.__context__
    return at is not None


def usage(message: str, hint: str, output: Output) -> int:
    """Print a usage error and return its exit code, 2."""
    if output.json:
        output.failure({"class": "UsageError", "message": message, "hint": hint, "details": {}, "exit_code": 2})
    else:
        for line in _bounded(message, hint):
            output.note(line)
    return 2


def note_problem(message: str, hint: str, page: str, output: Output) -> None:
    """Print a problem that does not end the command, as `report` prints an error. page: name of its runbook page."""
    for line in _bounded(output.as_typed(message), output.as_typed(hint), address(page)):
        output.note(line)


def _bounded(message: str, hint: str, runbook: str | None = None) -> list[str]:
    """Return the lines of an error. The last one is the command to type."""
    lines = [line if len(line) <= _CHARACTERS else line[: _CHARACTERS - 1] + "…" for line in message.splitlines()]
    if len(lines) > _LINES:
        lines = [*lines[: _LINES - 1], f"… and {len(lines) - _LINES + 1} more lines (--json has all)"]
    shown = [f"Error: {lines[0]}" if lines else "Error", *lines[1:]]
    return [*shown, *([f"Runbook: {runbook}"] if runbook else []), *([_sentence(hint)] if hint else [])]


def _sentence(hint: str) -> str:
    """Return a hint as a sentence. A hint that begins with a command keeps its lower-case letter."""
    line = " ".join(hint.split())
    return line if line.startswith("milepost ") else line[:1].upper() + line[1:]
