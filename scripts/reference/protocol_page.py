"""The tables of the protocol: modules, statuses, leases, reasons and barriers, from the code that executes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from milepost.protocol.manifest.transaction.lease import SWEEP_REASONS, LeaseStatus
from milepost.protocol.manifest.transaction.transitions import CHECKPOINT_RULES, JOB_RULES, Rule, Status
from milepost.protocol.records.reasons import FLINK_COUNTED_REASONS, CheckpointFailureReason
from milepost.protocol.subtask.barrier_states import ALIGNMENT_RULES, AlignmentState
from scripts.processes import ROOT
from scripts.reference.docstrings import module_docstring
from scripts.reference.markdown import note, table

PROTOCOL = ROOT / "pipeline" / "milepost" / "protocol"


def protocol_page() -> str:
    """Return the page of all tables."""
    return "\n".join([
        "# Protocol tables\n",
        note("`milepost.protocol`"),
        "[The protocol](../../pipeline/milepost/protocol/PROTOCOL.md) explains these tables.\n",
        "## Status of a job\n",
        _statuses(JOB_RULES),
        "\n## Status of a checkpoint\n",
        "ABORTED and SUBSUMED are final.\n",
        _statuses(CHECKPOINT_RULES),
        "\n## Lease of a pending checkpoint\n",
        "Checked in this order: holder dead, heartbeat lost (begun, and 60 s old), deadline past, taken over.\n",
        _leases(),
        "\n## Barriers of a subtask\n",
        "Rules are tried from the top; the first whose condition holds applies. *Block* excludes an unaligned barrier,",
        "*start recording* applies to every open channel that is not blocked, and *reset* forgets announcements.",
        "A rule without a next state stays in its state.\n",
        _alignments(),
        "\n## Reasons\n",
        "The first 24 have Flink's names. *Counted* reasons add up to FAILED. [Abort reasons](abort-reasons.md)",
        "says what to do about each.\n",
        _reasons(),
        "\n## Modules\n",
        table(("folder", "module", "purpose"), _modules()),
        "",
    ])  # fmt: skip


def _name(status: Enum | None) -> str:
    return "(none)" if status is None else str(status.value)


def _statuses(rules: Sequence[Rule[Status]]) -> str:
    rows = [(_name(rule.before), rule.event.__name__, rule.when, _name(rule.after)) for rule in rules]
    return table(("status", "event", "when", "next status"), rows)


def _leases() -> str:
    rows = []
    for status in LeaseStatus:
        held = status is LeaseStatus.HELD
        rows.append((status.value, "Busy" if held else f"adopt if finished, else abort {SWEEP_REASONS[status].value}"))
    return table(("lease", "a newcomer's sweep"), rows)


def _alignments() -> str:
    """Return the rules by state, in the order in which they are tried."""
    rows = []
    for rule in sorted(ALIGNMENT_RULES, key=lambda rule: list(AlignmentState).index(rule.state)):
        steps = ", ".join(step.value for step in rule.steps) if rule.after is not None else "refused"
        after = "" if rule.after in (None, rule.state) else rule.after.value
        rows.append((rule.state.value, rule.event.value, rule.when.value, steps, after))
    return table(("state", "event", "if", "does", "next"), rows)


def _reasons() -> str:
    return table(
        ("reason", "counted", "meaning"),
        [(reason.value, _counted(reason), reason.meaning) for reason in CheckpointFailureReason],
    )


def _counted(reason: CheckpointFailureReason) -> str:
    return "yes (Flink)" if reason in FLINK_COUNTED_REASONS else "yes" if reason.counted else "no"


def _modules() -> Iterator[tuple[str, str, str]]:
    """Yield folder, name and the first paragraph of each module of the protocol."""
    for file in sorted(PROTOCOL.rglob("*.py")):
        if file.name != "__init__.py":
            purpose = module_docstring(file).partition("\n\n")[0].replace("\n", " ")
            folder = file.parent.relative_to(PROTOCOL).as_posix()
            yield f"`{folder}`", f"`{file.stem}`", purpose
