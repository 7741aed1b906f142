"""Fetch jars that are pinned by name and SHA-256, with the Ivy in PySpark.

The repository is `MAVEN_MIRROR_URL`, or else the mirror of Central in `~/.m2/settings.xml`, or else Central.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import getproxies, urlopen
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from milepost.spark.driver.engines.java import find_java_home
from scripts.bootstrap import stop
from scripts.unreached import Unreached

CENTRAL = "https://repo1.maven.org/maven2"
VARIABLE = "MAVEN_MIRROR_URL"
MIRRORS_CENTRAL = {"central", "*", "external:*"}
TRIES = 3
PROBE_TIMEOUT_S = 20.0


class JarsNotFetched(Exception):
    """The repository answers, but some jars are missing or differ from the pinned ones. The message names them."""


@dataclass(frozen=True)
class Jar:
    """One pinned jar.

    Attributes:
        sha256: of the file, in hexadecimal. group, artifact, version: its name in a repository.
    """

    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    def description(self, repository: str) -> str:
        """Return the URL of the small file that describes it."""
        folder = f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}"
        return f"{repository}/{folder}/{self.artifact}-{self.version}.pom"

    def as_dependency(self) -> str:
        """Return its coordinates for Ivy: the jar alone, without dependencies or sources."""
        return (
            f"<dependency org={quoteattr(self.group)} name={quoteattr(self.artifact)} rev={quoteattr(self.version)} "
            f'transitive="false"><artifact name={quoteattr(self.artifact)} type="jar" ext="jar"/></dependency>'
        )


def pinned_jars(file: Path) -> list[Jar]:
    """Read the pins of a file: a line is a SHA-256 and `group:artifact:version`."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [Jar(digest, *name.split(":")) for digest, name in (line.split() for line in lines)]


def are_there(pins: Path, folder: Path) -> bool:
    """Return whether a folder has exactly the jars that a file pins."""
    return _stamp(folder).exists() and _stamp(folder).read_text(encoding="utf-8").strip() == _digest(pins)


def repository_url(environ: Mapping[str, str] = os.environ) -> str:
    """Return where jars come from, without a slash at the end."""
    settings = Path(environ.get("HOME", "/nowhere")) / ".m2" / "settings.xml"
    return (environ.get(VARIABLE) or (_mirror_of_central(settings) if settings.exists() else None) or CENTRAL).rstrip(
        "/"
    )


def _mirror_of_central(settings: Path) -> str | None:
    for mirror in ElementTree.parse(settings).iterfind("{*}mirrors/{*}mirror"):
        names = {name.strip() for name in mirror.findtext("{*}mirrorOf", "").split(",")}
        if names & MIRRORS_CENTRAL and "!central" not in names:
            return mirror.findtext("{*}url")
    return None


def why_unreachable(repository: str, jar: Jar) -> str | None:
    """Return why the repository does not answer; None: it does, with any status."""
    reason = ""
    for _ in range(TRIES):
        try:
            urlopen(jar.description(repository), timeout=PROBE_TIMEOUT_S).close()
            return None
        except HTTPError:
            return None
        except OSError as error:
            reason = str(error)
    return reason


def note_unreached(repository: str, pins: Path, unreached: Unreached) -> str | None:
    """Return and store why the repository of pinned jars does not answer; None: it does."""
    reason = why_unreachable(repository, pinned_jars(pins)[0])
    unreached.clear()
    if reason is not None:
        unreached.store(f"{repository}: {reason}")
    return reason


def fetch_jars(pins: Path, folder: Path, *, java: Path, ivy: Path, repository: str) -> None:
    """Fetch the jars that a file pins into `folder`, which appears once it is complete.

    Args:
        java: the program. ivy: the jar of Ivy.
    Raises:
        JarsNotFetched: with Ivy's output, or the digest that differs.
    """
    jars, work = pinned_jars(pins), folder.with_name(f"{folder.name}.part")
    for path in (folder, work):
        shutil.rmtree(path, ignore_errors=True)
    _run_ivy(jars, work, [str(java), *_proxies(repository), "-jar", str(ivy)], repository)
    for jar in jars:
        file = work / "jars" / jar.file_name
        digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else "nothing"
        if digest != jar.sha256:
            raise JarsNotFetched(
                f"{jar.file_name} from {repository}: expected SHA-256 {jar.sha256}, got {digest}. Nothing was stored."
            )
    _stamp(work / "jars").write_text(_digest(pins) + "\n", encoding="utf-8")
    (work / "jars").rename(folder)
    shutil.rmtree(work)


def fetch_or_stop(pins: Path, folder: Path, *, ivy: Path, repository: str, command: str) -> None:
    """Fetch jars with the installed Java. If they differ from the pins, print the error and end the process.

    Args:
        command: that continues when it is repeated.
    """
    try:
        fetch_jars(pins, folder, java=find_java_home() / "bin" / "java", ivy=ivy, repository=repository)
    except JarsNotFetched as error:
        stop(f"{error}\nAnother repository is named by {VARIABLE}; `{command}` continues.")


def _stamp(folder: Path) -> Path:
    return folder / ".pins"


def _digest(pins: Path) -> str:
    return hashlib.sha256(pins.read_bytes()).hexdigest()


def _run_ivy(jars: list[Jar], work: Path, ivy: list[str], repository: str) -> None:
    work.mkdir(parents=True)
    (work / "settings.xml").write_text(
        f'<ivysettings><settings defaultResolver="maven"/><caches defaultCacheDir={quoteattr(str(work / "cache"))}/>'
        f'<resolvers><ibiblio name="maven" m2compatible="true" root={quoteattr(repository + "/")}/></resolvers>'
        "</ivysettings>",
        encoding="utf-8",
    )
    (work / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="milepost" module="jars"/><dependencies>'
        f"{''.join(jar.as_dependency() for jar in jars)}</dependencies></ivy-module>",
        encoding="utf-8",
    )
    pattern = str(work / "jars" / "[artifact]-[revision].[ext]")
    command = [*ivy, "-warn", "-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml")]
    ran = subprocess.run(
        [*command, "-retrieve", pattern], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        raise JarsNotFetched(f"Ivy got no jars from {repository}:\n{ran.stdout}{ran.stderr}")


def _proxies(repository: str) -> list[str]:
    """Return Java's options for the proxy in the environment variables."""
    scheme = urlsplit(repository).scheme
    proxy = urlsplit(getproxies().get(scheme, ""))
    if proxy.hostname is None:
        return []
    return [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
