"""Jars for deep tests: from the repository that the user's settings name, exactly those that are pinned, or none."""

from __future__ import annotations

import hashlib
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyspark
import pytest

from bench.systems import far_store
from milepost.spark.driver.engines.java import find_java_home
from milepost_testkit import wording
from scripts.browser import environment
from scripts.spark import maven_jars, spark_readers
from scripts.spark.maven_jars import (
    CENTRAL,
    Jar,
    JarsNotFetched,
    are_there,
    fetch_jars,
    pinned_jars,
    repository_url,
    why_unreachable,
)
from scripts.suite.rings import Part
from scripts.test_all import closing_line

BODY = b"what a jar holds"
PINNED = Jar(hashlib.sha256(BODY).hexdigest(), "org.example.of", "small_2.13", "1.0")
SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>
  <mirror><id>a</id><mirrorOf>snapshots</mirrorOf><url>https://a.example/</url></mirror>
  <mirror><id>b</id><mirrorOf>{of}</mirrorOf><url>https://b.example/maven/</url></mirror>
</mirrors></settings>"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[str]:
    """The URL of a repository that has the pinned jar."""
    served = tmp_path / "served"
    folder = served / "org" / "example" / "of" / "small_2.13" / "1.0"
    folder.mkdir(parents=True)
    (folder / "small_2.13-1.0.jar").write_bytes(BODY)
    (folder / "small_2.13-1.0.pom").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>org.example.of</groupId><artifactId>small_2.13</artifactId><version>1.0</version></project>"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=served)) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def pins_of(jar: Jar, folder: Path) -> Path:
    """A file next to the folder that pins the jar alone."""
    file = folder.with_suffix(".txt")
    file.write_text(f"{jar.sha256} {jar.group}:{jar.artifact}:{jar.version}\n")
    return file


def fetch(jar: Jar, folder: Path, repository: str) -> None:
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    fetch_jars(pins_of(jar, folder), folder, java=find_java_home() / "bin" / "java", ivy=ivy, repository=repository)


@pytest.mark.deep
def test_the_pinned_jar_is_fetched_and_nothing_else(tmp_path: Path, repository: str) -> None:
    fetch(PINNED, tmp_path / "jars", repository)
    assert [(file.name, file.read_bytes()) for file in (tmp_path / "jars").glob("[!.]*")] == [(PINNED.file_name, BODY)]
    assert are_there(pins_of(PINNED, tmp_path / "jars"), tmp_path / "jars")
    assert not are_there(pins_of(replace(PINNED, version="2.0"), tmp_path / "jars"), tmp_path / "jars")
    assert not (tmp_path / "jars.part").exists()


@pytest.mark.deep
def test_a_jar_of_another_digest_is_refused_and_not_kept(tmp_path: Path, repository: str) -> None:
    with pytest.raises(JarsNotFetched, match="expected SHA-256 0{64}, got " + PINNED.sha256):
        fetch(replace(PINNED, sha256="0" * 64), tmp_path / "jars", repository)
    assert not (tmp_path / "jars").exists()


@pytest.mark.deep
def test_a_repository_that_answers_and_lacks_the_jar_is_reached(tmp_path: Path, repository: str) -> None:
    """It is a failure then, not a machine without Maven Central."""
    absent = replace(PINNED, version="2.0")
    assert why_unreachable(repository, absent) is None
    with wording.raises(JarsNotFetched):
        fetch(absent, tmp_path / "jars", repository)


def test_an_unresponsive_repository_is_reported_with_the_reason() -> None:
    with socket.socket() as bound:  # not listening: whoever connects is refused
        bound.bind(("127.0.0.1", 0))
        assert "refused" in str(why_unreachable(f"http://127.0.0.1:{bound.getsockname()[1]}", PINNED))


@pytest.mark.parametrize(
    ("mirror_of", "expected"),
    [
        ("central", "https://b.example/maven"),
        ("*", "https://b.example/maven"),
        ("external:*,!snapshots", "https://b.example/maven"),
        ("*,!central", CENTRAL),
        ("other", CENTRAL),
    ],
)
def test_the_users_mirror_of_central_is_followed(tmp_path: Path, mirror_of: str, expected: str) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(SETTINGS.format(of=mirror_of))
    home = {"HOME": str(tmp_path)}
    assert repository_url(home) == expected
    assert repository_url(home | {"MAVEN_MIRROR_URL": "https://c.example/"}) == "https://c.example"


def test_it_is_central_where_nothing_is_set(tmp_path: Path) -> None:
    assert repository_url({"HOME": str(tmp_path)}) == CENTRAL


@pytest.mark.parametrize(
    ("pins", "groups"),
    [
        (spark_readers.PINS, {"io.delta", "org.apache.iceberg", "org.xerial"}),
        (far_store.PINS, {"org.apache.hadoop", "software.amazon.awssdk", "software.amazon.s3.analyticsaccelerator"}),
    ],
)
def test_every_pin_is_a_digest_and_a_name(pins: Path, groups: set[str]) -> None:
    jars = pinned_jars(pins)
    assert all(len(jar.sha256) == 64 and jar.version for jar in jars)
    assert {jar.group for jar in jars} == groups


def test_the_last_line_of_test_all_says_that_spark_did_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "new" / "unreached.txt"
    monkeypatch.setattr(spark_readers, "UNREACHED", replace(spark_readers.UNREACHED, file=note))
    monkeypatch.setattr(spark_readers, "JARS", tmp_path / "jars")
    monkeypatch.setattr(maven_jars, "why_unreachable", lambda *_: "no route to host")
    monkeypatch.setattr(environment, "UNREACHED", replace(environment.UNREACHED, file=tmp_path / "none.txt"))
    assert closing_line(Part(1, 1)).startswith("test-all: all ran")
    spark_readers.build_readers()
    assert closing_line(Part(1, 1)) == (
        "test-all: Spark with Delta's and Iceberg's jars DID NOT RUN, Maven Central was not reached: "
        f"{repository_url()}: no route to host"
    )
    shutil.rmtree(note.parent)
