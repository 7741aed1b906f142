"""Print the rows for which the quality gate refused an epoch."""

from __future__ import annotations

from typing import Any

from milepost.cli.terminal.output import Output, printable
from milepost.epoch import observed


def show_veto(veto: dict[str, Any], output: Output) -> None:
    """Print each refusal with its observed value and failing rows. Text from data is escaped."""
    if "problem" in veto:
        output.paragraph(veto["problem"], "    ", "  ")
    for refusal in veto["refusals"]:
        facts = [f"{name} {observed(name, value)}" for name, value in refusal["observed"].items()]
        if refusal["observed_value"] is not None:
            facts.append(f"observed_value {printable(refusal['observed_value'])}")
        subject = f"{refusal['type']}({printable(refusal['column'] or '')})"
        output.paragraph(f"sink {refusal['sink']}: {subject}: {refusal['exception'] or ', '.join(facts)}", "    ", "  ")
        rows = refusal["rows"]
        if rows:
            columns = list(rows[0])
            output.table([printable(name) for name in columns], [[row[name] for name in columns] for row in rows])
    if veto.get("shortened"):
        output.text("  rows were left out: they would have been more than 64 kB")
