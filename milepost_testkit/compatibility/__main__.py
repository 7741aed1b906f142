"""Write the fixture of this version: `python -m milepost_testkit.compatibility`. See docs/contributing/release.md."""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from milepost import __version__
from milepost_testkit.compatibility.archive import pack
from milepost_testkit.compatibility.making import make_fixture
from milepost_testkit.compatibility.stored_job import ARCHIVES


def main() -> None:
    archive = ARCHIVES / f"{datetime.now(UTC):%Y-%m-%d}-{__version__}.tar.xz"
    if archive.exists():
        sys.exit(f"{archive} exists: a fixture that was committed is never replaced. Delete it if it never was.")
    with tempfile.TemporaryDirectory(prefix="milepost-fixture-", dir="/tmp") as folder:
        make_fixture(Path(folder))
        pack(Path(folder), archive)
    print(f"wrote {archive} ({archive.stat().st_size:,} bytes); now: pytest tests/compatibility")


if __name__ == "__main__":
    main()
