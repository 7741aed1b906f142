"""The raw results of a mode: one file, one record per part, each with the time and the commit it was taken at."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.machine import commit, describe
from bench.reports.targets import Parts, Record


class MeasuredElsewhere(RuntimeError):
    """The file's parts were measured on another machine, so they cannot be compared with new ones."""


class Results:
    """The parts measured so far, in the order of the mode.

    Attributes: document: what the file holds; parts by name below `parts`.
    """

    def __init__(
        self, file: Path, mode: str, order: list[str], *, keep: bool, lacking: Mapping[str, str] | None = None
    ) -> None:
        """Begin anew, or with `keep` with what the file has of the parts in `order`; it is written by `measure` alone.

        Args: lacking: environments that are not there, and why.
        Raises: MeasuredElsewhere: what is to be kept was measured on another machine, or in another mode.
        """
        self._file, self._order = file, order
        self.document: dict[str, Any] = {
            "mode": mode,
            "machine": describe(),
            "unavailable": dict(lacking or {}),
            "parts": {},
        }
        if not keep or not file.exists():
            return
        earlier: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        now = self.document["machine"]
        differs = [
            f"{name} {earlier['machine'].get(name)}" for name in now if earlier["machine"].get(name) != now[name]
        ]
        differs += [] if earlier["mode"] == mode else [f"mode {earlier['mode']}"]
        if differs:
            raise MeasuredElsewhere(
                f"{file} was measured with {', '.join(differs)}, which is not so here. Nothing was changed. "
                "Move it away, or measure every part again, without --only and --resume."
            )
        self.document["parts"] = self._sorted(earlier["parts"])

    def has(self, name: str) -> bool:
        """Whether a part is there and did not fail."""
        return "failed" not in self.document["parts"].get(name, {"failed": ""})

    def measure(self, name: str, work: Callable[[], Record]) -> Record:
        """Do the work, store what it returns in the place of the part's earlier record, and return that, stamped."""
        taken, before, began = datetime.now(UTC).isoformat(timespec="seconds"), commit(), time.monotonic()
        found = work()
        after = commit()
        of = before if before == after else f"{before} to {after}"
        record = {"taken": taken, "commit": of, "took_s": round(time.monotonic() - began, 1), **found}
        self.document["parts"] = self._sorted(self.document["parts"] | {name: record})
        partial = self._file.with_name(f".{self._file.name}.partial")
        partial.write_text(json.dumps(self.document, indent=1) + "\n", encoding="utf-8")
        partial.replace(self._file)
        return record

    def _sorted(self, parts: Parts) -> Parts:
        return {name: parts[name] for name in self._order if name in parts}
