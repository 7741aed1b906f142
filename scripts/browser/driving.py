"""The process that drives a Chromium. Reads a tour as JSON and writes its report as JSON. Runs in `.venv-browser`."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Frame, Page, Request, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from scripts.browser.visits import Report, Seen, Tour, Violation, Walked
from scripts.browser.walking import take_steps

HEIGHT = 900
PATIENCE_MS = 60_000
_AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
_RUN = "() => axe.run(document, {resultTypes: ['violations']})"
_WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
_DARK = "() => matchMedia('(prefers-color-scheme: dark)').matches"
_CUT = """() => [...document.querySelectorAll('.wide, .picture')].filter(one => one.scrollWidth > one.clientWidth)
  .map(one => one.getAttribute('aria-label') || one.className)"""
_LINKS = """() => [...document.querySelectorAll('a[href]')]
  .map(one => new URL(one.getAttribute('href'), document.baseURI).href)"""
_FIELDS = """() => Object.fromEntries(
  [...document.querySelectorAll('input[name], textarea[name], select[name]')].map(one => [one.name, one.value]))"""
_THEME = "theme"
"""Key in the browser's local storage of the theme that a user has chosen in Airflow."""


class Tourist:
    """A browser that is logged in at one Airflow."""

    def __init__(self, browser: Browser, tour: Tour) -> None:
        self._browser, self._tour = browser, tour
        self._state: Any = None

    def log_in(self) -> str:
        """Fill in the login form. Returns the title of the page after the login."""
        with self._window("light", 1280) as (_, page):
            page.goto(self._tour.url)
            self._fill_in_login(page)
            page.wait_for_load_state("networkidle")
            self._state = page.context.storage_state()
            self._missing = tuple(one for one in self._tour.entries if not self._has_entry(page, one))
            return page.title()

    def _fill_in_login(self, page: Page) -> None:
        page.fill("input[name=username]", self._tour.login)
        page.fill("input[name=password]", self._tour.password)
        page.click("button[type=submit]")
        page.wait_for_url(lambda url: "login" not in urlsplit(url).path)

    @property
    def missing(self) -> tuple[str, ...]:
        return self._missing

    def pages(self) -> Iterator[Seen]:
        """Yield every page that links lead to, in each theme and width."""
        themes, widths = self._tour.themes, self._tour.widths
        with self._window(themes[0], widths[0]) as (_, page):
            found = self._found(page)
        for theme in themes:
            for width in widths:
                with self._window(theme, width) as (complaints, page):
                    for address in found:
                        yield self._seen(page, address, theme, width, complaints)

    def framed(self) -> Iterator[Seen]:
        """Yield our pages in frames of Airflow's pages, in each theme that a user can choose there.

        Errors of the Airflow page around the frame are not reported.
        """
        width = self._tour.widths[0]
        for theme in self._tour.themes:
            # The screen has no theme: otherwise the frame would have that theme, not the chosen one.
            with self._window("null", width, chosen=theme) as (_, page):
                for address in self._tour.framed:
                    page.goto(self._tour.url + address)
                    frame = self._frame(page)
                    frame.wait_for_load_state()
                    yield Seen(urlsplit(frame.url).path, theme, width, 200, *_appearance(frame), (), ())

    def walks(self) -> Iterator[Walked]:
        """Take each walk in its own window. A walk that begins on a page of Airflow continues in its frame."""
        for name, (theme, address, steps) in self._tour.walks.items():
            is_ours = address.startswith(f"{self._tour.prefix}/")
            with self._window(theme, 1280, chosen=theme) as (complaints, page):
                page.goto(self._tour.url + address)
                where = page.main_frame if is_ours else self._frame(page)
                where.wait_for_load_state()
                clicks, seconds = take_steps(page, where, steps, self._fill_in_login)
                yield Walked(name, clicks, seconds, _of(complaints) if is_ours else ())

    def take_pictures(self) -> None:
        """Write the screenshots of the tour."""
        theme = self._tour.picture_theme
        with self._window(theme, 1280, chosen=theme) as (_, page):
            for file, address in self._tour.pictures.items():
                page.goto(self._tour.url + address)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=file)

    @contextmanager
    def _window(self, theme: str, width: int, *, chosen: str | None = None) -> Iterator[tuple[list[str], Page]]:
        """Open a window on a screen with a theme. chosen: the theme that a user has chosen in Airflow."""
        context: BrowserContext = self._browser.new_context(
            color_scheme=theme,  # type: ignore[arg-type]
            viewport={"width": width, "height": HEIGHT},
            storage_state=self._state,
        )
        context.set_default_timeout(PATIENCE_MS)
        if chosen is not None:
            context.add_init_script(f"localStorage.setItem({json.dumps(_THEME)}, {json.dumps(chosen)})")
        page, complaints = context.new_page(), list[str]()
        page.on("pageerror", lambda error: complaints.append(f"script: {error}"))
        page.on(
            "console",
            lambda message: complaints.append(f"console: {message.text}") if message.type == "error" else None,
        )
        page.on("requestfailed", lambda request: complaints.extend(_failure_of(request)))
        try:
            yield complaints, page
        finally:
            context.close()

    def _found(self, page: Page) -> list[str]:
        """Return the addresses of our pages that links lead to, at most `most` per shape."""
        if not self._tour.follow:
            return list(self._tour.roots)
        waiting, found, shapes = list(self._tour.roots), dict[str, None](), Counter[str]()
        while waiting:
            address = waiting.pop(0)
            if address in found or shapes[shape_of(address)] >= self._tour.most:
                continue
            shapes[shape_of(address)] += 1
            found[address] = None
            page.goto(self._tour.url + address)
            waiting += self._ours(page.evaluate(_LINKS))
        return list(found)

    def _ours(self, links: list[str]) -> list[str]:
        parts = [urlsplit(link) for link in links if link.startswith(self._tour.url)]
        return [
            one.path + (f"?{one.query}" if one.query else "")
            for one in parts
            if one.path.startswith(f"{self._tour.prefix}/")
            and not one.path.startswith(f"{self._tour.prefix}/static/")
            and not one.path.endswith(".json")
        ]

    def _seen(self, page: Page, address: str, theme: str, width: int, complaints: list[str]) -> Seen:
        complaints.clear()
        answer = page.goto(self._tour.url + address)
        page.wait_for_load_state("load")
        status = answer.status if answer is not None else 0
        appearance = _appearance(page.main_frame)
        page.evaluate(_AXE)
        violations = tuple(map(_violation, page.evaluate(_RUN)["violations"]))
        fields: dict[str, str] = page.evaluate(_FIELDS)
        return Seen(address, theme, width, status, *appearance, _of(complaints), violations, fields)

    def _frame(self, page: Page) -> Frame:
        element = page.wait_for_selector("iframe")
        frame = element.content_frame() if element is not None else None
        assert frame is not None, page.url
        frame.wait_for_url(lambda url: self._tour.prefix in url)
        return frame

    @staticmethod
    def _has_entry(page: Page, name: str) -> bool:
        """Return whether a link or button with this name appears. Airflow loads plugins last."""
        entry = page.get_by_role("link", name=name).or_(page.get_by_role("button", name=name)).first
        try:
            entry.wait_for(state="attached", timeout=PATIENCE_MS)
        except PlaywrightTimeout:
            return False
        return True


