"""The layout of packages and floors, and the rules that import statements follow."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.floors import FLOORS
from milepost_testkit.repository.imports import FOLDER, HOUSES, PACKAGE, TESTKIT, Import, exports_of, folder_of

TOOLS = ("scripts", "tests", TESTKIT, "bench", "dags", "plugins")

ABOVE = {"scripts": {TESTKIT, "bench"}, TESTKIT: {"tests", "bench"}}
"""Tool -> the tools that import it, so that it may not import them."""

GROUND = {"codec", "errors"}
MODULES = {"api", "arrow", "errors", "exports", "extras", "__main__", ""}
"""Rooms that are a single module, which has no door."""

RULES = GROUND | {"protocol", "language", "operators", "jobspec"}
LOWER = RULES | {"storage", "state", "tables", "sources", "sinks", "quality", "spill"}
ALLOWED: dict[str, set[str]] = {
    "exports": set(),
    "arrow": set(),
    "errors": set(),
    "codec": {"errors"},
    "protocol": GROUND,
    "extras": GROUND | {"protocol"},
    "runbook": GROUND | {"protocol"},
    "language": GROUND | {"protocol"},
    "operators": GROUND | {"protocol", "language"},
    "jobspec": GROUND | {"protocol", "language", "operators"},
    "storage": GROUND | {"protocol", "extras"},
    "state": GROUND | {"protocol"},
    "databases": RULES,
    "tables": RULES | {"storage"},
    "sources": RULES | {"arrow", "databases", "tables", "storage"},
    "quality": RULES | {"extras"},
    "spill": GROUND | {"state", "storage"},
    "sinks": RULES | {"databases", "tables", "storage", "extras", "spill"},
    "epoch": LOWER,
    "openlineage": LOWER | {"epoch"},
    "jobmaster": LOWER | {"arrow", "epoch", "extras", "openlineage", "runbook"},
    "spark": LOWER | {"epoch", "extras"},
    "views": RULES | {"jobmaster", "epoch", "quality"},
    "acts": RULES | {"views", "jobmaster", "epoch"},
    "airflow": RULES | {"views", "acts", "jobmaster", "epoch", "openlineage", "extras", "runbook"},
    "cli": RULES | {"views", "acts", "jobmaster", "epoch", "extras", "testing", "runbook"},
    "testing": RULES | {"jobmaster", "epoch", "openlineage"},
    "api": RULES | {"jobmaster", "storage"},
    "__main__": {"cli"},
}
ALLOWED_INSIDE_FUNCTIONS: dict[str, set[str]] = {
    "acts": {"spark"},
    "airflow": {"spark", "storage"},
    "cli": {"spark"},
    "api": {"spark"},
}

IMPURE = {
    "asyncio", "concurrent", "ctypes", "fcntl", "http", "io", "logging", "multiprocessing", "os", "pathlib", "random",
    "secrets", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "urllib",
    "uuid",
}  # fmt: skip
"""Standard library modules that mean I/O, clock, randomness or logging: not for `protocol/`."""

HOMES: dict[str, tuple[set[str], set[str]]] = {
    "boto3": ({"storage"}, set()),
    "botocore": ({"storage", "tables"}, set()),
    "pyspark": ({"spark", "sources"}, set(ALLOWED) - {"protocol"}),
    "airflow": ({"airflow"}, set()),
    "great_expectations": (set(), {"quality"}),
    "deltalake": ({"tables", "sinks", "sources"}, set()),
    "opentelemetry": (set(), {"jobmaster", "airflow"}),
    "psycopg": ({"databases", "sinks", "sources"}, set()),
    "pyiceberg": ({"tables", "sinks", "sources"}, set()),
    "openlineage": ({"openlineage"}, set()),
    "confluent_kafka": (set(), {"sources"}),
    "dlt": (set(), {"sources"}),
    "fastavro": (set(), {"sources"}),
}
"""Heavy library -> (packages that may import it at module level, packages that may do so inside functions)."""


def room_folder(room: str) -> Path:
    """The folder of a key of `FLOORS`, which leaves out the product's own name."""
    return folder_of(room if room.split(".")[0] in HOUSES else f"{PACKAGE}.{room}")


def package_of(module: str) -> str:
    """`milepost.spark.task.level_task` -> `spark`; `milepost.sinks` -> `sinks`; `milepost` -> ``""``."""
    room = module.split(".")[1:2]
    return room[0] if room and room[0] in ALLOWED else ""


def package_of_file(file: Path) -> str:
    if not file.is_relative_to(REPOSITORY / FOLDER):
        return ""
    relative = file.relative_to(REPOSITORY / FOLDER).with_suffix("")
    if relative.name == "__init__":
        relative = relative.parent
    return package_of(".".join((PACKAGE, *relative.parts)))


def upward(imports: Iterable[Import]) -> list[Import]:
    """Imports of a package that is not below the importing one."""
    broken = []
    for imported in imports:
        if imported.root != PACKAGE:
            continue
        here, there = package_of_file(imported.file), package_of(imported.name)
        allowed = ALLOWED.get(here, set()) | {here, "", "exports"}
        if not imported.at_module_level:
            allowed |= ALLOWED_INSIDE_FUNCTIONS.get(here, set())
        if there not in allowed:
            broken.append(imported)
    return broken


