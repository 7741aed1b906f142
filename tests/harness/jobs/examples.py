"""The example jobs that come with the wheel."""

from __future__ import annotations

from tests.harness.servers.processes.processes import REPOSITORY

EXAMPLES = REPOSITORY / "pipeline" / "milepost" / "cli" / "workspace" / "examples"
