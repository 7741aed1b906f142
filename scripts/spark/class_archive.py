"""Create the archive of Spark's classes for this environment: the JVM of one small epoch writes it when it ends.

This takes 20 seconds once. Every cold epoch, Airflow task and test that starts Spark is then seconds faster. Nothing
depends on the archive: a failure prints the reason, leaves no files behind and is not an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from milepost.errors import CheckpointError
from milepost.spark.driver.engines.class_archive import archive_path
from milepost.spark.driver.engines.java import find_java

_SECONDS = 300
_JOB = "classes"


def main() -> None:
    """Create the archive unless it exists."""
    try:
        path = archive_path(find_java())
    except CheckpointError as error:
        return print(f"[env] no archive of Spark's classes: {error.message}", flush=True)
    if path.is_file():
        return None
    print("[env] archiving Spark's classes, so that it starts faster: 20 seconds, 160 MB", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=path.parent) as folder:
        made = Path(folder) / path.name
        problem = _run_epoch(Path(folder), made)
        if problem is not None:
            return print(f"[env] no archive of Spark's classes; it starts without one: {problem}", flush=True)
        made.replace(path)
    for old in path.parent.glob("spark-classes-*.jsa"):
        if old != path:
            old.unlink(missing_ok=True)
    return None


def _run_epoch(folder: Path, made: Path) -> str | None:
    """Run the first epoch of a new job in `folder` with a JVM that writes the archive. Returns the problem, or None."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MILEPOST_", "SPARK_"))}
    environ |= {"HOME": str(folder), "SPARK_SUBMIT_OPTS": f'-XX:ArchiveClassesAtExit="{made}" -Xlog:disable'}
    for arguments in (["init", _JOB], ["run", f"config/{_JOB}.yaml"]):
        try:
            # The JVM inherits the pipe: its output ends once the archive is written.
            done = subprocess.run(
                [sys.executable, "-m", "milepost", *arguments],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"an epoch took more than {_SECONDS} s"
        if done.returncode != 0:
            return f"an epoch ended with exit code {done.returncode}: {done.stdout.strip()[-300:]}"
    return None if made.is_file() else "Java wrote none"


if __name__ == "__main__":
    main()
