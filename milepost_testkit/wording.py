"""Golden wording: tests compare the product's texts with `tests/wording`.

There is one file per error class (`InvalidRequest.txt`) and one per command (`rollback.txt`). An entry is a text below
the tests that produce it. `pytest --update-wording` (`make wording`) rewrites the entries of the tests that ran and
deletes entries without a test. Any other run fails on a text that differs, and on an entry that its test did not use.

    with wording.raises(InvalidRequest) as refused:      # the type, then message and hint against the golden entry
        load(spec)
    assert refused.value.details == {"column": "city"}   # fields stay in the test
    wording.matches("rollback", output)                  # the output of a command
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

FOLDER = "tests/wording"
HEADER = "# Rewritten by `make wording`: review the diff.\n"
INDENT = "    "
NUMBER = " # "
"""Precedes the number or name of an entry where a test has several in one file."""

PLACEHOLDERS = (
    (
        r"(?:\{tmp\})?(?:/[\w.-]+)*/(?:pytest-of-[^/\s]+/pytest-\d+/(?:popen-gw\d+/)?[\w.-]+|(?:milepost-(?:\w+-)?|tmp)[a-z0-9_]{8}\b)",
        "{tmp}",
    ),
    (r"\b(127\.0\.0\.1|localhost|\[::1\]):\d+", r"\1:{port}"),
    (r"\b(port )\d{4,5}\b", r"\1{port}"),
    (r"\(pid \d+\)", "(pid {pid})"),
    (r"\bits version \d{15,}", "its version {id}"),
    (r"\b0x[0-9a-f]{6,}", "{address}"),
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "{uuid}"),
    (r"\bcli:tester/\{uuid\}", "cli:{uuid}"),
    (r"(\{uuid\}) on [\w.-]+", r"\1 on {host}"),
    (r"\b(milepost-|T |m)[0-9a-f]{12,}\b", r"\1{hex}"),  # buckets, tables and databases of the tests' servers
    (r"(?=[0-9]*[a-f])[0-9a-f]{12,}|[0-9a-f]{32,}|(?<!\d)\d{12}(?!\d)", "{hex}"),  # an id may have no letter
    (r"\b\d+-\d{19}\b", "{version}"),
    (r"\bin \d+(?:\.\d+)?(ms|s|µs)\b", r"in {time}\1"),
    (r"\bin \d+\.\d+ s\b", "in {time} s"),
    (r"\bsince (checkpoint \d+, )?(?:[\d -]*\d\d:\d\d|\{time\})\s+UTC\s+\([^)]+\)", r"since \1{clock} ({age})"),
    (r"\bfresh(\s+)[\d,.]+ (?:d|h|min|s|ms)\b[^()]*\([^)]*\)", r"fresh\1{age}"),
    (r"\bfor another \d+ (s|ms)\b", r"for another {time} \1"),
    (r"\bRun again in at most \d+ s\b", "Run again in at most {time} s"),
    (r"\bon [\w.-]+ \(pid \{pid\}\)", "on {host} (pid {pid})"),
    (r"\bexpected \d{4,} bytes, got", "expected {size} bytes, got"),
    (r"https://errors\.pydantic\.dev/\S+", "{url}"),
    (r"(\.yaml:1:)\d{3,}\b", r"\1{column}"),  # of a spec that a test writes in one line: paths precede it
)
TIMES = {r"\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)": "{time}"}
"""For `replace`, where a test derives times from the clock's that are hours or days away from it."""
SHORT_TIMES = {r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ?": "{time}"}
"""As `TIMES`, as the output of a command has them."""
SIZES = {r"\b[\d,]+ bytes\b": "{size} bytes"}
"""For `replace`, where a text has the sizes of stored objects: they depend on paths and on versions of libraries."""
SHORT_SIZES = {r"\b\d[\d.]* [kMG]?B\b": "{size}"}
"""As `SIZES`, where the output of a command rounds them."""
CLOCK_TIMES = {r"(?<![\d:])(?:\d{4}-\d\d-\d\d )?\d\d:\d\d(?![\d:])": "{time}"}
"""For `replace`, where a text has hours and minutes of the clock, with the day unless it is today."""
LAG = {r"\blag( +)\d+ min": r"lag\1{time} min"}
"""For `replace`, where the output of `status` has the age of a job that a fixture made."""
FIRST_DECLINE = {r"\bsubtask \d+/\d+ declined": "subtask {subtask} declined", r" \(also subtask .*\)(?=\. Nothing)": ""}
"""For `replace`, where several subtasks decline: which one is the first depends on how they run."""
TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z\b|\+00:00)?")
RUN_TIME = timedelta(hours=2)
"""A time this close to now is the clock's, not the test's."""

