"""The generated pages: their paths, and the functions that return their text."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from milepost.cli.main import app
from milepost.errors import Action, CheckpointError
from milepost.jobspec.graph.event_time import EVENT_TIME_RULES
from milepost.jobspec.load.lint import lint_report
from milepost.jobspec.load.load import load_job
from milepost.jobspec.picture.drawing import graph_picture
from milepost.language.docstrings import parse_docstring
from milepost.protocol.records.reasons import RESERVED_REASONS, CheckpointFailureReason
from milepost.runbook.addresses import VARIABLE, name_of
from milepost.runbook.pages import page_files, read_page
from scripts.processes import ROOT
from scripts.reference.api_page import api_page, first_paragraph, subclasses
from scripts.reference.dashboard import dashboard
from scripts.reference.markdown import note, plain, table
from scripts.reference.metrics_page import metrics_page
from scripts.reference.protocol_page import protocol_page
from scripts.reference.source_pages import process_page, stored_page
from scripts.reference.spec_page import spec_page
from scripts.reference.sql_page import sql_page

DECISIONS = "docs/explanation/decisions"
RUNBOOK = "../../pipeline/milepost/runbook"
"""From a page in a folder of `docs/`."""

_COMMON_OPTIONS = re.compile(r"^\* `(?:--json|-v, --verbose|--help)`: .*\n", re.MULTILINE)
_COMMANDS = re.compile(r"\*\*Commands\*\*:\n\n(?:\* .*\n)+\n?")
_NO_OPTIONS = re.compile(r"\*\*Options\*\*:\n\n(?=#|\Z)")


def cli_page() -> str:
    """Return Typer's description of every command. Options that all commands accept are listed once."""
    words = [sys.executable, "-m", "typer", "milepost.cli.main", "utils", "docs", "--name", "milepost"]
    made = plain(subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    root, commands = _COMMANDS.sub("", made).split("\n## ", 1)
    _, _, root = root.partition("\n")
    commands = _NO_OPTIONS.sub("", _COMMON_OPTIONS.sub("", f"## {commands}"))
    every = "Every command also accepts `--json`, `-v` and `--help`, which are not repeated below."
    return (
        f"# Command line\n\n{note('the commands of `milepost.cli`')}\n{root.strip()}\n\n{every}\n\n{commands.strip()}\n"
    )


def exit_codes() -> dict[int, str]:
    """Return each exit code and what it means, as `milepost --help` ends."""
    _, _, listed = str(app.info.epilog).partition(": ")
    return {int(code): text for code, text in re.findall(r"(\d+) ([^,.]+)", listed)}


def errors_page() -> str:
    """Return every class of error: its exit code, action and meaning."""
    kinds = subclasses("milepost.errors", CheckpointError)
    by_code = {code: [kind.__name__ for kind in kinds if kind.exit_code == code] for code in exit_codes()}
    _, actions = parse_docstring(Action.__doc__ or "")
    codes = [(code, text, ", ".join(f"`{name}`" for name in by_code[code])) for code, text in exit_codes().items()]
    classes = [
        (
            _page_link(kind),
            kind.exit_code,
            kind.action.value,
            first_paragraph(kind),
        )
        for kind in kinds
        if kind is not CheckpointError
    ]
    return "\n".join([
        "# Errors and exit codes\n",
        note("`milepost.errors`"),
        "Every error that Milepost raises on purpose is a `CheckpointError` with a message, a `hint` and `details`.",
        "The command line prints message and hint, and with `--json` all fields: `class`, `message`, `hint`,",
        "`runbook`, `details`, `exit_code`. Any other error is a bug or comes from a library: exit code 1. Each class",
        "has a page in the [runbook](../runbook/index.md), which messages name.\n",
        "## Exit codes\n",
        table(("code", "meaning", "errors"), codes),
        "\n## What to do\n",
        table(("action", "meaning"), [(action.value, actions[action.name]) for action in Action]),
        "\nUnder Airflow, an error that asks for a retry uses the task's retries, one that asks for a skip skips",
        "the task, and every other error fails the task immediately.\n",
        "## Classes\n",
        table(("error", "exit", "action", "meaning"), classes),
        "",
    ])  # fmt: skip


def _page_link(kind: type[CheckpointError]) -> str:
    return f"[`{kind.__name__}`]({RUNBOOK}/errors/{name_of(kind)}.md)"


def runbook_index() -> str:
    """Return the list of the runbook's pages: errors by exit code, states by name."""
    files = page_files()

    def listed(folder: str) -> list[str]:
        names = [name for name, file in files.items() if file.parent.name == folder]
        return [f"* [{read_page(name).title}]({RUNBOOK}/{folder}/{name}.md) `{name}`" for name in names]

    return "\n".join([
        "# Runbook\n",
        note("the files in `milepost.runbook`"),
        "A page for each type of error and each state of a job: what it means, what is true now, what to do, how to",
        "see that it is resolved. Names are stable. Each error names its page, and so does `status` of an unhealthy",
        "job. `milepost runbook NAME` prints it. Airflow's server has it at `/milepost/runbook/NAME`, and task logs",
        f"link to it. If your team serves these pages itself, set `{VARIABLE}` to the URL of the folder of",
        "`NAME.html`, where commands and tasks run. Messages then use that URL.\n",
        "In an incident, start with [Handle an incident](../how-to/incident.md).",
        "[Alerts of Prometheus](../reference/alerts.yaml) link here.\n",
        "## States of a job\n",
        *listed("states"),
        "\n## Errors\n",
        *listed("errors"),
        "",
    ])  # fmt: skip


def reasons_page() -> str:
    """Return every abort reason: its meaning, whether it counts, and what to do."""
    given = [reason for reason in CheckpointFailureReason if reason not in RESERVED_REASONS]
    rows = [(f"`{one.value}`", one.meaning, "yes" if one.counted else "", one.remedy) for one in given]
    return "\n".join([
        "# Abort reasons\n",
        note("`milepost.protocol.records.reasons`"),
        "Why a checkpoint was refused, declined or aborted, as `list`, `show` and `history` show it. The first ones",
        "have Flink's names. A reason that *counts* means that the epoch itself failed. More of them in a row than",
        "`checkpointing.tolerable_failures` make the job FAILED, until `milepost resume`.\n",
        table(("reason", "meaning", "counts", "what to do"), rows),
        "\n## Never given\n",
        "Reserved, so that Flink's list is complete:\n",
        table(("reason", "what is different here"), [(f"`{one.value}`", why) for one, why in RESERVED_REASONS.items()]),
        "",
    ])  # fmt: skip


def event_time_page() -> str:
    """Return the event time of rows, the holdback and the late rows of each kind."""
    rows = [(f"`{kind}`", rule.event_time, rule.holds_back, rule.late) for kind, rule in EVENT_TIME_RULES.items()]
    return "\n".join([
        "# Event time\n",
        note("`milepost.jobspec.graph.event_time`"),
        "A source's watermark is the newest event time read, minus `watermark_delay`. An operator's watermark is",
        "the least of its inputs'. For a source that is the source's watermark. For an operator it is how far that",
        "has fired, minus what it holds back. Inputs without event time have no effect.\n",
        "A row gets its watermark when it is read: the least watermark of all inputs of its operator at the start",
        "of the epoch. It decides permanently whether the row is late, in whatever epoch the row is processed. The",
        "watermark of a row that an operator emits is how far the operator had fired before it, minus what it holds",
        "back. So what a window emits is never late for a downstream window.\n",
        table(("kind", "event time of its rows", "holds back", "late"), rows),
        "",
    ])  # fmt: skip


def decisions_page() -> str:
    """Return the table of decision records, in order of their numbers."""
    rows = []
    for file in sorted((ROOT / DECISIONS).glob("[0-9]*.md")):
        heading, _, status = file.read_text(encoding="utf-8").split("\n", 3)[:3]
        number, _, title = heading.removeprefix("# ").partition(". ")
        rows.append((number, f"[{title}]({file.name})", status.removeprefix("Status: ")))
    return "\n".join([
        "# Decisions\n",
        note("the records in this folder"),
        "Each record states the context, the decision, its consequences, and what would reverse it. The records of",
        "November 2026 summarise dated notes, which have all options and measurements. Commit `c0cd8e08` deleted the",
        "notes; `git ls-tree -r c0cd8e08~1 docs/explanation/decisions` lists them.\n",
        table(("number", "decision", "status"), rows),
        "\n## Decisions of the protocol\n",
        "Smaller decisions about the rules of `milepost.protocol`, by subject:\n",
        *(f"* [{_title(file)}]({file.name})" for file in sorted((ROOT / DECISIONS).glob("protocol-*.md"))),
        "",
    ])  # fmt: skip


def _title(file: Path) -> str:
    return file.read_text(encoding="utf-8").partition("\n")[0].rpartition(": ")[2]


def graph_svg() -> str:
    """Return the picture of an example's graph."""
    return graph_picture(
        lint_report(load_job(ROOT / "pipeline" / "milepost" / "cli" / "workspace" / "examples" / "join.yaml"))
    )


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/spec.md": spec_page,
    "docs/reference/sql-jobs.md": sql_page,
    "docs/reference/cli.md": cli_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/event-time.md": event_time_page,
    "docs/reference/graph.svg": graph_svg,
    "docs/reference/abort-reasons.md": reasons_page,
    "docs/runbook/index.md": runbook_index,
    "docs/reference/api.md": api_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/grafana.json": dashboard,
    "docs/reference/process.md": process_page,
    "docs/reference/stored.md": stored_page,
    "docs/reference/protocol-tables.md": protocol_page,
    f"{DECISIONS}/index.md": decisions_page,
}
"""Path of a page below the root of the repository -> the function that returns it."""
