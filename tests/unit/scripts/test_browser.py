"""A browser is found, or the run ends with the reason; a tour is judged by the numbers that it collected."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from scripts.browser import environment
from scripts.browser.visits import Report, Seen, Violation
from scripts.suite.rings import Part
from scripts.test_all import closing_line

SEEN = Seen("/milepost/jobs", "dark", 1280, 200, "Jobs", True, 0, (), (), ())


def test_the_chromium_that_is_named_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(environment.VARIABLE, str(tmp_path / "chrome"))
    assert environment.chromium() == tmp_path / "chrome"


def test_the_last_line_of_test_all_says_that_there_was_no_browser(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from scripts import kafka_jars, test_all
    from scripts.spark import spark_readers

    for place in (spark_readers, kafka_jars, environment):
        file = tmp_path / "new" / f"{place.__name__}.txt"
        monkeypatch.setattr(place, "UNREACHED", replace(place.UNREACHED, file=file))
    for name in ("VERSIONS", "FAB"):
        linked = getattr(test_all, name)
        unreached = replace(linked.unreached, file=tmp_path / f"{name}.txt")
        monkeypatch.setattr(test_all, name, replace(linked, unreached=unreached))
    monkeypatch.setattr(type(environment.BROWSER), "is_built", lambda self: True)
    monkeypatch.setattr(environment, "chromium", lambda: None)
    monkeypatch.setattr(environment, "_why_not_fetched", lambda: "Error: getaddrinfo")
    assert closing_line(Part(1, 1)) == (
        "test-all: all ran, older versions of PySpark and Airflow, Spark with Delta's and Iceberg's jars, a Kafka "
        "broker, Airflow's FAB auth manager and a browser at hand"
    )
    assert closing_line(Part(3, 8)).startswith("test-all: part 3 of 8 ran, older versions")
    environment.build_browser()
    assert closing_line(Part(1, 1)) == (
        "test-all: the pages in a browser DID NOT RUN, there is no Chromium: Error: getaddrinfo"
    )
    monkeypatch.setattr(environment, "chromium", lambda: tmp_path)
    environment.build_browser()
    assert environment.UNREACHED.reason() is None, "another attempt found one"


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"status": 503}, "status 503"),
        ({"overflow": 7}, "7 px wider than the window"),
        ({"dark": False}, "is light"),
        ({"complaints": ("console: no",)}, "console: no"),
        ({"violations": (Violation("color-contrast", "serious", ("h1", "p")),)}, "color-contrast (serious): h1"),
    ],
)
def test_whatever_is_wrong_with_a_page_is_a_problem_that_names_it(changed: dict[str, object], problem: str) -> None:
    assert SEEN.problems == []
    first, *more = replace(SEEN, **changed).problems  # type: ignore[arg-type]
    assert first == f"/milepost/jobs (dark, 1280): {problem}" and len(more) == ("violations" in changed)


def test_a_report_is_unchanged_by_its_delivery() -> None:
    report = Report("Airflow", (), (replace(SEEN, violations=(Violation("x", "minor", ("h1",)),)),), (SEEN,))
    assert Report.of(asdict(report)) == report