Entries = dict[str, str]
E = TypeVar("E", bound=BaseException)


@contextmanager
def raises(
    *kinds: type[E], name: str = "", replace: Mapping[str, str] | None = None
) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error of one of the kinds, whose message and hint are the golden entry of its class."""
    __tracebackhide__ = True
    with pytest.raises(kinds) as caught:
        yield caught
    describes(caught.value, name=name, replace=replace)


def describes(error: BaseException, *, name: str = "", replace: Mapping[str, str] | None = None) -> None:
    """Compare the message and hint of an error that the test has caught with the golden entry of its class."""
    __tracebackhide__ = True
    hint = getattr(error, "hint", "")
    matches(type(error).__name__, f"{error}\nhint: {hint}" if hint else str(error), name=name, replace=replace)


def matches(file: str, text: str | Iterable[str], *, name: str = "", replace: Mapping[str, str] | None = None) -> None:
    """Compare a text, or texts by line, with this test's golden entry in a file of wording.

    Args:
        name: of the entry, where a test has several and their order is not fixed; otherwise they are numbered.
        replace: regular expressions of what differs between runs, with placeholders, besides `PLACEHOLDERS`.
    """
    __tracebackhide__ = True
    if _PLUGIN is None or not _PLUGIN.test:
        raise RuntimeError("wording is compared within a test only")
    text = text if isinstance(text, str) else "\n".join(text)
    _PLUGIN.compare(file, stable(text, replace or {}), name)


def paragraphs(output: str, *mentions: str) -> list[str]:
    """Return the paragraphs of an output with any of the mentions, each on one line, without columns and breaks."""
    found = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", output))
    return [paragraph for paragraph in found if any(mention in paragraph for mention in mentions)]


def stable(text: str, replace: Mapping[str, str]) -> str:
    """Return a text with placeholders for what differs between runs, and no spaces at the ends of lines."""
    basetemp = ((_PLUGIN.basetemp, "{tmp}"),) if _PLUGIN and _PLUGIN.basetemp else ()
    for pattern, placeholder in (*replace.items(), *basetemp, *PLACEHOLDERS):
        text = re.sub(pattern, placeholder, text)
    text = TIME.sub(_clock, text.replace(str(_PLUGIN.folder.parent.parent), "{repo}") if _PLUGIN else text)
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n")).rstrip()


def _clock(match: re.Match[str]) -> str:
    try:
        moment = datetime.fromisoformat(match[0])
    except ValueError:
        return match[0]
    return "{time}" if abs(moment.replace(tzinfo=UTC) - datetime.now(UTC)) < RUN_TIME else match[0]


def test_of(key: str) -> str:
    """Return the test that an entry belongs to."""
    return key.partition(NUMBER)[0]


def parse(content: str) -> Entries:
    """Return the entries of a file: each test's text."""
    entries: Entries = {}
    keys: list[str] = []
    lines: list[str] = []
    for line in [*content.split("\n"), "end"]:
        if not line or line.startswith(INDENT):
            lines.append(line.removeprefix(INDENT))
        elif not line.startswith("# "):
            if keys and lines:
                entries.update(dict.fromkeys(keys, "\n".join(lines).rstrip()))
                keys = []
            keys, lines = [*keys, line], []
    return entries


def render(entries: Entries) -> str:
    """Return a file of entries: each text once, below the tests that produce it."""
    tests: dict[str, list[str]] = {}
    for key, text in sorted(entries.items()):
        tests.setdefault(text, []).append(key)
    blocks = (
        "\n".join([*keys, *(INDENT + line if line else "" for line in text.split("\n"))])
        for text, keys in tests.items()
    )
    return HEADER + "".join(f"\n{block}\n" for block in blocks)