def shape_of(address: str) -> str:
    """Return an address without the parts that differ between pages of one kind: numbers and query values."""
    parts = urlsplit(address)
    names = sorted(part.partition("=")[0] for part in parts.query.split("&") if part)
    path = re.sub(r"(?<=/runbook)/[^/]+", "/page", re.sub(r"/\d+(?=/|$)", "/0", parts.path))
    return f"{path}?{'&'.join(names)}"


def _appearance(frame: Frame) -> tuple[str, bool, int, tuple[str, ...]]:
    heading = " ".join((frame.text_content("h1") or "").split())
    return heading, bool(frame.evaluate(_DARK)), int(frame.evaluate(_WIDER)), tuple(frame.evaluate(_CUT))


def _failure_of(request: Request) -> Iterator[str]:
    """Yield the complaint about a failed request. Leaving a page aborts its requests, which is no failure."""
    if request.failure != "net::ERR_ABORTED":
        yield f"request: {request.url}: {request.failure}"


def _of(complaints: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(complaints))


def _violation(found: dict[str, Any]) -> Violation:
    nodes = tuple(
        f"{node['target']} {node['html'][:160]} {' '.join(node.get('failureSummary', '').split())[:240]}"
        for node in found["nodes"][:5]
    )
    return Violation(found["id"], str(found["impact"]), nodes)


def main() -> None:
    values = json.loads(sys.stdin.read())
    tour = Tour(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
    with sync_playwright() as playwright:
        # Containers have no user namespace for Chromium's sandbox. It only opens pages of our own server.
        browser = playwright.chromium.launch(executable_path=tour.chromium, args=["--no-sandbox"])
        tourist = Tourist(browser, tour)
        logged_in = tourist.log_in()
        pages, framed = (tuple(tourist.pages()), tuple(tourist.framed())) if not tour.pictures else ((), ())
        walks = tuple(tourist.walks())
        tourist.take_pictures()
        browser.close()
    json.dump(asdict(Report(logged_in, tourist.missing, pages, framed, walks)), sys.stdout)


if __name__ == "__main__":
    main()
