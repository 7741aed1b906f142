"""`python -m scripts.browser`: build the environment that drives a browser, and find a browser."""

from __future__ import annotations

from scripts.browser.environment import build_browser

if __name__ == "__main__":
    build_browser()
