"""The example jobs that come with the wheel."""

from __future__ import annotations

from milepost_testkit.processes.processes import REPOSITORY

EXAMPLES = REPOSITORY / "pipeline" / "milepost" / "cli" / "workspace" / "examples"
