"""Take the steps of a walk: click, fill in, wait for a text. Runs in `.venv-browser`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import reduce

from playwright.sync_api import Frame, Locator, Page, Route


def take_steps(
    page: Page, frame: Frame, steps: Sequence[Sequence[str]], log_in: Callable[[Page], None]
) -> tuple[int, float]:
    """Take steps in a frame. Returns the number of clicks and the seconds they took.

    Args:
        steps: `[verb, argument, ...]`. `click` a button or link by its name, `fill` the field of a label with a text,
            `see` one of some texts, `picture` writes a screenshot to a file. `refuse` answers requests to URLs that
            match a glob with a status, in place of the server, and `no network` cuts their connection. `log out`
            ends the login and loads the page again, `log in` fills in the form that this leads to.
        log_in: fills in the login form of a page.
    """
    begun, clicks = time.monotonic(), 0
    for verb, *arguments in steps:
        argument, *more = arguments or [""]
        if verb == "click":
            clicks += 1
            named = frame.get_by_role("button", name=argument).or_(frame.get_by_role("link", name=argument))
            named.first.click()
        elif verb == "fill":
            frame.get_by_label(argument).fill(more[0])
        elif verb == "see":
            texts = [frame.get_by_text(text) for text in (argument, *more)]
            reduce(Locator.or_, texts).first.wait_for(state="visible")
        elif verb == "refuse":
            page.route(argument, _refusal(int(more[0])))
        elif verb == "log out":
            page.context.clear_cookies()
            page.reload()
        elif verb == "log in":
            log_in(page)
        elif verb == "no network":
            page.route(argument, lambda route: route.abort())
        elif verb == "picture":
            page.screenshot(path=argument, full_page=True)
        else:
            raise ValueError(f"no step is called {verb}")
    return clicks, time.monotonic() - begun


def _refusal(status: int) -> Callable[[Route], None]:
    return lambda route: route.fulfill(status=status, json={"detail": "why"})
