"""Builds `.venv-browser`, what drives a Chromium, and finds a Chromium: `python -m scripts.browser`.

A Chromium of the machine is taken; where there is none, Playwright downloads its own. Where it cannot, there is no
browser, and the reason is kept: the last line of `make test-all` says it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from scripts.bootstrap import ROOT, Environment, build, check_disk, clean_environ, say

BROWSER = Environment(".venv-browser", "requirements-browser.txt", False, 400_000_000, "what drives a browser, 150 MB")
VARIABLE = "MILEPOST_CHROMIUM"
"""Names the program of a Chromium to take instead of the one that is found."""

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
UNREACHED = ROOT / ".milepost" / "browser-unreached.txt"
_ITS_OWN = "from playwright.sync_api import sync_playwright as p\nwith p() as it: print(it.chromium.executable_path)"
_ANSWER_S = 600


def build_browser() -> None:
    """Build what is missing; keep the reason where there is no Chromium and none can be fetched."""
    UNREACHED.unlink(missing_ok=True)
    if not BROWSER.is_built():
        check_disk([BROWSER])
        build(BROWSER)
    if chromium() is not None:
        return
    say(f"{BROWSER.folder}: this machine has no Chromium ({', '.join(NAMES)}); Playwright fetches its own")
    reason = _why_not_fetched()
    if reason is not None:
        UNREACHED.parent.mkdir(exist_ok=True)
        UNREACHED.write_text(f"{reason}\n", encoding="utf-8")
        say(f"no Chromium: Playwright's download gives no answer ({reason}); install one, or name it by {VARIABLE}")


def chromium() -> Path | None:
    """Return the program of a Chromium: the one that is named, one of the machine, or Playwright's own; None: none."""
    named = os.environ.get(VARIABLE)
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return Path(found)
    its_own = _asked(_ITS_OWN) if BROWSER.is_built() else None
    return Path(its_own) if its_own and Path(its_own).exists() else None


def unreached() -> str | None:
    """Return why the last attempt found no Chromium; None where it did, or there was none."""
    return UNREACHED.read_text(encoding="utf-8").strip() if UNREACHED.exists() else None


def closing_words() -> str | None:
    """Return what `make test-all` says last of the browser; None: it ran."""
    reason = unreached()
    return None if reason is None else f"the pages in a browser DID NOT RUN, there is no Chromium: {reason}"


def _why_not_fetched() -> str | None:
    """Return, in a line, why Playwright could not fetch a Chromium; None: it did."""
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


def _asked(code: str) -> str:
    done = subprocess.run(
        [str(BROWSER.python), "-c", code], env=clean_environ(), capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