class Plugin:
    """Compares texts in the process that runs a test; updates and reports in the process that reports the run."""

    def __init__(self, config: pytest.Config) -> None:
        self.folder = config.rootpath / FOLDER
        self.config = config
        base = config.getoption("basetemp", None)
        self.basetemp = rf"{re.escape(str(Path(base).resolve()))}/[\w.-]+" if base else ""
        self.update: bool = config.getoption("update_wording")
        self.files: dict[str, Entries] = {}
        self.test = ""
        self.draws = False
        self.compared: list[tuple[str, str, str]] = []
        self.unused: set[str] = set()
        self.used: dict[str, set[tuple[str, str]]] = {}
        self.passed: set[str] = set()
        self.changed: dict[str, Entries] = {}

    def golden(self, file: str) -> Entries:
        """Return a file's entries, which each process reads once."""
        if file not in self.files:
            path = self.folder / f"{file}.txt"
            self.files[file] = parse(path.read_text(encoding="utf-8")) if path.exists() else {}
        return self.files[file]

    def compare(self, file: str, text: str, name: str) -> None:
        __tracebackhide__ = True
        if self.draws:
            raise RuntimeError("the examples of a property test have no golden wording: use pytest.raises")
        number = 1 + sum(file == other for other, _, _ in self.compared)
        key = self.test + (f"{NUMBER}{name or number}" if name or number > 1 else "")
        golden = self.golden(file).get(key)
        self.compared.append((file, key, text))
        if text == golden or self.update:
            return
        diff = [f"+ {line}" for line in text.split("\n")]
        if golden is not None:
            lines = difflib.unified_diff(golden.split("\n"), text.split("\n"), n=1, lineterm="")
            diff = [f"{line[0]} {line[1:]}" for line in list(lines)[2:] if not line.startswith("@@")]
        accept = f'make wording ARGS="tests/{test_of(key).partition("::")[0]}"'
        raise pytest.fail.Exception(
            "\n".join([f"{FOLDER}/{file}.txt: {key}", *diff, f"Accept the wording: {accept}"]), pytrace=False
        ) from None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.test, self.compared = item.nodeid.removeprefix("tests/"), []
        self.draws = bool(item.get_closest_marker("hypothesis"))
        result = yield
        self.test = ""
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if report.when == "teardown":
            report.wording = self.compared  # travels to the process that reports
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid.removeprefix("tests/")
        if report.when == "call" and report.passed:
            self.passed.add(test)
        for file, key, text in getattr(report, "wording", ()):
            self.used.setdefault(test, set()).add((file, key))
            self.changed.setdefault(file, {})[key] = text

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Find the entries of tests that do not exist, among the files that were collected whole."""
        if any("::" in str(argument) for argument in self.config.args) or self.config.getoption("lf", False):
            return
        collected = {item.nodeid.removeprefix("tests/") for item in items}
        whole = {test.partition("::")[0] for test in collected}
        for _, key in self.every_key():
            file = key.partition("::")[0]
            if test_of(key) not in collected and (file in whole or not (self.folder.parent / file).exists()):
                self.unused.add(key)

    def every_key(self) -> Iterator[tuple[str, str]]:
        for path in sorted(self.folder.glob("*.txt")):
            for key in self.golden(path.stem):
                yield path.stem, key

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.unused.update(getattr(node, "workeroutput", {}).get("unused_wording", ()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["unused_wording"] = sorted(self.unused)
            return
        unused = {
            (file, key)
            for file, key in self.every_key()
            if key in self.unused
            or (test_of(key) in self.passed and (file, key) not in self.used.get(test_of(key), ()))
        }
        self.unused = {f"{FOLDER}/{file}.txt: {key}" for file, key in unused}
        if not self.update:
            session.exitstatus = session.exitstatus or (pytest.ExitCode.TESTS_FAILED if unused else 0)
            return
        self.files.clear()  # another run may have rewritten them
        for file in {*self.changed, *(file for file, _ in unused)}:
            entries = self.golden(file) | self.changed.get(file, {})
            self.write(file, {key: text for key, text in entries.items() if (file, key) not in unused})

    def write(self, file: str, entries: Entries) -> None:
        path = self.folder / f"{file}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        if entries:
            path.write_text(render(entries), encoding="utf-8")
        else:
            path.unlink(missing_ok=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.unused:
            terminalreporter.section("wording that no test uses" + (", deleted" if self.update else ""))
            for line in sorted(self.unused):
                terminalreporter.write_line(line)
            if not self.update:
                terminalreporter.write_line("Delete it: make wording")


_PLUGIN: Plugin | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-wording", action="store_true", help="rewrite tests/wording for the tests that run")


def pytest_configure(config: pytest.Config) -> None:
    global _PLUGIN
    _PLUGIN = Plugin(config)
    config.pluginmanager.register(_PLUGIN)
