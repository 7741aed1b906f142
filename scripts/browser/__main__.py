"""`python -m scripts.browser` builds what drives a browser, and looks for the browser."""

from __future__ import annotations

from scripts.browser.environment import build_browser

if __name__ == "__main__":
    build_browser()
