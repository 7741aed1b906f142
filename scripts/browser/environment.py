"""Build `.venv-browser`, which drives a Chromium, and find a Chromium: `python -m scripts.browser`.

An installed Chromium is used. If there is none, Playwright downloads its own. If that fails, the last line of
`make test-all` reports the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from scripts.bootstrap import ROOT, Environment, build, check_disk, clean_environ, say
from scripts.unreached import Unreached

BROWSER = Environment(".venv-browser", "requirements-browser.txt", False, 400_000_000, "what drives a browser, 150 MB")
VARIABLE = "MILEPOST_CHROMIUM"
"""Environment variable with the path of a Chromium to use instead of an installed one."""

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
UNREACHED = Unreached(ROOT / ".milepost" / "browser-unreached.txt", "the pages in a browser", "there is no Chromium")
_ITS_OWN = "from playwright.sync_api import sync_playwright as p\nwith p() as it: print(it.chromium.executable_path)"
_ANSWER_S = 600


def build_browser() -> None:
    """Build the browser's environment. If no Chromium is found or can be downloaded, store the reason."""
    UNREACHED.clear()
    if not BROWSER.is_built():
        check_disk([BROWSER])
        build(BROWSER)
    if chromium() is not None:
        return
    say(f"{BROWSER.folder}: this machine has no Chromium ({', '.join(NAMES)}); Playwright fetches its own")
    reason = _why_not_fetched()
    if reason is not None:
        UNREACHED.store(reason)
        say(f"no Chromium: Playwright's download gives no answer ({reason}); install one, or name it by {VARIABLE}")


def chromium() -> Path | None:
    """Return the path of a Chromium: from the variable, an installed one, or Playwright's; None: there is none."""
    named = os.environ.get(VARIABLE)
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return Path(found)
    its_own = _printed_by(_ITS_OWN) if BROWSER.is_built() else None
    return Path(its_own) if its_own and Path(its_own).exists() else None


def _why_not_fetched() -> str | None:
    """Return in one line why Playwright could not fetch a Chromium; None: it did."""
    command = [str(BROWSER.python), "-m", "playwright", "install", "chromium-headless-shell"]
    try:
        done = subprocess.run(
            command, env=clean_environ(), capture_output=True, text=True, check=False, timeout=_ANSWER_S
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_ANSWER_S} s"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    return next((line for line in lines if "rror" in line), lines[-1] if lines else f"exit code {done.returncode}")


def _printed_by(code: str) -> str:
    done = subprocess.run(
        [str(BROWSER.python), "-c", code], env=clean_environ(), capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
