"""Forked Python workers find the readers of all formats and all kinds of operators imported."""

from __future__ import annotations

import json

from milepost.operators.kinds import STATEFUL_KINDS
from milepost.sources.formats import FORMATS
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost_testkit.processes.processes import run_python

LOADED = """
import json, sys
from milepost.spark.worker import worker_daemon
before = sorted(sys.modules)
worker_daemon.preload()
print(json.dumps([before, sorted(sys.modules)]))
"""


def test_readers_and_operators_are_preloaded_and_no_library_is_imported_before() -> None:
    """Otherwise each new worker would import them again, and libraries would reserve memory for idle threads."""
    ran = run_python(LOADED)
    assert ran.returncode == 0, ran.stderr
    before, after = map(set, json.loads(ran.stdout))
    readers = {type(build(DeclaredColumns("rows", {}), {})).__module__ for build in FORMATS.values()}
    operators = {f"milepost.operators.{kind}.run" for kind in STATEFUL_KINDS}
    assert readers | operators < after
    assert not before & {"numpy", "pandas", "pyarrow", "pydantic", "pyspark"}
