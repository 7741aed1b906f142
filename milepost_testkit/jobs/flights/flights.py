"""The flights that the demo lands, for tests: the same module, loaded by its path."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from milepost_testkit.processes.processes import REPOSITORY

PATH = REPOSITORY / "config" / "demo" / "land_flights.py"


def _load() -> ModuleType:
    name = "land_flights"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, PATH)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


_demo = _load()
land = _demo.land
facts = _demo.facts
day_key = _demo.day_key
day_body = _demo.day_body
DAYS = _demo.DAYS
EMPTY_KEY = _demo.EMPTY_KEY
OUT_OF_ORDER_KEY = _demo.OUT_OF_ORDER_KEY