def climbing(imports: Iterable[Import]) -> list[Import]:
    """Those of a room that is on the importing one's floor of their house, or above it."""
    broken = []
    for imported in imports:
        here, there = _place(imported.file), tuple(imported.name.split("."))
        if there[0] not in HOUSES or here[:1] != there[:1]:
            continue
        shared = next((n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), 0)
        floors = FLOORS.get(".".join(here[:shared]).removeprefix(f"{PACKAGE}.")) if shared else None
        if floors is not None and _floor(floors, there[shared]) >= _floor(floors, here[shared]):
            broken.append(imported)
    return broken


def around_the_facade(imports: Iterable[Import]) -> list[Import]:
    """Imports by which the CLI or Airflow would enter the job master by another door than its package's."""
    return [
        imported
        for imported in imports
        if package_of_file(imported.file) in ("acts", "airflow", "cli")
        and imported.name.startswith(f"{PACKAGE}.jobmaster")
        and imported.statement != f"{PACKAGE}.jobmaster"
    ]


def past_the_door(imports: Iterable[Import]) -> list[Import]:
    """Imports from another room that name a module, not the package that exports the name."""
    return [
        imported
        for imported in imports
        if imported.root == PACKAGE
        and package_of_file(imported.file) != package_of(imported.name)
        and package_of(imported.name) not in MODULES
        and imported.name not in {*exports_of(imported.statement).values(), *_door(imported.statement)}
    ]


def _door(package: str) -> set[str]:
    return {package} if exports_of(package) else set()


def below_the_surface(imports: Iterable[Import]) -> list[Import]:
    """Those by which code outside of the product would import what may change: all but `milepost.api`."""
    return [
        imported
        for imported in imports
        if imported.root == PACKAGE and imported.name not in (PACKAGE, f"{PACKAGE}.api")
    ]


def formatted(imports: Iterable[Import]) -> list[Import]:
    """Those by which the job master would know the format of a sink: it knows the contract, and who makes a sink."""
    return [
        imported
        for imported in imports
        if package_of_file(imported.file) == "jobmaster" and imported.name.startswith(f"{PACKAGE}.sinks.formats")
    ]


def _place(file: Path) -> tuple[str, ...]:
    for package, folder in HOUSES.items():
        if file.is_relative_to(REPOSITORY / folder):
            return (package, *file.relative_to(REPOSITORY / folder).with_suffix("").parts)
    return ("elsewhere", *file.with_suffix("").parts)


def _floor(floors: tuple[str, ...], name: str) -> int:
    return next((number for number, names in enumerate(floors) if name in names.split()), len(floors))


def circles(imports: Iterable[Import]) -> set[str]:
    """The modules that import each other in a loop, and those on a way from one loop to another.

    An import counts wherever it stands, also where it is not executed.
    """
    graph: dict[str, set[str]] = {}
    for imported in imports:
        graph.setdefault(".".join(_place(imported.file)), set()).add(imported.name)
    left = set(graph)
    while True:  # what imports none of the others is in no loop, nor what none of them imports
        wanted = {name for here in left for name in graph[here] - {here}}
        free = {here for here in left if not graph[here] & left - {here} or here not in wanted}
        if not free:
            return left
        left -= free


def impure(imports: Iterable[Import]) -> list[Import]:
    """Imports of the pure core that mean a library, I/O, a clock, randomness or logging, inside a function too."""
    return [
        imported
        for imported in imports
        if package_of_file(imported.file) in GROUND | {"protocol"}
        and imported.root != PACKAGE
        and (imported.root not in sys.stdlib_module_names or imported.root in IMPURE)
    ]


def homeless(imports: Iterable[Import]) -> list[Import]:
    """Those of a heavy library outside of its home."""
    broken = []
    for imported in imports:
        at_module_level, inside_functions = HOMES.get(imported.root, (None, None))
        if at_module_level is None or inside_functions is None:
            continue
        allowed = at_module_level if imported.at_module_level else at_module_level | inside_functions
        if package_of_file(imported.file) not in allowed:
            broken.append(imported)
    return broken


def around_the_task_sdk(imports: Iterable[Import]) -> list[Import]:
    """Those of Airflow that a task may not use: it has no metadata database, and these would be a way around that.

    The standard provider is made for tasks: its operators use that kit, as ours do, and the kit has no triggers of its
    own. The pages and the listeners are no tasks: Airflow's own server and scheduler run them. In an older Airflow the
    kit lacks some of what tasks need: `compat.py` takes it from where the kit itself does.
    """
    of_tasks = ("airflow.sdk.", "airflow.providers.standard.", "airflow.triggers.")
    airflow = REPOSITORY / FOLDER / "airflow"
    of_servers = (airflow / "page", airflow / "preload.py", airflow / "runs" / "notes.py", airflow / "compat.py")
    return [
        imported
        for imported in imports
        if imported.root == "airflow"
        and not f"{imported.name}.".startswith(of_tasks)
        and not any(imported.file.is_relative_to(place) for place in of_servers)
    ]


def thick(imports: Iterable[Import]) -> list[Import]:
    """Those of a file in `dags/` or `plugins/` that are more than what it hands to Airflow."""
    known = sys.stdlib_module_names | {"airflow"}
    return [i for i in imports if i.root not in known and not i.name.startswith(f"{PACKAGE}.airflow")]


def rising(imports: Iterable[Import]) -> list[Import]:
    """Those by which a tool imports one that imports it: see `ABOVE`."""
    return [
        imported
        for imported in imports
        if imported.root in ABOVE.get(imported.file.relative_to(REPOSITORY).parts[0], set())
    ]


def of_tools(imports: Iterable[Import]) -> list[Import]:
    return [imported for imported in imports if imported.root in TOOLS]
