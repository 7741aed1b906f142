"""Where a job of these tests runs its epochs."""

from __future__ import annotations

from milepost_testkit.runners.planes import in_process, plane

__all__ = ["in_process", "plane"]
